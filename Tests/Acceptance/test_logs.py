"""The log reports start, stop and faults, the access log requests; test_canaries checks that neither contains secrets."""
import json
import os
import re
import subprocess

import pytest

from contract import NOT_FOUND, STORED
from http_client import Connection, exchange, get, lines, post
from server_process import NO_ADMINISTRATION, binary, clean_environment, run, until

HOST = "Host: localhost"


def log_lines(server):
    """The lines of the log, without the one about a new key ring."""
    return [line for line in server.log().splitlines() if " made the key ring " not in line]


def test_one_line_at_the_start_and_one_at_the_stop(serve):
    server = serve({"listen": ["127.0.0.1:0", "127.0.0.1:0"], "loops": 2})
    assert exchange(server.address, post("a", "b")).body == STORED
    assert server.stop() == 0
    first, last = log_lines(server)
    version = run("--version").stdout.strip()
    for fragment in (f"token-cache {version} serves on", *(f":{port}" for _, port in server.addresses),
                     "SQLite ", str(server.data), "2 loops"):
        assert fragment in first
    assert "token-cache has stopped" in last
    assert server.output() == ""


# A request, its method, and its entry in the access log: method, path, protocol, status
LOGGED = [
    (get("nobody"), "GET", ("GET", "/token", "HTTP/1.1", 200)),
    (get("nobody", path="/token.php"), "GET", ("GET", "/token.php", "HTTP/1.1", 200)),
    (lines("HEAD /token HTTP/1.0", "Connection: keep-alive"), "HEAD", ("HEAD", "/token", "HTTP/1.0", 200)),
    (post("a", "b"), "GET", ("POST", "/token", "HTTP/1.1", 200)),
    (lines("PUT /token HTTP/1.1", HOST), "GET", ("PUT", "/token", "HTTP/1.1", 200)),
    (get("a", path="/other"), "GET", ("GET", None, "HTTP/1.1", 404)),
    (lines("GET /token HTTP/1.1", HOST, HOST), "GET", ("GET", "/token", "HTTP/1.1", 400)),
]


def logged_requests(server):
    """Sends the requests and returns the answers; the log is complete when the server has stopped."""
    responses = []
    with Connection(server.address) as connection:
        for data, method, _ in LOGGED:
            responses.append(connection.exchange(data, method))
    assert server.stop() == 0
    return responses


def test_there_is_no_access_log_by_default(serve):
    server = serve()
    logged_requests(server)
    assert server.output() == ""
    assert len(log_lines(server)) == 2


def test_the_combined_access_log_has_a_line_for_each_request(serve):
    server = serve({"access_log": "combined"})
    responses = logged_requests(server)
    entries = server.output().splitlines()
    assert len(entries) == len(LOGGED)
    for entry, response, (_, _, (method, path, protocol, status)) in zip(entries, responses, LOGGED):
        found_fields = re.fullmatch(
            r'127\.0\.0\.1 - - \[\d\d/[A-Z][a-z]{2}/\d{4}:\d\d:\d\d:\d\d \+0000\] '
            r'"(\S+) (\S+) (\S+)" (\d+) (\d+) "-" "-" \d+ [0-9a-f]{16} (\d{5}|-) http://127\.0\.0\.1:\d+ -', entry)
        assert found_fields, entry
        assert found_fields[1] == method and found_fields[3] == protocol
        assert path is None or found_fields[2] == path
        assert (int(found_fields[4]), int(found_fields[5])) == (status, len(response.body))


def test_the_json_access_log_has_an_object_for_each_request(serve):
    server = serve({"access_log": "json"})
    responses = logged_requests(server)
    entries = [json.loads(line) for line in server.output().splitlines()]
    assert len(entries) == len(LOGGED)
    for entry, response, (_, _, (method, path, protocol, status)) in zip(entries, responses, LOGGED):
        assert (entry["method"], entry["protocol"], entry["status"]) == (method, protocol, status)
        assert path is None or entry["path"] == path
        assert entry["bytes"] == len(response.body)
        assert entry["client"] == "127.0.0.1" and entry["microseconds"] >= 0
        assert re.fullmatch(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ", entry["time"])


# A process that stops reading the logs must not stop the server.

@pytest.fixture
def pipe():
    """The two ends of a pipe, which are closed afterwards."""
    ends = list(os.pipe())
    yield ends
    for end in ends:
        if end is not None:
            os.close(end)


def test_a_reader_of_the_access_log_that_goes_away_does_not_end_the_server(serve, pipe):
    server = serve({"access_log": "combined"}, output=pipe[1])
    with Connection(server.address) as connection:
        assert connection.exchange(get("nobody")).body == NOT_FOUND
        until(lambda: os.read(pipe[0], 65536))
        os.close(pipe[0])
        pipe[0] = None
        for _ in range(20):
            assert connection.exchange(get("nobody")).body == NOT_FOUND
    assert server.stop() == 0


def test_a_reader_of_the_access_log_that_does_not_read_stalls_no_request(serve, pipe):
    server = serve({"access_log": "combined"}, output=pipe[1])
    with Connection(server.address) as connection:
        for _ in range(20):
            connection.send(get("nobody") * 100)
            assert all(connection.receive().body == NOT_FOUND for _ in range(100))
    assert exchange(server.address, post("a", "b")).body == STORED


def test_a_reader_of_the_access_log_that_does_not_read_does_not_keep_the_server_from_stopping(serve, pipe):
    server = serve({"access_log": "combined", "drain_timeout": "500ms"}, output=pipe[1])
    with Connection(server.address) as connection:
        connection.send(get("nobody") * 2000)
        assert all(connection.receive().body == NOT_FOUND for _ in range(2000))
    server.send_signal()
    assert server.wait(20) == 0


def test_a_reader_of_the_log_that_goes_away_does_not_end_the_server(tmp_path):
    flags = ["--listen", "127.0.0.1:0", "--data-directory", str(tmp_path / "data"), "--log-level", "trace"]
    process = subprocess.Popen([binary(), "serve", *flags], env=clean_environment(NO_ADMINISTRATION), stderr=subprocess.PIPE)
    try:
        line = next(line for line in process.stderr if b" serves on " in line)
        address = ("127.0.0.1", int(re.search(rb"http://127\.0\.0\.1:(\d+)", line)[1]))
        process.stderr.close()
        assert exchange(address, post("a", "b")).body == STORED
        process.terminate()
        assert process.wait(60) == 0
    finally:
        process.kill()
        process.wait()


TIME = r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z"


def test_the_log_is_text_with_times_in_utc(serve):
    server = serve({"log_level": "debug"})
    assert server.stop() == 0
    for line in server.log().splitlines():
        assert re.fullmatch(rf"{TIME} (debug|info|notice|warning): .+", line), line


@pytest.mark.parametrize("access_log", ["combined", "json"])
def test_with_the_format_json_every_line_of_both_logs_is_an_object(serve, access_log):
    server = serve({"log_format": "json", "access_log": access_log, "log_level": "debug", "https": {"mode": "off"}})
    exchange(server.address, get("nobody"))
    assert server.stop() == 0
    entries = [json.loads(line) for line in server.log().splitlines()]
    assert any(" serves on " in entry["message"] for entry in entries)
    for entry in entries:
        assert re.fullmatch(TIME, entry["time"])
    assert {entry["level"] for entry in entries} >= {"debug", "info", "warning"}
    access, = map(json.loads, server.output().splitlines())
    assert (access["method"], access["path"], access["status"]) == ("GET", "/token", 200)
