"""Sealed rows and their keys: what was changed is noticed, and keys are made, replaced and missed.

test_canaries looks for what the files of a stolen disk would reveal.
"""
import json
import os
import re
import shutil
import threading
import time

import pytest

from administration import ADMINISTRATION, metrics, status
from contract import NOT_FOUND, STORED, found
from doctor import of, problems, said
from http_client import Connection, get, post
from server_process import AS_NOBODY, NOBODY, beside, run, until
from store_files import command, opened, printed, refused

SECRET_ID = "somebody4711@example"
SECRET_INFO = "CAAsecret4711token"


def test_the_first_start_makes_a_key_ring_for_its_owner_alone_and_says_so_once(serve):
    server = serve()
    ring = server.data / "keys"
    assert ring.stat().st_mode & 0o777 == 0o600
    assert f"made the key ring {ring}: back it up" in server.log()
    content = ring.read_bytes()
    server.stop()
    again = serve(data=server.data)
    assert "made the key ring" not in again.log()
    assert ring.read_bytes() == content
    keys = [word for word in ring.read_text().split() if re.fullmatch("[0-9a-f]{64}", word)]
    assert len(keys) == 2 and all(key not in server.log() + again.log() for key in keys)


def test_a_credential_is_changed_where_it_comes_from_while_the_server_is_stopped(public_folder, tmp_path):
    """As config/README.md says: by root, on the service's store, with the source of the credential as key ring."""
    data, source = public_folder / "data", tmp_path / "token-cache.keys"
    of_service = AS_NOBODY if os.geteuid() == 0 else []
    if of_service:
        os.chown(public_folder, NOBODY, NOBODY)
    flags = ["--data-directory", str(data)]
    assert run("put", "me", "hello", *flags, prefix=of_service, folder="/").returncode == 0
    shutil.move(data / "keys", source)
    for command in (["keyring", "add"], ["keyring", "rotate"]):
        missed = run(*command, *flags)
        assert missed.returncode == 1 and "TOKEN_CACHE_SEALING_KEY_RING=" in missed.stderr, missed
    environment = {"TOKEN_CACHE_SEALING_KEY_RING": str(source)}
    for command in (["backup", f"{public_folder}/backup.db"], ["keyring", "add"], ["restore", f"{public_folder}/backup.db"],
                    ["keyring", "rotate"], ["verify"]):
        done = run(*command, *flags, environment=environment)
        assert done.returncode == 0, done
    assert source.stat().st_mode & 0o777 == 0o600 and not (data / "keys").exists()
    # The service can still open all files after root has run commands.
    assert len({path.stat().st_uid for path in data.iterdir()}) == 1
    credentials = public_folder / "credentials"
    credentials.mkdir(mode=0o755)
    (credentials / "token-cache.keys").write_bytes(source.read_bytes())
    server = run("get", "me", *flags, environment={"CREDENTIALS_DIRECTORY": str(credentials)}, prefix=of_service,
                 folder="/")
    assert server.stdout == "hello\n", server


def test_a_changed_row_is_an_error_of_its_own(serve):
    """Here it has the value of another row; SealingTests has changes of each byte."""
    server = serve()
    for number in range(3):
        assert server.post(f"{SECRET_ID}{number}", f"{SECRET_INFO}{number}") == STORED
    server.stop()
    ids = [json.loads(line)["id"] for line in printed(server.data, "list", "--show-ids", "--json").splitlines()]
    with opened(server.data) as database:
        # Tokens are listed in the order of their slots.
        slots = dict(zip(ids, (slot for [slot] in database.execute("SELECT slot FROM token ORDER BY slot")), strict=True))
        database.execute(
            "UPDATE token SET value = (SELECT value FROM token WHERE slot = ?) WHERE slot = ?",
            (slots[f"{SECRET_ID}1"], slots[f"{SECRET_ID}0"]))
    server = serve(ADMINISTRATION, data=server.data)
    for _ in range(50):
        assert server.get(f"{SECRET_ID}0") == NOT_FOUND
        assert server.get(f"{SECRET_ID}1") == found(f"{SECRET_INFO}1")
    # Logged once, not for each request, and without the id.
    told = [line for line in server.log().splitlines() if "the store failed" in line]
    assert 1 <= len(told) <= 2
    assert SECRET_ID not in server.log() and SECRET_INFO not in server.log()
    assert '"unreadable_reads":50' in printed(server.data, "stats", "--json")
    done = command(server.data, "verify")
    assert done.returncode == 1 and "1 time: a row" in done.stdout and "3 tokens checked" in done.stdout
    row = re.search("not opened: (.+)", done.stdout)[1]
    assert any("1 x a row does not open with key 1" in text and row in text for _, text in problems(of(server)))
    assert metrics(server)["token_cache_store_damaged_rows"] == status(server)["store"]["walk"]["damaged"] == 1
    # The id can be written again.
    assert server.post(f"{SECRET_ID}0", "new") == STORED
    assert server.get(f"{SECRET_ID}0") == found("new")
    began = int(time.time())
    assert "the store is sound" in printed(server.data, "verify")
    assert metrics(server)["token_cache_store_damaged_rows"] == 0
    assert metrics(server)["token_cache_last_walk_timestamp_seconds"] >= began
    walk = status(server)["store"]["walk"]
    assert walk["ended_at"] >= began and walk["damaged"] == 0 and 0 <= walk["progress"] <= 1
    assert ", with 3 tokens and 0 sessions" in said(of(server), "Store") and "last walk" in printed(server.data, "stats")


