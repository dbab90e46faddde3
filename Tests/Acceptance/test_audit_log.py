"""The audit log of a running server: its keys, its start and end, rotation, and the command that verifies it."""
import gzip
import json
import os
import re
import signal
import socket
import subprocess
from pathlib import Path

import pytest

from access import api_request, make_key
from administration import ADMINISTRATION, metrics
from http_client import exchange
from server_process import binary, run, until
from store_files import audit_events, make_audit_keys
from test_durability import fill

HEADER = {"sequence", "period", "time", "action", "outcome", "actor", "mac"}


def command(*arguments, stdin=""):
    return run(*map(str, arguments), input=stdin, seconds=60)


@pytest.fixture
def audited(serve, tmp_path):
    """A function that starts a server with an audit log, whose first key is in the test's folder."""
    def start(settings=None, **options):
        data, log, key = tmp_path / "audited", tmp_path / "audit.ndjson", tmp_path / "first.key"
        settings = {"audit": {"file": str(log)} | options, **ADMINISTRATION} | (settings or {})
        if not key.exists():
            make_audit_keys(key, data)
        return serve(settings, data=data), log, key
    return start


def figures(server):
    """The metrics of the log, without the beginning of their names."""
    return {name.removeprefix("token_cache_audit_"): int(value) for name, value in metrics(server).items() if "_audit_" in name}


def test_a_log_is_begun_continued_and_verified(audited, tmp_path):
    server, log, key = audited()
    assert key.stat().st_mode & 0o777 == 0o600
    first = figures(server)
    assert first["sequence"] == 1 and first["failing"] == 0
    server.stop()
    server, log, key = audited()
    head = figures(server)
    server.kill()
    server, log, key = audited()
    server.stop()
    lines = audit_events(log)
    assert [line["action"] for line in lines] == [
        "open_log", "drain", "close_log", "open_log", "open_log", "drain", "close_log"]
    assert [line["sequence"] for line in lines] == [1, 2, 3, 4, 5, 6, 7]
    assert all(HEADER <= line.keys() for line in lines)
    assert {line["actor"] for line in lines if line["action"] != "drain"} == {"server"}
    found = command("audit", "verify", log, "--key", key, "--head", f"{head['sequence']}:{head['head']}")
    assert found.returncode == 0 and "lines 1 to 7 are as they were written" in found.stdout
    found = command("audit", "verify", "-", "--key", key, "--json", stdin=log.read_text())
    assert json.loads(found.stdout)["sound"] is True
    reader, writer = socket.socketpair()
    with reader, writer:
        writer.sendall(log.read_bytes())
        writer.shutdown(socket.SHUT_WR)
        found = subprocess.run([binary(), "audit", "verify", "-", "--key", key], stdin=reader, capture_output=True, timeout=30)
    assert found.returncode == 0, found

    text = log.read_text()
    log.write_text(text.replace('"sequence":4,', '"sequence":4,', 1).replace("unaltered", "new_chain", 1))
    found = command("audit", "verify", log, "--key", key)
    assert found.returncode == 1 and f"{log}, line 4 (sequence number 4): this line was changed" in found.stdout
    log.write_text("".join(text.splitlines(True)[:3]))
    assert command("audit", "verify", log, "--key", key).returncode == 0
    found = command("audit", "verify", log, "--key", key, "--head", f"{head['sequence']}:{head['head']}")
    assert found.returncode == 1 and "the log ends here, but it had a line 4" in found.stdout
    os.mkfifo(tmp_path / "pipe")
    for file, reason in ((tmp_path / "nothing", "No such file"), (tmp_path / "pipe", "no regular file")):
        refused = command("audit", "verify", file, "--key", key)
        assert refused.returncode == 2 and reason in refused.stderr, refused


def test_a_rotation_continues_the_chain(audited, tmp_path):
    server, log, key = audited()
    log.rename(f"{log}.1")
    server.send_signal(signal.SIGHUP)
    until(lambda: log.exists() and [line["action"] for line in audit_events(log)] == ["continue_log", "reload"])
    server.stop()
    assert [line["action"] for line in audit_events(log)] == ["continue_log", "reload", "drain", "close_log"]
    assert command("audit", "verify", f"{log}.1", log, "--key", key).returncode == 0
    assert command("audit", "verify", log, "--key", key).returncode == 0
    swapped = command("audit", "verify", log, f"{log}.1", "--key", key)
    assert swapped.returncode == 1 and "or the files were not given with the earliest first" in swapped.stdout
    # As logrotate does it.
    packed = tmp_path / "audit.gz"
    packed.write_bytes(gzip.compress(Path(f"{log}.1").read_bytes()))
    found = command("audit", "verify", packed, log, "--key", key)
    assert found.returncode == 1 and "is compressed" in found.stdout, found


