"""The store's files are removed or cut under a running server, or used by another program."""
import contextlib
import os
import sqlite3
from pathlib import Path

from administration import ADMINISTRATION, is_ready
from contract import STORED, found
from http_client import Connection, ProtocolError, get, post
from server_process import beside, run, until
from store_files import damage_rows, has_commits, printed

# Without the cache, so that each GET reads the database.
UNCACHED = {"cache": {"max_bytes": 0}, **ADMINISTRATION}
# Documented in token-cache(8) and deploy/systemd/README.md.
LOST_STORE = 74


def store_many(server, name):
    """Stores tokens, each in its own commit, and returns them: more than the server takes for the rows of a few damaged pages."""
    stored = {f"{name}{number}": name * 500 for number in range(40)}
    with Connection(server.address) as connection:
        for unique_id, value in stored.items():
            assert connection.exchange(post(unique_id, value)).body == STORED
    return stored


def check(server, stored):
    """Checks that all tokens are there."""
    with Connection(server.address) as connection:
        for unique_id, value in stored.items():
            assert connection.exchange(get(unique_id)).body == found(value), unique_id


def test_what_was_acknowledged_while_the_wal_was_removed_is_there_after_a_restart(serve):
    """Each commit is followed by a look at the files before it is acknowledged."""
    server = serve(UNCACHED)
    stored = {}

    def client(name, _):
        with contextlib.suppress(OSError, ProtocolError), Connection(server.address) as connection:
            for number in range(1_000_000):
                unique_id, value = f"{name}-{number % 50}", f"{number}" * 300
                if connection.exchange(post(unique_id, value)).body != STORED:
                    break
                stored[unique_id] = value
        # The last one may be stored all the same.
        stored.pop(unique_id, None)

    with beside(client, "abcd"):
        try:
            until(lambda: len(stored) == 200)
            (server.data / "tokens.db-wal").unlink()
            server.was_ended = True
            assert server.wait() == LOST_STORE
        finally:
            server.kill()
    assert "nothing is lost" in server.log()
    assert len(stored) >= 196
    check(serve(UNCACHED, data=server.data), stored)


def test_a_database_that_is_cut_is_noticed_without_a_write_and_a_start_says_what_helps(serve):
    server = serve(UNCACHED)
    store_many(server, "kept")
    until(lambda: not has_commits(server.data))
    os.truncate(server.data / "tokens.db", 8_192)
    server.was_ended = True
    assert server.wait() == LOST_STORE
    [line] = [line for line in server.log().splitlines() if "was cut while the server ran" in line]
    assert " error: " in line and "tokens.db" in line, line
    assert server.log().splitlines()[-1].endswith("token-cache has stopped: the files of the store are not as they were")
    refusal = run("serve", "--data-directory", str(server.data), "--listen", "127.0.0.1:0")
    assert refusal.returncode == 1 and "token-cache restore" in refusal.stderr


def test_reads_that_all_fail_make_the_server_unready(serve):
    server = serve(UNCACHED)
    stored = store_many(server, "kept")
    assert is_ready(server)
    damage_rows(server)

    def is_told():
        for unique_id in stored:
            server.get(unique_id)
        return "tokens cannot be read" in server.log() and not is_ready(server)

    until(is_told)
    # It stays so over several requests.
    lines_before = server.log().count("tokens cannot be read")
    for _ in range(5):
        for unique_id in stored:
            server.get(unique_id)
        assert not is_ready(server)
    assert server.log().count("tokens cannot be read") == lines_before


def test_a_database_that_another_program_has_open_is_not_used(serve):
    server = serve()
    assert server.post("kept", "1") == STORED
    assert server.stop() == 0
    with contextlib.closing(sqlite3.connect(server.data / "tokens.db")) as intruder:
        assert intruder.execute("SELECT count(*) FROM token").fetchall() == [(1,)]
        assert (server.data / "tokens.db-shm").exists()
        refusal = run("serve", "--data-directory", str(server.data), "--listen", "127.0.0.1:0")
        assert refusal.returncode == 1
        assert "tokens.db is open in another program" in refusal.stderr
        assert (server.data / "tokens.db-shm").exists(), "the other program's"
    again = serve(data=server.data)
    assert again.get("kept") == found("1")


def test_there_is_no_shared_memory_file_that_could_be_cut(serve):
    """Truncating this file ends a server that has it mapped, with SIGBUS."""
    server = serve()
    assert server.post("kept", "1") == STORED
    server.kill()
    again = serve(data=server.data)
    assert again.post("kept", "2") == STORED
    assert again.get("kept") == found("2")
    printed(again.data, "stats")
    for name in ("tokens.db-shm", *(path.name for path in again.data.iterdir() if path.name.endswith("-shm"))):
        assert not (again.data / name).exists()
    maps = Path(f"/proc/{again.process.pid}/maps").read_text()
    assert str(again.data) not in maps, "no file of the store is mapped"
    assert again.stop() == 0