def test_keys_are_replaced_while_the_server_works(serve):
    server = serve()
    # Whose key changes only by the rotation, however often the others are written meanwhile.
    assert server.post("constant", "x") == STORED

    def work(name, over):
        with Connection(server.address) as connection:
            number = 0
            while not over.is_set():
                number += 1
                unique_id = f"{name}{number % 300}"
                assert connection.exchange(post(unique_id, f"value{number}")).body == STORED
                assert connection.exchange(get(unique_id)).body == found(f"value{number}")

    with beside(work, "ab"):
        # Six hundred commits, one after the other for each of the threads.
        until(lambda: "601 tokens" in printed(server.data, "list"), seconds=120)
        for number in range(1, 4):
            if number == 2:
                assert f"key {number + 1} seals from now on" in printed(server.data, "keyring", "add")
                assert "be sealed with key" in refused(server.data, "keyring", "retire", str(number))
            former = (server.data / "keys").read_bytes()
            told = printed(server.data, "keyring", "rotate")
            seals = "as it did before" if number == 2 else "from now on"
            assert re.search(f"key {number + 1} seals,? {seals}", told) and f"key {number} is retired" in told
            [kept] = server.data.glob(f"keys.retired-{number}-*")
            assert kept.stat().st_mode & 0o777 == 0o600
            # And the key that the rotation itself has added, as for the first and the third.
            assert kept.read_bytes().startswith(former)
    assert printed(server.data, "keyring", "list").split()[0] == "4"
    assert "the store is sound" in printed(server.data, "verify")
    server.stop()
    assert "the store is sound" in printed(server.data, "verify")


def test_a_rotation_that_is_cut_off_loses_nothing_and_can_go_on(serve):
    server = serve()
    with Connection(server.address) as connection:
        for start in range(0, 6_000, 100):
            connection.send(b"".join(post(f"id{number}", f"value{number}") for number in range(start, start + 100)))
            assert all(connection.receive().body == STORED for _ in range(100))
    for round_ in range(3):
        printed(server.data, "keyring", "add")
        rotating = threading.Thread(target=command, args=(server.data, "keyring", "rotate"))
        rotating.start()
        until(lambda: f'"newest_key":{round_ + 2}' in printed(server.data, "stats", "--json"))
        server.kill()
        rotating.join()
        server = serve(data=server.data)
        done = command(server.data, "verify")
        assert done.returncode == 0 and "6,000 tokens checked" in done.stdout, done.stdout
    printed(server.data, "keyring", "add")
    assert "6,000 tokens checked" in printed(server.data, "keyring", "rotate")
    assert printed(server.data, "keyring", "list").startswith("5  ")
    assert server.get("id5999") == found("value5999")


def test_a_key_ring_is_made_before_the_first_start_and_never_replaced(tmp_path):
    ring = tmp_path / "ring"
    assert run("keyring", "create", str(ring)).returncode == 0
    assert ring.stat().st_mode & 0o777 == 0o600
    content = ring.read_bytes()
    for path in ring, tmp_path / "link":
        if not path.exists():
            path.symlink_to(tmp_path / "nothing")
        done = run("keyring", "create", str(path))
        assert done.returncode == 1 and "is never replaced" in done.stderr
    assert ring.read_bytes() == content and not (tmp_path / "nothing").exists()
    environment = {"TOKEN_CACHE_SEALING_KEY_RING": str(ring)}
    printed(tmp_path / "data", "put", "me", "x", environment=environment)
    assert not (tmp_path / "data" / "keys").exists()
    assert printed(tmp_path / "data", "get", "me", environment=environment) == "x\n"
    assert "folder does not exist" in run("keyring", "create", str(tmp_path / "none" / "ring")).stderr


