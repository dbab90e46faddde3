"""No client keeps others from being served, whether it sends fast or reads slowly."""
import contextlib
import json
import socket
import threading
from urllib.parse import quote

import pytest

from administration import ADMINISTRATION, ask, metrics
from certificates import make_certificate
from contract import NOT_FOUND, STORED
from http_client import Connection, ProtocolError, get, lines, post
from server_process import until
from test_tls import curl, tls_settings


@contextlib.contextmanager
def flooded(server, request):
    """A client that sends a request over and over, and reads all answers, until the server closes or the block has ended."""
    with socket.create_connection(server.address) as client:
        flows = threading.Event()

        def read():
            with contextlib.suppress(OSError):
                while client.recv(1 << 16):
                    flows.set()

        def send():
            with contextlib.suppress(OSError):
                while True:
                    client.sendall(request * 1000)

        threads = [threading.Thread(target=function, daemon=True) for function in (read, send)]
        try:
            for thread in threads:
                thread.start()
            assert flows.wait(20)
            yield
        finally:
            # Ends both threads, if the server has not.
            with contextlib.suppress(OSError):
                client.shutdown(socket.SHUT_RDWR)
            for thread in threads:
                thread.join(20)


def test_a_client_that_never_stops_asking_does_not_keep_the_server_from_stopping(serve):
    server = serve({"drain_timeout": "500ms", "loops": 1})
    with flooded(server, lines("HEAD /token HTTP/1.1", "Host: a")):
        assert server.stop() == 0


def test_a_body_that_comes_without_a_pause_ends_at_its_deadline(serve):
    server = serve({"timeouts": {"body": "300ms"}, "limits": {"body": "64 MiB", "buffers": "1 GiB"}, "loops": 1})
    head = b"POST /token HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n"
    with Connection(server.address) as connection:
        connection.send(head)
        sender = threading.Thread(target=send_until_refused, args=(connection, b"1\r\nx\r\n" * 10_000), daemon=True)
        sender.start()
        assert connection.receive().status == 408
        sender.join(20)


def send_until_refused(connection, data):
    """Sends as long as the server reads."""
    try:
        while True:
            connection.send(data)
    except OSError:
        pass


def test_a_client_that_sends_without_a_pause_leaves_time_for_others(serve):
    server = serve({"loops": 1, "limits": {"body": "64 MiB", "buffers": "1 GiB"}})
    with flooded(server, get("nobody")):
        for number in range(50):
            assert server.post(f"id{number}", "x") == STORED


def test_clients_that_do_not_read_cannot_fill_the_memory(serve, connect):
    server = serve({"limits": {"body": "4 MiB", "buffers": "48 MiB"}})
    # As JSON each byte becomes six, which exceeds the kernel's buffers.
    assert server.post("large", "%01" * 1_300_000) == STORED
    base, before = server.open_descriptors(), server.resident_bytes()
    clients = [connect(server.address, timeout=30, receive_buffer=4096) for _ in range(80)]
    for client in clients:
        # Connections beyond limits.buffers are closed; the others wait.
        client.send_while_possible(get("large"))
    for client in clients:
        with contextlib.suppress(ConnectionError):
            client.socket.recv(1, socket.MSG_PEEK)
    until(lambda: server.open_descriptors() < base + 40)
    assert server.resident_bytes() - before < 200 << 20
    assert server.post("other", "x") == STORED


def test_what_is_beside_an_answer_that_waits_counts_as_well(serve, connect):
    server = serve({"limits": {"body": "2 MiB", "buffers": "24 MiB"}})
    assert server.post("large", "%01" * 300_000) == STORED
    assert server.post("middle", "x" * 1_900_000) == STORED
    large_body = post("other", "x" * 1_900_000)
    before = server.resident_bytes()

    def send(data, count, **options):
        for _ in range(count):
            client = connect(server.address, **options)
            client.send_while_possible(data)
            # Connections beyond limits.buffers are closed.
            with contextlib.suppress(ConnectionError, ProtocolError):
                client.receive()

    # The buffer of a large body, while the answer to the next request is not read.
    send(large_body + get("large"), 60, receive_buffer=4096)
    # The same with the last answer of a connection, after which the server waits for the client.
    closing = large_body.replace(b"\r\n", b"\r\nConnection: close\r\n", 1)
    send(closing + get("nobody"), 60)
    # The buffer of an answer, while a part of the next request has arrived.
    send(get("middle") + b"GET /tok", 80)
    assert server.resident_bytes() - before < 96 << 20
    assert server.post("other", "x") == STORED


