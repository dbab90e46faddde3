"""What operators see of a running server whose tokens are in PostgreSQL: /metrics, /readyz, /status, and the log."""
import contextlib
import json
import re
import time

import pytest

from administration import fetched, metrics, readiness, status
from contract import STORED, found
from registers import Load
from server_process import beside, until
from test_metrics import REMOTE, check_uses

# How long a server is ready in spite of trouble with its database, in seconds (StoreHealth.grace).
GRACE = 3
CANARY = "canary4711"


def remote(server):
    """The metrics of the database, by their names without the common prefix."""
    return {name.removeprefix(REMOTE): value for name, value in metrics(server).items() if name.startswith(REMOTE)}


def hosts(server):
    """For each host, by name: its role, and how many connections to it are open."""
    matches = [
        (re.fullmatch(r'host_connections\{host="(.*)",role="(.*)",version="(.*)"\}', name), value)
        for name, value in remote(server).items()]
    return {match[1]: (match[2], value) for match, value in matches if match}


def log_lines(server):
    """The lines of the log from the level notice on, each with its level."""
    return re.findall(r"(?m)^\S+ ((?:notice|warning|error|critical): (?!made the key ring).*)$", server.log())


@contextlib.contextmanager
def watched(server):
    """Asks a server again and again whether it is ready: gives when each answer came, and its reasons if it was not."""
    answers = []

    def ask(pause, over):
        while not over.wait(pause):
            ready, answer = readiness(server)
            answers.append((time.monotonic(), None if ready == 200 else " ".join(answer["reasons"])))

    with beside(ask, [0.02]):
        yield answers


def refusals(answers):
    return [(moment, reasons) for moment, reasons in answers if reasons is not None]


def is_ready_again(server, answers):
    return "(timeline 2), after" in server.log() and answers[-1][1] is None


@pytest.fixture(name="databases")
def primary_with_two_standbys(replicated_postgres):
    return replicated_postgres(standbys=2)


@pytest.fixture(name="store")
def store_of_the_databases(databases, store_on):
    return store_on(databases)


def name(node):
    return f"{node.address}:{node.port}"


# Figures

def test_every_metric_of_a_database_is_used_and_counts(databases, store):
    server = store.serve("server", {"loops": 2, "store": {"connections": 3, "timeout": "30s"}})
    for number in range(5):
        assert server.post("me", str(number)) == STORED
        assert server.get("me") == found(str(number))
    until(lambda: [remote(server)[f'connections{{state="{kind}"}}'] for kind in ("open", "pending", "wanted")] == [6, 0, 6])
    told = hosts(server)
    assert told.pop(name(databases.primary)) == ("primary", 6)
    # The standbys are asked only if the primary has kept the server waiting.
    assert set(told) == {name(node) for node in databases.standbys}
    assert set(told.values()) <= {("unknown", 0), ("standby", 0)}
    check_uses(metrics(server), lambda metric: metric.startswith(REMOTE))
    now = remote(server)
    assert (now["waiting_requests"], now["waiting_requests_limit"]) == (0, 10_000)
    assert now['round_trip_duration_seconds_count{kind="read"}'] >= 5
    # Each connection has proven that it leads to the primary before it was used.
    assert now['proofs_total{outcome="proven"}'] >= 6 and now['proofs_total{outcome="failed"}'] == 0
    assert 0 <= now["proof_age_seconds"] < 60 and now["round_trip_duration_seconds_count{kind=\"proof\"}"] >= 0
    assert (now["timeline"], now["failovers_total"], now["unacknowledged_writes_total"]) == (1, 0, 0)
    # Both use the same clock. A round trip that takes long is measured less exactly.
    until(lambda: abs(remote(server)["clock_difference_seconds"]) < 1)
    assert (now["missing_keys"], now['refusals_total{limit="requests"}'], now['refusals_total{limit="bytes"}']) == (0, 0, 0)
    # The process of a command waits 750 ms before it uses a primary (Fence.validity), also with this shorter timeout.
    store.environment["TOKEN_CACHE_STORE_TIMEOUT"] = "500ms"
    until(lambda: store.run("get", "me", "--data-directory", str(store.folder / "none")).stdout == "4\n")
    # The walk has counted the rows, and seen none that does not open.
    began = int(time.time())
    assert store.run("verify", "--config", str(server.folder / "token-cache.yaml")).stdout.startswith("1 token checked\n")
    assert metrics(server)["token_cache_last_walk_timestamp_seconds"] >= began
    assert metrics(server)["token_cache_store_damaged_rows"] == 0
    walk = status(server)["store"]["walk"]
    assert walk["ended_at"] >= began and walk["damaged"] == 0 and 0 <= walk["progress"] <= 1


