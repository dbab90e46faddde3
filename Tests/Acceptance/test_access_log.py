"""The access log: what it says of each request, by which id, of which requests, and the file that logrotate renames."""
import json
import re
import stat
import subprocess
import threading

import pytest

from certificates import make_certificate
from contract import NOT_FOUND, STORED
from http_client import Connection, exchange, get, lines, post
from server_process import until
from store_files import opened
from test_reload import hang_up

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


# Ids of requests

MADE = re.compile(r"[0-9a-f]{16}")


# Requests with each kind of answer, and their methods
KINDS = {
    "stored": (post("a", "b"), "POST", 200),
    "found": (get("a"), "GET", 200),
    "head": (lines("HEAD /token HTTP/1.1", HOST), "HEAD", 200),
    "old version": (lines("GET /token?unique_id=a HTTP/1.0", "Connection: keep-alive"), "GET", 200),
    "unknown path": (get("a", path="/other"), "GET", 404),
    "redirected": (get("a", "X-Forwarded-Proto: http"), "GET", 302),
    "refused": (lines("GET /token HTTP/1.1", HOST, HOST), "GET", 400),
}


def test_every_answer_and_its_line_have_the_same_id_and_no_other_has_it(serve):
    server = serve(JSON)
    ids = []
    with Connection(server.address) as connection:
        for name, (data, method, status) in KINDS.items():
            response = connection.exchange(data, method)
            assert response.status == status, name
            assert MADE.fullmatch(response.headers["x-request-id"]), name
            ids.append(response.headers["x-request-id"])
    assert len(set(ids)) == len(KINDS)
    assert [entry["request_id"] for entry in entries(server)] == ids


TAKEN = ["a", "0", "A-z_0.9", "ag@JwFG-3kpQzXNvvmFe@gAAAAM", "6f1c2a3e-0b1d-4c5e-8f90-a1b2c3d4e5f6", "x" * 64]
REFUSED = ["", "x" * 65, "a b", "a;b", "a,b", 'a"b', "a\\b", "é", "a/b", "<a>", "a\tb"]


@pytest.mark.parametrize("name", ["X-Request-Id", "x-request-id", "X-REQUEST-ID"])
@pytest.mark.parametrize("given", TAKEN)
def test_a_trusted_proxys_id_is_taken_over(plain_ids, name, given):
    assert exchange(plain_ids.address, get("a", f"{name}: {given}")).headers["x-request-id"] == given


@pytest.mark.parametrize("given", REFUSED)
def test_what_is_no_id_is_replaced(plain_ids, given):
    assert MADE.fullmatch(exchange(plain_ids.address, get("a", f"X-Request-Id: {given}")).headers["x-request-id"])


@pytest.fixture
def plain_ids(serve):
    return serve()


def test_of_several_the_last_counts(plain_ids):
    response = exchange(plain_ids.address, get("a", "X-Request-Id: client", "X-Request-Id: proxy"))
    assert response.headers["x-request-id"] == "proxy"


def test_an_id_from_somebody_else_is_replaced(serve):
    server = serve({**JSON, "trusted_proxies": "none"})
    response = exchange(server.address, get("a", "X-Request-Id: stranger"))
    assert MADE.fullmatch(response.headers["x-request-id"])
    assert entries(server)[0]["request_id"] == response.headers["x-request-id"]


def test_each_of_several_requests_in_one_packet_has_its_own(plain_ids):
    with Connection(plain_ids.address) as connection:
        connection.send(get("a", "X-Request-Id: one") + get("a") + post("a", "b", "X-Request-Id: three"))
        first, second, third = (connection.receive().headers["x-request-id"] for _ in range(3))
    assert (first, third) == ("one", "three") and MADE.fullmatch(second)


def serve_unreadable_token(serve, settings):
    """A server whose only token, that of the id `a`, cannot be decrypted."""
    first = serve()
    assert exchange(first.address, post("a", "b")).body == STORED
    assert first.stop() == 0
    with opened(first.data) as database:
        database.execute("UPDATE token SET value = x''")
    return serve(settings, data=first.data)


def test_a_fault_of_the_store_is_logged_with_the_requests_id(serve):
    server = serve_unreadable_token(serve, {"log_format": "json"})
    assert exchange(server.address, get("a", "X-Request-Id: mine")).body == NOT_FOUND
    assert server.stop() == 0
    fault, = (entry for entry in map(json.loads, server.log().splitlines()) if entry["level"] == "error")
    assert fault["request_id"] == "mine" and "the store failed" in fault["message"]


# The file

def test_lines_are_appended_to_a_file_that_others_do_not_read(serve, tmp_path):
    file = tmp_path / "access.log"
    file.write_text("before\n")
    new = tmp_path / "new.log"
    for path in file, new:
        server = serve({"access_log": "json", "access_log_file": str(path)})
        exchange(server.address, get("a"))
        assert server.stop() == 0 and server.output() == ""
    first, line = file.read_text().splitlines()
    assert first == "before" and json.loads(line)["status"] == 200
    assert stat.S_IMODE(new.stat().st_mode) & 0o137 == 0


def test_a_renamed_file_is_left_on_sighup_and_no_line_is_lost(serve, tmp_path):
    file = tmp_path / "access.log"
    server = serve({"access_log": "json", "access_log_file": str(file)})
    ends, asked = threading.Event(), [[] for _ in range(4)]

    def ask(ids):
        with Connection(server.address) as connection:
            while not ends.is_set():
                ids.append(connection.exchange(get("a")).headers["x-request-id"])

    threads = [threading.Thread(target=ask, args=(ids,)) for ids in asked]
    for thread in threads:
        thread.start()
    for number in range(20):
        enough = sum(map(len, asked)) + 50
        until(lambda: sum(map(len, asked)) >= enough)
        file.rename(tmp_path / f"access.log.{number}")
        hang_up(server)
        until(file.exists)
    ends.set()
    for thread in threads:
        thread.join(20)
    assert server.stop() == 0
    files = list(tmp_path.glob("access.log*"))
    lines = [json.loads(line)["request_id"] for path in files for line in path.read_text().splitlines()]
    assert len(files) == 21 and sorted(lines) == sorted(sum(asked, []))


def test_a_full_disk_is_told_and_requests_are_answered(serve):
    server = serve({"access_log": "combined", "access_log_file": "/dev/full"})
    for _ in range(3):
        assert exchange(server.address, get("a")).status == 200
    until(lambda: "lines of the access log are lost, as /dev/full cannot be written to" in server.log())
