"""The test environment for PostgreSQL itself: what other tests rely on when they break servers, links and disks."""
import socket
import time

import pytest

from certificates import make_certificate
from postgres_cluster import Postgres
from postgres_failover import FAULTS, STUCK, WRITE, wal_files
from process_tree import family, state
from psql import SQLError
from server_process import until

# A table with some rows, to look for them afterwards.
TABLE = "CREATE TABLE notes (number int PRIMARY KEY); INSERT INTO notes VALUES (1)"


def notes(server):
    return {int(number) for number, in server.sql("SELECT number FROM notes")}


# One server

def test_each_test_has_a_database_of_its_own(postgres):
    assert postgres.sql("SELECT 1 FROM pg_tables WHERE schemaname = 'public'") == []
    postgres.sql("CREATE TABLE own (value text)", user=postgres.user)
    assert postgres.sql("INSERT INTO own VALUES ('a'), ('line\nand \"line\"'); SELECT * FROM own", user=postgres.user) == [
        ("a",), ('line\nand "line"',)]


def test_a_role_needs_its_password(postgres):
    assert postgres.value("SELECT current_user", user=postgres.user) == postgres.user
    postgres.server.passwords[postgres.user] += " wrong"
    with pytest.raises(SQLError, match="password authentication failed"):
        postgres.sql("SELECT 1", user=postgres.user)


def test_an_error_says_what_is_wrong(postgres):
    with pytest.raises(SQLError, match="22012.*division by zero"):
        postgres.sql("SELECT 1; SELECT 1/0; SELECT 2")


def test_a_session_holds_a_transaction_open(postgres):
    postgres.sql(TABLE)
    with postgres.session() as first, postgres.session() as second:
        first.sql("BEGIN; UPDATE notes SET number = 2")
        second.start("UPDATE notes SET number = 3 WHERE number = 1 RETURNING number")
        until(lambda: postgres.sql(
            f"SELECT 1 FROM pg_stat_activity WHERE pid = {second.process_of_server} AND wait_event_type = 'Lock'"))
        first.sql("COMMIT")
        # The row has another number by now.
        assert second.finish() == []
        first.start("SELECT pg_sleep(60)")
        assert postgres.server.terminate(f"pid = {first.process_of_server}") == 1
        with pytest.raises(SQLError, match="terminating connection"):
            first.finish()


def test_all_processes_are_killed_and_what_was_committed_is_there_afterwards(tmp_path):
    with Postgres(tmp_path) as server:
        server.sql(TABLE)
        members = family(server.process.pid)
        assert len(members) > 4
        server.kill()
        assert {state(member) for member in members} <= {"Z", None}
        assert not server.is_running() and not server.answers()
        server.start()
        assert notes(server) == {1}
    assert not server.room.exists()


def test_a_frozen_server_answers_when_it_is_thawed(tmp_path):
    with Postgres(tmp_path) as server, server.session() as session:
        server.freeze()
        assert {state(member) for member in family(server.process.pid)} == {"T"}
        # The kernel accepts a connection, but nobody answers.
        with socket.create_connection((server.address, server.port), 5) as client:
            client.sendall(b"\0\0\0\x08\x04\xd2\x16\x2f")
            client.settimeout(0.2)
            with pytest.raises(TimeoutError):
                client.recv(1)
            session.start("SELECT 1")
            server.thaw()
            assert session.finish() == [("1",)]
            client.settimeout(20)
            assert client.recv(1) == b"N"


def test_settings_are_changed_while_it_runs_and_errors_in_them_are_found(tmp_path):
    with Postgres(tmp_path, settings={"work_mem": "5MB"}) as server:
        assert server.value("SHOW work_mem") == "5MB"
        server.configure(work_mem="6MB")
        assert server.value("SHOW work_mem") == "6MB"
        server.configure(work_mem=None)
        assert server.value("SHOW work_mem") == "4MB"
        with pytest.raises(AssertionError, match="invalid value for parameter"):
            server.configure(work_mem="much")


def test_only_tls_is_allowed_and_the_certificate_changes(tmp_path):
    names = ("-addext", "subjectAltName=DNS:localhost,IP:127.0.0.1")
    folders = tmp_path / "first", tmp_path / "second"
    for folder in folders:
        folder.mkdir()
    first, second = (make_certificate(folder, *names) for folder in folders)
    access = ("local all postgres peer map=us", "hostssl all all all scram-sha-256")
    with Postgres(tmp_path, certificate=first, access=access) as server:
        server.create_role("app", "secret")

        def connect(certificate, mode="verify-full"):
            return server.sql("SELECT 1", f"dbname=postgres sslmode={mode} sslrootcert={certificate}", "app")

        assert connect(first[0]) == [("1",)]
        with pytest.raises(SQLError, match="no pg_hba.conf entry .* no encryption"):
            connect(first[0], "disable")
        server.use_certificate(*second)
        assert connect(second[0]) == [("1",)]
        with pytest.raises(SQLError, match="certificate verify failed"):
            connect(first[0])


# Several servers

def test_a_write_waits_for_a_standby(replicated_postgres):
    databases = replicated_postgres()
    databases.sql(TABLE)
    standby, = databases.standbys
    databases.wait_until_equal(standby)
    assert notes(standby) == {1}
    standby.freeze()
    with databases.primary.session() as session:
        session.start("INSERT INTO notes VALUES (2)")
        until(lambda: databases.sql("SELECT 1 FROM pg_stat_activity WHERE wait_event = 'SyncRep'"))
        standby.thaw()
        session.finish()
    assert notes(databases.primary) == {1, 2}


