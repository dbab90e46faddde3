"""The metrics in OpenMetrics, with exemplars, for scrapers that ask for it."""
import json
import re
import shutil
import subprocess
import time
import urllib.parse
import urllib.request

import pytest
from prometheus_client.openmetrics.parser import text_string_to_metric_families

from contract import STORED
from http_client import Connection, exchange, get, lines, post
from ports import free_ports
from server_process import until
from test_metrics import ADMINISTRATION

OPEN = "application/openmetrics-text; version=1.0.0; charset=utf-8"
PLAIN = "text/plain; version=0.0.4; charset=utf-8"
# What Prometheus 2.42 of Debian 12, and 3.5, send.
PROMETHEUS_2 = "application/openmetrics-text;version=1.0.0,application/openmetrics-text;version=0.0.1;q=0.75," \
               "text/plain;version=0.0.4;q=0.5,*/*;q=0.1"
PROMETHEUS_3 = "application/openmetrics-text;version=1.0.0;escaping=allow-utf-8;q=0.5," \
               "application/openmetrics-text;version=0.0.1;q=0.4,text/plain;version=1.0.0;escaping=allow-utf-8;q=0.3," \
               "text/plain;version=0.0.4;q=0.2,*/*;q=0.1"
LATENCY = "token_cache_request_duration_seconds"


def fetched(server, *accept):
    """The text of the metrics and its media type."""
    host, port = server.administration[0]
    with Connection((host, port)) as connection:
        connection.send(lines(
            "GET /metrics HTTP/1.1", f"Host: {host}", *(f"Accept: {value}" for value in accept), "Connection: close"))
        head, _, body = connection.receive_to_end().partition(b"\r\n\r\n")
    return body.decode(), re.search(r"(?m)^Content-Type: (.*)\r?$", head.decode())[1].strip()


def families(server):
    text, media_type = fetched(server, PROMETHEUS_2)
    assert media_type == OPEN
    return {family.name: family for family in text_string_to_metric_families(text)}


@pytest.fixture(name="server")
def measured_server(serve):
    return serve(ADMINISTRATION)


ACCEPTED = {
    OPEN: [
        [PROMETHEUS_2], [PROMETHEUS_3], ["application/openmetrics-text"], ["Application/OpenMetrics-Text ; Version=1.0.0"],
        ["text/plain", "application/openmetrics-text"], ["text/plain;q=0.5, application/openmetrics-text;q=0.5"],
        ['application/openmetrics-text; version="1.0.0"'], ["*/*, application/openmetrics-text"],
        ["text/plain;version=1.0.0, application/openmetrics-text;q=0.1"],
    ],
    PLAIN: [
        [], ["*/*"], [""], ["text/html,application/xhtml+xml,*/*;q=0.8"], ["text/plain"],
        ["application/openmetrics-text;version=0.0.1"], ["application/openmetrics-text;version=2.0.0"],
        ["application/openmetrics-text;q=0"], ["application/openmetrics-text;q=0.2, text/plain;q=0.3"],
        ["application/openmetrics-text;q=2, text/*;q=0.1"], ["application/openmetrics-texts"], [";;,=,;q", ","],
    ],
}


@pytest.mark.parametrize("expected, accept", [(kind, accept) for kind, list_ in ACCEPTED.items() for accept in list_])
def test_the_format_is_the_one_that_is_asked_for(server, expected, accept):
    text, media_type = fetched(server, *accept)
    assert media_type == expected
    assert text.endswith("# EOF\n") == (expected == OPEN) and text.count("# EOF") == (expected == OPEN)


def test_both_formats_have_the_same_samples(server):
    exchange(server.address, post("a", "b"))
    exchange(server.address, get("a"))
    open_text, plain_text = fetched(server, OPEN)[0], fetched(server)[0]

    def samples(text):
        return [line.split(" # ")[0].rsplit(" ", 1)[0] for line in text.splitlines() if not line.startswith("#")]

    assert [name for name in samples(open_text) if "_created" not in name] == samples(plain_text)
    assert "# {" not in plain_text and "_created" not in plain_text


