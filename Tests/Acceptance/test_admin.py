"""The administration's listener: alive, ready, reloading, draining, for those who run the server and for nobody else."""
import contextlib
import json
import os
import signal
import socket
import subprocess
import threading
import time
import urllib.request
from pathlib import Path

import pytest

from certificates import make_certificate
from contract import STORED, check_http_error, found, fresh_id
from http_client import Connection, exchange, get, lines, post
from server_process import Server, run, until
from service_manager import StoppedThread
from test_durability import small_disk  # noqa: F401, a fixture

HOST = "Host: localhost"
PATHS = ("/", "/status", "/healthz", "/readyz", "/reload", "/drain")
ADMINISTRATION = {"admin": {"listen": "127.0.0.1:0"}}


def ask(address, method, path, *fields):
    """An answer of the administration, which is JSON."""
    response = exchange(address, lines(f"{method} {path} HTTP/1.1", HOST, *fields), method)
    return response.status, json.loads(response.body) if response.body else None


def readiness(server):
    """What /readyz says."""
    return ask(server.administration[0], "GET", "/readyz")


@pytest.fixture(name="server")
def administrated_server(serve):
    return serve(ADMINISTRATION)


def test_a_server_that_serves_is_alive_and_ready(server):
    assert ask(server.administration[0], "GET", "/healthz") == (200, {"alive": True})
    assert readiness(server) == (200, {"ready": True, "reasons": []})
    assert ask(server.administration[0], "HEAD", "/readyz") == (200, None)


def test_several_requests_share_a_connection(server):
    request = lines("GET /healthz HTTP/1.1", HOST)
    with Connection(server.administration[0]) as connection:
        assert [connection.exchange(request).status for _ in range(3)] == [200] * 3
        connection.send(request * 3)
        assert [connection.receive().closes for _ in range(3)] == [False] * 3
        assert connection.exchange(lines("GET /healthz HTTP/1.1", HOST, "Connection: close")).closes
        connection.expect_end()


def test_clients_reach_none_of_it(server):
    for path in PATHS:
        for method in ("GET", "POST"):
            response = exchange(server.address, lines(f"{method} {path} HTTP/1.1", HOST))
            check_http_error(response, 404)
    assert server.is_running() and readiness(server)[0] == 200


@pytest.mark.parametrize("method, path, status", [
    ("GET", "/elsewhere", 404), ("POST", "/", 405), ("POST", "/status", 405), ("GET", "/token?unique_id=a", 404), ("POST", "/store/stats", 404), ("POST", "/healthz", 405),
    ("GET", "/reload", 405), ("GET", "/drain", 405), ("HEAD", "/drain", 405),
])
def test_other_paths_and_methods_are_refused(server, method, path, status):
    assert ask(server.administration[0], method, path)[0] == status
    assert readiness(server)[0] == 200


def test_a_request_that_breaks_the_rules_is_refused_and_the_connection_closed(server):
    with Connection(server.administration[0]) as connection:
        response = connection.exchange(lines("GET /healthz HTTP/1.1"))
        assert response.status == 400 and response.closes and b"Host" in response.body
        connection.expect_end()


def test_a_large_request_is_refused(server):
    response = exchange(server.administration[0], lines("POST /reload HTTP/1.1", HOST, "Content-Length: 2000"))
    assert response.status == 413


@pytest.mark.parametrize("path", ["/reload", "/drain"])
def test_a_page_in_a_browser_cannot_do_anything(server, path):
    assert ask(server.administration[0], "POST", path, "Origin: https://evil.example")[0] == 403
    assert readiness(server) == (200, {"ready": True, "reasons": []})


# What 70 connections leave the listener, which has room for 64, to wait for.
LEFT_WAITING = {
    "nothing": b"", "half a head": b"GET /healthz HTTP/1.1\r\nHost: loc",
    "half a body": lines("POST /healthz HTTP/1.1", HOST, "Content-Length: 1000") + b"x",
    "answers that nobody takes": lines("GET / HTTP/1.1", HOST) * 100,
    "the next request": lines("GET /healthz HTTP/1.1", HOST),
}


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


def test_one_connection_too_many_ends_the_one_that_is_idle_for_longest(server):
    with contextlib.ExitStack() as stack:
        connections = [stack.enter_context(Connection(server.administration[0])) for _ in range(64)]
        request = lines("GET /healthz HTTP/1.1", HOST)
        for connection in connections:
            assert connection.exchange(request).status == 200
        # Now the second one is idle for longest.
        assert connections[0].exchange(request).status == 200
        with Connection(server.administration[0]) as surplus:
            assert surplus.exchange(request).status == 200
        connections[1].expect_end()
        for connection in (connections[0], *connections[2:]):
            assert connection.exchange(request).status == 200


