"""Tries a change: runs tests with it until one fails."""
import os
import resource
import signal
import subprocess
import tempfile
import time

from package import BUILD, COPY, SCRATCH

TESTS = BUILD / "debug" / "token-cachePackageTests.xctest"
PROGRAM = BUILD / "debug" / "token-cache"
LOGS = SCRATCH / "logs"
# In seconds. A hung test is one that takes several times as long as without a change, and at least as long as this.
LEAST_LIMIT = 60
# In bytes: a loop without an end must not take all memory of the machine.
MEMORY = 16 << 30
# The acceptance tests about what each module does, the quickest first.
ACCEPTANCE = {
    "HTTP": ["contract_vectors", "answers", "refusals", "json_bodies", "expect_continue", "request_ids",
             "pipelining_and_splitting", "keep_alive", "limits"],
    "TokenService": ["contract_vectors", "answers", "json_bodies", "access_versions", "access_keys", "access_api",
                     "access_sessions", "access_limits", "failure_limit", "access_answers"],
    "TokenStore": ["durability", "key_files", "store_commands", "sealing", "admin_keys", "admin_key_changes", "admin_tokens",
                   "transfer", "access_erasure", "backup_restore"],
    "SQLiteStore": ["durability", "store_commands", "damaged_log", "waiting_writes", "vanishing_store", "crash_ledger",
                    "transfer", "access_erasure", "sealing", "backup_restore"],
}
STAGES = ["module", "all modules", "acceptance"]


def command(stage, module):
    if stage == "acceptance":
        files = [f"Tests/Acceptance/test_{name}.py" for name in ACCEPTANCE[module]]
        return ["/usr/bin/python3", "-m", "pytest", "-p", "no:cacheprovider", "-q", "-x", *files]
    others = ["--filter", f"^{module}Tests\\."] if stage == "module" else [
        "--skip", f"^({module}|PostgresStore|TokenCacheClient)Tests\\."]
    return [TESTS, "--testing-library", "swift-testing", *others]


def end(process):
    """Ends a test run and what it has started, after it had time to do so itself."""
    for sent in (signal.SIGINT, signal.SIGKILL):
        try:
            os.killpg(process.pid, sent)
            process.wait(20)
        except (ProcessLookupError, subprocess.TimeoutExpired):
            pass


def attempt(number, stage, module, usual):
    """Runs the tests of a stage with a change; returns what has noticed it, or None, and how many seconds that took.

    - number: Of the change; 0 for none.
    - usual: How long the tests take without a change; None if that is to be measured.
    """
    LOGS.mkdir(exist_ok=True)
    log = LOGS / f"{number}-{module}-{stage.replace(' ', '-')}.txt"
    limit = max(LEAST_LIMIT, 4 * usual) if usual else 3_600
    noticed, began = None, time.monotonic()
    # A folder of their own, because tests that are ended leave their files behind.
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as folder, log.open("w") as output:
        # Some tests run servers as other users.
        os.chmod(folder, 0o755)
        environment = {"NO_COLOR": "1", "ACTIVE_MUTANT": str(number), "TOKEN_CACHE_BINARY": str(PROGRAM), "TMPDIR": folder}
        process = subprocess.Popen(
            ["nice", "-n", "10", *command(stage, module)], cwd=COPY, env=os.environ | environment, stdin=subprocess.DEVNULL,
            stdout=output, stderr=subprocess.STDOUT, start_new_session=True,
            preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_AS, (MEMORY, MEMORY)))
        try:
            while process.poll() is None and noticed is None:
                time.sleep(0.1)
                noticed = failure(log) or (f"no end after {limit:.0f} s" if time.monotonic() - began > limit else None)
        finally:
            end(process)
    if noticed is None and process.returncode:
        noticed = failure(log) or f"ended with status {process.returncode}"
    return noticed, time.monotonic() - began


def failure(log):
    """The first line of a log that reports a failed test."""
    for line in log.read_text(encoding="utf-8", errors="replace").splitlines():
        if line.startswith(("✘", "FAILED", "ERROR")):
            return line[:200]
    return None
