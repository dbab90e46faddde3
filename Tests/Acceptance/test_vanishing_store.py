"""A store that vanishes or is locked is no reason to lie to clients, nor to restart."""
import contextlib
import shutil
import sqlite3
import time
from pathlib import Path

import pytest

from contract import NOT_FOUND, STORED, WRITE_FAILED, found, fresh_id
from http_client import Connection, exchange, get, post
from server_process import run, until
from store_files import printed


def hammer(server, count=200):
    """Many requests to a store that cannot be used; returns the answers to the writes and to the reads."""
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
    """Cut to nothing under a server that has it mapped, such a file ends it with a SIGBUS."""
    server = serve()
    assert exchange(server.address, post("kept", "1")).body == STORED
    server.kill()
    # As an earlier version leaves it.
    (server.data / "tokens.db-shm").write_bytes(bytes(32_768))
    again = serve(data=server.data)
    assert exchange(again.address, post("kept", "2")).body == STORED
    assert exchange(again.address, get("kept")).body == found("2")
    printed(again.data, "stats")
    for name in ("tokens.db-shm", *(path.name for path in again.data.iterdir() if path.name.endswith("-shm"))):
        assert not (again.data / name).exists()
    maps = Path(f"/proc/{again.process.pid}/maps").read_text()
    assert str(again.data) not in maps, "no file of the store is mapped"
    assert again.stop() == 0
