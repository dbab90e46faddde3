"""The command copy between data folders: what it takes along, keeps, removes and refuses. See also `test_postgres_copy.py`."""
import json
import re
import shutil
import signal
import subprocess
import threading

from access import bearer, fetch, session_settings, store, API
from contract import STORED, found
from http_client import Connection, exchange, get, post
from server_process import binary, clean_environment, run, until
from store_files import printed

TOKENS = 1_200


def copy(source, target, *flags, environment=None):
    done = run("copy", "--from", str(source), "--to", str(target), *flags, environment=environment, seconds=120)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def counts(source, target, *flags, environment=None):
    return json.loads(copy(source, target, "--json", *flags, environment=environment))


def refusal(source, target, *flags, environment=None):
    done = run("copy", "--from", str(source), "--to", str(target), *flags, environment=environment)
    assert (done.returncode, done.stdout) == (1, ""), done
    return done.stderr


def folder_beside(source, tmp_path, name="target"):
    """An empty data folder with the key ring of another one."""
    target = tmp_path / name
    target.mkdir(mode=0o700)
    shutil.copy(source / "keys", target / "keys")
    return target


def fill(server, numbers, text="info"):
    with Connection(server.address) as connection:
        for number in numbers:
            assert connection.exchange(post(f"id{number}", f"{text} {number}")).body == STORED


def test_tokens_sessions_and_versions_are_in_the_copy_while_the_server_goes_on(serve, tmp_path):
    access, key = session_settings(tmp_path / "keys")
    server = serve(access)
    api = API(server, key)
    session = api.session("anna")
    assert exchange(server.address, store("of anna", bearer(session))).body == STORED
    tagged = exchange(server.address, fetch(bearer(session))).headers["etag"]
    for number in range(TOKENS):
        assert api.put(f"user{number}", f"info {number}").status == 200
    target = folder_beside(server.data, tmp_path)
    text = copy(server.data, target)
    assert f"{TOKENS + 1:,} tokens copied\n1 session copied\n" in text and text.endswith("verified: everything is in the target\n")
    assert "a server uses the source" in text
    # A second time there is nothing to do.
    found_counts = counts(server.data, target)
    assert found_counts["tokens"] | {"same": 0} == dict.fromkeys(found_counts["tokens"], 0)
    assert (found_counts["tokens"]["same"], found_counts["sessions"]["same"]) == (TOKENS + 1, 1)
    assert server.stop() == 0
    copied = serve(access, data=target)
    response = exchange(copied.address, fetch(bearer(session)))
    assert (response.body, response.headers["etag"]) == (found("of anna"), tagged)
    assert API(copied, key).get("user7").status == 200
    # Its next version is a later one.
    assert exchange(copied.address, store("again", bearer(session), f"If-Match: {tagged}")).body == STORED
    assert exchange(copied.address, fetch(bearer(session))).headers["etag"] != tagged
    assert "the store is sound" in printed(target, "verify")


def test_a_second_copy_takes_what_has_changed_and_removes_what_is_gone_if_it_is_told_to(serve, tmp_path):
    server = serve()
    fill(server, range(20))
    printed(server.data, "access", "sessions", "add", "anna")
    printed(server.data, "access", "sessions", "add", "berta")
    target = folder_beside(server.data, tmp_path)
    copy(server.data, target)
    fill(server, [3, 20], "changed")
    printed(server.data, "delete", "id4", "id5")
    printed(server.data, "erase", "berta")
    found_counts = counts(server.data, target)
    assert (found_counts["tokens"]["copied"], found_counts["tokens"]["same"], found_counts["tokens"]["others"]) == (2, 17, 2)
    assert (found_counts["sessions"]["same"], found_counts["sessions"]["others"]) == (1, 1)
    assert printed(target, "get", "id4") == "info 4\n"
    text = copy(server.data, target, "--remove-others")
    assert "2 tokens and 1 session removed, which were in the target only" in text
    assert printed(target, "get", "id3") == "changed 3\n" and printed(target, "get", "id20") == "changed 20\n"
    assert '"tokens":19' in printed(target, "stats", "--json")
    assert printed(target, "access", "sessions", "list", "berta") == "the user has no session\n"


def test_what_is_newer_in_the_target_stays(serve, tmp_path):
    server = serve()
    fill(server, range(3))
    assert server.stop() == 0
    target = folder_beside(server.data, tmp_path)
    copy(server.data, target)
    until(lambda: "written 0s ago" not in printed(target, "list"))
    printed(target, "put", "id1", "newer")
    assert counts(server.data, target)["tokens"]["newer"] == 1
    assert printed(target, "get", "id1") == "newer\n"
    # And back.
    assert counts(target, server.data)["tokens"]["copied"] == 1
    assert printed(server.data, "get", "id1") == "newer\n"


