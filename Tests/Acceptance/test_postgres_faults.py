"""Faults of a database: what clients are answered, and what the log tells operators."""
import concurrent.futures
import contextlib
import re
import time
from pathlib import Path

import pytest

from administration import metrics, readiness
from certificates import certificate_until, make_certificate
from chaos_proxy import ChaosProxy
from contract import NOT_FOUND, STORED, WRITE_FAILED, found
from http_client import Connection, post
from own_names import OwnNames
from postgres_cluster import NamedDatabase, Postgres
from postgres_store import PostgresStore
from server_process import until


@contextlib.contextmanager
def in_background(function, *arguments):
    """Runs a function in a thread beside the block; gives its future, and waits for it at the end."""
    with concurrent.futures.ThreadPoolExecutor(1) as pool:
        yield pool.submit(function, *arguments)


# Commits

# A statement has stored something, and then the database is ready again: it was committed.
END_OF_A_WRITE = rb"INSERT 0 1\0.*?(Z\0\0\0\x05)"


def test_a_commit_whose_answer_is_lost_is_repeated(behind, proxy, postgres):
    server = behind.serve("server")
    assert server.post("me", "first") == STORED
    lost = proxy.cut_at(END_OF_A_WRITE)
    assert server.post("me", "second") == STORED
    lost.wait()
    assert server.get("me") == found("second")
    assert postgres.value("SELECT count(*) FROM token") == "1"


def test_a_commit_whose_answer_is_lost_is_not_repeated_on_a_later_write(behind, direct, proxy):
    server, other = behind.serve("server"), direct.serve("other")
    assert server.post("me", "first") == STORED
    proxy.refuse()
    lost = proxy.cut_at(END_OF_A_WRITE)
    with in_background(server.post, "me", "second") as second:
        lost.wait()
        assert other.post("me", "third") == STORED
        proxy.heal()
        # Nobody can tell any longer whether it was stored.
        assert second.result() == WRITE_FAILED
    assert server.get("me") == other.get("me") == found("third")


def test_a_write_that_has_waited_does_not_land_on_a_later_one(behind, direct, proxy):
    """Meanwhile its client has left, and has stored something else through another server."""
    server, other = behind.serve("server"), direct.serve("other")
    assert server.post("me", "first") == STORED
    proxy.refuse()
    proxy.cut()
    with Connection(server.address) as connection:
        connection.send(post("me", "second"))
        began = time.monotonic()
        until(lambda: metrics(server)["token_cache_database_waiting_requests"])
    assert other.post("me", "third") == STORED
    until(lambda: time.monotonic() - began > 1.1)
    proxy.heal()
    # This is sent after the write that has waited.
    assert server.post("you", "x") == STORED
    assert server.get("me") == other.get("me") == found("third")


def test_a_commit_that_the_standby_has_not_acknowledged_is_no_success(replicated_postgres, store_on):
    databases = replicated_postgres(standbys=1)
    of_all = store_on(databases)
    # With this alone, the server would not be warned.
    databases.primary.sql(f"ALTER ROLE {of_all.database.user} SET client_min_messages = 'error'")
    server = of_all.serve("server")
    assert server.post("me", "first") == STORED
    databases.standbys[0].freeze()

    def cancel_the_wait():
        # Operators do this when a standby is down.
        until(lambda: databases.primary.cancel("wait_event = 'SyncRep' AND query NOT LIKE '%emit_message%'"))

    with in_background(server.post, "me", "second") as second:
        cancel_the_wait()
        assert second.result() == WRITE_FAILED
    # With `local`, a command does not try a commit before its own.
    with in_background(lambda: of_all.run("put", "you", "by a command", prefix=["env", "TOKEN_CACHE_STORE_DURABILITY=local"])) as put:
        cancel_the_wait()
        assert put.result().returncode == 1 and "canceling wait for synchronous replication" in put.result().stderr
    (line,) = [line for line in troubles(server) if "committed the write" in line]
    assert re.match(
        r"error: tokens cannot be stored.* committed the write with a warning, so it may not be on a second machine: "
        r".*\(SQLSTATE 01000\)", line)
    assert metrics(server)["token_cache_database_unacknowledged_writes_total"] == 1
    databases.standbys[0].thaw()
    assert server.post("me", "third") == STORED
    assert server.get("me") == found("third")


# Statements

