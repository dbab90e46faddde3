"""Reads and changes the files of a data folder as an attacker could, reads audit logs, and runs commands on the folder."""
import contextlib
import json
import os
import resource
import sqlite3
import tarfile
from pathlib import Path

from contract import WRITE_FAILED
from server_process import run, until

# A backup in the clear, which version 1.0.0 has made with `sealing.enabled: off`.
FIXTURES = Path(__file__).parents[1] / "Fixtures"
CLEAR_STORE = FIXTURES / "clear-1.0.0.db"
# The data folder that a server of version 1.0.0 has left when it was killed: with all indexes, two keys and commits in the WAL.
# Its last rows are in that. Nothing in it expires before 2036 if sessions may be idle for ten years.
FORMER_STORE = FIXTURES / "store-1.0.0.tar.gz"
FORMER_SESSIONS = 3
FORMER_TOKENS = {f"id{number}": f"value{number}" + "x" * number * 50 for number in range(20)} | {
    f"id{number}": json.dumps({
        "com.facebook.sdk:TokenInformationExpirationDateKey": "2099-01-01T00:00:00+0000",
        "n": f"value{number}" + "x" * number * 50}, separators=(",", ":")) for number in range(0, 20, 4)
} | {f"id{number}": f"value{number}-again" for number in (1, 5, 9)}


def unpack_former_store(data):
    """Makes a data folder as the server of version 1.0.0 has left it."""
    with tarfile.open(FORMER_STORE) as archive:
        archive.extractall(data)


@contextlib.contextmanager
def failing_writes(server, unique_id="large"):
    """A store on which a token is refused, as its files may not become long enough; reads and short tokens go on."""
    unlimited = (resource.RLIM_INFINITY, resource.RLIM_INFINITY)
    resource.prlimit(server.process.pid, resource.RLIMIT_FSIZE, (256 << 10, resource.RLIM_INFINITY))
    try:
        until(lambda: server.post(unique_id, "x" * 500_000) == WRITE_FAILED)
        yield
    finally:
        resource.prlimit(server.process.pid, resource.RLIMIT_FSIZE, unlimited)


def has_commits(data):
    """Whether the WAL of a data folder has a frame; one that was emptied keeps its header and its length."""
    with open(data / "tokens.db-wal", "rb") as wal:
        # The number of its page, or the mark of a WAL that never had one.
        return wal.read(36)[32:] not in (b"", bytes(4), b"tokc")


def kill_with_log(server, write):
    """Kills a server whose WAL has what `write` stores: it is emptied a second after the last commit."""
    def is_killed():
        write()
        with server.paused():
            if has_commits(server.data):
                server.kill()
        return server.was_ended
    until(is_killed)


def damage_rows(server):
    """Overwrites all pages but the first ones of a server's database, once that has everything that was stored."""
    until(lambda: not has_commits(server.data))
    with open(server.data / "tokens.db", "r+b") as database:
        size = database.seek(0, os.SEEK_END)
        database.seek(8_192)
        database.write(b"\xff" * (size - 8_192))


@contextlib.contextmanager
def opened(data):
    """The open database of a stopped server; changes are committed at the end."""
    connection = sqlite3.connect(data / "tokens.db")
    try:
        with connection:
            yield connection
    finally:
        connection.close()


def audit_events(log):
    """The events of an audit log; a line that is still being written has no end."""
    return [json.loads(line) for line in log.read_text().split("\n")[:-1]]


def make_audit_keys(first, data):
    """Makes the first key of an audit log as a file, and the running key in a data folder."""
    done = run("audit", "key", str(first), "--data-directory", str(data))
    assert done.returncode == 0, done.stderr


def verify_audit(*files, key):
    """Checks that the lines of an audit log in these files are as they were written."""
    done = run("audit", "verify", *map(str, files), "--key", str(key))
    assert done.returncode == 0, done.stdout + done.stderr


def holds(data, *parts):
    """The names of the files in a data folder that contain one of these bytes."""
    return [
        file.name for file in data.iterdir()
        if file.is_file() and any(part in content for content in [file.read_bytes()] for part in parts)
    ]


def command(data, *arguments, **options):
    """Runs a command on a data folder."""
    return run(*arguments, "--data-directory", str(data), **options)


def printed(data, *arguments, **options):
    """The output of a command that must succeed."""
    done = command(data, *arguments, **options)
    assert done.returncode == 0, done.stderr
    return done.stdout


def refused(data, *arguments, **options):
    """The error message of a command that must fail."""
    done = command(data, *arguments, **options)
    assert done.returncode == 1, (done.stdout, done.stderr)
    assert done.stderr.startswith("token-cache: ") or "\ntoken-cache: " in done.stderr
    return done.stderr
