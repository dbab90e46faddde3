"""The metrics for Prometheus: they count what happened, also to what operators look after, and the rules and the dashboard use them."""
import json
import os
import re
import shutil
import socket
import subprocess
import time
from pathlib import Path

import pytest
import yaml

from access import bearer_settings
from administration import ADMINISTRATION, fetched, metrics, status
from certificates import make_certificate, make_pair
from contract import NOT_FOUND, STORED, WRITE_FAILED, fresh_id
from http_client import FORM, Connection, exchange, get, lines, post
from issuer import Issuer
from server_process import run, until
from store_files import command, failing_writes, printed
from test_reload import rewrite
from test_tls import tls_settings


def requests(method, code="none", status=200):
    return f'token_cache_requests_total{{method="{method}",status="{status}",code="{code}"}}'


@pytest.fixture(name="server")
def measured_server(serve):
    return serve(ADMINISTRATION)


def test_prometheus_accepts_them(server, promtool):
    server.post("a", "b")
    answer = fetched(server.administration[0], "/metrics")
    assert answer.headers["content-type"] == "text/plain; version=0.0.4; charset=utf-8"
    assert promtool("check", "metrics", input=answer.body.decode()) == ""


def test_requests_are_counted_by_method_status_and_code(server):
    before = metrics(server)
    sent = [
        (post("a", "b"), requests("POST")),
        (post("a", ""), requests("POST")),
        (lines("POST /token HTTP/1.1", "Host: localhost"), requests("POST", 30001)),
        (get("a"), requests("GET")),
        (get("a"), requests("GET")),
        (get("nobody"), requests("GET", 50002)),
        (get("a", path="/nowhere"), requests("GET", 40400, 404)),
        (lines("DELETE /token HTTP/1.1", "Host: localhost"), requests("DELETE", 50003)),
        (lines("GET /token HTTP/1.1"), requests("GET", 40000, 400)),
        (get("a", "X-Forwarded-Proto: http"), requests("GET", "none", 302)),
    ]
    expected = dict.fromkeys((name for _, name in sent), 0)
    for request, name in sent:
        exchange(server.address, request)
        expected[name] += 1
    after = metrics(server)
    counted = {
        name: value - before.get(name, 0) for name, value in after.items()
        if name.startswith("token_cache_requests_total") and value != before.get(name, 0)}
    assert counted == expected
    gets = sum(count for name, count in expected.items() if 'method="GET"' in name)
    # A loop counts the time of a request at the end of its turn, after the answer has left.
    until(lambda: metrics(server)['token_cache_request_duration_seconds_count{method="GET"}'] == gets)
    until(lambda: metrics(server)['token_cache_request_duration_seconds_count{method="POST"}'] == 2)


def test_reads_and_writes_of_the_store_are_counted(server):
    ids = [fresh_id() for _ in range(3)]
    for unique_id in ids:
        assert server.post(unique_id, "a") == STORED
    with Connection(server.address) as connection:
        for unique_id in [ids[0]] * 5 + ["nobody"]:
            connection.exchange(get(unique_id))
    after = metrics(server)
    assert after["token_cache_store_writes_total"] == 3
    assert after["token_cache_store_tokens"] == 3
    assert after["token_cache_store_group_writes_sum"] == 3
    assert after["token_cache_store_commit_duration_seconds_count"] == after["token_cache_store_group_writes_count"]
    assert after["token_cache_store_commit_duration_seconds_sum"] > 0
    # Each commit contains a sync; checkpoints may sync the WAL as well.
    assert after["token_cache_store_sync_duration_seconds_count"] >= after["token_cache_store_group_writes_count"]
    assert after["token_cache_store_sync_duration_seconds_sum"] > 0
    assert after["token_cache_store_reads_total"] == 2
    assert after["token_cache_cache_hits_total"] == 4
    assert after["token_cache_cache_entries"] == 1
    assert after["token_cache_store_database_bytes"] >= 4096
    assert after["token_cache_ready"] == 1


def test_failures_are_counted_by_cause(serve):
    server = serve({**ADMINISTRATION, "store": {"max_bytes": "1 MiB"}})
    with failing_writes(server, "a"):
        after = metrics(server)
    assert after['token_cache_store_failures_total{cause="database"}'] >= 1
    assert after['token_cache_store_failures_total{cause="vanished"}'] == 0
    assert after['token_cache_store_failures_total{cause="disk_full"}'] == 0
    until(lambda: metrics(server)["token_cache_ready"] == 1)
    answers = [server.post(fresh_id(), "x" * 500_000) for _ in range(5)]
    assert metrics(server)['token_cache_store_failures_total{cause="limit"}'] == answers.count(WRITE_FAILED) > 0


