"""The proxies in front of the databases of tests: what chaos they make, and PgBouncer."""
import re
import socket
import struct
import subprocess
import sys
import time
from pathlib import Path
from types import SimpleNamespace

import pytest

from certificates import make_certificate
from chaos_proxy import CUT, HOLD, LOSE, TO_CLIENT, TO_SERVER, ChaosProxy
from own_names import OwnNames
from postgres_cluster import Postgres, database_url
from postgres_messages import asks, is_commit, is_ready, is_row
from postgres_pooler import PgBouncer, pooler_version
from postgres_programs import environment, programs
from process_tree import family, state
from psql import Session, SQLError, run_sql
from server_process import until


TLS = "dbname=postgres sslmode=require"


class Place:
    """Where a client of the database connects to: a proxy, with the passwords of the server."""

    def __init__(self, proxy, database):
        self.address, self.port, self.passwords = proxy.address, proxy.port, database.server.passwords
        self.database = database

    def sql(self, text, seconds=20):
        return run_sql(self, text, f"dbname={self.database.name} sslmode=disable", self.database.user, seconds)

    def session(self):
        return Session(self, f"dbname={self.database.name} sslmode=disable", self.database.user)


@pytest.fixture(name="proxy")
def chaos_proxy(postgres):
    with ChaosProxy(postgres.server) as proxy:
        yield proxy


@pytest.fixture(name="place")
def place_of_clients(proxy, postgres):
    return Place(proxy, postgres)


