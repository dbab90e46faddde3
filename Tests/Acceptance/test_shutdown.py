"""SIGTERM and SIGINT: received requests are answered, other connections are closed, and the exit status is 0."""
import shutil
import signal
import subprocess
import time

import pytest

from administration import ADMINISTRATION, readiness
from contract import NOT_FOUND, STORED, found, fresh_id
from http_client import FORM, Connection, exchange, get, lines, post
from ports import free_ports
from server_process import beside, until

SIGNALS = [signal.SIGTERM, signal.SIGINT]
# A server that stops keeps idle connections open for this long (Server.idleTimeWhenDraining), less what a message takes.
IDLE_SECONDS = 0.2


def refuses(server):
    """Whether new connections are refused."""
    try:
        Connection(server.address, timeout=5).close()
    except ConnectionRefusedError:
        return True
    except OSError:
        pass
    return False


def refuses_at(port):
    try:
        Connection(("127.0.0.1", port), timeout=5).close()
    except ConnectionRefusedError:
        return True
    return False


def begin_stop(server, number=signal.SIGTERM):
    """Sends the signal and waits until it has taken effect."""
    server.send_signal(number)
    until(lambda: refuses(server) or not server.is_running())


@pytest.mark.parametrize("number", SIGNALS)
def test_idle_connections_are_closed_soon_and_the_server_ends(serve, number):
    server = serve({"drain_timeout": "3600s"})
    with Connection(server.address) as fresh, Connection(server.address) as used:
        assert used.exchange(get("nobody")).body == NOT_FOUND
        server.send_signal(number)
        fresh.expect_end()
        used.expect_end()
    assert server.wait() == 0


# Its health check finds a server that has stopped after two seconds, and it sends no request twice.
LATE = """
defaults
    mode http
    timeout connect 10s
    timeout client 60s
    timeout server 60s
    retries 0
frontend clients
    bind 127.0.0.1:{port}
    http-request set-header X-Forwarded-Proto https
    default_backend servers
backend servers
    option httpchk GET /readyz
    default-server inter 500ms fall 4 rise 1
"""


@pytest.mark.skipif(not shutil.which("haproxy"), reason="there is no HAProxy")
def test_a_proxy_that_learns_of_a_stop_late_loses_no_request(serve, tmp_path):
    servers = [serve({**ADMINISTRATION, "drain_delay": "8s"}) for _ in range(2)]
    [port] = free_ports(1)
    settings = tmp_path / "haproxy.cfg"
    settings.write_text(LATE.format(port=port) + "".join(
        f"    server server{number} 127.0.0.1:{server.address[1]} check port {server.administration[0][1]}\n"
        for number, server in enumerate(servers)))
    with subprocess.Popen(["haproxy", "-db", "-f", str(settings)], stderr=subprocess.DEVNULL) as proxy:
        try:
            def answer():
                """Over a connection of its own, from client to proxy and from there to a server."""
                return exchange(("127.0.0.1", port), post(fresh_id(), "x")).body

            until(lambda: not refuses_at(port) and answer() == STORED)
            servers[0].send_signal()
            until(lambda: readiness(servers[0])[0] == 503)
            while servers[0].is_running():
                assert answer() == STORED
            assert servers[0].wait() == 0 and answer() == STORED
        finally:
            proxy.kill()


def test_a_second_signal_ends_the_delay(serve):
    server = serve({**ADMINISTRATION, "drain_delay": "3600s"})
    server.send_signal()
    until(lambda: readiness(server)[0] == 503)
    assert server.post("a", "b") == STORED
    assert server.stop() == 0


UNDER_WAY = {
    "head": lambda unique_id: (get(unique_id), 30, NOT_FOUND),
    "body": lambda unique_id: (post(unique_id, "abc"), -5, STORED),
}


