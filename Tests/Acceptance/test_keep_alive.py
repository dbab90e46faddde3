"""When a connection stays open and when it ends, and when a client is told to go on."""
import time

import pytest

from contract import NOT_FOUND, STORED, found, fresh_id
from http_client import CONTINUE, FORM, Connection, chunks, form, get, lines, post

# A version, its options, and what the answer says of the connection. RequestHeadTests have further ones.
OPTIONS = [
    ("1.1", [], None), ("1.1", ["Connection: keep-alive"], None), ("1.1", ["Connection: TE, closed"], None),
    ("1.0", ["Connection: a, Keep-Alive"], "keep-alive"),
    ("1.1", ["Connection: TE,, close"], "close"), ("1.1", ["Connection: TE", "Connection: close"], "close"),
    ("1.0", [], "close"), ("1.0", ["Connection: keep-alive", "Connection: close"], "close"),
]


@pytest.mark.parametrize("version, fields, told", OPTIONS)
def test_the_connection_stays_open_or_ends_as_the_answer_says(plain, version, fields, told):
    data = lines(f"GET /token?unique_id=nobody HTTP/{version}", "Host: localhost", *fields)
    with Connection(plain.address) as connection:
        for _ in range(1 if told == "close" else 3):
            response = connection.exchange(data)
            assert (response.body, response.headers.get("connection")) == (NOT_FOUND, told)
        if told == "close":
            connection.expect_end()


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
    secure = lines("GET /token?unique_id=a HTTP/1.1", "Host: tokens.test", "X-Forwarded-Proto: https")
    malformed = lines("GET /token?unique_id=a HTTP/1.1", "Host: tokens.test", "Content-Length: x")
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