@pytest.mark.parametrize("level", ["repeatable read", "serializable"])
def test_the_default_isolation_of_the_database_changes_nothing(direct, postgres, level):
    """With these levels a statement that has waited for a lock would fail, or not see what was committed meanwhile."""
    postgres.sql(f"ALTER ROLE {postgres.user} SET default_transaction_isolation = '{level}'")
    server = direct.serve("server")
    assert server.post("me", "first") == STORED
    with postgres.session() as session:
        session.sql("BEGIN; UPDATE token SET written_at = written_at")
        with in_background(server.post, "me", "second") as second, postgres.session() as watch:
            until(lambda: waits_for_a_lock(watch, postgres.user))
            session.sql("COMMIT")
            assert second.result() == STORED
    assert server.get("me") == found("second")
    assert metrics(server)['token_cache_database_retries_total{cause="40001"}'] == 0
    assert not troubles(server)


def waits_for_a_lock(session, user):
    """Whether a transaction of a server waits for another transaction. In a session, as it must not wait for as long as psql may
    take to start."""
    return session.sql(f"SELECT 1 FROM pg_stat_activity WHERE usename = '{user}' AND wait_event_type = 'Lock'")


def troubles(server):
    """The lines of the log that an operator should look at, beginning with their level."""
    return re.findall(r"(?m)^\S+ ((?:warning|error): (?!made the key ring).*)", server.log())


def test_a_deadlock_with_others_is_repeated(direct, postgres):
    # A transaction looks for a deadlock once, this long after it began to wait. So the server's must begin to wait first, and the
    # other one within this time.
    postgres.sql(f"ALTER ROLE {postgres.user} SET deadlock_timeout = '10s'")
    server = direct.serve("server", {"loops": 1, "store": {"timeout": "60s"}})
    for unique_id in ("one", "two"):
        assert server.post(unique_id, "first") == STORED
    # In the order in which the server locks them.
    first, second = [key for key, in postgres.sql("SELECT key FROM token ORDER BY key")]
    with postgres.session() as session, postgres.session() as watch, \
            Connection(server.address, timeout=60) as one, Connection(server.address, timeout=60) as two:
        # This transaction never looks, so PostgreSQL ends the server's. If the server's next one locks the first row before this
        # one has woken up, there is another deadlock, which is found ten seconds later.
        session.sql(f"SET deadlock_timeout = '1h'; BEGIN; UPDATE token SET written_at = written_at WHERE key = '{second}'")
        with server.paused():
            # Both arrive in one turn of the loop, and so share a transaction.
            one.send(post("one", "second"))
            two.send(post("two", "second"))
        until(lambda: waits_for_a_lock(watch, postgres.user))
        session.start(f"UPDATE token SET written_at = written_at WHERE key = '{first}'; COMMIT")
        assert (one.receive().body, two.receive().body) == (STORED, STORED)
        session.finish()
    assert metrics(server)['token_cache_database_retries_total{cause="40P01"}'] >= 1
    assert not troubles(server)


def test_a_write_that_waits_for_a_lock_holds_up_no_reads(replicated_postgres, postgres_binary, tmp_path):
    """The commit that is to prove the primary waits behind it; another connection proves it."""
    databases = replicated_postgres(standbys=1)
    tables = NamedDatabase(databases)
    # If the standby were named, its answer that it is one would be as good as a proof.
    url = databases.primary.url(tables.user, tables.name, sslmode="disable")
    with PostgresStore(postgres_binary, tmp_path / "store", tables, url) as of_all:
        server = of_all.serve("server", {"loops": 1, "store": {"durability": "synchronous", "timeout": "240s"}})
        assert server.post("one", "first") == STORED
        with databases.primary.session(tables.name) as session:
            session.sql("BEGIN; UPDATE token SET written_at = written_at")
            assert server.post("other", "x") == STORED
            with in_background(server.post, "one", "second") as second, databases.primary.session(tables.name) as watch:
                until(lambda: waits_for_a_lock(watch, tables.user))
                began = time.monotonic()
                while time.monotonic() - began < 3:
                    assert server.get("other") == found("x")
                assert not second.done()
                session.sql("COMMIT")
                assert second.result() == STORED


def test_a_locked_row_lets_only_its_own_writes_fail(direct, postgres):
    server = direct.serve("server", {"loops": 1, "store": {"timeout": "8s"}})
    assert server.post("locked", "first") == STORED
    with contextlib.ExitStack() as stack:
        session = stack.enter_context(postgres.session())
        session.sql("BEGIN; UPDATE token SET written_at = written_at")
        own, others = ([stack.enter_context(Connection(server.address, timeout=60)) for _ in range(count)] for count in (3, 6))
        with server.paused():
            # They share a transaction.
            for number, connection in enumerate(own):
                connection.send(post("locked", f"later {number}"))
            for number, connection in enumerate(others):
                connection.send(post(f"other {number}", "x"))
        assert [connection.receive().body for connection in others] == [STORED] * len(others)
        assert [connection.receive().body for connection in own] == [WRITE_FAILED] * len(own)
    assert metrics(server)['token_cache_database_retries_total{cause="55P03"}'] >= 1
    assert any("or rows are locked: see pg_stat_replication and pg_locks there" in line for line in troubles(server))
    assert server.post("locked", "last") == STORED
    assert server.get("locked") == found("last")


