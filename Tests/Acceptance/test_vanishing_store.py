"""A store that vanishes or is locked is no reason to lie to clients, nor to restart."""
import shutil
import sqlite3
import time

from contract import NOT_FOUND, STORED, WRITE_FAILED, found, fresh_id
from http_client import Connection, exchange, get, post
from server_process import until


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


def test_another_programs_lock_fails_writes_until_it_is_gone(serve):
    server = serve()
    assert exchange(server.address, post("kept", "1")).body == STORED
    lines = server.log().count("\n")
    intruder = sqlite3.connect(server.data / "tokens.db", isolation_level=None)
    try:
        intruder.execute("BEGIN IMMEDIATE")
        for _ in range(5):
            assert exchange(server.address, post("kept", "2")).body == WRITE_FAILED
            assert exchange(server.address, get("kept")).body == found("1")
        intruder.execute("ROLLBACK")
        assert exchange(server.address, post("kept", "3")).body == STORED
    finally:
        intruder.close()
    assert exchange(server.address, get("kept")).body == found("3")
    until(lambda: "tokens are stored again, after 5 that were not" in server.log())
    assert sum("tokens cannot be stored" in line for line in server.log().splitlines()[lines:]) == 1
