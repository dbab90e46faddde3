"""pgpool-II in between, which sends reads to standbys: no server gets what is old from one."""
from contract import NOT_FOUND, STORED, found
from pgpool import Pgpool
from postgres_store import PostgresStore
from postgres_cluster import NamedDatabase
from server_process import until
from test_postgres_faults import troubles

BRIEF = {"loops": 1, "store": {"timeout": "2s"}}


def test_reads_that_a_pooler_would_balance_are_current(replicated_postgres, postgres_binary, tmp_path):
    databases = replicated_postgres(standbys=1)
    tables = NamedDatabase(databases)
    with Pgpool(tmp_path, databases, tables.user) as pool, \
            PostgresStore(postgres_binary, tmp_path / "store", tables, pool.url(tables.user, tables.name)) as store:
        server = store.serve("server", BRIEF)
        until(lambda: server.post("me", "one") == STORED)
        assert server.get("me") == found("one")
        databases.standbys[0].sql("SELECT pg_wal_replay_pause()")
        assert server.post("me", "two") == STORED
        assert [server.get("me") for _ in range(5)] == [found("two")] * 5
        assert not troubles(server)


def test_reads_that_a_pooler_sends_to_a_standby_fail(replicated_postgres, postgres_binary, tmp_path):
    databases = replicated_postgres(standbys=1)
    tables = NamedDatabase(databases)
    # Otherwise pgpool takes functions that are volatile, as one of these is, for writes.
    misled = {"read_only_function_list": "pg_current_wal_lsn,octet_length"}
    with Pgpool(tmp_path, databases, tables.user, **misled) as pool, \
            PostgresStore(postgres_binary, tmp_path / "store", tables, pool.url(tables.user, tables.name)) as store:
        server = store.serve("server", BRIEF)
        assert server.get("me") == NOT_FOUND
        until(lambda: any("SQLSTATE 55000" in line and "load_balance_mode = off" in line for line in troubles(server)))
