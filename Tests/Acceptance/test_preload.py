"""A start reads the database into the page cache, so that requests do not wait for the disk."""
import ctypes
import mmap
import os

import pytest

from contract import STORED, found
from http_client import Connection, get, post
from server_process import until

COUNT = 2_000
INFO = "i" * 2_000
LIBRARY = ctypes.CDLL(None, use_errno=True)


def forget(path):
    """Removes a file from the page cache."""
    with open(path, "rb") as file:
        os.fsync(file.fileno())
        os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)


def resident_share(path):
    """How much of a file is in the page cache (mincore(2))."""
    with open(path, "r+b") as file, mmap.mmap(file.fileno(), 0) as view:
        pages = (ctypes.c_ubyte * ((len(view) + mmap.PAGESIZE - 1) // mmap.PAGESIZE))()
        start = ctypes.c_char.from_buffer(view)
        try:
            assert LIBRARY.mincore(ctypes.byref(start), ctypes.c_size_t(len(view)), pages) == 0
        finally:
            del start
        return sum(page & 1 for page in pages) / len(pages)


@pytest.fixture
def forgotten(serve):
    """The folder of a stopped server whose database is not in the page cache."""
    server = serve()
    with Connection(server.address) as connection:
        for number in range(COUNT):
            assert connection.exchange(post(f"id{number}", INFO)).body == STORED
    server.stop()
    database = server.data / "tokens.db"
    forget(database)
    if resident_share(database) > 0:
        pytest.skip("this file system keeps what it is to forget")
    return server.data


def test_a_start_has_the_database_in_memory(serve, forgotten):
    server = serve({"log_level": "debug"}, data=forgotten)
    until(lambda: "the system has the database in its memory" in server.log())
    assert resident_share(forgotten / "tokens.db") == 1
    with Connection(server.address) as connection:
        assert connection.exchange(get("id7")).body == found(INFO)
        assert connection.exchange(post("id7", "new")).body == STORED
        assert connection.exchange(get("id7")).body == found("new")