@pytest.mark.parametrize("loops", [1, 2])
@pytest.mark.parametrize("what", ["unread answers", "half bodies"])
def test_memory_that_slow_clients_hold_is_there_for_handshakes_and_short_requests(serve, connect, tmp_path, what, loops):
    server = serve({
        **ADMINISTRATION, **tls_settings(make_certificate(tmp_path)), "listen": ["127.0.0.1:0", "https://127.0.0.1:0"],
        "loops": loops, "limits": {"buffers": "16 MiB"},
        # With the default, the first clients could time out on a busy machine before the last ones have connected.
        "timeouts": {"body": "10m"}})
    large = "x" * 1_000_000
    assert server.post("large", large) == STORED
    held = {"unread answers": get("large"), "half bodies": post("other", large)[:-100_000]}[what]
    # The smaller ones take what the larger ones have left.
    for data, count in [(held, 40), *((post("other", large)[:size], 60) for size in (200_000, 30_000, 3_000))]:
        for _ in range(count):
            connect(server.address, timeout=30, receive_buffer=4096).send_while_possible(data)
    until(lambda: metrics(server)["token_cache_buffers_bytes"] > 8 << 20)
    for number in range(20):
        status, body = curl(server.addresses[1], "-d", f"unique_id=id{number}&token_info=x")
        assert (status, body) == (200, STORED.decode())
        assert server.post(f"id{number}", "y" * 9_000) == STORED


# Each takes milliseconds to fetch, and each of its bytes becomes six in the answer.
LONG = "%01" * 340_000
LONG_REQUESTS = 400
SHORT_REQUESTS = 40


@pytest.fixture(name="clients")
def answered_clients(connect):
    """A function that makes connections to a server, each of which has been answered once."""
    def make(server, count, **options):
        opened = [connect(server.address, **options) for _ in range(count)]
        for client in opened:
            assert client.exchange(get("nobody")).body == NOT_FOUND
        return opened
    return make


def answers_up_to_last_short_one(server, before):
    """The sizes of the answers' bodies in order, without the first ones; None if some are still missing in the access log."""
    sizes = [int(line.split('"')[2].split()[1]) for line in server.output().splitlines()[before:]]
    short = [index for index, size in enumerate(sizes) if size == len(NOT_FOUND)]
    return sizes[:short[-1] + 1] if len(short) == SHORT_REQUESTS else None


@pytest.mark.parametrize("first", [b"", post("small", "x")], ids=["GET", "POST and GET"])
def test_any_number_of_long_answers_hardly_hold_up_short_ones(serve, clients, first):
    server = serve({"loops": 1, "access_log": "combined", "limits": {"body": "2 MiB"}, **ADMINISTRATION})
    assert server.post("long", LONG) == STORED
    # The long requests are sent first, so that they would be answered first.
    asking = clients(server, LONG_REQUESTS, receive_buffer=4096)
    others = clients(server, SHORT_REQUESTS)
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
    assert ask(server.administration[0], "GET", "/healthz")[0] == 200
    # The access log has the order of the answers, and is written a moment later.
    answers = until(lambda: answers_up_to_last_short_one(server, before))
    assert len(answers) - SHORT_REQUESTS - answers.count(len(STORED)) < LONG_REQUESTS / 2, "short ones waited for long ones"


def test_a_long_answer_comes_whole_and_what_is_behind_it_as_well(serve):
    server = serve({"loops": 1, "limits": {"body": "4 MiB"}})
    # Two-byte and four-byte characters lie across the ends of pieces.
    text = "x" + "\u00e9\U0001f600/\"" * 120_000
    with Connection(server.address) as client:
        assert client.exchange(post("long", quote(text))).body == STORED
        client.send(get("nobody") + get("long") + get("nobody") + get("long"))
        assert client.receive().body == NOT_FOUND
        first = client.receive()
        assert json.loads(first.body)["token_info"] == text
        assert client.receive().body == NOT_FOUND
        assert client.receive().body == first.body


def test_long_work_that_does_not_get_its_turn_in_time_gets_503(serve, clients):
    server = serve({"loops": 1, "limits": {"body": "2 MiB"}, "timeouts": {"body": "100ms"}})
    assert server.post("long", LONG) == STORED
    asking = clients(server, LONG_REQUESTS)
    with server.paused():
        for client in asking:
            client.send(get("long"))
    # Each request is answered or refused.
    statuses = {client.receive().status for client in asking}
    assert statuses <= {200, 503} and 503 in statuses
    assert server.get("nobody") == NOT_FOUND
