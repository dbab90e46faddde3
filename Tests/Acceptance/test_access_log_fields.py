"""What the access log says of each request, and of which requests it says anything."""
import json
import re
import subprocess

import pytest

from certificates import make_certificate
from contract import STORED
from http_client import Connection, exchange, get, lines, post
from server_process import run
from test_reload import reload

HOST = "Host: localhost"
JSON = {"access_log": "json"}


def entries(server):
    """The entries of the access log, after the server has ended."""
    assert server.stop() == 0
    return [json.loads(line) for line in server.output().splitlines()]


# Requests, their status and their errorCode
CODES = [
    (post("a", "b"), 200, None),
    (get("a"), 200, None),
    (get("nobody"), 200, "50002"),
    (lines("GET /token HTTP/1.1", HOST), 200, "30001"),
    (lines("DELETE /token HTTP/1.1", HOST), 200, "50003"),
    (get("a", path="/other"), 404, "40400"),
    (get("a", "X-Forwarded-Proto: http"), 302, None),
    (get("a" * 9000), 414, "41400"),
]


def test_the_error_code_is_that_of_the_answer(serve):
    server = serve(JSON)
    for data, status, code in CODES:
        answer = exchange(server.address, data)
        assert answer.status == status
        if answer.body:
            assert json.loads(answer.body).get("errorCode") == code
    assert [(entry["status"], entry.get("errorCode")) for entry in entries(server)] == [
        (status, code) for _, status, code in CODES]


def test_the_listener_and_the_version_of_tls_are_told(serve, tmp_path):
    chain, key = make_certificate(tmp_path)
    socket = tmp_path / 'a "b" c.sock'
    server = serve({
        **JSON, "listen": ["127.0.0.1:0", "https://127.0.0.1:0", f"unix:{socket}"],
        "tls": {"certificate": chain, "private_key": key}})
    plain, secure = server.addresses[:2]
    exchange(plain, get("a"))
    for version in "1.2", "1.3":
        subprocess.run(
            ["curl", "-sSk", f"--tlsv{version}", "--tls-max", version, f"https://{secure[0]}:{secure[1]}/token"],
            capture_output=True, timeout=20, check=True)
    subprocess.run(
        ["curl", "-sS", "--unix-socket", socket, "http://localhost/token"], capture_output=True, timeout=20, check=True)
    names = [f"http://127.0.0.1:{plain[1]}", *[f"https://127.0.0.1:{secure[1]}"] * 2, f"unix:{socket}"]
    versions = [None, "TLSv1.2", "TLSv1.3", None]
    assert [(entry["listener"], entry.get("tls")) for entry in entries(server)] == list(zip(names, versions))


def test_a_name_with_blanks_is_quoted_in_the_combined_log(serve, tmp_path):
    socket = tmp_path / 'a "b" c.sock'
    server = serve({"access_log": "combined", "listen": f"unix:{socket}"})
    subprocess.run(
        ["curl", "-sS", "--unix-socket", socket, "http://localhost/token"], capture_output=True, timeout=20, check=True)
    assert server.stop() == 0
    assert server.output().endswith(" 30001 " + json.dumps(f"unix:{socket}") + " -\n")


def test_without_ids_the_combined_log_keeps_its_places(serve):
    server = serve({"access_log": "combined", "request_ids": "off"})
    exchange(server.address, get("nobody"))
    assert server.stop() == 0
    assert re.search(r' "-" "-" \d+ - 50002 http://127\.0\.0\.1:\d+ -\n$', server.output())


# Sampling

SAMPLED = {**JSON, "access_log_sample": "1/10", "loops": 1}


@pytest.mark.parametrize("access_log", ["json", "combined"])
def test_one_of_ten_is_logged_and_every_failure_is(serve, access_log):
    server = serve({**SAMPLED, "access_log": access_log})
    exchange(server.address, post("a", "b"))
    with Connection(server.address) as connection:
        for number in range(99):
            connection.exchange(get("a") if number % 2 else get("nobody"))
        for _ in range(7):
            connection.exchange(lines("GET /token HTTP/1.1", HOST))
        for _ in range(3):
            connection.exchange(get("a", path="/other"))
    assert server.stop() == 0
    found = [line for line in server.output().splitlines() if "30001" not in line and "40400" not in line]
    assert (len(found), len(server.output().splitlines())) == (10, 10 + 7 + 3)


def test_a_write_that_is_not_logged_leaves_no_trace_of_itself_in_the_next_line(serve):
    """The entry of a request that waits is made before its answer is known."""
    server = serve({**SAMPLED, "access_log_sample": "1/2"})
    with Connection(server.address) as connection:
        for _ in range(4):
            assert connection.exchange(post("a", "b")).body == STORED
            connection.exchange(lines("HEAD /token?unique_id=nobody HTTP/1.1", HOST), "HEAD")
    assert [entry["method"] for entry in entries(server)] == ["POST"] * 4


def test_writes_that_fail_are_logged_whatever_the_sample(serve):
    server = serve({**SAMPLED, "access_log_sample": "1/1000000", "store": {"max_tokens": 1}})
    for unique_id in "a", "b", "c":
        exchange(server.address, post(unique_id, "x"))
    assert [entry.get("errorCode") for entry in entries(server)] == [None, "50001", "50001"]


def test_the_sample_changes_with_a_reload(serve):
    server = serve({**SAMPLED, "access_log_sample": "1/1000000"})
    with Connection(server.address) as connection:
        for _ in range(5):
            connection.exchange(get("a"))
        reload(server, access_log_sample="1/1")
        for _ in range(5):
            connection.exchange(get("a"))
    assert len(entries(server)) == 1 + 5


@pytest.mark.parametrize("value", ["100", "1/0", "2/100", "1/", "/100", "1/1000001", "1/+5", "1/05", "0.01", "1/1/1", "off"])
def test_what_is_no_sample_is_refused(value):
    done = run("check-config", environment={"TOKEN_CACHE_ACCESS_LOG_SAMPLE": value})
    assert done.returncode == 1
    assert f'TOKEN_CACHE_ACCESS_LOG_SAMPLE is "{value}"; allowed is 1/N for one of N, from 1/1 to 1/1000000' in done.stderr