# Connections


def keepalives(port):
    """In how many seconds a server on this machine, with this port, asks each client whether it is still there, by the client's
    port; not while an answer is on the way."""
    times = {}
    for line in Path("/proc/net/tcp").read_text().splitlines()[1:]:
        _, local, remote, _, _, timer, *_ = line.split()
        kind, ticks = timer.split(":")
        if int(local.split(":")[1], 16) == port and kind == "02":
            times[int(remote.split(":")[1], 16)] = int(ticks, 16) / 100
    return times


def test_the_database_gives_up_a_server_that_has_vanished(direct, postgres):
    """It may have locked a row."""
    server = direct.serve("server")
    assert server.post("me", "first") == STORED
    ports = [int(port) for port, in postgres.sql(
        f"SELECT client_port FROM pg_stat_activity WHERE usename = '{postgres.user}'")]
    assert ports
    # PostgreSQL leaves it at the system's two hours.
    until(lambda: all(keepalives(postgres.server.port).get(port, 60) <= 10 for port in ports))


# On a busy machine a request may take longer than this, and fail: it is repeated then.
BRIEF = {"store": {"timeout": "2s"}}


def test_a_primary_that_is_read_only_fails_writes_until_it_is_not_any_more(store_on, tmp_path):
    with Postgres(tmp_path) as database:
        server = store_on(database).serve("server", {**BRIEF, "loops": 1})
        until(lambda: (server.post("me", "first"), server.get("me")) == (STORED, found("first")))
        database.configure(default_transaction_read_only="on")
        assert server.post("me", "second") == WRITE_FAILED
        # Reads go on.
        until(lambda: server.get("me") == found("first"))
        # Whatever came first is logged, perhaps a write that was too late; why it is so now is among the reasons.
        until(lambda: server.post("me", "second") == WRITE_FAILED
              and "default_transaction_read_only is on" in str(readiness(server)))
        assert any(line.startswith("error: tokens cannot be stored") for line in troubles(server))
        database.configure(default_transaction_read_only=None)
        until(lambda: server.post("me", "third") == STORED)


def test_a_certificate_that_has_expired_is_refused_until_it_is_renewed(postgres_binary, tmp_path):
    folders = {name: tmp_path / name for name in ("good", "expired", "store")}
    for folder in folders.values():
        folder.mkdir()
    good = make_certificate(folders["good"], "-addext", "subjectAltName=DNS:localhost")
    expired = certificate_until(folders["expired"], "20240101000000Z", "20250101000000Z")
    # Both are self-signed.
    authorities = tmp_path / "authorities.pem"
    authorities.write_text("".join(Path(file).read_text() for file, _ in (good, expired)))
    with Postgres(tmp_path, certificate=good) as database:
        tables = NamedDatabase(database)
        url = tables.url(sslmode="verify-full", sslrootcert=str(authorities)).replace("127.0.0.1", "localhost")
        with PostgresStore(postgres_binary, folders["store"], tables, url) as of_all:
            server = of_all.serve("server", BRIEF)
            until(lambda: server.post("me", "first") == STORED)
            database.use_certificate(*expired)
            # Existing connections go on.
            until(lambda: server.post("me", "second") == STORED)
            database.terminate()
            assert (server.post("me", "third"), server.get("me")) == (WRITE_FAILED, NOT_FOUND)
            until(lambda: any("; the server's certificate has expired, or" in line for line in troubles(server)))
            database.use_certificate(*good)
            until(lambda: server.post("me", "third") == STORED)


def test_a_name_that_has_moved_is_looked_up_again(direct, postgres, tmp_path):
    names = OwnNames(tmp_path)
    names.set("database.test", "127.0.0.1")
    with ChaosProxy(postgres.server) as old, ChaosProxy(postgres.server, "127.0.0.2", old.port) as new:
        url = old.url(postgres.user, postgres.name, sslmode="disable").replace("127.0.0.1", "database.test")
        server = direct.serve("server", BRIEF, environment={"TOKEN_CACHE_STORE_URL": url}, prefix=names.prefix)
        until(lambda: server.post("me", "first") == STORED)
        names.set("database.test", "127.0.0.2")
        # From now on nothing comes through, and connections are not closed.
        old.swallow()
        old.freeze()
        until(lambda: server.post("me", "second") == STORED)
        assert new.connections > 0
        until(lambda: server.get("me") == found("second"))
