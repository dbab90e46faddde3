"""The administration answers probes and commands, however many connections are open and whatever clients do."""
import contextlib
import json
import re
import socket

import pytest

from administration import ADMINISTRATION, HOST, ask, fetched, readiness
from contract import STORED, fresh_id
from http_client import Connection, exchange, lines, post
from server_process import run, until
from service_manager import StoppedThread


@pytest.fixture(name="server")
def administrated_server(serve):
    return serve(ADMINISTRATION)


# What 70 connections, of which the listener admits 64, make it wait for.
LEFT_WAITING = {
    "nothing": b"", "half a head": b"GET /healthz HTTP/1.1\r\nHost: loc",
    "half a body": lines("POST /healthz HTTP/1.1", HOST, "Content-Length: 1000") + b"x",
    "answers that nobody takes": lines("GET / HTTP/1.1", HOST) * 100,
    "answers that take long": lines("GET /metrics HTTP/1.1", HOST) * 100,
    "the next request": lines("GET /healthz HTTP/1.1", HOST),
}


def answers(address):
    """Whether a connection is served."""
    try:
        return ask(address, "GET", "/healthz")[0] == 200
    except (AssertionError, OSError):
        return False


@pytest.mark.parametrize("sent", LEFT_WAITING.values(), ids=LEFT_WAITING)
def test_connections_that_are_left_waiting_keep_no_probe_from_its_answer(server, sent):
    with contextlib.ExitStack() as stack:
        for _ in range(70):
            connection = stack.enter_context(Connection(server.administration[0], receive_buffer=4096))
            connection.send_while_possible(sent)
        for _ in range(3):
            assert ask(server.administration[0], "GET", "/healthz") == (200, {"alive": True})
    until(lambda: answers(server.administration[0]))
    assert exchange(server.address, post(fresh_id(), "a")).body == STORED


def test_many_who_ask_for_metrics_keep_the_server_neither_from_a_probe_nor_from_its_end(serve):
    """Each report was once made separately, on threads that must also handle signals."""
    server = serve({**ADMINISTRATION, "drain_timeout": "1s"})
    with contextlib.ExitStack() as stack:
        for number in range(2_000):
            connection = stack.enter_context(Connection(server.administration[0], receive_buffer=4096))
            connection.send_while_possible(lines("GET /metrics HTTP/1.1", HOST) * 20)
            if number % 100 == 0:
                assert ask(server.administration[0], "GET", "/healthz") == (200, {"alive": True})
                # The abandoned connections are closed and not read any more.
                assert int(re.search(r"\nprocess_open_fds (\d+)", fetched(server)[0])[1]) < 500
        assert server.stop() == 0


def test_one_connection_too_many_ends_the_one_that_is_idle_for_longest(server):
    with contextlib.ExitStack() as stack:
        connections = [stack.enter_context(Connection(server.administration[0])) for _ in range(64)]
        request = lines("GET /healthz HTTP/1.1", HOST)
        for connection in connections:
            assert connection.exchange(request).status == 200
        # Now the second connection has been idle for longest.
        assert connections[0].exchange(request).status == 200
        with Connection(server.administration[0]) as surplus:
            assert surplus.exchange(request).status == 200
        connections[1].expect_end()
        for connection in (connections[0], *connections[2:]):
            assert connection.exchange(request).status == 200


def test_no_request_of_a_command_is_given_up_for_another_one(server):
    """A connection too many is closed if requests have begun on all others."""
    path = str(server.data / "control.sock")
    body = json.dumps({"id": "nobody"}).encode()
    request = lines("POST /store/get HTTP/1.1", HOST, f"Content-Length: {len(body)}") + body
    with contextlib.ExitStack() as stack:
        def connect():
            client = stack.enter_context(socket.socket(socket.AF_UNIX))
            client.settimeout(20)
            client.connect(path)
            return client

        def surplus_is_closed():
            client = connect()
            try:
                client.sendall(request)
                return client.recv(1) == b""
            except ConnectionError:
                return True

        begun = [connect() for _ in range(64)]
        for client in begun:
            client.sendall(request[:-1])
        # The last request may not have been read yet, and until then its connection may be closed.
        assert all(surplus_is_closed() for _ in range(3))
        for client in begun:
            client.sendall(request[-1:])
        for client in begun:
            assert client.recv(1 << 16).startswith(b"HTTP/1.1 200 ")


def test_it_is_answered_whatever_clients_have_the_server_do(server):
    """The administration has a thread of its own; the threads of clients are stopped here."""
    with StoppedThread(server.process, "loop 0"), StoppedThread(server.process, "loop 1"):
        assert ask(server.administration[0], "GET", "/healthz") == (200, {"alive": True})
        assert readiness(server) == (200, {"ready": True, "reasons": []})
        assert ask(server.administration[0], "GET", "/status")[1]["ready"]
        text, _ = fetched(server)
        assert "\ntoken_cache_ready 1\n" in text and "\ntoken_cache_connections_open 0\n" in text
        assert run("stats", "--data-directory", str(server.data)).returncode == 0
    assert exchange(server.address, post(fresh_id(), "a")).body == STORED
