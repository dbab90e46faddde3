"""A low limit of open files means fewer connections, and nothing else."""
import re
import signal
import time

import pytest

from contract import STORED, found, fresh_id
from http_client import Connection, ProtocolError, get, post
from server_process import until

LIMIT = 256
CLIENTS = 400
TOO_LOW = re.compile(r"the limit of open files, (\d+), is too low for limits.connections, (\d+): at most (\d+) are served; .*LimitNOFILE=")


def served(server):
    """How many connections the server says that it serves at most."""
    [(_, _, count)] = TOO_LOW.findall(server.log())
    return int(count)


def open_all(server, count=CLIENTS):
    return [Connection(server.address, timeout=10) for _ in range(count)]


def close_all(connections):
    for connection in connections:
        connection.close()


def is_refused(server):
    """Whether a new connection gets 503, or is closed at once."""
    with Connection(server.address) as connection:
        try:
            return connection.exchange(get("nobody")).status == 503
        except (ProtocolError, ConnectionError):
            return True


@pytest.mark.parametrize("loops", [1, 2])
def test_connections_beyond_the_descriptors_are_refused(shim, tmp_path, loops):
    server = shim.serve(tmp_path / "server", {"loops": loops, "store": {"timeout": "1h"}}, descriptors=LIMIT)
    limit = served(server)
    assert LIMIT / 2 < limit < LIMIT
    # Those that wait for the store make no room.
    shim.set(sync_delay_microseconds=1 << 31)
    connections = open_all(server, limit)
    for connection in connections:
        connection.send(post(fresh_id(), "a"))
    until(lambda: is_refused(server))
    surplus = open_all(server)
    assert server.open_descriptors() < LIMIT, "some are left for what the server itself has to open"
    shim.set(sync_delay_microseconds=0)
    for connection in connections:
        assert connection.receive().body == STORED, "what was open stays open"
    assert "accepts no connections" not in server.log()
    close_all(surplus)
    until(lambda: not is_refused(server))
    close_all(connections)


def test_the_store_works_although_no_more_connections_are_served(serve, tmp_path):
    data = tmp_path / "data"
    unique_id = fresh_id()
    first = serve(data=data)
    assert first.post(unique_id, "kept") == STORED
    assert first.stop() == 0
    server = serve({"loops": 2}, descriptors=LIMIT, data=data)
    connections = open_all(server, served(server))
    for connection in connections[:20]:
        # The first reads and writes of each loop must not need to open anything.
        assert connection.exchange(get(unique_id)).body == found("kept")
        assert connection.exchange(post(fresh_id(), "new")).body == STORED
    close_all(connections)


@pytest.mark.parametrize("limit", [40, 256])
def test_the_runtime_has_descriptors_left_for_its_own_work(serve, limit):
    """libdispatch reads /proc to manage its threads, and ends the process if it cannot."""
    server = serve({"loops": 2}, descriptors=limit)
    connections = open_all(server)
    for _ in range(3):
        # Reloads and the timers of a stop run on threads of libdispatch, which checks them each second.
        server.send_signal(signal.SIGHUP)
        time.sleep(1.1)
        # One of those that wait for a request makes room, as soon as those that got 503 are gone.
        until(lambda: not is_refused(server))
    assert server.stop() == 0
    close_all(connections)


@pytest.mark.parametrize("limit", range(4, 40, 2))
def test_with_very_few_descriptors_the_start_is_refused_or_the_server_works(serve, limit):
    try:
        server = serve({"loops": 2}, descriptors=limit)
    except AssertionError as error:
        told = "Too many open files|unable to open|the limit of open files, [0-9], is too low to start"
        assert re.search(f"the server ended with 1: .*({told})", str(error), re.DOTALL), error
        return
    connections = open_all(server, 20)
    server.send_signal(signal.SIGHUP)
    until(lambda: "SIGHUP received" in server.log())
    close_all(connections)
    until(lambda: not is_refused(server))
    assert server.stop() == 0
