"""Each limit at its edge: the largest allowed value is served, one more is refused."""
import contextlib
import ssl
import subprocess
import time

import pytest

from administration import ADMINISTRATION, metrics
from certificates import make_certificate
from conftest import SMALL_LIMITS
from contract import INVALID_INPUT, NOT_FOUND, STORED, check_http_error, fresh_id
from http_client import FORM, HOST, Connection, ProtocolError, chunks, exchange, form, get, lines, post_of
from server_process import until
from test_tls import tls_settings



@pytest.fixture(params=["small", "plain"], ids=["set limits", "default limits"])
def limited(request):
    """A server and its limits."""
    limits = {
        "small": SMALL_LIMITS,
        "plain": {"head": 16 << 10, "body": 1 << 20},
    }[request.param]
    return request.getfixturevalue(request.param), limits


def request_line(length):
    """A request whose first line has this length with its end."""
    start, end = "GET /token?unique_id=nobody&fill=", " HTTP/1.1"
    return lines(start + "x" * (length - len(start) - len(end) - 2) + end, HOST)


def long_target(length):
    """A request without a body, of this length with the empty line, in a long first line."""
    return request_line(length - len(lines(HOST)))


def long_field(length):
    """A request without a body, of this length with the empty line, in two fields."""
    short = lines("GET /token?unique_id=nobody HTTP/1.1", HOST, "X: ")
    return lines("GET /token?unique_id=nobody HTTP/1.1", HOST, "X: " + "x" * (length - len(short)))


def form_of(length, unique_id):
    """A form body of this length."""
    return form(unique_id, "x" * (length - len(form(unique_id, ""))))


def refused(address, data):
    """The answer to a request after which the server must close."""
    with Connection(address) as connection:
        connection.send_while_possible(data)
        response = connection.receive()
        assert response.closes
        connection.expect_end()
        return response


@pytest.mark.parametrize("excess", [0, 1, 2, 3, 500, 40_000, 1_000_000])
@pytest.mark.parametrize("make", [long_target, long_field])
def test_a_head_at_the_limit_is_served_and_a_longer_one_not(limited, make, excess):
    server, limits = limited
    data = make(limits["head"] + excess)
    if excess:
        too_long_line = make == long_target and excess > len(lines(HOST))
        check_http_error(refused(server.address, data), 414 if too_long_line else 431)
    else:
        assert exchange(server.address, data).body == NOT_FOUND


@pytest.mark.parametrize("excess, status", [(0, 431), (1, 414), (2, 414), (3, 414), (500, 414), (40_000, 414), (1_000_000, 414)])
def test_a_request_line_that_is_longer_than_a_head_may_be_gets_414(limited, excess, status):
    server, limits = limited
    check_http_error(refused(server.address, request_line(limits["head"] + excess)), status)


def test_a_hundred_fields_are_served_and_one_more_gets_431(plain):
    fields = [f"X{number}: a" for number in range(100)]
    assert plain.get("nobody", *fields[1:]) == NOT_FOUND
    check_http_error(refused(plain.address, get("nobody", *fields)), 431)


def posted(framing, body):
    """A POST of a form body, framed in one way or the other."""
    if framing == "length":
        return post_of(body, FORM)
    data = chunks(body, 1000 if framing == "chunked" else 1)
    return lines("POST /token HTTP/1.1", HOST, FORM, "Transfer-Encoding: chunked", body=data)


@pytest.mark.parametrize("framing", ["length", "chunked", "chunks of one byte"])
def test_a_body_at_the_limit_is_stored_and_a_larger_one_gets_413(limited, framing):
    server, limits = limited
    unique_id = fresh_id()
    body = form_of(limits["body"], unique_id)
    assert exchange(server.address, posted(framing, body)).body == STORED
    stored = server.get(unique_id)
    assert stored.count(b"x" * (limits["body"] - len(form(unique_id, "")))) == 1
    check_http_error(refused(server.address, posted(framing, body + b"x")), 413)


@pytest.mark.parametrize("framing", ["length", "chunked"])
def test_413_can_be_read_by_a_client_that_goes_on_sending(plain, framing):
    body = form_of(16 << 20, fresh_id())
    with Connection(plain.address) as connection:
        connection.send_while_possible(posted(framing, body))
        check_http_error(connection.receive(), 413)