@pytest.mark.parametrize("number", SIGNALS)
@pytest.mark.parametrize("make", UNDER_WAY.values(), ids=UNDER_WAY)
def test_a_request_under_way_is_answered_and_its_connection_closed(serve, make, number):
    server = serve({"drain_timeout": "3600s"})
    data, cut, answer = make(fresh_id())
    with Connection(server.address) as connection:
        assert connection.exchange(get("nobody")).body == NOT_FOUND
        connection.send(data[:cut])
        # So that the first part arrives before the signal.
        assert connection.is_silent(0.1)
        begin_stop(server, number)
        assert server.is_running()
        connection.send(data[cut:])
        response = connection.receive()
        assert response.body == answer
        assert response.closes
        connection.expect_end()
    assert server.wait() == 0


def test_all_requests_received_before_the_signal_are_answered(serve):
    server = serve({"loops": 1, "drain_timeout": "3600s"})
    unique_id = fresh_id()
    # Answers so large that they wait for their reader after the requests were received.
    assert server.post(unique_id, "\x01" * 900_000) == STORED
    answer = found("\x01" * 900_000)
    with Connection(server.address, receive_buffer=4096) as connection:
        connection.send(get(unique_id) * 20)
        assert connection.receive().body == answer
        begin_stop(server)
        responses = [connection.receive() for _ in range(19)]
        assert all(response.body == answer for response in responses)
        assert [response.closes for response in responses] == [False] * 18 + [True]
        connection.expect_end()
    assert server.wait() == 0


def stuck_client(server):
    """A connection in the middle of a request."""
    connection = Connection(server.address)
    connection.send(lines("POST /token HTTP/1.1", "Host: localhost", FORM, "Content-Length: 9") + b"unique")
    assert connection.is_silent(0.1)
    return connection


def test_a_stuck_client_is_given_up_after_drain_timeout(serve):
    server = serve({"drain_timeout": "1500ms", "timeouts": {"body": "3600s"}})
    with stuck_client(server) as connection:
        start = time.monotonic()
        server.send_signal()
        assert server.wait() == 0
        assert time.monotonic() - start >= 1.4
        assert connection.receive_to_end() == b""


@pytest.mark.parametrize("second", SIGNALS)
def test_a_second_signal_hastens_the_end(serve, second):
    server = serve({"drain_timeout": "3600s", "timeouts": {"body": "3600s"}})
    with stuck_client(server):
        begin_stop(server)
        assert server.is_running()
        assert server.stop(second) == 0


def test_the_head_and_body_deadlines_hold_while_draining(serve):
    server = serve({"drain_timeout": "3600s", "timeouts": {"body": "4s"}})
    with stuck_client(server) as connection:
        begin_stop(server)
        assert connection.receive().status == 408
        connection.expect_end()
    assert server.wait() == 0


def test_under_load_every_request_is_answered_and_nothing_acknowledged_is_lost(serve, tmp_path):
    """A client that sends one request after another is told in an answer that it was the last."""
    data = tmp_path / "data"
    server = serve({"drain_timeout": "20s"}, data=data)
    acknowledged = {}

    def client(number, _):
        sent, is_late, last = 0, False, time.monotonic()
        try:
            with Connection(server.address) as connection:
                while True:
                    unique_id = f"{number}-{sent}"
                    begun = time.monotonic()
                    connection.send_while_possible(post(unique_id, f"value {sent}".replace(" ", "+")))
                    is_late, last = time.monotonic() - last > IDLE_SECONDS, begun
                    response = connection.receive()
                    assert response.body == STORED
                    acknowledged[unique_id] = f"value {sent}"
                    sent += 1
                    if response.closes:
                        return
        except (OSError, AssertionError):
            # The connection of a thread that has slept is closed like that of any client that is idle.
            if not is_late:
                raise

    with beside(client, range(12)):
        try:
            until(lambda: len(acknowledged) > 300)
            assert server.stop() == 0
            assert (data / "tokens.db-wal").stat().st_size == 0
        finally:
            server.kill()
    restarted = serve(data=data)
    with Connection(restarted.address) as connection:
        for unique_id, value in acknowledged.items():
            assert connection.exchange(get(unique_id)).body == found(value)