def test_a_commit_that_stops_waiting_warns(replicated_postgres):
    databases = replicated_postgres()
    databases.sql(TABLE)
    databases.standbys[0].freeze()
    with databases.primary.session() as session:
        session.start("INSERT INTO notes VALUES (2)")
        until(lambda: databases.primary.cancel("wait_event = 'SyncRep'"))
        assert session.finish() == []
        assert "01000: canceling wait for synchronous replication" in session.notes
    assert notes(databases.primary) == {1, 2}


@pytest.mark.parametrize("fault", FAULTS)
def test_a_standby_takes_over_and_the_old_primary_follows_it(replicated_postgres, fault):
    databases = replicated_postgres(2, has_network=fault == "cut", has_small_disks=fault == "full")
    databases.create_role("app", "secret")
    databases.sql(TABLE)
    old = databases.primary
    began = time.monotonic()
    failover = databases.failover(fault)
    assert began <= failover.broken <= failover.promoted <= failover.completed <= time.monotonic()
    assert (failover.old, failover.new) == (old, databases.primary)
    assert databases.value("SELECT pg_is_in_recovery()") == "f"
    databases.sql("INSERT INTO notes VALUES (2)")
    databases.repair(old)
    databases.wait_until_equal(old)
    assert notes(old) == {1, 2}
    assert old.value("SELECT current_user", user="app") == "app"
    assert {node.name for node in databases.standbys} == databases.followers()


@pytest.mark.parametrize("way", ("rewind", "copy"))
def test_what_only_the_old_primary_wrote_is_gone_when_it_is_repaired(replicated_postgres, way):
    databases = replicated_postgres(2)
    databases.sql(TABLE)
    old = databases.primary
    # A frozen standby would not do: what the kernel has received for it is there when it is thawed.
    for standby in databases.standbys:
        databases.detach(standby)
    databases.sql("SET synchronous_commit = local; INSERT INTO notes VALUES (2)")
    databases.promote()
    databases.sql("INSERT INTO notes VALUES (3)")
    assert notes(old) == {1, 2}
    databases.repair(old, way)
    databases.wait_until_equal(old)
    assert {node.name: notes(node) for node in databases.nodes} == dict.fromkeys(("node0", "node1", "node2"), {1, 3})


def test_a_standby_with_half_a_record_follows_the_new_primary(replicated_postgres):
    databases = replicated_postgres(2)
    databases.sql(TABLE)
    first = databases.primary.value("SELECT pg_walfile_name(pg_current_wal_lsn())")
    # One record of several WAL files.
    databases.sql("SELECT pg_logical_emit_message(true, 'test', repeat('x', 60000000))")
    for standby in databases.standbys:
        databases.wait_until_equal(standby)
    databases.primary.kill()
    for standby in databases.standbys:
        # As if the primary had ended after it had sent the first file.
        standby.stop("immediate")
        for file in wal_files(standby, first):
            if file.name != first:
                file.unlink()
        standby.start()
    databases.promote()
    assert any(STUCK in node.log() for node in databases.nodes)
    databases.sql("INSERT INTO notes VALUES (2)")
    follower, = (node for node in databases.standbys if node.is_running())
    databases.wait_until_equal(follower)
    assert notes(follower) == {1, 2}


def test_a_primary_alone_acknowledges_nothing_unless_it_is_told_to(replicated_postgres):
    databases = replicated_postgres()
    databases.sql(TABLE)
    assert databases.failover("kill").completed is None
    with databases.primary.session() as session:
        session.start("INSERT INTO notes VALUES (2)")
        until(lambda: databases.sql("SELECT 1 FROM pg_stat_activity WHERE wait_event = 'SyncRep'"))
        databases.add_standby()
        session.finish()
    # Now one standby runs, and one does not.
    failover = databases.failover("kill", alone=True)
    assert databases.value("SHOW synchronous_standby_names") == ""
    databases.sql("INSERT INTO notes VALUES (3)")
    databases.repair(failover.old)
    assert databases.value("SHOW synchronous_standby_names") == "ANY 1 (*)"
    databases.sql(WRITE)
    assert notes(databases.primary) == {1, 2, 3}


def test_a_server_that_is_cut_off_sends_no_reset(replicated_postgres):
    databases = replicated_postgres(has_network=True)
    primary = databases.primary
    address = (primary.address, primary.port)
    with socket.create_connection(address, 5) as client:
        databases.break_primary("cut")
        client.sendall(b"\0\0\0\x08\x04\xd2\x16\x2f")
        client.settimeout(0.5)
        with pytest.raises(TimeoutError):
            client.recv(1)
        with pytest.raises(TimeoutError):
            socket.create_connection(address, 0.5)
        # The server itself still runs, as can be seen over its Unix socket.
        assert primary.answers()
        primary.stop("immediate")
        with pytest.raises(TimeoutError):
            client.recv(1)


def test_a_full_disk_refuses_writes_until_there_is_room(replicated_postgres):
    databases = replicated_postgres(0, has_small_disks=True)
    databases.sql(TABLE)
    databases.break_primary("full")
    assert not databases.writes_without_standby()
    databases.end_fault(databases.primary)
    # It has crashed, or is about to.
    databases.primary.restart("immediate")
    assert notes(databases.primary) == {1}
    assert databases.writes_without_standby()