def test_a_client_that_sends_for_long_after_413_is_waited_for_and_holds_up_no_stop(serve):
    server = serve()
    with Connection(server.address) as connection:
        connection.send(lines("POST /token HTTP/1.1", HOST, FORM, "Content-Length: 90000000"))
        check_http_error(connection.receive(), 413)
        for _ in range(6):
            connection.send(b"a")
            time.sleep(0.5)
        server.send_signal()
        with contextlib.suppress(OSError):
            while server.process.poll() is None:
                connection.send(b"a")
                time.sleep(0.1)
    assert server.wait() == 0
    assert "drain_timeout is over" not in server.log()


# Connections


def open_and_use(server):
    """A connection that has been answered once."""
    connection = Connection(server.address)
    assert connection.exchange(get("nobody")).body == NOT_FOUND
    return connection


def open_and_begin(server):
    """A connection whose second request has begun to arrive, once that has been read."""
    connection = open_and_use(server)
    connection.send(lines("POST /token HTTP/1.1", HOST, FORM, "Content-Length: 2", "Expect: 100-continue"))
    assert connection.receive().status == 100
    return connection


def go_on(connection):
    """Sends the rest of the request."""
    connection.send(b"a=")
    assert connection.receive().body == INVALID_INPUT


@contextlib.contextmanager
def storing(shim, folder, count):
    """A server at its limit of connections, which wait for a disk that stands still; when it goes on, their tokens are stored."""
    server = shim.serve(folder, {**ADMINISTRATION, "limits": {"connections": count}, "store": {"timeout": "1h"}})
    shim.set(sync_delay_microseconds=1 << 31)
    connections = [Connection(server.address) for _ in range(count)]
    for connection in connections:
        connection.send(post_of(form(unique_id=fresh_id(), token_info="a"), FORM))
    until(lambda: metrics(server)["token_cache_connections_open"] == count)
    try:
        yield server
    finally:
        shim.set(sync_delay_microseconds=0)
    for connection in connections:
        assert connection.receive().body == STORED
        connection.close()
    until(lambda: is_served(server))


def is_served(server):
    """Whether a new connection gets an answer of the contract."""
    with Connection(server.address) as connection:
        connection.send_while_possible(get("nobody"))
        try:
            return connection.receive().status == 200
        except (ConnectionResetError, ProtocolError):
            return False


def test_connections_up_to_the_limit_are_served_and_one_more_gets_503(shim, tmp_path):
    with storing(shim, tmp_path / "server", 5) as server:
        for count in range(1, 4):
            with Connection(server.address) as extra:
                response = extra.receive()
                check_http_error(response, 503)
                assert response.closes
                extra.expect_end()
            assert metrics(server)['token_cache_connections_refused_total{cause="limit"}'] == count


@pytest.mark.parametrize("part", [
    b"G", lines("POST /token HTTP/1.1", HOST, FORM, "Content-Length: 9"), get("nobody") * 20_000,
], ids=["a byte", "a head", "answers that are not read"])
def test_clients_that_keep_a_request_waiting_keep_no_client_out(serve, part):
    server = serve({"limits": {"connections": 10}})
    slow = [open_and_use(server) for _ in range(10)]
    for connection in slow:
        connection.send_while_possible(part)
    for _ in range(5):
        until(lambda: is_served(server))
    for connection in slow:
        connection.close()


def test_beyond_the_limit_the_connection_that_was_idle_for_longest_makes_room(serve):
    server = serve({"loops": 1, "limits": {"connections": 3}})
    with open_and_use(server) as first, open_and_use(server) as second, open_and_begin(server) as busy:
        assert first.exchange(get("nobody")).body == NOT_FOUND
        # The first one has been used after the second one.
        with open_and_use(server):
            second.expect_end()
            with open_and_use(server):
                first.expect_end()
        go_on(busy)


@pytest.mark.parametrize("loops", [1, 2])
def test_idle_connections_keep_no_client_out(serve, loops):
    server = serve({"loops": loops, "limits": {"connections": 40}})
    idle = [open_and_use(server) for _ in range(40)]
    for _ in range(100):
        # Those that came later are idle as well, and the next ones take their places.
        idle.append(open_and_use(server))
    for connection in idle:
        connection.close()


def test_connections_that_never_begin_their_handshake_keep_no_client_out(serve, tmp_path):
    listen = ["127.0.0.1:0", "https://127.0.0.1:0", "127.0.0.1:0?proxy-protocol=required"]
    server = serve({
        **ADMINISTRATION, **tls_settings(make_certificate(tmp_path)), "listen": listen, "limits": {"connections": 20}})
    silent = [Connection(address) for address in server.addresses[1:] for _ in range(20)]
    until(lambda: metrics(server)["token_cache_connections_accepted_total"] == len(silent))
    for _ in range(3):
        assert is_served(server)
    for connection in silent:
        connection.close()