def test_connections_are_counted(serve):
    server = serve(ADMINISTRATION)
    open_ones = [Connection(server.address) for _ in range(2)]
    for connection in open_ones:
        assert connection.exchange(get("nobody")).body == NOT_FOUND
    after = metrics(server)
    assert after["token_cache_connections_open"] == after["token_cache_connections_accepted_total"] == 2
    for connection in open_ones:
        connection.close()
    until(lambda: metrics(server)["token_cache_connections_open"] == 0)


def test_handshakes_are_counted_by_what_came_of_them(serve, tmp_path):
    server = serve({**ADMINISTRATION, **tls_settings(make_certificate(tmp_path))})
    host, port = server.address
    subprocess.run(["curl", "-sSk", f"https://{host}:{port}/token"], capture_output=True, timeout=20, check=True)
    assert exchange(server.address, get("a")).status == 400
    socket.create_connection(server.address).close()
    until(lambda: metrics(server)['token_cache_tls_handshake_failures_total{cause="closed"}'] == 1)
    after = metrics(server)
    assert after["token_cache_tls_handshakes_total"] == 1
    assert after['token_cache_tls_handshake_failures_total{cause="plain_request"}'] == 1
    expiry = after["token_cache_certificate_expiry_timestamp_seconds"]
    assert time.time() + 86_400 < expiry < time.time() + 3 * 86_400


# What operators look after: the disk, reloads, backups

RELOADED = "token_cache_last_reload_successful"
RELOAD_TIME = "token_cache_last_reload_success_timestamp_seconds"
BACKED_UP = "token_cache_last_backup_successful"
BACKUP_TIME = "token_cache_last_backup_success_timestamp_seconds"


def test_the_disk_is_that_of_the_data_folder(server):
    disk, after = os.statvfs(server.data), metrics(server)
    size = disk.f_blocks * disk.f_frsize
    assert after["token_cache_data_directory_size_bytes"] == size
    # Other programs write to the same disk.
    assert abs(after["token_cache_data_directory_free_bytes"] - disk.f_bavail * disk.f_frsize) < size / 10


def test_a_reload_is_told_of_with_its_time(serve, tmp_path):
    """So is one that the server makes by itself, here because of certificates that it cannot use."""
    pair, other, renewed = (make_pair(tmp_path, name) for name in ("pair", "other", "renewed"))
    server = serve({**ADMINISTRATION, **tls_settings(pair)})
    first = metrics(server)[RELOAD_TIME]

    def reload(succeeds):
        until(lambda: time.time() >= first + 1)
        assert (command(server.data, "reload").returncode == 0) == succeeds
        after = metrics(server)
        assert after[RELOADED] == succeeds and (after[RELOAD_TIME] > first) == succeeds

    shutil.copy(other[1], pair[1])
    until(lambda: metrics(server)[RELOADED] == 0)
    assert "the next start would fail" in status(server)["warnings"][0]["text"]
    # Good settings do not make up for it, and good certificates do not make up for refused settings.
    rewrite(server, json_bodies="on")
    reload(False)
    for source, target in zip(renewed, pair):
        shutil.copy(source, target)
    until(lambda: not any("next start would fail" in warning["text"] for warning in status(server)["warnings"]))
    assert metrics(server)[RELOADED] == 0
    reload(True)


def test_a_backup_is_remembered_over_restarts(serve, tmp_path):
    server, began = serve(ADMINISTRATION), int(time.time())
    times = []
    for after, succeeds in (("true", 1), ("false", 0)):
        assert (command(server.data, "backup", tmp_path / "tokens.db", "--after", after).returncode == 0) == succeeds
        told = metrics(server)
        assert told[BACKED_UP] == succeeds and began <= told[BACKUP_TIME] <= time.time()
        assert status(server)["backup"]["last_success"] == told[BACKUP_TIME]
        times.append(told[BACKUP_TIME])
        assert server.stop() == 0
        server = serve(ADMINISTRATION, data=server.data)
        assert (metrics(server)[BACKED_UP], metrics(server)[BACKUP_TIME]) == (succeeds, told[BACKUP_TIME])
        until(lambda: time.time() >= times[0] + 1)
    assert times[0] == times[1], "a backup that failed has no time of success"


# The files for Prometheus and Grafana