MISSING = ("Key ring", "tokens are sealed with key 1, which the key ring does not have")


@pytest.fixture(name="lacking")
def server_whose_ring_lacks_a_key(serve):
    """A stopped server whose tokens are sealed with key 1; its ring has only key 2, and `whole.ring` beside it has both."""
    server = serve(ADMINISTRATION)
    for number in range(50):
        assert server.post(f"id{number}", "hello") == STORED
    assert server.stop() == 0
    printed(server.data, "keyring", "add")
    shutil.copy(server.data / "keys", server.folder / "whole.ring")
    leave_out_the_first_key(server.data / "keys")
    return server


def leave_out_the_first_key(ring):
    text = ring.read_text()
    shorter = re.sub("^1 .*\n", "", text, flags=re.MULTILINE)
    assert shorter.count("\n") == text.count("\n") - 1
    ring.write_text(shorter)


def test_the_start_logs_an_error_and_the_status_warns(serve, lacking):
    server = serve(ADMINISTRATION, data=lacking.data)
    assert server.get("id7") == NOT_FOUND
    # The walk meets these rows within a moment.
    until(lambda: MISSING[1] in server.log())
    error, = [line for line in server.log().splitlines() if MISSING[1] in line]
    assert "error" in error and "sealing.key_ring" in error
    until(lambda: any(MISSING[1] in warning["text"] for warning in status(server)["warnings"]))
    # New tokens are served, so it is ready, as on PostgreSQL.
    assert status(server)["ready"] and server.post("id7", "again") == STORED
    assert MISSING in problems(of(server))
    assert "1  is missing, although tokens are sealed with it" in printed(server.data, "keyring", "list")
    assert server.stop() == 0
    assert problems(of(server)) == [MISSING]
    # With the ring of that time, everything is well again.
    shutil.copy(lacking.folder / "whole.ring", lacking.data / "keys")
    assert problems(of(lacking)) == []
    server = serve(ADMINISTRATION, data=lacking.data)
    assert "key 1" not in server.log() and problems(of(server)) == []
    assert not any("sealed with key" in warning["text"] for warning in status(server)["warnings"])


def test_a_key_ring_that_is_lost_or_replaced_while_the_server_runs_is_reported(serve, tmp_path):
    """While the keys are still in the server's memory: after its end, nobody could read what it has stored."""
    server = serve(ADMINISTRATION)
    assert server.post("me", "hello") == STORED
    ring, earlier = server.data / "keys", (server.data / "keys").read_bytes()
    printed(server.data, "keyring", "rotate")
    present = ring.read_bytes()
    assert run("keyring", "create", str(tmp_path / "other")).returncode == 0
    for content, fault in [
            (None, "its key ring .* is missing"), (earlier, "lacks key 2"),
            ((tmp_path / "other").read_bytes(), "is not the one that the store was sealed with")]:
        lines = len(server.log())
        ring.unlink()
        if content:
            ring.touch(mode=0o600)
            ring.write_bytes(content)
        pattern = f"error: the server still has the keys in memory, but after a restart nobody could read what it stores: .*{fault}"
        until(lambda: re.search(pattern, server.log()[lines:]))
        report = of(server)
        assert [topic for topic, _ in problems(report)] == ["Key ring"] and re.search(fault, problems(report)[0][1]), report
        assert any("the next start would fail" in warning["text"] for warning in status(server)["warnings"])
        assert server.get("me") == found("hello")
        ring.write_bytes(present)
        ring.chmod(0o600)
        until(lambda: "the key ring's file can be used again" in server.log()[lines:])
        assert problems(of(server)) == [] and status(server)["warnings"] == []


def test_damaged_rows_keep_neither_the_server_from_starting_nor_the_keys_from_being_listed(serve):
    server = serve()
    for number in range(50):
        assert server.post(f"id{number}", "hello" * 50) == STORED
    assert server.stop() == 0
    with opened(server.data) as database:
        size, = database.execute("PRAGMA page_size").fetchone()
        pages = [page for page, in database.execute("SELECT pageno FROM dbstat WHERE name = 'token' AND pagetype = 'leaf'")]
    with (server.data / "tokens.db").open("r+b") as file:
        for page in pages:
            file.seek((page - 1) * size)
            file.write(b"nothing of use " * (size // 15))
    again = serve(data=server.data)
    assert "1  created" in printed(again.data, "keyring", "list")
    assert again.stop() == 0
    assert "1  created" in printed(again.data, "keyring", "list")
    assert not [text for topic, text in problems(of(again)) if topic == "Key ring"]
