"""A server whose database cannot be reached when it starts: it serves nobody, says why, and goes on by itself."""
import os
import re

import pytest

from administration import readiness
from contract import NOT_FOUND, STORED, WRITE_FAILED, found
from http_client import exchange, get, post
from postgres_cluster import Postgres
from postgres_programs import SUPERUSER
from postgres_store import NamedDatabase, PostgresStore
from server_process import until
from service_manager import Messages

UNREACHABLE = "error: the database cannot be reached, and clients are told that tokens can be neither stored nor read"
UNUSABLE = "error: the database cannot be used, and clients are told that tokens can be neither stored nor read"


@pytest.fixture(name="database")
def own_server(tmp_path):
    with Postgres(tmp_path) as server:
        yield server


@pytest.fixture(name="store")
def store_of_a_stopped_database(postgres_binary, database, tmp_path):
    with PostgresStore(postgres_binary, tmp_path / "store", NamedDatabase(database)) as of_all:
        database.stop()
        yield of_all


def answers(server):
    """What clients get: of a POST, and of a GET."""
    return exchange(server.address, post("me", "x")).body, exchange(server.address, get("me")).body


def reasons(server):
    """Why the server is not ready; empty if it is."""
    status, answer = readiness(server)
    assert (status == 200) == (not answer["reasons"])
    return " ".join(answer["reasons"])


def troubles(server):
    """The lines of the log that an operator should look at."""
    return re.findall(r"(?m)^\S+ ((?:warning|error): (?!made the key ring).*)", server.log())


def test_a_server_that_starts_before_its_database_serves_as_soon_as_it_is_there(store, database, tmp_path):
    with Messages(f"@token-cache-test-{os.getpid()}-{tmp_path.name}") as messages:
        servers = [
            store.serve(name, environment={"NOTIFY_SOCKET": messages.address} if name == "first" else None)
            for name in ("first", "second")]
        ready = messages.wait("READY")
        assert ready["STATUS"].startswith(f"serves on {servers[0].base}, not ready: tokens cannot be stored: ")
        for server in servers:
            assert answers(server) == (WRITE_FAILED, NOT_FOUND)
            assert "Connection refused" in reasons(server)
            (line,) = troubles(server)
            assert line.startswith(UNREACHABLE) and "Connection refused" in line
        # Whether there is one, only the database knows.
        assert not (store.folder / "key-ring").exists()
        refused = store.run("get", "me", "--data-directory", str(servers[0].data))
        assert refused.returncode == 1 and "Connection refused" in refused.stderr

        database.start()
        for server in servers:
            until(lambda server=server: not reasons(server))
        messages.wait("STATUS", f"serves on {servers[0].base}")
    assert exchange(servers[0].address, post("me", "first")).body == STORED
    assert exchange(servers[1].address, get("me")).body == found("first")
    assert store.run("get", "me", "--data-directory", str(servers[0].data)).stdout == "first\n"
    assert sum("made the key ring" in server.log() for server in servers) == 1
    for server in servers:
        assert len(troubles(server)) == 1 and "notice: connected to PostgreSQL" in server.log()


def mend_the_password(store, database):
    database.pass_file(store.environment["PGPASSFILE"])


def make_the_tables(store, database):
    store.migrate()


def spoil_the_password(store, database):
    with open(store.environment["PGPASSFILE"], "w", encoding="utf-8") as file:
        file.write("*:*:*:app:wrong\n")


def remove_the_tables(store, database):
    database.sql("DROP TABLE store, token, session, sealing_key", "tokens", SUPERUSER)


FAULTS = {
    "a wrong password": (spoil_the_password, "SQLSTATE 28P01); check the password", mend_the_password),
    "missing tables": (remove_the_tables, "has no tables of token-cache", make_the_tables),
}


@pytest.mark.parametrize("spoil, text, mend", FAULTS.values(), ids=FAULTS)
def test_what_is_wrong_with_a_database_that_comes_later_is_said_and_can_be_mended(store, database, spoil, text, mend):
    database.start()
    spoil(store, database)
    database.stop()
    server = store.serve("server")
    assert "Connection refused" in reasons(server)
    database.start()
    until(lambda: text in reasons(server))
    assert answers(server) == (WRITE_FAILED, NOT_FOUND)
    until(lambda: UNUSABLE in server.log())
    *unreachable, line = troubles(server)
    assert all(earlier.startswith(UNREACHABLE) for earlier in unreachable)
    assert line.startswith(UNUSABLE) and text in line
    mend(store, database)
    until(lambda: not reasons(server))
    assert answers(server) == (STORED, found("x"))
    assert server.log().count(UNUSABLE) == 1


def test_a_server_that_waits_for_its_database_ends_when_it_is_told_to(store):
    server = store.serve("server")
    server.stop()
    assert "token-cache has stopped: SIGTERM received" in server.log()