def test_no_request_of_a_command_is_given_up_for_another_one(server):
    """One too many is closed when all others have begun."""
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
        # The last of them may not have been read yet, and until then can be given up.
        assert all(surplus_is_closed() for _ in range(3))
        for client in begun:
            client.sendall(request[-1:])
        for client in begun:
            assert client.recv(1 << 16).startswith(b"HTTP/1.1 200 ")


def test_it_is_answered_whatever_clients_have_the_server_do(server):
    """Administration has a thread of its own: those of clients stand still here."""
    with StoppedThread(server.process, "loop 0"), StoppedThread(server.process, "loop 1"):
        assert ask(server.administration[0], "GET", "/healthz") == (200, {"alive": True})
        assert readiness(server) == (200, {"ready": True, "reasons": []})
        assert ask(server.administration[0], "GET", "/status")[1]["ready"]
        text = metrics(server)
        assert "\ntoken_cache_ready 1\n" in text and "\ntoken_cache_connections_open 0\n" in text
        assert run("stats", "--data-directory", str(server.data)).returncode == 0
    assert exchange(server.address, post(fresh_id(), "a")).body == STORED


def metrics(server):
    """What Prometheus would read."""
    host, port = server.administration[0]
    with urllib.request.urlopen(f"http://{host}:{port}/metrics", timeout=20) as response:
        return response.read().decode()


def answers(address):
    """Whether a connection is served."""
    try:
        return ask(address, "GET", "/healthz")[0] == 200
    except (AssertionError, OSError):
        return False


# Doing

def test_reloading_tells_what_came_of_it(serve, tmp_path):
    chain, key = make_certificate(tmp_path)
    files = {"certificate": chain, "private_key": key}
    server = serve({**ADMINISTRATION, "listen": "https://127.0.0.1:0", "tls": files})
    status, answer = ask(server.administration[0], "POST", "/reload")
    assert (status, answer["reloaded"]) == (200, True) and "certificates reloaded" in answer["outcome"]
    Path(chain).write_text("no certificate")
    status, answer = ask(server.administration[0], "POST", "/reload")
    assert (status, answer["reloaded"]) == (500, False) and "in use stay" in answer["outcome"]
    assert "reload was asked for" in server.log()


def test_draining_answers_what_was_received_and_ends(server):
    unique_id = fresh_id()
    with Connection(server.administration[0]) as steering:
        # One segment: the second request has been received when the first one is carried out.
        steering.send(lines("POST /drain HTTP/1.1", HOST) + lines("GET /readyz HTTP/1.1", HOST))
        assert json.loads(steering.receive().body) == {"draining": True}
        response = steering.receive()
        assert response.status == 503
        assert json.loads(response.body) == {"ready": False, "reasons": ["the server is stopping"]}
    assert server.wait() == 0
    server.was_ended = True
    assert "token-cache has stopped" in server.log()
    with pytest.raises(OSError):
        exchange(server.address, post(unique_id, "a"))


def test_a_server_that_waits_for_its_clients_says_so(serve):
    """To probes and to those who look at the page or at the metrics, on new connections as on open ones."""
    server = serve({**ADMINISTRATION, "drain_timeout": "20s"})
    request = post(fresh_id(), "abc")
    with Connection(server.address) as connection, Connection(server.administration[0]) as open_before:
        assert open_before.exchange(lines("GET /readyz HTTP/1.1", HOST)).status == 200
        connection.send(request[:-1])
        until(lambda: exchange(server.address, get("nobody")).status == 200)
        server.send_signal(signal.SIGTERM)
        until(lambda: readiness(server)[0] == 503)
        time.sleep(0.5)
        expected = {"ready": False, "reasons": ["the server is stopping"]}
        assert readiness(server) == (503, expected)
        assert json.loads(open_before.exchange(lines("GET /readyz HTTP/1.1", HOST)).body) == expected
        assert ask(server.administration[0], "GET", "/healthz")[0] == 200
        connection.send(request[-1:])
        assert connection.receive().body == STORED
        open_before.expect_end()
    assert server.wait() == 0


def test_a_signal_after_a_drain_does_not_hasten_it(serve):
    server = serve({**ADMINISTRATION, "drain_timeout": "20s"})
    unique_id = fresh_id()
    request = post(unique_id, "abc")
    with Connection(server.address) as connection:
        connection.send(request[:-1])
        # The server has begun to read it.
        until(lambda: exchange(server.address, get("nobody")).status == 200)
        assert ask(server.administration[0], "POST", "/drain")[0] == 200
        server.send_signal(signal.SIGTERM)
        assert connection.is_silent(0.5)
        connection.send(request[-1:])
        assert connection.receive().body == STORED
    assert server.wait() == 0


# Readiness

def fill(folder):
    """Takes what room there is."""
    with open(folder / "filler", "ab") as filler:
        for size in (65536, 4096, 512, 1):
            try:
                while True:
                    os.write(filler.fileno(), bytes(size))
            except OSError:
                pass


