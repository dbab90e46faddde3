"""Each request has an id, in its answer, in the access log and in the log lines about it."""
import json
import re

import pytest

from contract import NOT_FOUND, STORED
from http_client import Connection, exchange, get, lines, post
from store_files import opened
from test_reload import reload

HOST = "Host: localhost"
MADE = re.compile(r"[0-9a-f]{16}")
LOGGED = {"access_log": "json"}


def access(server):
    """The entries of the access log, after the server has ended."""
    assert server.stop() == 0
    return [json.loads(line) for line in server.output().splitlines()]


def test_where_they_are_turned_off_there_are_none(serve):
    server = serve({"access_log": "json", "request_ids": "off"})
    response = exchange(server.address, get("nobody", "X-Request-Id: abc"))
    assert "x-request-id" not in response.headers
    assert "request_id" not in access(server)[0]


def test_an_open_connection_has_none_once_they_are_turned_off(serve):
    server = serve(LOGGED)
    with Connection(server.address) as connection:
        assert "x-request-id" in connection.exchange(get("a")).headers
        reload(server, request_ids="off")
        for _ in range(2):
            assert "x-request-id" not in connection.exchange(get("a")).headers
    assert [entry for entry in access(server)[1:] if "request_id" in entry] == []


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
    server = serve(LOGGED)
    ids = []
    with Connection(server.address) as connection:
        for name, (data, method, status) in KINDS.items():
            response = connection.exchange(data, method)
            assert response.status == status, name
            assert MADE.fullmatch(response.headers["x-request-id"]), name
            ids.append(response.headers["x-request-id"])
    assert len(set(ids)) == len(KINDS)
    assert [entry["request_id"] for entry in access(server)] == ids


def test_loops_give_different_ids(serve):
    server = serve({**LOGGED, "loops": 4})
    ids = {exchange(server.address, get("a")).headers["x-request-id"] for _ in range(40)}
    assert len(ids) == 40


def test_the_combined_log_has_the_id(serve):
    server = serve({**LOGGED, "access_log": "combined"})
    given = exchange(server.address, get("a")).headers["x-request-id"]
    assert server.stop() == 0
    assert server.output().rstrip().endswith(f' {given} 50002 http://{server.address[0]}:{server.address[1]} -')


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
    server = serve({**LOGGED, "trusted_proxies": "none"})
    response = exchange(server.address, get("a", "X-Request-Id: stranger"))
    assert MADE.fullmatch(response.headers["x-request-id"])
    assert access(server)[0]["request_id"] == response.headers["x-request-id"]


def test_an_id_says_nothing_about_the_way_of_a_request(plain_ids):
    """Unlike forwarded headers, which would cause a redirect here."""
    assert exchange(plain_ids.address, get("nobody", "X-Request-Id: a")).status == 200


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