def client_hello():
    """The first bytes of a handshake, which this client does not go on with."""
    hello = ssl.MemoryBIO()
    with pytest.raises(ssl.SSLWantReadError):
        ssl.create_default_context().wrap_bio(ssl.MemoryBIO(), hello, server_hostname="localhost").do_handshake()
    return hello.read()


@pytest.mark.parametrize("loops", [1, 2])
@pytest.mark.parametrize("at_once", [False, True], ids=["one by one", "at once"])
@pytest.mark.parametrize("over_tls, begun", [
    (True, client_hello()), (True, client_hello()[:100]), (True, b""), (False, b"GET /tok"), (False, b""), (False, b"\0\r\n"),
    (False, lines("POST /token HTTP/1.1", HOST, FORM, "Content-Length: 9", body=b"a=")),
], ids=["hello", "half a hello", "nothing over TLS", "half a head", "nothing", "rubbish", "half a body"])
def test_clients_that_were_never_answered_make_room_before_those_that_were(
        serve, tmp_path, loops, at_once, over_tls, begun):
    server = serve({
        **ADMINISTRATION, **tls_settings(make_certificate(tmp_path)), "listen": ["127.0.0.1:0", "https://127.0.0.1:0"],
        "loops": loops, "limits": {"connections": 40}})
    known = [open_and_use(server) for _ in range(20)]
    flood = []
    # At once, the newest ones take the places that were made for those before them.
    with server.paused() if at_once else contextlib.nullcontext():
        for _ in range(150):
            flood.append(Connection(server.addresses[1 if over_tls else 0]))
            flood[-1].send_while_possible(begun)
    until(lambda: metrics(server)["token_cache_connections_accepted_total"] == 170)
    until(lambda: is_served(server))
    for connection in known:
        assert connection.exchange(get("nobody")).body == NOT_FOUND
    for connection in flood + known:
        connection.close()


@pytest.mark.parametrize("begun", [b"G", b"\r"], ids=["a request", "an empty line"])
def test_many_clients_that_send_one_byte_leave_memory_for_others(serve, tmp_path, begun):
    certificate, key = make_certificate(tmp_path)
    server = serve({"listen": "https://127.0.0.1:0", "tls": {"certificate": certificate, "private_key": key},
                    "limits": {"buffers": "8 MiB"}})
    context = ssl.create_default_context(cafile=certificate)
    slow = [Connection(server.address, context=context, host="localhost") for _ in range(320)]
    for connection in slow:
        connection.send(begun)
    with Connection(server.address, context=context, host="localhost") as other:
        assert other.exchange(get("nobody")).body == NOT_FOUND
    for connection in slow:
        connection.close()


def test_an_idle_connection_of_another_loop_makes_room(serve):
    server = serve({"loops": 2, "limits": {"connections": 2}})
    # Each loop has one; with equal numbers, the first loop is asked for room first.
    with open_and_begin(server) as busy, open_and_use(server) as idle:
        assert is_served(server)
        idle.expect_end()
        go_on(busy)


def test_503_can_be_read_by_a_client_that_sends_its_request_first(shim, tmp_path):
    file = tmp_path / "body"
    file.write_bytes(form_of(500_000, fresh_id()))
    with storing(shim, tmp_path / "server", 1) as server:
        for arguments in [[], ["--header", "Expect:", "--data-binary", f"@{file}"]]:
            done = subprocess.run(
                ["curl", "--silent", "--show-error", "--max-time", "30", *arguments, f"{server.base}/token?unique_id=a"],
                capture_output=True, check=True)
            assert b'"errorCode":"50300"' in done.stdout
        # Another refused client takes nothing from one that is still sending.
        with Connection(server.address) as slow:
            slow.send(lines("POST /token HTTP/1.1", HOST, FORM, "Content-Length: 100000"))
            check_http_error(slow.receive(), 503)
            assert not is_served(server)
            # The second piece would meet a closed connection.
            for _ in range(3):
                slow.send(b"a" * 1_000)
                time.sleep(0.1)


def test_a_storm_of_connections_beyond_the_limit_leaves_the_others_served(shim, tmp_path):
    with storing(shim, tmp_path / "server", 3) as server:
        storm = [Connection(server.address) for _ in range(1_300)]
    for extra in storm:
        extra.reset()
    until(lambda: is_served(server))
