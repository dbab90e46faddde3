"""If the store vanishes or is locked, clients get errors, and the server recovers without a restart."""
import contextlib
import os
import shutil
import sqlite3
import time
from pathlib import Path

import pytest

from contract import NOT_FOUND, STORED, WRITE_FAILED, found, fresh_id
from http_client import Connection, exchange, get, lines, post
from server_process import run, until
from store_files import printed


def hammer(server, count=200):
    """Sends many requests to an unusable store; returns the answers to the writes and to the reads."""
    with Connection(server.address) as connection:
        writes = {connection.exchange(post(fresh_id(), "x")).body for _ in range(count)}
        reads = {connection.exchange(get("kept")).body for _ in range(count)}
    return writes, reads


def test_a_folder_that_is_moved_away_and_back(serve):
    server = serve()
    assert exchange(server.address, post("kept", "1")).body == STORED
    assert exchange(server.address, get("kept")).body == found("1")
    lines = server.log().count("\n")
    server.data.rename(server.data.with_name("away"))
    until(lambda: exchange(server.address, post(fresh_id(), "x")).body == WRITE_FAILED)
    writes, reads = hammer(server)
    assert writes == {WRITE_FAILED} and reads == {NOT_FOUND}
    server.data.with_name("away").rename(server.data)
    until(lambda: exchange(server.address, post("new", "2")).body == STORED)
    assert exchange(server.address, get("kept")).body == found("1")
    told = server.log().splitlines()[lines:]
    assert sum("is gone, clients are told so" in line for line in told) == 1
    assert sum("is back" in line for line in told) == 1
    assert len(told) <= 6, told
    server.stop()
    again = serve(data=server.data)
    assert exchange(again.address, get("new")).body == found("2")


def test_what_is_stored_after_the_folder_was_deleted_is_not_acknowledged(serve):
    server = serve()
    assert exchange(server.address, post("kept", "1")).body == STORED
    shutil.rmtree(server.data)
    writes, _ = hammer(server)
    assert writes == {WRITE_FAILED}
    until(lambda: exchange(server.address, get("kept")).body == NOT_FOUND)
    assert not server.data.exists(), "nothing is made anew behind the operator's back"
    assert server.stop() == 0


def test_a_folder_that_is_put_back_from_a_copy(serve):
    server = serve()
    assert exchange(server.address, post("kept", "1")).body == STORED
    time.sleep(1.5)
    copy = server.data.with_name("copy")
    shutil.copytree(server.data, copy, ignore=shutil.ignore_patterns("control.sock"))
    assert exchange(server.address, post("kept", "2")).body == STORED
    shutil.rmtree(server.data)
    until(lambda: exchange(server.address, post("x", "y")).body == WRITE_FAILED)
    copy.rename(server.data)
    until(lambda: exchange(server.address, post("new", "3")).body == STORED)
    assert exchange(server.address, get("kept")).body == found("1")
    server.stop()
    again = serve(data=server.data)
    assert exchange(again.address, get("new")).body == found("3")


# Without the cache, so that each GET reads the database.
UNCACHED = {"cache": {"max_bytes": 0}, "admin": {"listen": "127.0.0.1:0"}}


def is_ready(server):
    """The answer of /readyz."""
    request = lines("GET /readyz HTTP/1.1", "Host: localhost", "Connection: close")
    return exchange(server.administration[0], request).status == 200


def store_many(server, name):
    """Stores tokens, each in its own commit, and returns those that were acknowledged."""
    stored = {}
    with Connection(server.address) as connection:
        for number in range(20):
            if connection.exchange(post(f"{name}{number}", name * 500)).body == STORED:
                stored[f"{name}{number}"] = name * 500
    return stored


def check_after_a_crash(serve, server, stored):
    """Checks that all tokens are there, now and after a kill."""
    for last in (False, True):
        with Connection(server.address) as connection:
            for unique_id, value in stored.items():
                assert connection.exchange(get(unique_id)).body == found(value), unique_id
        if not last:
            server.kill()
            server = serve(UNCACHED, data=server.data)
    assert "the store is sound" in printed(server.data, "verify")


def test_a_log_that_is_cut_is_noticed_and_told_and_nothing_is_lost_afterwards(serve):
    server = serve(UNCACHED)
    kept = store_many(server, "kept")
    until(lambda: (server.data / "tokens.db-wal").stat().st_size == 0)

    def cut():
        """If a checkpoint came just before, nothing can be lost, and the test tries again."""
        store_many(server, "perhaps")
        os.truncate(server.data / "tokens.db-wal", 0)
        exchange(server.address, post("perhaps0", "x"))
        time.sleep(0.1)
        return "was cut while the server ran" in server.log()

    until(cut)
    until(lambda: exchange(server.address, post("after", "1")).body == STORED)
    until(lambda: is_ready(server))
    told = next(line for line in server.log().splitlines() if "was cut while the server ran" in line)
    assert "error" in told and ("may be lost, although clients were told" in told or "nothing is lost" in told)
    check_after_a_crash(serve, server, {**kept, "after": "1", **store_many(server, "later")})


