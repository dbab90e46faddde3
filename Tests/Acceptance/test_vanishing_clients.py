"""Clients that disconnect at any stage, with FIN or RST, leave no resources in use."""
import pytest

from contract import NOT_FOUND, STORED, fresh_id
from http_client import FORM, Connection, chunked_post, get, lines, post
from server_process import shared_server, until

POST_HEAD = lines("POST /token HTTP/1.1", "Host: localhost", FORM, "Content-Length: 100")
EXPECTING = lines(
    "POST /token HTTP/1.1", "Host: localhost", FORM, "Content-Length: 100", "Expect: 100-continue")

STAGES = {
    "connected": b"",
    "first byte": b"G",
    "request line": b"GET /token HTTP/1.1\r\n",
    "half a head": b"GET /token HTTP/1.1\r\nHost: local",
    "head without its body": POST_HEAD,
    "half a body": POST_HEAD + b"unique_id=a",
    "half a chunk": chunked_post("a", "b" * 20)[:-25],
    "waiting for leave": EXPECTING,
    "answer not read": get("nobody"),
    "POST under way": post("vanished", "a"),
    "pipeline of POSTs under way": post("vanished", "a") * 50,
    "pipeline of GETs under way": get("nobody") * 500,
    "refused": b"\r\r\r\r",
    "refused while sending": lines("PUT /token HTTP/1.1", "Host: localhost", "Content-Length: 9000000") + b"x" * 99_999,
    "asked to close": get("nobody", "Connection: close"),
}


# A server of this file's own, so that no other test uses its descriptors.
watched_server = shared_server("watched", {}, scope="module")


@pytest.fixture
def descriptors(watched):
    """Checks after a test that all descriptors were closed and that the server serves."""
    # From now on, everything that the first reads and writes open is open.
    for _ in range(4):
        watched.get("nobody")
        watched.post("somebody", "a")
    before = watched.open_sockets()
    yield
    until(lambda: watched.open_sockets() <= before)
    with Connection(watched.address) as connection:
        assert connection.exchange(get("nobody")).body == NOT_FOUND
        assert connection.exchange(post(fresh_id(), "a")).body == STORED
    until(lambda: watched.open_sockets() <= before)


@pytest.mark.usefixtures("descriptors")
@pytest.mark.parametrize("leave", [Connection.close, Connection.reset], ids=["FIN", "RST"])
@pytest.mark.parametrize("data", STAGES.values(), ids=STAGES)
def test_a_client_that_vanishes_leaves_nothing_behind(watched, data, leave):
    clients = [Connection(watched.address) for _ in range(15)]
    for client in clients:
        client.send_while_possible(data)
    for client in clients:
        leave(client)


@pytest.mark.usefixtures("descriptors")
@pytest.mark.parametrize("leave", [Connection.close, Connection.reset], ids=["FIN", "RST"])
def test_a_client_that_vanishes_in_the_middle_of_a_large_answer_leaves_nothing_behind(watched, leave):
    unique_id = fresh_id()
    assert watched.post(unique_id, "\x01" * 900_000) == STORED
    clients = [Connection(watched.address, receive_buffer=4096) for _ in range(5)]
    for client in clients:
        client.send(get(unique_id) * 20)
    for client in clients:
        assert client.receive_raw(1000).startswith(b"HTTP/1.1 200 OK\r\n")
        leave(client)


@pytest.mark.usefixtures("descriptors")
def test_a_client_that_finishes_sending_inside_a_request_is_let_go(watched):
    for data in (b"GET /tok", POST_HEAD + b"unique_id=a", chunked_post("a", "b")[:-4]):
        with Connection(watched.address) as client:
            client.send(data)
            client.finish_sending()
            client.receive_to_end()