def test_a_full_disk_makes_it_unready_and_not_dead_until_there_is_room_again(small_disk, tmp_path):  # noqa: F811
    server = Server(tmp_path / "server", ADMINISTRATION, data=small_disk / "data")
    try:
        unique_id = fresh_id()
        assert exchange(server.address, post(unique_id, "abc")).body == STORED

        def is_unready():
            fill(small_disk)
            exchange(server.address, post(fresh_id(), "x" * 20_000))
            return readiness(server)[0] == 503

        until(is_unready)
        status, answer = readiness(server)
        assert (status, answer["ready"]) == (503, False)
        assert "tokens cannot be stored" in answer["reasons"][0] and "x" * 10 not in answer["reasons"][0]
        assert ask(server.administration[0], "GET", "/healthz")[0] == 200
        assert exchange(server.address, get(unique_id)).body == found("abc")
        (small_disk / "filler").unlink()
        # Nobody writes meanwhile, as a balancer would send nobody here.
        until(lambda: readiness(server) == (200, {"ready": True, "reasons": []}))
        assert exchange(server.address, post(fresh_id(), "x" * 20_000)).body == STORED
        assert server.stop() == 0
    finally:
        server.kill()


def test_a_store_that_is_gone_makes_it_unready_until_it_is_back(server):
    moved = server.data.with_name("elsewhere")
    server.data.rename(moved)
    until(lambda: readiness(server)[0] == 503)
    moved.rename(server.data)
    until(lambda: readiness(server)[0] == 200)


# Starting

def test_a_busy_port_is_named_with_its_key(tmp_path):
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        done = run("serve", "--listen", "127.0.0.1:0", "--data-directory", str(tmp_path / "data"),
                   environment={"TOKEN_CACHE_ADMIN_LISTEN": f"127.0.0.1:{port}"})
    assert (done.returncode, done.stderr.count("\n")) == (1, 1)
    assert f"admin.listen: 127.0.0.1:{port} is in use" in done.stderr and "--listen" not in done.stderr
    assert not (tmp_path / "data").exists()


def test_an_address_that_others_reach_is_warned_of(serve):
    server = serve({"admin": {"listen": "0.0.0.0:0"}})
    until(lambda: "admin.listen: whoever reaches 0.0.0.0:" in server.log())


# The command, and the control socket

def health(server, *flags, **addresses):
    """Asks as an operator does, with the server's own settings."""
    done = run("health", "--data-directory", str(server.data), *flags,
               environment={"TOKEN_CACHE_ADMIN_LISTEN": addresses.get("at", "off")})
    return done.returncode, done.stdout.strip(), done.stderr


def test_the_command_asks_the_listener_or_the_control_socket(server):
    host, port = server.administration[0]
    for place in ("off", f"{host}:{port}", f"localhost:{port}"):
        assert health(server, at=place) == (0, "ready", ""), place
    assert health(server, "--json") == (0, '{"ready":true,"reasons":[]}', "")


def test_the_command_fails_when_nobody_answers(server):
    server.kill()
    status, printed, _ = health(server)
    assert status == 1 and "control.sock" in printed and "Connection refused" in printed
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    status, printed, _ = health(server, "--json", at=f"127.0.0.1:{port}")
    assert status == 1 and json.loads(printed)["ready"] is False and "Connection refused" in printed


def test_the_command_does_not_wait_for_a_server_that_hangs(server):
    server.process.send_signal(signal.SIGSTOP)
    try:
        host, port = server.administration[0]
        for place in ("off", f"{host}:{port}"):
            status, printed, _ = health(server, at=place)
            assert status == 1 and "no answer came" in printed, place
    finally:
        server.process.send_signal(signal.SIGCONT)


def test_the_command_takes_no_other_program_for_ours(server):
    with socket.create_server(("127.0.0.1", 0)) as other:
        def answer():
            connection, _ = other.accept()
            with connection:
                connection.recv(4096)
                connection.sendall(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok")

        thread = threading.Thread(target=answer)
        thread.start()
        status, printed, _ = health(server, at=f"127.0.0.1:{other.getsockname()[1]}")
        thread.join()
    assert status == 1 and "is no token-cache" in printed


def test_the_control_socket_answers_the_same(server):
    def curl(*arguments):
        return subprocess.run(
            ["curl", "-sS", "--unix-socket", "control.sock", *arguments], cwd=server.data, capture_output=True,
            text=True, timeout=20, check=True).stdout

    assert json.loads(curl("http://localhost/readyz")) == {"ready": True, "reasons": []}
    assert json.loads(curl("-X", "POST", "http://localhost/reload"))["reloaded"] is True
    assert json.loads(curl("-X", "POST", "http://localhost/drain")) == {"draining": True}
    assert server.wait() == 0
    server.was_ended = True
