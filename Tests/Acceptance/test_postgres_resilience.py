"""A database that changes, fills up or makes its clients wait while servers run: they notice, say so, and go on by themselves."""
from concurrent.futures import ThreadPoolExecutor

from administration import metrics
from contract import STORED, WRITE_FAILED, found
from postgres_cluster import Postgres
from postgres_programs import SUPERUSER
from server_process import until
from small_disk import SmallDisk
from test_postgres_faults import in_background, troubles
from test_postgres_start import reasons

BRIEF = {"loops": 1, "store": {"timeout": "1s"}}


def begin(server):
    """Stores a first token as soon as the server is connected."""
    until(lambda: not reasons(server))
    until(lambda: server.post("me", "first") == STORED)


# Settings of the database. DurabilityRulesTests has those that are unsafe.

def test_a_database_that_is_made_unsafe_is_not_used_until_it_is_safe_again(replicated_postgres, store_on):
    databases = replicated_postgres(standbys=1)
    primary = databases.primary
    server = store_on(databases).serve("server", BRIEF)
    begin(server)
    before, text = primary.settings.get("synchronous_standby_names"), "synchronous_standby_names is empty on"
    primary.configure(synchronous_standby_names="")
    # The server notices this although no client asks for anything.
    until(lambda: text in reasons(server))
    # Until then, a write may be stored, though it is not acknowledged.
    until(lambda: metrics(server)['token_cache_database_connections{state="open"}'] == 0)
    assert server.post("me", "unsafe") == WRITE_FAILED
    assert any(text in line for line in troubles(server))
    primary.configure(synchronous_standby_names=before)
    until(lambda: not reasons(server))
    until(lambda: server.get("me") == found("first"))
    until(lambda: server.post("me", "second") == STORED)


# Each statement through psql takes longer than the time of a brief server's requests.
PATIENT = {"loops": 1, "store": {"timeout": "30s"}}


def test_a_commit_whose_wait_for_a_standby_is_ended_by_a_setting_is_no_success(replicated_postgres, store_on):
    """PostgreSQL ends the wait without a warning."""
    databases = replicated_postgres(standbys=1)
    primary = databases.primary
    server = store_on(databases).serve("server", PATIENT)
    begin(server)
    databases.standbys[0].freeze()
    with in_background(server.post, "me", "second") as second:
        until(lambda: waiting(primary, "wait_event = 'SyncRep' AND query NOT LIKE '%emit_message%'"))
        primary.configure(synchronous_standby_names="")
        assert second.result() == WRITE_FAILED
    assert any("its settings no longer have a standby confirm each commit" in line for line in troubles(server))


def test_a_subscriber_of_logical_replication_is_no_standby(replicated_postgres, store_on, tmp_path):
    """It confirms the commits of a server that lets anybody do so, and keeps nothing of them."""
    databases = replicated_postgres(standbys=1)
    primary = databases.primary
    server = store_on(databases).serve("server", PATIENT)
    begin(server)
    primary.sql(
        "CREATE TABLE other (number int PRIMARY KEY); CREATE PUBLICATION others FOR TABLE other;"
        "SELECT pg_create_logical_replication_slot('others', 'pgoutput')", "tokens")
    with Postgres(tmp_path, "subscriber") as subscriber:
        link = f"host={primary.socket_folder} port={primary.port} dbname=tokens user={SUPERUSER}"
        subscriber.sql(
            f"CREATE TABLE other (number int PRIMARY KEY); CREATE SUBSCRIPTION others CONNECTION '{link}' PUBLICATION others "
            "WITH (enabled = false, create_slot = false, copy_data = false)")
        databases.standbys[0].freeze()
        with in_background(server.post, "me", "second") as second:
            until(lambda: waiting(primary, "wait_event = 'SyncRep'"))
            subscriber.sql("ALTER SUBSCRIPTION others ENABLE")
            assert second.result() == WRITE_FAILED
        until(lambda: "has * on" in reasons(server))


# A full disk

def test_a_server_whose_database_has_no_room_is_not_ready_until_there_is_room(store_on, tmp_path):
    with Postgres(tmp_path, disk=SmallDisk()) as database:
        server = store_on(database).serve("server", BRIEF)
        begin(server)
        database.disk.fill()
        # Again and again, as the first write may fail because it took too long.
        until(lambda: server.post("me", "x" * 100_000) == WRITE_FAILED and "SQLSTATE 53100" in reasons(server))
        database.disk.empty()
        until(lambda: not reasons(server))
        until(lambda: "tokens are stored again" in server.log())
        until(lambda: server.post("me", "y" * 100_000) == STORED)


# A slow network

def test_long_tokens_that_take_seconds_to_arrive_are_asked_for_once(behind, proxy):
    server = behind.serve("server", {"loops": 1, "store": {"timeout": "60s"}, "cache": {"max_bytes": 0}})
    long = "x" * 900_000
    assert server.post("long", long) == STORED and server.post("short", "y") == STORED
    proxy.throttle(4_000_000)
    with ThreadPoolExecutor(12) as threads:
        answers = [threads.submit(server.get, "long") for _ in range(12)]
        assert all(answer.result() == found(long) for answer in answers)
    assert server.get("short") == found("y")
    assert not any(count for name, count in metrics(server).items() if name.startswith("token_cache_database_retries_total"))


# Connections on which commits wait

def waiting(database, event):
    """How many of the database's processes fulfil a condition on pg_stat_activity."""
    return int(database.value(f"SELECT count(*) FROM pg_stat_activity WHERE {event}"))


def is_bounded(server, database, event, round_count=8):
    """Sends writes, which must fail; returns how many processes of the database have waited at the same time."""
    most = 0
    for number in range(round_count):
        assert server.post(f"user {number}", "x") == WRITE_FAILED
        most = max(most, waiting(database, event))
    return most


def test_commits_that_wait_for_a_standby_leave_few_processes_behind(replicated_postgres, store_on):
    databases = replicated_postgres(standbys=1)
    server = store_on(databases).serve("server", BRIEF)
    begin(server)
    databases.standbys[0].freeze()
    # The connection for writes, administration, and attempts to connect.
    assert is_bounded(server, databases.primary, "wait_event = 'SyncRep'") <= 6
    databases.standbys[0].thaw()
    until(lambda: server.post("me", "second") == STORED)
    until(lambda: waiting(databases.primary, "wait_event = 'SyncRep'") == 0)
    until(lambda: not reasons(server))


def test_writes_that_wait_for_a_lock_leave_few_processes_behind(store_on, tmp_path):
    with Postgres(tmp_path) as database:
        server = store_on(database).serve("server", BRIEF)
        begin(server)
        with database.session("tokens") as session:
            session.sql("BEGIN; LOCK TABLE token IN EXCLUSIVE MODE")
            assert is_bounded(server, database, "wait_event_type = 'Lock'") <= 8
            until(lambda: server.get("me") == found("first"))
        until(lambda: server.post("me", "second") == STORED)
        until(lambda: waiting(database, "wait_event_type = 'Lock'") == 0)
