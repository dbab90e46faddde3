"""Acknowledged writes survive a full disk, and every later read returns them."""
import errno
import time

import pytest

from administration import ADMINISTRATION, ask, is_ready
from contract import NOT_FOUND, STORED, WRITE_FAILED, found, fresh_id
from http_client import Connection, get, post
from server_process import beside, until
from small_disk import SmallDisk
from storage_shim import StorageShim
from store_files import has_commits, printed


def test_an_answered_write_is_seen_by_every_connection_under_load(serve):
    server = serve({"loops": 2})

    def client(unique_id, _):
        with Connection(server.address) as writer, Connection(server.address) as first, Connection(server.address) as second:
            for number in range(150):
                assert writer.exchange(post(unique_id, f"number{number}")).body == STORED
                for reader in (first, second, writer):
                    # Pipelined reads share a snapshot of the store, which must not be older than the write.
                    reader.send(get(unique_id) * 3)
                for reader in (first, second, writer):
                    assert [reader.receive().body for _ in range(3)] == [found(f"number{number}")] * 3

    with beside(client, [fresh_id() for _ in range(8)]):
        pass


# A full disk

VALUE = "x" * 20_000


class Stock:
    """Ids whose writes were acknowledged."""

    def __init__(self, server):
        self.server = server
        self.values = {}

    def store(self):
        """Stores one more value and returns the answer."""
        unique_id = fresh_id()
        value = unique_id + VALUE
        body = self.server.post(unique_id, value)
        assert body in (STORED, WRITE_FAILED), body
        if body == STORED:
            self.values[unique_id] = value
        return body

    def check(self):
        """Checks all values."""
        with Connection(self.server.address) as connection:
            for unique_id, value in self.values.items():
                assert connection.exchange(get(unique_id)).body == found(value)


def fill_and_free(stock, free):
    """Stores until the disk is full, and goes on after `free` has freed space."""
    for _ in range(3):
        assert stock.store() == STORED
    until(lambda: stock.store() == WRITE_FAILED, seconds=60, pause=0)
    # A failed write leaves the old value unchanged.
    unique_id = next(iter(stock.values))
    answers = set()
    for number in range(5):
        value = f"{number}" + "y" * 900_000
        answer = stock.server.post(unique_id, value)
        answers.add(answer)
        # A checkpoint may have emptied the WAL meanwhile, which frees some space.
        if answer == STORED:
            stock.values[unique_id] = value
    assert WRITE_FAILED in answers
    stock.check()
    free()
    until(lambda: stock.store() == STORED)
    for _ in range(10):
        assert stock.store() == STORED
    stock.check()


def test_a_full_disk_fails_writes_until_there_is_room_again(small_disk, serve):
    filler = small_disk / "filler"
    filler.write_bytes(bytes(2 << 20))
    server = serve(data=small_disk / "data")
    stock = Stock(server)
    fill_and_free(stock, filler.unlink)
    assert "tokens cannot be stored" in server.log()
    server.kill()
    server = stock.server = serve(data=small_disk / "data")
    stock.check()
    assert server.stop() == 0


class NearlyFullStock(Stock):
    """A hundred tokens on a disk that is nearly full."""

    def __init__(self, server):
        super().__init__(server)
        self.ids = [fresh_id() for _ in range(100)]

    def settle(self, disk):
        """Brings all of them into the database, and leaves a mebibyte free."""
        with Connection(self.server.address) as connection:
            for unique_id in self.ids:
                assert connection.exchange(post(unique_id, "before" * 300)).body == STORED
        until(lambda: not has_commits(self.server.data))
        fill(disk / "filler", but=1 << 20)

    def replace(self, count):
        """Replaces the tokens several times, as long as that succeeds; returns how often it did."""
        with Connection(self.server.address) as connection:
            for number in range(count):
                unique_id, value = self.ids[number % len(self.ids)], f"{number:06}" * 300
                if connection.exchange(post(unique_id, value)).body != STORED:
                    return number
                self.values[unique_id] = value
        return count


