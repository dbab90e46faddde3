"""Deadlines: slow heads and bodies get 408, idle connections end without a word, slow but timely clients are served."""
import socket
import time

import pytest

from contract import NOT_FOUND, STORED, check_http_error, fresh_id, found
from http_client import FORM, Connection, chunked_post, get, lines, post
from server_process import until

POST_HEAD = lines("POST /token HTTP/1.1", "Host: localhost", FORM, "Content-Length: 200")

UNFINISHED = {
    "first byte": b"G",
    "request line": b"GET /token HTTP/1.1",
    "half a line end": b"GET /token HTTP/1.1\r",
    "some headers": b"GET /token HTTP/1.1\r\nHost: localhost\r\n",
    "all but the last byte": get("nobody")[:-1],
    "body not begun": POST_HEAD,
    "half a body": POST_HEAD + b"unique_id=",
    "half a chunked body": chunked_post("a", "b")[:-12],
    "missing last line": chunked_post("a", "b")[:-2],
}


@pytest.mark.parametrize("data", UNFINISHED.values(), ids=UNFINISHED)
def test_a_request_that_does_not_arrive_in_time_gets_408(hasty, data):
    with Connection(hasty.address) as connection:
        connection.send(data)
        response = connection.receive()
        check_http_error(response, 408)
        assert response.closes
        connection.expect_end()


def test_408_comes_after_the_answers_to_what_was_whole(hasty):
    with Connection(hasty.address) as connection:
        connection.send(get("nobody") + get("nobody") + b"GET /tok")
        assert connection.receive().body == NOT_FOUND
        assert connection.receive().body == NOT_FOUND
        check_http_error(connection.receive(), 408)
        connection.expect_end()


@pytest.mark.parametrize("start", [b"GET /token HTTP/1.1\r\nHost: localhost\r\nX: ", POST_HEAD], ids=["head", "body"])
def test_a_trickle_does_not_put_off_the_deadline(hasty, start):
    with Connection(hasty.address) as connection:
        connection.send(start)
        end = time.monotonic() + 20
        # Sends less than the whole body, in pieces that follow one another faster than the deadline.
        while connection.is_silent(0.2) and time.monotonic() < end:
            connection.send_while_possible(b"x")
        check_http_error(connection.receive(), 408)


def test_the_deadline_of_the_head_begins_with_its_first_byte(hasty):
    with Connection(hasty.address) as connection:
        for _ in range(2):
            assert connection.is_silent(1.0), "longer than the head may take"
            assert connection.exchange(get("nobody")).body == NOT_FOUND


@pytest.mark.parametrize("served", [0, 1, 3])
def test_an_idle_connection_is_closed_without_an_answer(brief, connect, served):
    # The server finds all at once, as the connection ends if the next request is late.
    with brief.paused():
        connection = connect(brief.address)
        connection.send(get("nobody") * served)
    for _ in range(served):
        assert connection.receive().body == NOT_FOUND
    connection.expect_end()


def test_a_request_that_came_in_time_is_answered_however_late_the_server_looks(serve, connect):
    # Long enough to open all connections on a busy machine.
    server = serve({"loops": 1, "timeouts": {"idle": "10s"}})
    # More connections than one batch of events.
    connections = [connect(server.address) for _ in range(400)]
    for connection in connections:
        connection.send(get("nobody"))
    for connection in connections:
        assert connection.receive().body == NOT_FOUND
    with server.paused():
        for connection in connections:
            connection.send(get("nobody"))
        assert connections[0].is_silent(10.5), "longer than a connection may be idle"
    for connection in connections:
        assert connection.receive().body == NOT_FOUND


def test_a_request_under_way_is_not_idle(brief, connect):
    unique_id = fresh_id()
    data = post(unique_id, "x" * 50)
    with brief.paused():
        connection = connect(brief.address)
        connection.send(data[:20])
    for piece in (data[20:-20], data[-20:]):
        assert connection.is_silent(1.5), "longer than a connection may be idle"
        connection.send(piece)
    assert connection.receive().body == STORED


# Clients that read slowly


def large_answer(server, size):
    """An id whose answer is six times as long as its token, because each control character is escaped."""
    unique_id = fresh_id()
    assert server.post(unique_id, "\x01" * size) == STORED
    return unique_id, found("\x01" * size)


def test_an_answer_that_is_read_slowly_is_not_cut_off_by_a_stray_line_end(plain):
    unique_id, answer = large_answer(plain, 900_000)
    with Connection(plain.address, receive_buffer=4096) as connection:
        connection.send(get(unique_id, "Connection: close"))
        assert not connection.is_silent(20)
        connection.send(b"\r\n")
        assert connection.receive().body == answer
        connection.expect_end()


def test_a_flood_that_is_not_read_takes_bounded_memory(serve):
    server = serve({"loops": 1})
    server.get("nobody")
    before = server.resident_bytes()
    flood = get("nobody") * 20_000
    with Connection(server.address, timeout=1.0, receive_buffer=4096) as stuck:
        with pytest.raises(TimeoutError):
            for _ in range(60):
                stuck.send(flood)
        assert server.get("nobody") == NOT_FOUND
        assert server.resident_bytes() - before < 32 << 20


def test_a_flood_that_is_read_late_is_answered_completely(plain):
    with Connection(plain.address, receive_buffer=4096) as connection:
        connection.send(get("nobody") * 2_000)
        assert plain.get("nobody") == NOT_FOUND
        for _ in range(2_000):
            assert connection.receive().body == NOT_FOUND


def test_a_client_that_takes_nothing_of_its_answer_is_given_up(serve):
    server = serve({"loops": 1, "timeouts": {"body": "3s"}})
    before = server.open_sockets()
    unique_id, _ = large_answer(server, 900_000)
    with Connection(server.address, receive_buffer=4096) as stuck:
        stuck.send(get(unique_id) * 10)
        assert stuck.socket.recv(1, socket.MSG_PEEK), "the answer has begun"
        until(lambda: server.open_sockets() == before)


def test_a_client_that_reads_slowly_but_steadily_gets_its_whole_answer(serve):
    server = serve({"loops": 1, "limits": {"body": "8 MiB"}, "timeouts": {"body": "6s"}})
    unique_id, answer = large_answer(server, 7 << 20)
    with Connection(server.address) as connection:
        connection.send(get(unique_id))
        received = bytearray()
        # Takes 7 s and more to read the answer, and never pauses for as long as timeouts.body.
        while len(received) < len(answer):
            data = connection.socket.recv(1_500_000)
            assert data, f"cut off after {len(received)} bytes"
            received += data
            time.sleep(0.25)
    assert bytes(received).count(b"\\u0001") == 7 << 20
