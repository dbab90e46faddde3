"""The metrics for Prometheus, and that they count what happened."""
import re
import shutil
import socket
import subprocess
import time
import urllib.request

import pytest

from certificates import make_certificate
from contract import NOT_FOUND, STORED, found, fresh_id
from http_client import FORM, Connection, exchange, get, lines, post
from server_process import run, until
from storage_shim import StorageShim
from store_files import failing_writes

ADMINISTRATION = {"admin": {"listen": "127.0.0.1:0"}, "loops": 2}
SAMPLE = re.compile(r'([a-z_]+)(\{([a-z]+="[^"\\]*",?)+\})? ([-+0-9.e]+|nan|inf)')


def fetched(server):
    """The text of the metrics and its media type."""
    host, port = server.administration[0]
    with urllib.request.urlopen(f"http://{host}:{port}/metrics", timeout=20) as response:
        return response.read().decode(), response.headers["Content-Type"]


def metrics(server):
    """The samples, as they are written, with their values."""
    text, _ = fetched(server)
    samples = [line.rsplit(" ", 1) for line in text.splitlines() if not line.startswith("#")]
    assert len({name for name, _ in samples}) == len(samples), "no sample comes twice"
    return {name: float(value) for name, value in samples}


def requests(method, code="none", status=200):
    return f'token_cache_requests_total{{method="{method}",status="{status}",code="{code}"}}'


@pytest.fixture(name="server")
def measured_server(serve):
    return serve(ADMINISTRATION)


def test_prometheus_accepts_them(server):
    exchange(server.address, post("a", "b"))
    text, media_type = fetched(server)
    assert media_type == "text/plain; version=0.0.4; charset=utf-8"
    for line in text.splitlines():
        assert line.startswith(("# HELP ", "# TYPE ")) or SAMPLE.fullmatch(line), line
    if not shutil.which("promtool"):
        pytest.skip("there is no promtool")
    done = subprocess.run(
        ["promtool", "check", "metrics"], input=text, capture_output=True, text=True, timeout=60, check=False)
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")


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
    assert after['token_cache_request_duration_seconds_count{method="GET"}'] == gets
    assert after['token_cache_request_duration_seconds_count{method="POST"}'] == 2


def test_a_latency_is_that_of_the_answers(server):
    with Connection(server.address) as connection:
        began = time.monotonic()
        for _ in range(50):
            assert connection.exchange(post("a", "b")).body == STORED
            assert connection.exchange(get("a")).body == found("b")
        took = time.monotonic() - began
    after = metrics(server)
    for method in ("GET", "POST"):
        name = f'{{method="{method}"}}'
        assert after["token_cache_request_duration_seconds_count" + name] == 50
        assert 0 < after["token_cache_request_duration_seconds_sum" + name] < took
    # Buckets are cumulative.
    buckets = [value for name, value in after.items()
               if name.startswith('token_cache_request_duration_seconds_bucket{method="GET"')]
    assert buckets == sorted(buckets) and buckets[-1] == 50 and len(buckets) > 10


def test_reads_and_writes_of_the_store_are_counted(server):
    ids = [fresh_id() for _ in range(3)]
    for unique_id in ids:
        assert exchange(server.address, post(unique_id, "a")).body == STORED
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


def test_a_slow_disk_shows_in_the_time_of_syncs(shim_library, tmp_path):
    delay = 0.05
    with StorageShim(shim_library, tmp_path / "shim") as shim:
        server = shim.serve(tmp_path / "server", ADMINISTRATION)
        try:
            shim.set(sync_delay_microseconds=int(delay * 1e6))
            for _ in range(3):
                assert exchange(server.address, post(fresh_id(), "a")).body == STORED
            after = metrics(server)
        finally:
            shim.set(sync_delay_microseconds=0)
            server.stop()
    assert after["token_cache_store_sync_duration_seconds_sum"] >= 3 * delay
    assert after["token_cache_store_commit_duration_seconds_sum"] >= 3 * delay


def test_the_database_opened_anew_is_measured_as_well(server):
    with failing_writes(server):
        until(lambda: metrics(server)["token_cache_ready"] == 0)
    until(lambda: metrics(server)["token_cache_ready"] == 1)
    before = metrics(server)["token_cache_store_sync_duration_seconds_count"]
    assert exchange(server.address, post("a", "b")).body == STORED
    assert metrics(server)["token_cache_store_sync_duration_seconds_count"] > before


def test_what_expires_is_counted(serve):
    server = serve({**ADMINISTRATION, "retention": {"after_written": "1s"}})
    assert exchange(server.address, post("a", "b")).body == STORED
    until(lambda: metrics(server)["token_cache_store_expired_tokens_total"] == 1)
    assert metrics(server)["token_cache_store_tokens"] == 0


def test_failures_are_counted_by_cause(serve):
    server = serve({**ADMINISTRATION, "store": {"max_tokens": 1}})
    for unique_id in ("a", "b", "c"):
        exchange(server.address, post(unique_id, "a"))
    assert metrics(server)['token_cache_store_failures_total{cause="limit"}'] == 2
    with failing_writes(server, "a"):
        after = metrics(server)
    assert after['token_cache_store_failures_total{cause="database"}'] >= 1
    assert after['token_cache_store_failures_total{cause="vanished"}'] == 0
    assert after['token_cache_store_failures_total{cause="disk_full"}'] == 0


def test_connections_are_counted(serve):
    server = serve({**ADMINISTRATION, "limits": {"connections": 2}})
    open_ones = [Connection(server.address) for _ in range(2)]
    for connection in open_ones:
        # Neither is idle while its request waits for its body.
        connection.send(lines(
            "POST /token HTTP/1.1", "Host: localhost", FORM, "Content-Length: 1", "Expect: 100-continue"))
        assert connection.receive().status == 100
    assert exchange(server.address, get("nobody")).status == 503
    after = metrics(server)
    assert after['token_cache_connections_refused_total{cause="limit"}'] == 1
    assert after["token_cache_connections_accepted_total"] == 3
    for connection in open_ones:
        connection.close()
    until(lambda: metrics(server)["token_cache_connections_open"] == 0)


def test_handshakes_are_counted_by_what_came_of_them(serve, tmp_path):
    chain, key = make_certificate(tmp_path)
    server = serve({**ADMINISTRATION, "listen": "https://127.0.0.1:0", "tls": {"certificate": chain, "private_key": key}})
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


def test_the_process_is_described(server):
    after = metrics(server)
    assert abs(after["process_resident_memory_bytes"] - server.resident_bytes()) < 32 << 20
    assert abs(after["process_start_time_seconds"] - time.time()) < 60
    assert 0 < after["process_cpu_seconds_total"] <= server.processor_seconds() + 0.02
    assert abs(after["process_open_fds"] - server.open_descriptors()) <= 3
    assert after["process_max_fds"] > 64
    version = run("--version").stdout.strip()
    info = next(name for name in after if name.startswith("token_cache_build_info"))
    assert re.fullmatch(
        rf'token_cache_build_info{{version="{re.escape(version)}",sqlite="3\.[0-9.]+",openssl="3\.[0-9.]+"}}', info)


def test_no_metric_shows_a_key(server):
    text, _ = fetched(server)
    for secret in server.data.joinpath("keys").read_text().split():
        assert len(secret) < 20 or secret not in text


def test_clients_do_not_see_them(server):
    assert exchange(server.address, lines("GET /metrics HTTP/1.1", "Host: localhost")).status == 404