def test_a_rotation_for_which_there_was_no_room_is_made_up_for(audited, small_disk):
    log = small_disk / "audit.ndjson"
    server, _, key = audited(file=str(log))
    fill(small_disk / "filler")
    log.rename(f"{log}.1")
    server.send_signal(signal.SIGHUP)
    until(lambda: "the audit log is not continued in a new file" in server.log())
    (small_disk / "filler").unlink()
    until(lambda: log.exists() and log.stat().st_size > 0)
    server.stop()
    assert command("audit", "verify", f"{log}.1", log, "--key", key).returncode == 0


def test_a_removed_log_gives_its_room_back_while_the_disk_is_full(audited, small_disk, tmp_path):
    log = small_disk / "audit.ndjson"
    secret = make_key(tmp_path / "api-keys", "app")
    server, _, key = audited({"access": {"api": {"keys_file": str(tmp_path / "api-keys")}}}, file=str(log), events="all")
    fill(small_disk / "filler")

    def is_failing():
        exchange(server.address, api_request(secret, "GET", "/v1/users/anna/token"))
        return figures(server)["failing"]

    # Lines fit until the last page of the file is full too.
    until(is_failing, pause=0)
    log.unlink()
    until(lambda: not is_failing())
    server.stop()
    assert [line["action"] for line in audit_events(log)][:2] == ["continue_log", "resume_log"]
    assert command("audit", "verify", log, "--key", key).returncode == 0


def test_keys_are_replaced_only_when_that_is_asked_for(tmp_path):
    data, key = tmp_path / "data", tmp_path / "first.key"
    make_audit_keys(key, data)
    again = command("audit", "key", tmp_path / "second.key", "--data-directory", data)
    assert again.returncode == 1 and "run the command again with --replace" in again.stderr
    same = command("audit", "key", key, "--data-directory", tmp_path / "other")
    assert same.returncode == 1 and "name another file" in same.stderr
    assert not (tmp_path / "second.key").exists()
    # The first key would be lost at the running key's place.
    third = tmp_path / "third"
    for name in ("audit-key", "audit-key.head"):
        same = command("audit", "key", third / name, "--data-directory", third)
        assert same.returncode == 1 and "name another file" in same.stderr
        assert not [file for file in third.iterdir() if file.name.startswith("audit-key")]
    # As in another folder than the server's.
    elsewhere = command("audit", "key", tmp_path / "second.key", "--data-directory", third, "--replace")
    assert elsewhere.returncode == 1 and "there is no running key" in elsewhere.stderr
    assert not (tmp_path / "second.key").exists()


def test_a_new_key_begins_a_new_log(audited, tmp_path):
    server, log, key = audited()
    data = tmp_path / "audited"
    replace = ["audit", "key", tmp_path / "second.key", "--data-directory", data, "--replace"]
    assert command(*replace).returncode == 1
    # The running server would write its key back, even if the file is gone.
    (data / "audit-key").rename(tmp_path / "lost")
    assert command(*replace).returncode == 1
    (tmp_path / "lost").rename(data / "audit-key")
    server.stop()
    # Only the running key could continue the log.
    running_key = (data / "audit-key").read_bytes()
    named = {"environment": {"TOKEN_CACHE_AUDIT_FILE": str(log)}}
    assert "and its earlier files away first" in run(*replace, **named).stderr
    assert (data / "audit-key").read_bytes() == running_key
    log.rename(f"{log}.old")
    made = run(*replace, **named)
    assert made.returncode == 0, made.stderr
    server, log, _ = audited()
    server.stop()
    assert [line["sequence"] for line in audit_events(log)] == [1, 2, 3]
    assert command("audit", "verify", log, "--key", tmp_path / "second.key").returncode == 0
    assert command("audit", "verify", log, "--key", key).returncode == 1
    assert command("audit", "verify", f"{log}.old", "--key", key).returncode == 0


def test_a_pseudonym_can_be_looked_up(audited):
    _, _, key = audited()
    user = command("audit", "pseudonym", "alice", "--key", key).stdout
    assert re.fullmatch(r"[\w-]{22}\n", user)
    assert command("audit", "pseudonym", "-", "--key", key, stdin="alice\n").stdout == user
    session = command("audit", "pseudonym", "--session", "AAAAAAAAAAAAAAAAAAAAAA", "--key", key).stdout
    assert re.fullmatch(r"[\w-]{22}\n", session) and session != user
    assert command("audit", "pseudonym", "--session", "alice", "--key", key).returncode == 1