def test_a_server_without_a_connection_to_look_at_the_keys_says_so(databases, store):
    server = store.serve("server", {"loops": 1, "store": {"connections": 2}})
    assert server.post("me", "hello") == STORED
    # Requests have two connections and keep them. The oldest one, for looks, is ended and not allowed again.
    until(lambda: remote(server)['connections{state="open"}'] == 2)
    user = store.database.user
    databases.primary.sql(f'ALTER ROLE "{user}" CONNECTION LIMIT 2')
    try:
        oldest = f"SELECT min(backend_start) FROM pg_stat_activity WHERE usename = '{user}'"
        assert databases.primary.terminate(f"usename = '{user}' AND backend_start = ({oldest})") == 1
        said = "warning: this server cannot learn which key seals, and goes on with the present one: "
        until(lambda: any(line.startswith(said) and "SQLSTATE 53300" in line and "raise max_connections there" in line
                          for line in log_lines(server)))
        assert readiness(server)[0] == 200 and server.get("me") == found("hello")
    finally:
        databases.primary.sql(f'ALTER ROLE "{user}" CONNECTION LIMIT -1')


# Failovers

def check_end(taken, again, old, new):
    """The two lines with which a failover ends."""
    found_it = re.escape(f"PostgreSQL {new.value('SHOW server_version').split()[0]} at {name(new)} (timeline 2)")
    assert re.match(rf"notice: {found_it} is the primary now in the place of {name(old)} \(timeline 1\); it could be used", taken)
    assert re.fullmatch(rf"notice: connected to {found_it}, after [0-9.]+ s", again), again


def test_a_short_failover_takes_no_server_out_and_is_told_once(databases, store):
    server = store.serve("server")
    assert server.post(CANARY, CANARY) == STORED
    with Load([server], clients=8) as load, watched(server) as answers:
        # No request that is under way at the kill began before this.
        began = time.monotonic()
        load.go_on()
        failover = databases.failover("kill")
        load.first_good(server, failover.promoted)
        load.first_good(server, failover.promoted, "reads")
        until(lambda: is_ready_again(server, answers))
        load.go_on()
    load.check()
    # There are none, unless this machine is so slow that the failover takes longer than the grace.
    assert all(moment - began >= GRACE for moment, _ in refusals(answers))
    begun, lost, *others, taken, again = log_lines(server)
    assert begun.startswith("notice: connected to PostgreSQL ") and begun.endswith(" (timeline 1)")
    assert lost.startswith(f"warning: the connection to PostgreSQL at {name(failover.old)} is lost, looking for the primary: ")
    check_end(taken, again, failover.old, failover.new)
    assert all(line.startswith("error: PostgreSQL has no usable primary for ") for line in others)
    now = remote(server)
    assert (now["failovers_total"], now["timeline"]) == (1, 2)
    until(lambda: hosts(server)[name(failover.new)] == ("primary", 4))
    assert hosts(server)[name(failover.old)] in (("unreachable", 0), ("former", 0))
    shown = status(server)["database"]
    assert shown["failovers"] == 1 and shown["last_failover"] > 0
    check_silence(server, databases)


def check_silence(server, databases):
    """No secret is anywhere in what an operator sees."""
    pages = (fetched(server.administration[0], path).body.decode() for path in ("/metrics", "/status", "/readyz"))
    text = server.log() + "".join(pages)
    assert CANARY not in text
    for password in databases.primary.passwords.values():
        assert password not in text


def test_an_outage_is_told_once_with_its_reason_and_its_end(databases, store):
    server = store.serve("server")
    assert server.post(CANARY, CANARY) == STORED
    old = databases.primary
    with Load([server], clients=8) as load, watched(server) as answers:
        began = time.monotonic()
        load.go_on()
        old.kill()
        moment, told = until(lambda: refusals(answers))[0]
        assert moment - began >= GRACE
        assert "PostgreSQL has no usable primary: " in told and f"{name(old)}: " in told
        assert all(f"{name(node)} is a standby" in told for node in databases.standbys)
        assert remote(server)["connections{state=\"open\"}"] == 0 and hosts(server)[name(old)] == ("unreachable", 0)
        until(lambda: len(log_lines(server)) >= 3)
        # Clients are told so.
        until(lambda: load.failed_reads and load.failed_writes)
        promoted, _ = databases.promote()
        load.first_good(server, promoted)
        until(lambda: is_ready_again(server, answers))
        load.go_on()
    load.check()
    _, lost, gone, *others, taken, again = log_lines(server)
    assert lost.startswith(f"warning: the connection to PostgreSQL at {name(old)} is lost, looking for the primary: ")
    assert re.match(r"error: PostgreSQL has no usable primary for [0-9.]+ s, clients are told that tokens can be neither stored nor read; ", gone)
    check_end(taken, again, old, databases.primary)
    # Further lines come after ten seconds, with other reasons, if the standbys do not follow the new primary yet.
    assert all(line.startswith("error: PostgreSQL has no usable primary for ") for line in others)
    assert json.loads(fetched(server.administration[0], "/readyz").body) == {"ready": True, "reasons": []}
    check_silence(server, databases)