def test_a_copy_that_is_killed_goes_on_where_it_was(serve, tmp_path):
    server = serve()
    fill(server, range(TOKENS))
    target = folder_beside(server.data, tmp_path)
    command = [binary(), "copy", "--from", str(server.data), "--to", str(target)]
    for _ in range(3):
        process = subprocess.Popen(
            command, env=clean_environment(), stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, stdin=subprocess.DEVNULL)
        until(lambda: (target / "tokens.db-wal").exists() or process.poll() is not None, pause=0.001)
        process.send_signal(signal.SIGKILL)
        process.wait()
    tokens = counts(server.data, target)["tokens"]
    assert tokens["copied"] + tokens["same"] == TOKENS
    assert "the store is sound" in printed(target, "verify")


def test_writes_during_the_copy_are_in_the_copy_after_the_server_has_stopped(serve, tmp_path):
    server = serve()
    fill(server, range(TOKENS))
    target = folder_beside(server.data, tmp_path)
    rounds, ended = [], threading.Event()

    def write():
        while not ended.is_set():
            rounds.append(len(rounds))
            fill(server, range(0, TOKENS, 50), f"round {rounds[-1]}")

    writer = threading.Thread(target=write)
    writer.start()
    try:
        for _ in range(3):
            copy(server.data, target)
    finally:
        ended.set()
        writer.join()
    assert server.stop() == 0
    assert copy(server.data, target).endswith("verified: everything is in the target\n")
    copied = serve(data=target)
    with Connection(copied.address) as connection:
        for number in range(TOKENS):
            text = f"round {rounds[-1]} {number}" if number % 50 == 0 else f"info {number}"
            assert connection.exchange(get(f"id{number}")).body == found(text)


def test_expired_tokens_stay_behind(serve, tmp_path):
    server = serve()
    fill(server, range(3))
    target = folder_beside(server.data, tmp_path)
    until(lambda: all(re.match("written [3-9]s", line) for line in printed(server.data, "list").splitlines()[:-1]))
    # Only the command has this retention, not the server that uses the source.
    text = copy(server.data, target, environment={"TOKEN_CACHE_RETENTION_AFTER_WRITTEN": "1s"})
    assert "0 tokens copied, 3 expired and left out" in text


def test_rows_that_cannot_be_decrypted_stay_behind_and_the_status_says_so(serve, tmp_path):
    server = serve()
    fill(server, range(3))
    printed(server.data, "keys", "add")
    fill(server, range(3, 5))
    assert server.stop() == 0
    ring = (server.data / "keys").read_text()
    target = folder_beside(server.data, tmp_path)
    (server.data / "keys").write_text("".join(line + "\n" for line in ring.splitlines() if not line.startswith("1 ")))
    shutil.copy(server.data / "keys", target / "keys")
    done = run("copy", "--from", str(server.data), "--to", str(target))
    assert done.returncode == 1, done
    assert "2 tokens copied" in done.stdout and "3 rows of the source cannot be decrypted" in done.stdout
    assert done.stdout.endswith("not everything is in the target\n")


def test_refusals_say_what_to_do(serve, tmp_path):
    server = serve()
    fill(server, range(2))
    data = server.data
    assert "both are the same store" in refusal(data, f"{data}/.")
    assert "there is no store at" in refusal(tmp_path / "nowhere", data)
    assert "does not begin with postgresql://" not in refusal("postgresql://u:secret@db/tokens", data)
    assert "secret" not in refusal("postgresql://u:secret@db/tokens", data)
    # Another ring.
    other = tmp_path / "other"
    printed(other, "put", "a", "b")
    assert "the stores have different key rings" in refusal(data, other)
    # A server uses the target.
    target = folder_beside(data, tmp_path)
    used = serve(data=target)
    assert "a server uses the target" in refusal(data, target)
    assert used.stop() == 0
    # In the clear.
    clear = {"TOKEN_CACHE_SEALING_ENABLED": "off"}
    run("put", "a", "b", "--data-directory", str(tmp_path / "clear"), environment=clear)
    assert "sealing" in refusal(tmp_path / "clear", target)
    # Without a ring.
    bare = tmp_path / "bare"
    assert "there is no key ring" in refusal(tmp_path / "a", bare, "--data-directory", str(tmp_path / "b"))
    assert not bare.exists()