DEPLOY = Path(__file__).parents[2] / "deploy"
FIXTURES = Path(__file__).parents[1] / "Fixtures"
CASES = {"cases.yaml": FIXTURES / "alerts.yaml", "slow-cases.yaml": FIXTURES / "slow-alerts.yaml"}
BOARD = json.loads((DEPLOY / "grafana" / "dashboard.json").read_text())
RULES = [
    rule for group in yaml.safe_load((DEPLOY / "prometheus" / "alerts.yaml").read_text())["groups"]
    for rule in group["rules"]]
PANELS = [panel for panel in BOARD["panels"] if panel["type"] != "row"]
EXPRESSIONS = [target["expr"] for panel in PANELS for target in panel["targets"]] + [rule["expr"] for rule in RULES]
SELECTOR = re.compile(r"\b((?:token_cache|process)_[a-z_]+)(?:\{([^}]*)\})?")
# Metrics of a store on other machines; test_postgres_operators.py has the tests about them.
REMOTE = "token_cache_database_"
# Those of the refreshing of tokens.
REFRESH = "token_cache_refresh"
# Prometheus adds these labels and series itself.
TARGET_LABELS = {"job", "instance"}


@pytest.fixture(name="promtool")
def promtool_on_copies(tmp_path):
    """Runs promtool in a folder that contains the files."""
    if not shutil.which("promtool"):
        pytest.skip("there is no promtool")
    for path in (DEPLOY / "prometheus").glob("*.yaml"):
        shutil.copy(path, tmp_path)
    for name, cases in CASES.items():
        shutil.copy(cases, tmp_path / name)

    def run(*arguments, **options):
        done = subprocess.run(
            ["promtool", *arguments], cwd=tmp_path, capture_output=True, text=True, timeout=300, check=False, **options)
        assert (done.returncode, done.stderr) == (0, ""), done.stdout + done.stderr
        return done.stdout

    return run


def test_prometheus_takes_the_rules_and_the_configuration(promtool):
    promtool("check", "rules", "--lint=duplicate-rules", "--lint-fatal", "alerts.yaml")
    promtool("check", "config", "--lint=duplicate-rules", "--lint-fatal", "prometheus.yaml")


def test_alerts_fire_when_they_should(promtool):
    promtool("test", "rules", *CASES)


def test_prometheus_can_read_every_query_of_the_dashboard(promtool, tmp_path):
    queries = [target["expr"].replace("$__rate_interval", "1m") for panel in PANELS for target in panel["targets"]]
    rules = [{"record": f"query:{number}", "expr": query} for number, query in enumerate(queries)]
    (tmp_path / "queries.yaml").write_text(json.dumps({"groups": [{"name": "dashboard", "rules": rules}]}))
    assert f"{len(queries)} rules found" in promtool("check", "rules", "queries.yaml")


def test_every_metric_and_label_that_is_asked_for_exists(serve, tmp_path):
    server = serve({**ADMINISTRATION, **tls_settings(make_certificate(tmp_path))})
    # Some metrics are there after a backup or a round over all rows only, and some in one mode of access.
    printed(server.data, "backup", tmp_path / "tokens.db")
    printed(server.data, "verify")
    users = serve({**ADMINISTRATION, **bearer_settings(tmp_path / "jwks.json", Issuer())})
    check_uses([*metrics(server), *metrics(users)], lambda name: not name.startswith((REMOTE, REFRESH)))


def check_uses(lines, concerns, least=10):
    """Whether each metric that is asked for is in the lines, and each that is there is asked for, of those with such names."""
    samples = {}
    for sample in lines:
        name, _, labels = sample.partition("{")
        if concerns(name):
            samples.setdefault(name, []).append(dict(re.findall(r'([a-z]+)="([^"]*)"', labels)))
    asked = [
        (name, selector) for expression in EXPRESSIONS for name, selector in SELECTOR.findall(expression)
        if concerns(name)]
    assert len(asked) > least
    for name, selector in asked:
        assert name in samples, f"there is no {name}"
        for label, operator, value in re.findall(r'([a-z_]+)(=~?)"([^"]*)"', selector):
            # Statuses other than 200 have no samples until they occur.
            if label in TARGET_LABELS or label == "status":
                continue
            values = {labels.get(label) for labels in samples[name]}
            wanted = value.split("|") if operator == "=~" else [value]
            assert set(wanted) <= values, f"{name} has no {label} {wanted}"
    shown = {name for name, _ in asked} | {"process_virtual_memory_bytes", "token_cache_build_info"}
    families = {re.sub(r"_(bucket|sum|count)$", "", name) for name in samples if name not in shown}
    forgotten = families - {re.sub(r"_(bucket|sum|count)$", "", name) for name in shown}
    assert not forgotten, "the dashboard or the alerts have a use for every metric"
