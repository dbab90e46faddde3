"""Expect: 100-continue: the interim answer is sent if the client waits for it, and only then."""
import pytest

from contract import NOT_FOUND, STORED, check_http_error, found, fresh_id
from http_client import CONTINUE, FORM, Connection, chunks, form, get, lines, post

EXPECT = "Expect: 100-continue"


def head_and_body(framing, unique_id, *fields, version="HTTP/1.1"):
    """The two parts of a POST."""
    body = form(unique_id, "abc")
    if framing == "chunked":
        head = lines(f"POST /token {version}", "Host: localhost", FORM, "Transfer-Encoding: chunked", *fields)
        return head, chunks(body, 10)
    return lines(f"POST /token {version}", "Host: localhost", FORM, f"Content-Length: {len(body)}", *fields), body


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


def test_an_old_client_is_never_told(plain):
    head, body = head_and_body("length", fresh_id(), EXPECT, version="HTTP/1.0")
    with Connection(plain.address) as connection:
        connection.send(head)
        assert connection.is_silent(0.2)
        connection.send(body)
        assert connection.receive().body == STORED


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


@pytest.mark.parametrize("expectation", ["Expect: 100-continue2", "Expect: 200-ok", "Expect: 100-continue, other"])
def test_another_expectation_fails(plain, expectation):
    head, body = head_and_body("length", fresh_id(), expectation)
    with Connection(plain.address) as connection:
        connection.send(head + body)
        check_http_error(connection.receive(), 417)
        connection.expect_end()


def test_a_body_too_large_is_refused_instead_of_asked_for(plain):
    with Connection(plain.address) as connection:
        connection.send(lines("POST /token HTTP/1.1", "Host: localhost", FORM, "Content-Length: 1048577", EXPECT))
        check_http_error(connection.receive(), 413)
        connection.expect_end()