def test_the_parser_of_the_reference_library_takes_it(server):
    exchange(server.address, post("a", "b"))
    found = families(server)
    assert found["token_cache_requests"].type == "counter" and found[LATENCY].type == "histogram"
    for family in found.values():
        assert family.documentation
        names = {sample.name for sample in family.samples}
        if family.type == "counter":
            assert names == {f"{family.name}_total", f"{family.name}_created"}
        elif family.type == "gauge":
            assert names == {family.name}
        else:
            assert names == {f"{family.name}{end}" for end in ("_bucket", "_sum", "_count", "_created")}
    created = {sample.value for family in found.values() for sample in family.samples if sample.name.endswith("_created")}
    assert len(created) == 1 and abs(created.pop() - time.time()) < 120


def exemplars(server, method):
    """Of the latency of a method: the exemplars with the bounds of their buckets."""
    bounds, previous = [], 0
    for sample in families(server)[LATENCY].samples:
        if sample.name.endswith("_bucket") and sample.labels["method"] == method:
            if sample.exemplar:
                bounds.append((previous, float(sample.labels["le"]), sample.exemplar))
            previous = float(sample.labels["le"])
    return bounds


@pytest.mark.parametrize("method", ["GET", "POST"])
def test_an_exemplar_names_a_request_of_its_bucket(server, method):
    given = "x" * 64
    trace = "4bf92f3577b34da6a3ce929d0e0e4736"
    assert exemplars(server, method) == []
    began = time.time()
    answer = exchange(server.address, (get("a") if method == "GET" else post("a", "b")).replace(
        b"\r\n", f"\r\nX-Request-Id: {given}\r\ntraceparent: 00-{trace}-00f067aa0ba902b7-01\r\n".encode(), 1))
    assert answer.headers["x-request-id"] == given
    (low, high, exemplar), = until(lambda: exemplars(server, method))
    assert exemplar.labels == {"request_id": given, "trace_id": trace}
    assert low < exemplar.value <= high and began - 1 <= float(exemplar.timestamp) <= time.time() + 1


def test_there_are_no_more_exemplars_than_buckets_however_many_requests(server):
    with Connection(server.address) as connection:
        ids = set()
        for _ in range(300):
            ids.add(connection.exchange(get("a")).headers["x-request-id"])
            ids.add(connection.exchange(post("a", "b")).headers["x-request-id"])
    for method in "GET", "POST":
        found = exemplars(server, method)
        assert 1 <= len(found) <= 20 and {exemplar.labels["request_id"] for _, _, exemplar in found} <= ids


def test_without_ids_there_are_no_exemplars(serve):
    server = serve({**ADMINISTRATION, "request_ids": "off"})
    for request in post("a", "b"), get("a"):
        exchange(server.address, request)
    assert exemplars(server, "GET") == [] and exemplars(server, "POST") == []


def test_prometheus_keeps_the_exemplars(server, tmp_path):
    """With Debian's Prometheus, as deploy/README.md says to start it."""
    program = shutil.which("prometheus")
    if not program:
        pytest.skip("there is no prometheus")
    port, = free_ports(1)
    host, administration = server.administration[0]
    (tmp_path / "prometheus.yaml").write_text(json.dumps({
        "global": {"scrape_interval": "1s"},
        "scrape_configs": [{"job_name": "token-cache", "static_configs": [{"targets": [f"{host}:{administration}"]}]}]}))
    with open(tmp_path / "log", "wb") as log, subprocess.Popen(
        [program, f"--config.file={tmp_path}/prometheus.yaml", f"--storage.tsdb.path={tmp_path}/data",
         f"--web.listen-address=127.0.0.1:{port}", "--enable-feature=exemplar-storage"],
        stdout=log, stderr=log) as process:
        try:
            begin = time.time() - 60

            def asked(path, **parameters):
                query = urllib.parse.urlencode(parameters)
                try:
                    with urllib.request.urlopen(f"http://127.0.0.1:{port}/api/v1/{path}?{query}", timeout=10) as answer:
                        return json.load(answer)["data"]
                except OSError:
                    return None

            until(lambda: (asked("query", query='up{job="token-cache"} == 1') or {}).get("result"), 60)
            assert exchange(server.address, post("a", "b", "X-Request-Id: look-for-me")).body == STORED
            found = until(lambda: asked(
                "query_exemplars", query=f'{LATENCY}_bucket{{method="POST"}}', start=begin, end=time.time() + 5), 60)
            ids = {exemplar["labels"]["request_id"] for series in found for exemplar in series["exemplars"]}
            assert ids == {"look-for-me"}
            assert asked("targets")["activeTargets"][0]["lastError"] == ""
        finally:
            process.terminate()
