"""Whatever clients ask for, the turns of a loop stay short: measured in answers to other clients, not in seconds."""
import contextlib
import json

import pytest

from contract import NOT_FOUND, STORED
from http_client import Connection, exchange, get, post
from server_process import until

# Each takes milliseconds to fetch, and each of its bytes becomes six in the answer.
LONG = "%01" * 340_000
LONG_REQUESTS = 400
SHORT_REQUESTS = 40


def clients(stack, server, count, **options):
    """Connections that have been answered once."""
    opened = [stack.enter_context(Connection(server.address, **options)) for _ in range(count)]
    for client in opened:
        assert client.exchange(get("nobody")).body == NOT_FOUND
    return opened


def order_of_answers(server, before):
    """The sizes of the answers' bodies in order, without the first ones."""
    return [int(line.split('"')[2].split()[1]) for line in server.output().splitlines()[before:]]


@pytest.mark.parametrize("first", [b"", post("small", "x")], ids=["GET", "POST and GET"])
def test_any_number_of_long_answers_hardly_hold_up_short_ones(serve, first):
    server = serve({"loops": 1, "access_log": "combined", "limits": {"body": "2 MiB"}, "admin": {"listen": "127.0.0.1:0"}})
    assert exchange(server.address, post("long", LONG)).body == STORED
    with contextlib.ExitStack() as stack:
        # The long requests are sent first, so that they would be answered first.
        asking = clients(stack, server, LONG_REQUESTS, receive_buffer=4096)
        others = clients(stack, server, SHORT_REQUESTS)
        before = 1 + LONG_REQUESTS + SHORT_REQUESTS
        until(lambda: len(server.output().splitlines()) == before)
        with server.paused():
            for client in asking:
                client.send(first + get("long"))
            for client in others:
                client.send(first + get("nobody"))
        for client in others:
            if first:
                assert client.receive().body == STORED
            assert client.receive().body == NOT_FOUND
        # The administration does not wait for them either.
        assert exchange(server.administration[0], get_path("/healthz")).status == 200
        # The access log has the order of the answers, and is written a moment later.
        answers = until(lambda: up_to_last_short_answer(order_of_answers(server, before)))
        assert len(answers) - SHORT_REQUESTS - answers.count(len(STORED)) < LONG_REQUESTS / 2, "short ones waited for long ones"


def up_to_last_short_answer(sizes):
    """The entries of the access log, or None if some are still missing."""
    short = [index for index, size in enumerate(sizes) if size == len(NOT_FOUND)]
    return sizes[:short[-1] + 1] if len(short) == SHORT_REQUESTS else None


def get_path(path):
    """A request of the administration."""
    return f"GET {path} HTTP/1.1\r\nHost: localhost\r\n\r\n".encode()


def test_a_long_answer_comes_whole_and_what_is_behind_it_as_well(serve):
    server = serve({"loops": 1, "limits": {"body": "4 MiB"}})
    # Two-byte and four-byte characters lie across the ends of pieces.
    text = "x" + "\u00e9\U0001f600/\"" * 120_000
    with Connection(server.address) as client:
        assert client.exchange(post("long", text_as_form(text))).body == STORED
        client.send(get("nobody") + get("long") + get("nobody") + get("long"))
        assert client.receive().body == NOT_FOUND
        first = client.receive()
        assert json.loads(first.body)["token_info"] == text
        assert client.receive().body == NOT_FOUND
        assert client.receive().body == first.body


def text_as_form(text):
    """Percent-encodes a text, as the helper expects it."""
    return "".join(f"%{byte:02x}" for byte in text.encode())


def test_long_work_that_does_not_get_its_turn_in_time_gets_503(serve):
    server = serve({"loops": 1, "limits": {"body": "2 MiB"}, "timeouts": {"body": "100ms"}})
    assert exchange(server.address, post("long", LONG)).body == STORED
    statuses = set()
    with contextlib.ExitStack() as stack:
        asking = clients(stack, server, LONG_REQUESTS)
        with server.paused():
            for client in asking:
                client.send(get("long"))
        for client in asking:
            statuses.add(client.receive().status)
    # Each request is answered or refused.
    assert statuses <= {200, 503} and 503 in statuses
    assert exchange(server.address, get("nobody")).body == NOT_FOUND