@pytest.fixture(name="echo")
def proxy_of_an_echo():
    """A proxy in front of a program that sends everything back, with a connection to it: their sockets as well."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        class Target:
            address, port = listener.getsockname()
        with ChaosProxy(Target) as proxy, socket.create_connection((proxy.address, proxy.port), 10) as client:
            server, _ = listener.accept()
            with server:
                server.settimeout(10)
                # A start as of the protocol, so that the rest is messages.
                client.sendall(struct.pack("!II", 8, 196608))
                assert len(server.recv(100)) == 8
                yield proxy, client, server, listener


def message(kind, content=b""):
    return kind.encode() + struct.pack("!I", 4 + len(content)) + content


def nothing_comes(end, seconds=0.2):
    """Nothing arrives for a while."""
    end.settimeout(seconds)
    try:
        with pytest.raises(TimeoutError):
            end.recv(1)
    finally:
        end.settimeout(10)
    return True


# Chaos

def test_everything_passes_in_both_directions(place):
    text = "x" * 300_000
    assert place.sql(f"SELECT '{text}'; SELECT 2") == [(text,), ("2",)]


def test_a_unix_socket_can_be_on_both_sides(postgres, tmp_path):
    server = postgres.server
    with ChaosProxy(server.socket_folder / f".s.PGSQL.{server.port}", socket_folder=tmp_path) as proxy:
        assert Place(proxy, postgres).sql("SELECT inet_client_addr() IS NULL") == [("t",)]
        assert database_url([proxy], "a", "b").startswith("postgresql://a@%2F")


def test_a_delay_holds_back_each_direction(echo):
    proxy, client, server, _ = echo
    proxy.delay(0.2, [TO_CLIENT])
    began = time.monotonic()
    client.sendall(message("Q"))
    assert server.recv(100) == message("Q")
    server.sendall(message("Z"))
    assert client.recv(100) == message("Z")
    assert time.monotonic() - began >= 0.2
    proxy.heal()


def test_a_throttle_lets_through_so_much_a_second(echo):
    proxy, client, server, _ = echo
    proxy.throttle(100_000, [TO_SERVER])
    began = time.monotonic()
    sent = message("d", bytes(30_000))
    client.sendall(sent)
    received = b""
    while len(received) < len(sent):
        received += server.recv(1 << 16)
    assert received == sent
    assert time.monotonic() - began >= 0.29


def test_what_is_swallowed_is_lost_for_its_connection(echo):
    proxy, client, server, listener = echo
    proxy.swallow([TO_SERVER])
    client.sendall(message("Q"))
    # The call after it shows that the proxy has read it.
    until(lambda: [link for link in proxy.links if link.flows[0].is_deaf])
    proxy.heal()
    client.sendall(message("Q"))
    assert nothing_comes(server)
    with socket.create_connection((proxy.address, proxy.port), 10) as other:
        other.sendall(struct.pack("!II", 8, 196608))
        with listener.accept()[0] as new:
            new.settimeout(10)
            assert len(new.recv(100)) == 8


def test_a_frozen_proxy_goes_on_when_it_is_healed(echo):
    proxy, client, server, listener = echo
    proxy.freeze()
    client.sendall(message("Q"))
    with socket.create_connection((proxy.address, proxy.port), 10):
        assert nothing_comes(server)
        proxy.heal()
        assert server.recv(100) == message("Q")
        listener.accept()[0].close()


def test_cut_connections_are_reset_and_new_ones_refused(echo):
    proxy, client, server, listener = echo
    proxy.refuse()
    proxy.cut()
    for end in (client, server):
        with pytest.raises(ConnectionResetError):
            end.recv(1)
    with pytest.raises(ConnectionRefusedError):
        socket.create_connection((proxy.address, proxy.port), 10)
    proxy.heal()
    with socket.create_connection((proxy.address, proxy.port), 10):
        listener.accept()[0].close()


def test_the_end_of_a_connection_passes_after_what_was_sent(echo):
    _, client, server, _ = echo
    client.sendall(message("X"))
    client.shutdown(socket.SHUT_WR)
    assert server.recv(100) == message("X")
    assert server.recv(100) == b""
    server.sendall(message("Z"))
    server.close()
    assert client.recv(100) == message("Z")
    assert client.recv(100) == b""


def test_a_rule_acts_on_its_message_wherever_reads_split_it(echo):
    proxy, client, server, _ = echo
    held = proxy.when(is_commit, HOLD)
    stream = message("T", b"1") + message("C", b"BEGIN\0") + message("C", b"COMMIT\0") + message("Z", b"I")
    for index in range(len(stream)):
        server.sendall(stream[index:index + 1])
    before = len(message("T", b"1") + message("C", b"BEGIN\0"))
    received = b""
    while len(received) < before:
        received += client.recv(100)
    assert received == stream[:before]
    held.wait()
    assert nothing_comes(client)
    held.release()
    while len(received) < len(stream):
        received += client.recv(100)
    assert received == stream


def test_the_answer_to_a_commit_is_lost(place, proxy, postgres):
    place.sql("CREATE TABLE notes (number int)")
    lost = proxy.when(is_commit, CUT)
    with pytest.raises(SQLError, match="connection"):
        place.sql("BEGIN; INSERT INTO notes VALUES (1); COMMIT")
    lost.wait()
    assert postgres.sql("SELECT * FROM notes") == [("1",)]
    assert place.sql("INSERT INTO notes VALUES (2) RETURNING 2") == [("2",)]


def test_a_statement_is_lost_before_the_server_sees_it(place, proxy, postgres):
    place.sql("CREATE TABLE notes (number int)")
    lost = proxy.when(asks("INSERT"), CUT, TO_SERVER)
    with pytest.raises(SQLError, match="connection"):
        place.sql("INSERT INTO notes VALUES (1)")
    lost.wait()
    assert postgres.sql("SELECT * FROM notes") == []


def test_an_answer_that_is_held_arrives_when_it_is_released(place, proxy):
    with place.session() as session:
        held = proxy.when(is_row, HOLD)
        session.start("SELECT 1")
        held.wait()
        # Others are not held.
        assert place.sql("SELECT 2") == [("2",)]
        held.release()
        assert session.finish() == [("1",)]


def test_an_answer_never_comes(place, proxy):
    with place.session() as session:
        lost = proxy.when(is_ready, LOSE)
        session.start("SELECT 1")
        lost.wait()
        with pytest.raises(SQLError, match="no end"):
            session.finish(0.3)


def test_encrypted_connections_pass_unread(tmp_path):
    with Postgres(tmp_path, certificate=make_certificate(tmp_path)) as server, ChaosProxy(server) as proxy:
        server.create_role("app", "secret")
        place = SimpleNamespace(address=proxy.address, port=proxy.port, passwords=server.passwords)
        # It has no effect.
        proxy.when(is_row, CUT)
        assert run_sql(place, "SELECT ssl FROM pg_stat_ssl WHERE pid = pg_backend_pid()", TLS, "app") == [("t",)]


def test_new_connections_go_to_another_server(place, proxy, postgres, tmp_path):
    with Postgres(tmp_path) as other:
        other.create_role(postgres.user, postgres.password)
        other.create_database(postgres.name, postgres.user)
        before = place.sql("SELECT pg_postmaster_start_time()")
        proxy.redirect(other)
        assert place.sql("SELECT pg_postmaster_start_time()") != before
    with pytest.raises(SQLError):
        place.sql("SELECT 1")


# Names

def test_a_name_moves_to_another_address(tmp_path):
    names = OwnNames(tmp_path)

    def addresses():
        done = subprocess.run(
            [*names.prefix, "getent", "ahostsv4", "database.test"], capture_output=True, text=True, check=False, timeout=20)
        return {line.split()[0] for line in done.stdout.splitlines()}

    assert addresses() == set()
    names.set("database.test", "127.0.0.2", "127.0.0.3")
    assert addresses() == {"127.0.0.2", "127.0.0.3"}
    names.set("database.test", "127.0.0.4")
    assert addresses() == {"127.0.0.4"}


# The end of a run

RUN = """
import sys, time
from postgres_cluster import Postgres
from pathlib import Path
server = Postgres(Path(sys.argv[1]))
print(server.process.pid, server.room, flush=True)
server.freeze()
time.sleep(600)
"""


def test_nothing_is_left_of_a_run_that_was_killed(tmp_path):
    programs()
    run = subprocess.Popen(
        [sys.executable, "-c", RUN, str(tmp_path)], cwd=Path(__file__).parent, stdout=subprocess.PIPE, text=True)
    try:
        process, room = run.stdout.readline().split()
        until(lambda: state(int(process)) == "T")
        members = family(int(process))
        assert len(members) > 4 and Path(room).is_dir()
    finally:
        run.kill()
        run.communicate(timeout=20)
    until(lambda: {state(member) for member in members} <= {"Z", None} and not Path(room).exists())


# PgBouncer

@pytest.mark.parametrize("mode", ("session", "transaction"))
def test_the_pooler_passes_statements_on(postgres, tmp_path, mode):
    with PgBouncer(tmp_path, postgres.server, mode) as pooler:
        place = Place(pooler, postgres)
        assert place.sql("SELECT current_user") == [(postgres.user,)]
        # Two clients one after the other have the same connection to the server.
        assert place.sql("SELECT pg_backend_pid()") == place.sql("SELECT pg_backend_pid()")
        assert any(row[0] == postgres.name for row in pooler.admin("SHOW POOLS"))
        place.passwords = {postgres.user: "wrong"}
        with pytest.raises(SQLError, match="SASL authentication failed|password"):
            place.sql("SELECT 1")
    assert not pooler.room.exists()


@pytest.mark.parametrize("mode", ("session", "transaction"))
def test_prepared_statements_need_the_mode_session_or_a_newer_pooler(postgres, tmp_path, mode):
    is_new = pooler_version() >= (1, 21)
    script = tmp_path / "script"
    script.write_text("SELECT 1;\n")
    own = {"max_prepared_statements": 50} if is_new else {}
    with PgBouncer(tmp_path, postgres.server, mode, default_pool_size=8, **own) as pooler:
        done = subprocess.run(
            [str(programs() / "pgbench"), "--no-vacuum", "--protocol=prepared", "--client=8", "--transactions=50",
             f"--file={script}", pooler.url(postgres.user, postgres.name)],
            env={**environment(), "PGPASSWORD": postgres.password}, capture_output=True, text=True, timeout=60, check=False)
    if mode == "session" or is_new:
        assert done.returncode == 0, done
    else:
        assert re.search('prepared statement ".*" (already exists|does not exist)', done.stderr), done