def test_tokens_are_replaced_however_little_room_is_left(small_disk, serve):
    """The log is emptied when the disk is full: with all tokens in the database, nothing needs more room."""
    server = serve(data=small_disk / "data")
    tokens = NearlyFullStock(server)
    tokens.settle(small_disk)
    assert tokens.replace(1_000) == 1_000
    tokens.check()
    assert "cannot be stored" not in server.log()
    server.kill()
    server = tokens.server = serve(data=small_disk / "data")
    tokens.check()


def test_the_log_leaves_room_for_what_it_brings_into_the_database(small_disk, serve):
    """A log that had taken all that was free could not be moved into the database, which has to become longer for it."""
    fill(small_disk / "filler", but=4 << 20)
    server = serve(data=small_disk / "data")
    tokens = NearlyFullStock(server)
    # Several times what is free.
    assert tokens.replace(5_000) == 5_000
    tokens.check()
    assert "cannot be stored" not in server.log()


@pytest.mark.parametrize("size", [300, 50_000])
def test_a_store_that_has_filled_its_disk_still_deletes_and_replaces(serve, size):
    """The log takes no space that its checkpoint needs, and new tokens leave some for changes."""
    with SmallDisk(megabytes=3) as disk:
        server = serve(data=disk.folder / "data")
        stored = []
        with Connection(server.address) as connection:
            while connection.exchange(post(f"id{len(stored)}", "a" * size)).body == STORED:
                stored.append(f"id{len(stored)}")
            for user in stored[:2]:
                assert connection.exchange(post(user, "b" * size)).body == STORED
        assert "erased a token" in printed(server.data, "erase", stored[2])
        until(lambda: server.post("new", "in the place of the erased one") == STORED)
        assert server.get(stored[2]) == NOT_FOUND and server.get(stored[1]) == found("b" * size)
        assert server.stop() == 0


def test_a_full_disk_that_cannot_be_synced_has_the_database_opened_again(small_disk, shim_library, tmp_path):
    """A later sync might succeed without having written what this one has lost."""
    with StorageShim(shim_library, small_disk) as disk:
        server = disk.serve(tmp_path / "server")
        tokens = NearlyFullStock(server)
        tokens.settle(small_disk)
        disk.set(next_database_syncs=1, error=errno.EIO)
        # The checkpoint on the full disk meets the fault, unless the client pauses for a second and another checkpoint does.
        tokens.replace(1_000)
        assert disk.get("failed_syncs") == 1
        assert "disk I/O error: Input/output error (SQLite code 1034)" in server.log()
        until(lambda: tokens.replace(1) == 1)
        assert tokens.replace(1_000) == 1_000
        tokens.check()


def fill(path, but=0):
    """Fills a disk, but for so many bytes."""
    with open(path, "ab", buffering=0) as file:
        for size in (1 << 20, 1 << 12, 1):
            try:
                while True:
                    file.write(bytes(size))
            except OSError as error:
                assert error.errno == errno.ENOSPC
        file.truncate(file.tell() - but)


def test_a_full_disk_is_not_taken_for_mended(small_disk, serve, tmp_path):
    """Statistics, backups and checkpoints succeed or need no space, and do not show that a token can be stored."""
    filler = small_disk / "filler"
    filler.write_bytes(bytes(2 << 20))
    server = serve(ADMINISTRATION, data=small_disk / "data")
    stock = Stock(server)
    assert stock.store() == STORED
    assert is_ready(server)
    until(lambda: stock.store() == WRITE_FAILED, seconds=60, pause=0)
    assert ask(server.administration[0], "GET", "/healthz")[0] == 200, "it is not dead"
    fill(filler)
    # In between, the server may have found room for a token.
    assert stock.store() == WRITE_FAILED
    mended = server.log().count("tokens are stored again")
    for number in range(8):
        assert not is_ready(server), number
        printed(server.data, "stats")
        printed(server.data, "backup", str(tmp_path / "backup.db"))
        # Checkpoints and checks of the files run once a second.
        time.sleep(0.4)
    assert server.log().count("tokens are stored again") == mended
    assert stock.store() == WRITE_FAILED
    filler.unlink()
    # Without a write: a load balancer keeps clients away until the server is ready.
    until(lambda: is_ready(server))
    until(lambda: server.log().count("tokens are stored again") > mended)
    assert stock.store() == STORED
    stock.check()
    assert server.stop() == 0
