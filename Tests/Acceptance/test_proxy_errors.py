"""The reverse proxies' own errors, for requests that they refuse and servers that fail, have the contract's shape."""
import contextlib
import json

import pytest

from contract import STORED, found, fresh_id
from http_client import FORM, Connection, chunks, form, get, lines
from ports import free_ports
from proxies import HOST, PROXIES
from proxy_site import BODY_LIMIT, FORM_HEADERS, NOTHING, Backend, SameAnswer, check_error, raw_answer, send_all


# Requests

@pytest.mark.parametrize("method", ["GET", "POST", "DELETE"])
def test_an_unknown_path_gets_an_error_in_the_contracts_shape(site, method):
    body = form("a", "b") if method == "POST" else None
    check_error(site.request(method, "/other?unique_id=a", body, FORM_HEADERS), 404)
    assert site.works()


# Requests, and the statuses of which each proxy answers one
BROKEN = {
    "malformed header": (lines("GET /token HTTP/1.1", f"Host: {HOST}", "a b: c"), {400}),
    "no host": (lines("GET /token HTTP/1.1"), {400}),
    "two hosts": (lines("GET /token HTTP/1.1", f"Host: {HOST}", "Host: evil.test"), {400}),
    "malformed length": (lines("POST /token HTTP/1.1", f"Host: {HOST}", "Content-Length: x"), {400}),
    "unknown coding": (lines("POST /token HTTP/1.1", f"Host: {HOST}", "Transfer-Encoding: x"), {400, 422, 501}),
    "long header": (lines("GET /token HTTP/1.1", f"Host: {HOST}", f"X: {'x' * 70_000}"), {400, 431}),
    "long target": (lines(f"GET /token?{'x' * 70_000} HTTP/1.1", f"Host: {HOST}"), {400, 414, 431}),
    "large body": (lines("POST /token HTTP/1.1", f"Host: {HOST}", FORM, f"Content-Length: {BODY_LIMIT + 1}"), {413}),
}


@pytest.mark.parametrize("data, statuses", BROKEN.values(), ids=BROKEN)
@pytest.mark.parametrize("kind", ["plain", "secure"])
def test_what_a_proxy_refuses_gets_an_error_in_the_contracts_shape(site, kind, data, statuses):
    with getattr(site, kind)() as connection:
        response = raw_answer(connection, data)
    if kind == "plain" and response.status in (302, 308):
        # For a large body, for example, which is not read.
        statuses = {302, 308}
    assert response.status in statuses, response
    if site.speaks_for_itself(response):
        return
    check_error(response, response.status)


def test_a_request_to_another_host_is_not_answered_with_nothing(site):
    with site.secure() as connection:
        response = raw_answer(connection, lines("GET /token?unique_id=a HTTP/1.1", "Host: elsewhere.test"))
    assert response.body, response


def test_an_answer_is_whole_whatever_range_is_asked_for(site):
    unique_id = fresh_id()
    assert site.request("POST", "/token", form(unique_id, "hello"), FORM_HEADERS).body == STORED
    for asked in ("bytes=0-3", "bytes=5000-"):
        response = site.request("GET", f"/token?unique_id={unique_id}", None, {"Range": asked})
        assert (response.status, response.body) == (200, found("hello"))


def test_a_long_credential_passes(site):
    headers = {"Authorization": f"Bearer {'x' * 9_000}"}
    assert NOTHING.fullmatch(site.request("GET", f"/token?unique_id={fresh_id()}", None, headers).body)


def test_plain_http_on_the_port_of_tls_gets_an_error_or_nothing(site):
    with Connection(("127.0.0.1", site.proxy.https_port)) as connection:
        connection.send(get("a"))
        answer = b""
        with contextlib.suppress(ConnectionError):
            answer = connection.receive_to_end()
    head, _, body = answer.partition(b"\r\n\r\n")
    fixed = {400} <= site.proxy.fixed_answers[0] and head.startswith(b"HTTP/1.0 400")
    assert not answer or fixed or json.loads(body)["errorCode"] == "40000", answer


# The server

@pytest.mark.parametrize("method", ["GET", "POST"])
def test_a_server_that_is_down_or_breaks_off_gives_errors_in_the_contracts_shape(site, method):
    body = form("a", "b") if method == "POST" else None
    with site.without_server():
        response = site.request(method, "/token?unique_id=a", body, FORM_HEADERS)
        assert response.status in (502, 503)
        check_error(response, response.status)
        with SameAnswer(site.port, b"HTTP/1.1 200 OK\r\nContent-Le"):
            response = site.request(method, "/token?unique_id=a", body, FORM_HEADERS)
        assert response.status == 502
        check_error(response, 502)
    assert site.works()


class Silence(Backend):
    """Reads each request and does not answer it."""

    def __init__(self, port):
        self.connections = []
        super().__init__(port)

    def answer(self, connection):
        connection.recv(65536)
        self.connections.append(connection)

    def __exit__(self, *_):
        super().__exit__()
        for connection in self.connections:
            connection.close()


@pytest.mark.parametrize("name", PROXIES)
def test_a_server_that_does_not_answer_gives_an_error_in_the_contracts_shape(tmp_path, proxy_certificate, name):
    """The proxy waits for a second here instead of a minute."""
    old, new = PROXIES[name].patience
    port, = free_ports(1)
    hasty = type("Hasty", (PROXIES[name],), {
        "deployed": lambda self, replacements: PROXIES[name].deployed(self, {**replacements, old: new})})
    with Silence(port), hasty(tmp_path / "proxy", port, proxy_certificate) as proxy:
        with proxy_certificate.connect(proxy.https_port) as connection:
            response = raw_answer(connection, lines("GET /token?unique_id=a HTTP/1.1", f"Host: {HOST}"))
    assert response.status in (502, 504)
    check_error(response, response.status)


# Limits

@pytest.mark.parametrize("coding", ["length", "chunked"])
def test_a_body_over_the_limit_is_refused_and_the_proxy_stays_healthy(site, coding):
    unique_id = fresh_id()
    body = form(unique_id, "x" * BODY_LIMIT)
    head = ["POST /token HTTP/1.1", f"Host: {HOST}", FORM]
    if coding == "chunked":
        data = lines(*head, "Transfer-Encoding: chunked", body=chunks(body, 65536))
    else:
        data = lines(*head, f"Content-Length: {len(body)}", body=body)
    with site.secure() as connection:
        send_all(connection, data)
        assert connection.socket.recv(65536).startswith(b"HTTP/1.1 413")
    assert NOTHING.fullmatch(site.stored(unique_id))
    assert site.works()


def test_a_body_at_the_limit_is_stored(site):
    unique_id = fresh_id()
    token_info = "x" * (BODY_LIMIT - len(form(unique_id, "")))
    assert site.request("POST", "/token", form(unique_id, token_info), FORM_HEADERS).body == STORED
    assert site.request("GET", f"/token?unique_id={unique_id}").body == found(token_info)


def test_a_body_of_absurd_length_is_refused(site):
    for length in "18446744073709551617", "9" * 40, "9223372036854775807":
        with site.secure() as connection:
            head = lines("POST /token HTTP/1.1", f"Host: {HOST}", FORM, f"Content-Length: {length}")
            # Some proxies wait for the first bytes of a body.
            send_all(connection, head + b"x" * 65536)
            answer = b""
            with contextlib.suppress(ConnectionError):
                answer = connection.socket.recv(65536)
            # HAProxy closes the connection without an answer.
            assert answer[:12] in (b"HTTP/1.1 413", b"HTTP/1.1 400", b"HTTP/1.0 400", b"")
    assert site.works()
