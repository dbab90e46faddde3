"""Running out of file descriptors pauses accepting, nothing else."""
import signal
import time

import pytest

from contract import NOT_FOUND, STORED, found, fresh_id
from http_client import Connection, exchange, get, post
from server_process import until

LIMIT = 256
CLIENTS = 400
# At most this many are reserved and not used for connections, and each loop may exceed its share by one.
RESERVE = 16 + 2


def flood(server):
    """More connections than the server has descriptors; the rest wait in the kernel's queue."""
    connections = [Connection(server.address, timeout=10) for _ in range(CLIENTS)]
    until(lambda: server.open_descriptors() >= LIMIT - RESERVE)
    return connections


def close_all(connections):
    for connection in connections:
        connection.close()


@pytest.mark.parametrize("loops", [1, 2])
def test_accepting_pauses_without_spinning_and_resumes(serve, loops):
    server = serve({"loops": loops}, descriptors=LIMIT)
    connections = flood(server)
    served = connections[:10]
    for connection in served:
        assert connection.exchange(get("nobody")).body == NOT_FOUND
    assert connections[-1].is_silent(0.1)
    before = server.processor_seconds()
    time.sleep(1.5)
    assert server.processor_seconds() - before < 0.15, "waiting for descriptors takes next to no processor time"
    assert server.open_descriptors() < LIMIT, "some are left for what the server itself has to open"
    for connection in served:
        assert connection.exchange(get("nobody")).body == NOT_FOUND, "what was open stays open"
    connections[-1].send(get("nobody"))
    close_all(connections[10:-1])
    assert connections[-1].receive().body == NOT_FOUND, "who waited in the queue is served"
    assert exchange(server.address, get("nobody")).body == NOT_FOUND
    assert server.log().count("no connections are accepted for now") >= 1
    assert server.log().count("\n") < 30, "one line for a pause, not one for each attempt"
    close_all(served + connections[-1:])


@pytest.mark.parametrize("loops", [1, 2])
def test_the_store_works_although_no_descriptor_is_left(serve, tmp_path, loops):
    data = tmp_path / "data"
    unique_id = fresh_id()
    first = serve(data=data)
    assert exchange(first.address, post(unique_id, "kept")).body == STORED
    assert first.stop() == 0
    server = serve({"loops": loops}, descriptors=LIMIT, data=data)
    connections = flood(server)
    for connection in connections[:20]:
        # The first reads and writes of each loop must not need to open anything.
        assert connection.exchange(get(unique_id)).body == found("kept")
        assert connection.exchange(post(fresh_id(), "new")).body == STORED
    close_all(connections)


@pytest.mark.parametrize("limit", [40, 64, 256])
def test_the_runtime_has_descriptors_left_for_its_own_work(serve, limit):
    """libdispatch reads /proc to manage its threads, and ends the process if it cannot."""
    server = serve({"loops": 2}, descriptors=limit)
    connections = [Connection(server.address, timeout=10) for _ in range(CLIENTS)]
    until(lambda: "no connections are accepted for now" in server.log())
    for _ in range(3):
        # Reloads and the timers of a stop run on threads of libdispatch, which checks them each second.
        server.send_signal(signal.SIGHUP)
        time.sleep(1.1)
        assert connections[0].exchange(get("nobody")).body == NOT_FOUND
    assert server.stop() == 0
    close_all(connections)


def test_a_server_out_of_descriptors_stops_as_asked(serve):
    server = serve({"drain_timeout": "2s"}, descriptors=LIMIT)
    connections = flood(server)
    assert server.stop() == 0
    close_all(connections)


def test_a_limit_too_low_for_the_connections_is_warned_of(serve):
    server = serve(descriptors=LIMIT)
    assert "limit of open files" in server.log() and "LimitNOFILE" in server.log()
