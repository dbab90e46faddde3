"""When a connection stays open and when it ends, and when a client is told to go on."""
import time

import pytest

from contract import NOT_FOUND, STORED, found, fresh_id
from http_client import CONTINUE, FORM, Connection, chunks, form, get, lines, post

TARGET = "/token?unique_id=nobody"
HOST = "Host: localhost"

STAYS_OPEN = {
    "1.1": (lines(f"GET {TARGET} HTTP/1.1", HOST), None),
    "1.1 keep-alive": (lines(f"GET {TARGET} HTTP/1.1", HOST, "Connection: keep-alive"), None),
    "1.1 other options": (lines(f"GET {TARGET} HTTP/1.1", HOST, "Connection: TE, closed"), None),
    "1.2": (lines(f"GET {TARGET} HTTP/1.2", HOST), None),
    "1.0 keep-alive": (lines(f"GET {TARGET} HTTP/1.0", "Connection: keep-alive"), "keep-alive"),
    "1.0 Keep-Alive in a list": (lines(f"GET {TARGET} HTTP/1.0", "Connection: a, Keep-Alive"), "keep-alive"),
}

ENDS = {
    "1.1 close": lines(f"GET {TARGET} HTTP/1.1", HOST, "Connection: close"),
    "1.1 CLOSE": lines(f"GET {TARGET} HTTP/1.1", HOST, "Connection: CLOSE"),
    "1.1 close in a list": lines(f"GET {TARGET} HTTP/1.1", HOST, "Connection: TE,, close"),
    "1.1 close in a second header": lines(f"GET {TARGET} HTTP/1.1", HOST, "Connection: TE", "Connection: close"),
    "1.1 close beats keep-alive": lines(f"GET {TARGET} HTTP/1.1", HOST, "Connection: close, keep-alive"),
    "1.0": lines(f"GET {TARGET} HTTP/1.0"),
    "1.0 with Host": lines(f"GET {TARGET} HTTP/1.0", HOST),
    "1.0 close beats keep-alive": lines(f"GET {TARGET} HTTP/1.0", "Connection: keep-alive", "Connection: close"),
}


@pytest.mark.parametrize("data, connection_field", STAYS_OPEN.values(), ids=STAYS_OPEN)
def test_the_connection_stays_open(plain, data, connection_field):
    with Connection(plain.address) as connection:
        for _ in range(3):
            response = connection.exchange(data)
            assert response.body == NOT_FOUND
            assert response.headers.get("connection") == connection_field


@pytest.mark.parametrize("data", ENDS.values(), ids=ENDS)
def test_the_connection_ends_after_the_answer(plain, data):
    with Connection(plain.address) as connection:
        response = connection.exchange(data)
        assert response.body == NOT_FOUND
        assert response.closes
        connection.expect_end()


def test_a_head_request_of_http_1_0_leaves_the_connection_usable(plain):
    with Connection(plain.address) as connection:
        for _ in range(2):
            data = lines("HEAD /token HTTP/1.0", "Connection: keep-alive")
            assert connection.exchange(data, "HEAD").status == 200


def test_a_post_of_http_1_0_is_stored(plain):
    unique_id = fresh_id()
    data = post(unique_id, "old").replace(b"HTTP/1.1", b"HTTP/1.0")
    with Connection(plain.address) as connection:
        assert connection.exchange(data).body == STORED
        connection.expect_end()
    with Connection(plain.address) as connection:
        assert connection.exchange(get(unique_id)).body == found("old")


HALF_CLOSED = {
    "GET": lambda unique_id: (get(unique_id), [NOT_FOUND]),
    "POST": lambda unique_id: (post(unique_id, "a"), [STORED]),
    "pipeline": lambda unique_id: (post(unique_id, "a") + get(unique_id) * 60, [STORED] + [found("a")] * 60),
}


@pytest.mark.parametrize("make", HALF_CLOSED.values(), ids=HALF_CLOSED)
def test_a_client_that_has_finished_sending_still_gets_its_answers(plain, make):
    data, answers = make(fresh_id())
    with Connection(plain.address) as connection:
        connection.send(data)
        connection.finish_sending()
        assert [connection.receive().body for _ in answers] == answers
        connection.expect_end()


