"""However the network splits and joins the bytes of requests, each request gets its answer, in order."""
import random
import time

import pytest

from contract import INVALID_INPUT, NOT_FOUND, STORED, check_http_error, found, fresh_id, unsupported
from http_client import Connection, chunked_post, get, lines, post, post_of

HEAD = lines("HEAD /token HTTP/1.1", "Host: localhost")
PUT = lines("PUT /token HTTP/1.1", "Host: localhost", "Content-Length: 3", body=b"abc")
OTHER_PATH = get("a", path="/other")


def multipart_post(unique_id, token_info):
    """A POST encoded as browsers do."""
    parts = "".join(
        f'--limit\r\nContent-Disposition: form-data; name="{name}"\r\n\r\n{value}\r\n'
        for name, value in [("unique_id", unique_id), ("token_info", token_info)]
    )
    body = f"{parts}--limit--\r\n".encode()
    return post_of(body, "Content-Type: multipart/form-data; boundary=limit")


# Requests for an id, and the answers to them on an empty store
SPLIT = {
    "GET": lambda unique_id: (get(unique_id), [NOT_FOUND]),
    "form POST": lambda unique_id: (post(unique_id, "abc"), [STORED]),
    "multipart POST": lambda unique_id: (multipart_post(unique_id, "abc"), [STORED]),
    "chunked POST": lambda unique_id: (chunked_post(unique_id, "abc", size=16), [STORED]),
    "empty line before a GET": lambda unique_id: (b"\r\n" + get(unique_id), [NOT_FOUND]),
    "two pipelined": lambda unique_id: (post(unique_id, "abc") + get(unique_id), [STORED, found("abc")]),
    "chunked, then another": lambda unique_id: (
        chunked_post(unique_id, "abc", size=30) + get(unique_id), [STORED, found("abc")]),
}


@pytest.mark.parametrize("make", SPLIT.values(), ids=SPLIT)
def test_requests_may_be_split_at_any_byte(plain, connect, make):
    length = len(make(fresh_id())[0])
    cases = []
    for position in range(1, length):
        data, answers = make(fresh_id())
        cases.append((connect(plain.address), data[:position], data[position:], answers))
    for connection, first, _, _ in cases:
        connection.send(first)
    # Long enough for the server to read all first parts separately.
    time.sleep(0.2)
    # All before the first answer, as on a slow disk the answers to all take longer than a head may.
    for connection, _, second, _ in cases:
        connection.send(second)
    for position, (connection, *_, answers) in enumerate(cases, 1):
        assert [connection.receive().body for _ in answers] == answers, f"split after {position} bytes"


def test_a_large_body_in_odd_pieces_arrives_as_sent(plain):
    unique_id, generator = fresh_id(), random.Random(4)
    text = "".join(generator.choices("abcdefghijklmnopqrstuvwxyz0123456789", k=300_000))
    for data in (post(unique_id, text), chunked_post(unique_id, text[::-1], size=777)):
        cuts = sorted(generator.sample(range(len(data)), 40))
        with Connection(plain.address) as connection:
            connection.send_pieces([data[start:end] for start, end in zip([0, *cuts], [*cuts, len(data)])])
            assert connection.receive().body == STORED
        expected, text = text, text[::-1]
        assert plain.get(unique_id) == found(expected)


def test_a_mixed_pipeline_is_answered_in_order(plain):
    unique_id = fresh_id()
    pipeline = [
        (get(unique_id), 200, NOT_FOUND),
        (post(unique_id, "one"), 200, STORED),
        (HEAD, 200, b""),
        (get(unique_id), 200, found("one")),
        (chunked_post(unique_id, "two"), 200, STORED),
        (multipart_post(unique_id, "three"), 200, STORED),
        (get(unique_id), 200, found("three")),
        (PUT, 200, unsupported("PUT")),
        (OTHER_PATH, 404, None),
        (get(""), 200, INVALID_INPUT),
        (get(unique_id), 200, found("three")),
    ]
    with Connection(plain.address) as connection:
        connection.send(b"".join(data for data, _, _ in pipeline))
        for number, (data, status, body) in enumerate(pipeline):
            response = connection.receive("HEAD" if data is HEAD else "GET")
            assert response.status == status, number
            assert body is None or response.body == body, number
            assert not response.closes, number


def test_a_pipeline_of_500_requests_is_answered_in_order(plain):
    unique_id = fresh_id()
    pipeline, answers = [], []
    for number in range(250):
        pipeline += [post(unique_id, f"value{number}"), get(unique_id)]
        answers += [STORED, found(f"value{number}")]
    with Connection(plain.address) as connection:
        connection.send(b"".join(pipeline))
        assert [connection.receive().body for _ in answers] == answers


def test_nothing_is_answered_after_a_request_that_asks_to_close(plain):
    with Connection(plain.address) as connection:
        connection.send(get("nobody") + get("nobody", "Connection: close") + get("nobody") * 50)
        assert not connection.receive().closes
        assert connection.receive().closes
        connection.expect_end()


def test_an_error_in_the_middle_of_a_pipeline_ends_it(plain):
    unique_id = fresh_id()
    with Connection(plain.address) as connection:
        bad = lines("POST /token HTTP/1.1", "Host: localhost", "Content-Length: x")
        connection.send(get(unique_id) + post(unique_id, "one") + bad + post(unique_id, "two"))
        assert [connection.receive().body for _ in range(2)] == [NOT_FOUND, STORED]
        check_http_error(connection.receive(), 400)
        connection.expect_end()
    assert plain.get(unique_id) == found("one")


@pytest.mark.parametrize("pause", [0, 0.1], ids=["at once", "later"])
@pytest.mark.parametrize("byte", [0x16, 0x17])
def test_what_begins_like_tls_behind_a_request_is_an_error_like_any_other(plain, byte, pause):
    pieces = [post(fresh_id(), "one") * 2, bytes([byte]) + b"rubbish\r\n\r\n"]
    with Connection(plain.address) as connection:
        connection.send_pieces(pieces if pause else [b"".join(pieces)], pause)
        assert [connection.receive().body for _ in range(2)] == [STORED] * 2
        check_http_error(connection.receive(), 400)
        connection.expect_end()