def test_a_log_that_is_removed_is_put_back(serve):
    server = serve(UNCACHED)
    stored = store_many(server, "kept")
    (server.data / "tokens.db-wal").unlink()
    until(lambda: "it was put back as it was, and nothing is lost" in server.log())
    until(lambda: exchange(server.address, post("after", "1")).body == STORED)
    until(lambda: is_ready(server))
    assert "tokens.db-wal" in server.log() and "is gone" not in server.log()
    check_after_a_crash(serve, server, {**stored, "after": "1", **store_many(server, "later")})


def test_reads_that_fail_make_the_server_unready(serve):
    server = serve(UNCACHED)
    stored = store_many(server, "kept")
    until(lambda: (server.data / "tokens.db-wal").stat().st_size == 0)
    assert is_ready(server)
    with open(server.data / "tokens.db", "r+b") as database:
        size = database.seek(0, os.SEEK_END)
        database.seek(8_192)
        database.write(b"\xff" * (size - 8_192))

    def is_told():
        for unique_id in stored:
            exchange(server.address, get(unique_id))
        return "tokens cannot be read" in server.log() and not is_ready(server)

    until(is_told)
    # It stays so over several requests.
    lines_before = server.log().count("tokens cannot be read")
    for _ in range(5):
        for unique_id in stored:
            exchange(server.address, get(unique_id))
        assert not is_ready(server)
    assert server.log().count("tokens cannot be read") == lines_before


def test_a_database_that_is_cut_takes_no_more_tokens(serve):
    server = serve(UNCACHED)
    store_many(server, "kept")
    until(lambda: (server.data / "tokens.db-wal").stat().st_size == 0)
    os.truncate(server.data / "tokens.db", 8_192)
    for _ in range(3):
        assert exchange(server.address, post("new", "1")).body == WRITE_FAILED
    until(lambda: not is_ready(server))
    assert "it was cut while the server ran" in server.log() and "token-cache restore" in server.log()


def test_another_program_cannot_open_the_database_while_the_server_runs(serve):
    server = serve()
    assert exchange(server.address, post("kept", "1")).body == STORED
    with contextlib.closing(sqlite3.connect(server.data / "tokens.db", timeout=0)) as intruder:
        for statement in ("SELECT count(*) FROM token", "BEGIN IMMEDIATE"):
            with pytest.raises(sqlite3.OperationalError, match="locked"):
                intruder.execute(statement)
        assert exchange(server.address, post("kept", "2")).body == STORED
        assert exchange(server.address, get("kept")).body == found("2")
    assert server.stop() == 0
    with contextlib.closing(sqlite3.connect(server.data / "tokens.db")) as reader:
        assert reader.execute("SELECT count(*) FROM token").fetchall() == [(1,)]


def test_a_database_that_another_program_has_open_is_not_used(serve):
    server = serve()
    assert exchange(server.address, post("kept", "1")).body == STORED
    assert server.stop() == 0
    with contextlib.closing(sqlite3.connect(server.data / "tokens.db")) as intruder:
        assert intruder.execute("SELECT count(*) FROM token").fetchall() == [(1,)]
        assert (server.data / "tokens.db-shm").exists()
        refusal = run("serve", "--data-directory", str(server.data), "--listen", "127.0.0.1:0")
        assert refusal.returncode == 1
        assert "tokens.db is open in another program" in refusal.stderr
        assert (server.data / "tokens.db-shm").exists(), "the other program's"
    again = serve(data=server.data)
    assert exchange(again.address, get("kept")).body == found("1")


def test_there_is_no_shared_memory_file_that_could_be_cut(serve):
    """Truncating this file ends a server that has it mapped, with SIGBUS."""
    server = serve()
    assert exchange(server.address, post("kept", "1")).body == STORED
    server.kill()
    again = serve(data=server.data)
    assert exchange(again.address, post("kept", "2")).body == STORED
    assert exchange(again.address, get("kept")).body == found("2")
    printed(again.data, "stats")
    for name in ("tokens.db-shm", *(path.name for path in again.data.iterdir() if path.name.endswith("-shm"))):
        assert not (again.data / name).exists()
    maps = Path(f"/proc/{again.process.pid}/maps").read_text()
    assert str(again.data) not in maps, "no file of the store is mapped"
    assert again.stop() == 0