def test_the_date_goes_on_over_a_connection(plain):
    with Connection(plain.address) as connection:
        first = connection.exchange(get("a")).headers["date"]
        time.sleep(1.1)
        assert connection.exchange(get("a")).headers["date"] != first


def test_a_refusal_speaks_for_its_own_request(plain):
    """Strict-Transport-Security is sent over https only (RFC 6797, section 7.2), whatever preceded on the connection."""
    secure = get("a", "X-Forwarded-Proto: https")
    malformed = lines("GET /token?unique_id=a HTTP/1.1", "Host: localhost", "Content-Length: x")
    with Connection(plain.address) as connection:
        assert "strict-transport-security" in connection.exchange(secure).headers
        assert connection.exchange(get("a")).headers.get("strict-transport-security") is None
        assert "strict-transport-security" in connection.exchange(secure).headers
        refused = connection.exchange(malformed)
        assert refused.status == 400 and "strict-transport-security" not in refused.headers
    with Connection(plain.address) as connection:
        refused = connection.exchange(malformed.replace(b"Content-Length", b"X-Forwarded-Proto: https\r\nContent-Length"))
        assert refused.status == 400 and "strict-transport-security" in refused.headers


EXPECT = "Expect: 100-continue"


def head_and_body(framing, unique_id, *fields):
    """The two parts of a POST."""
    body = form(unique_id, "abc")
    if framing == "chunked":
        head = lines("POST /token HTTP/1.1", "Host: localhost", FORM, "Transfer-Encoding: chunked", *fields)
        return head, chunks(body, 10)
    return lines("POST /token HTTP/1.1", "Host: localhost", FORM, f"Content-Length: {len(body)}", *fields), body


@pytest.mark.parametrize("expectation", [EXPECT, "expect: 100-Continue"])
@pytest.mark.parametrize("framing", ["length", "chunked"])
def test_a_client_that_waits_is_told_to_go_on_once(plain, framing, expectation):
    unique_id = fresh_id()
    head, body = head_and_body(framing, unique_id, expectation)
    with Connection(plain.address) as connection:
        connection.send(head)
        assert connection.receive_raw(len(CONTINUE)) == CONTINUE
        connection.send(body[:5])
        assert connection.is_silent(0.1)
        connection.send(body[5:])
        assert connection.receive().body == STORED
        assert connection.exchange(get(unique_id)).body == found("abc")


@pytest.mark.parametrize("part", ["some", "all"])
@pytest.mark.parametrize("framing", ["length", "chunked"])
def test_a_client_that_already_sends_is_not_told(plain, framing, part):
    head, body = head_and_body(framing, fresh_id(), EXPECT)
    first = body if part == "all" else body[:8]
    with Connection(plain.address) as connection:
        connection.send(head + first)
        if part == "some":
            assert connection.is_silent(0.1)
            connection.send(body[8:])
        assert connection.receive().body == STORED


def test_a_client_that_is_redirected_is_not_told(plain):
    head, _ = head_and_body("length", fresh_id(), EXPECT, "X-Forwarded-Proto: http")
    with Connection(plain.address) as connection:
        connection.send(head)
        response = connection.receive("POST")
        assert response.status == 308 and response.closes
        connection.expect_end()


def test_a_request_without_a_body_is_answered_at_once(plain):
    with Connection(plain.address) as connection:
        for fields in ([EXPECT], [EXPECT, "Content-Length: 0"]):
            assert connection.exchange(get("nobody", *fields)).body == NOT_FOUND


def test_leave_comes_after_the_answers_to_earlier_requests(plain):
    unique_id = fresh_id()
    head, body = head_and_body("length", unique_id, EXPECT)
    with Connection(plain.address) as connection:
        connection.send(post(unique_id, "first") + get(unique_id) + head)
        assert connection.receive().body == STORED
        assert connection.receive().body == found("first")
        assert connection.receive_raw(len(CONTINUE)) == CONTINUE
        assert connection.exchange(body).body == STORED
