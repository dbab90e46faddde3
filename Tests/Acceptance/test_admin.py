"""The administration listener and the control socket: health, readiness, reload and drain, for operators only."""
import contextlib
import json
import os
import re
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
from ports import free_ports
from server_process import Server, run, until
from service_manager import StoppedThread

HOST = "Host: localhost"
PATHS = ("/", "/status", "/history", "/log", "/settings", "/healthz", "/readyz", "/key", "/reload", "/drain", "/token/delete")
ADMINISTRATION = {"admin": {"listen": "127.0.0.1:0"}}


def ask(address, method, path, *fields):
    """A JSON answer of the administration; the address may be the path of the control socket."""
    response = exchange(address, lines(f"{method} {path} HTTP/1.1", HOST, *fields), method)
    return response.status, json.loads(response.body) if response.body else None


def steer(server, path, *fields):
    """Sends a POST over the control socket."""
    return ask(server.data / "control.sock", "POST", path, *fields)


def readiness(server):
    """The answer of /readyz."""
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
    ("GET", "/elsewhere", 404), ("POST", "/", 405), ("POST", "/status", 405), ("POST", "/history", 405), ("GET", "/history?since=x", 400), ("GET", "/token?unique_id=a", 405), ("POST", "/store/stats", 404), ("POST", "/healthz", 405),
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
    response = exchange(server.administration[0], lines("POST /status HTTP/1.1", HOST, "Content-Length: 9000"))
    assert response.status == 413


@pytest.mark.parametrize("path", ["/reload", "/drain"])
def test_over_tcp_nobody_has_it_do_anything_without_admin_keys(server, path):
    """TCP does not identify the user: any program of any user of the machine could stop the server."""
    status, answer = ask(server.administration[0], "POST", path)
    assert status == 403
    assert "token-cache admin keys add" in answer["error"]
    assert str(server.data / "control.sock") in answer["error"] and f"token-cache {path[1:]}" in answer["error"]
    assert readiness(server) == (200, {"ready": True, "reasons": []})
    assert "asked for" not in server.log()


FROM_PAGES = {
    "origin": "Origin: https://evil.example", "origin in capitals": "ORIGIN: null", "no origin": "Origin:",
    # U+0301 combines with the colon into one character, which fools a comparison of characters.
    "accent": "Origin:\xcc\x81https://evil.example", "of another site": "Sec-Fetch-Site: cross-site",
    "of the same site": "sec-fetch-site: same-site", "one of two": "Sec-Fetch-Site: none\r\nSec-Fetch-Site: cross-site",
}


@pytest.mark.parametrize("path", ["/reload", "/drain"])
@pytest.mark.parametrize("field", FROM_PAGES.values(), ids=FROM_PAGES)
def test_a_page_in_a_browser_cannot_do_anything(server, path, field):
    """Even if somebody has made the control socket reachable for browsers."""
    status, answer = steer(server, path, *field.split("\r\n"))
    assert status == 403 and "page" in answer["error"]
    assert readiness(server) == (200, {"ready": True, "reasons": []})


def test_a_program_that_says_where_it_stands_is_no_page(server):
    for field in "Sec-Fetch-Site: none", "Sec-Fetch-Site: same-origin", "X-Origin: a", "Referer: Origin:":
        assert steer(server, "/reload", field)[0] == 200


# Hosts of requests, with and without a port

OWN_HOSTS = ["localhost", "LOCALHOST:9090", "localhost.", "127.0.0.1", "10.1.2.3:9090", "[::1]", "[fd00::1]:9090", "",
             "tokens.example", "Tokens.Example:9090", "tokens.example.", "full.example", "full.example.:9090"]
OTHER_HOSTS = ["evil.example", "127.0.0.1.evil.example", "localhost.evil.example", "evil.example:9090", "127.1",
               "2130706433", "xtokens.example", "tokens.example.evil"]


def status_for(address, path, host):
    return exchange(address, lines(f"GET {path} HTTP/1.1", f"Host: {host}")).status


def metrics_for(server, host):
    """The status of an answer that is not JSON."""
    with Connection(server.administration[0]) as connection:
        connection.send(lines("GET /metrics HTTP/1.1", f"Host: {host}", "Connection: close"))
        return int(connection.receive_to_end().split()[1])


def test_a_page_that_has_its_own_name_lead_here_reads_nothing(serve):
    """DNS rebinding: the browser would take the answers for those of the page's own site."""
    server = serve({"admin": {"listen": "127.0.0.1:0", "hosts": ["Tokens.Example", "full.example."]}})
    for host in OWN_HOSTS:
        assert status_for(server.administration[0], "/readyz", host) == 200, host
        assert metrics_for(server, host) == 200
    for host in OTHER_HOSTS:
        for path in (*PATHS, "/elsewhere"):
            assert status_for(server.administration[0], path, host) == 421, (host, path)
        assert metrics_for(server, host) == 421
        # Access to the control socket is controlled by the mode of its file.
        assert status_for(server.data / "control.sock", "/readyz", host) == 200
    absolute = lines("GET http://evil.example/readyz HTTP/1.1", "Host: evil.example")
    assert exchange(server.administration[0], absolute).status == 421
    # HTTP/1.0 probes send no host; browsers always do.
    assert exchange(server.administration[0], lines("GET /readyz HTTP/1.0")).status == 200


def test_hosts_of_the_administration_change_with_a_reload(serve):
    server = serve(ADMINISTRATION)
    status, answer = ask(server.administration[0], "GET", "/readyz", "X: a")
    assert status == 200
    response = exchange(server.administration[0], lines("GET /readyz HTTP/1.1", "Host: tokens.example"))
    assert response.status == 421 and "admin.hosts" in json.loads(response.body)["error"]
    configuration = server.folder / "token-cache.yaml"
    settings = json.loads(configuration.read_text())
    settings["admin"]["hosts"] = "tokens.example"
    configuration.write_text(json.dumps(settings))
    assert "admin.hosts from [] to [tokens.example]" in steer(server, "/reload")[1]["outcome"]
    assert status_for(server.administration[0], "/readyz", "tokens.example") == 200


# What 70 connections, of which the listener admits 64, make it wait for.
LEFT_WAITING = {
    "nothing": b"", "half a head": b"GET /healthz HTTP/1.1\r\nHost: loc",
    "half a body": lines("POST /healthz HTTP/1.1", HOST, "Content-Length: 1000") + b"x",
    "answers that nobody takes": lines("GET / HTTP/1.1", HOST) * 100,
    "answers that take long": lines("GET /metrics HTTP/1.1", HOST) * 100,
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
                assert int(re.search(r"\nprocess_open_fds (\d+)", metrics(server))[1]) < 500
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
        text = metrics(server)
        assert "\ntoken_cache_ready 1\n" in text and "\ntoken_cache_connections_open 0\n" in text
        assert run("stats", "--data-directory", str(server.data)).returncode == 0
    assert exchange(server.address, post(fresh_id(), "a")).body == STORED


def metrics(server):
    """The metrics as Prometheus reads them."""
    host, port = server.administration[0]
    with urllib.request.urlopen(f"http://{host}:{port}/metrics", timeout=20) as response:
        return response.read().decode()


def answers(address):
    """Whether a connection is served."""
    try:
        return ask(address, "GET", "/healthz")[0] == 200
    except (AssertionError, OSError):
        return False


# Reload and drain

def test_reloading_tells_what_came_of_it(serve, tmp_path):
    chain, key = make_certificate(tmp_path)
    files = {"certificate": chain, "private_key": key}
    server = serve({**ADMINISTRATION, "listen": "https://127.0.0.1:0", "tls": files})
    status, answer = steer(server, "/reload")
    assert (status, answer["reloaded"]) == (200, True) and "certificates reloaded" in answer["outcome"]
    Path(chain).write_text("no certificate")
    status, answer = steer(server, "/reload")
    assert (status, answer["reloaded"]) == (500, False) and "in use stay" in answer["outcome"]
    assert f"reload requested by uid {os.getuid()}, process {os.getpid()} over control.sock: " in server.log()


def test_draining_answers_what_was_received_and_ends(server):
    unique_id = fresh_id()
    with Connection(server.address) as connection, Connection(server.administration[0]) as watching:
        assert connection.exchange(get("nobody")).status == 200
        assert steer(server, "/drain") == (200, {"draining": True})
        response = watching.exchange(lines("GET /readyz HTTP/1.1", HOST))
        assert response.status == 503
        assert json.loads(response.body) == {"ready": False, "reasons": ["the server is stopping"]}
    assert server.wait() == 0
    server.was_ended = True
    who = f"uid {os.getuid()}, process {os.getpid()} over control.sock"
    assert server.log().splitlines()[-1].endswith(f"token-cache has stopped: drain requested by {who}")
    with pytest.raises(OSError):
        exchange(server.address, post(unique_id, "a"))


def test_a_server_that_waits_for_its_clients_says_so(serve):
    """To probes, the page and metrics, on new and on open connections."""
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
        # The server has started to read the request.
        until(lambda: exchange(server.address, get("nobody")).status == 200)
        assert steer(server, "/drain")[0] == 200
        server.send_signal(signal.SIGTERM)
        assert connection.is_silent(0.5)
        connection.send(request[-1:])
        assert connection.receive().body == STORED
    assert server.wait() == 0


# Readiness

def fill(folder):
    """Fills the disk."""
    with open(folder / "filler", "ab") as filler:
        for size in (65536, 4096, 512, 1):
            try:
                while True:
                    os.write(filler.fileno(), bytes(size))
            except OSError:
                pass


def test_a_full_disk_makes_it_unready_and_not_dead_until_there_is_room_again(small_disk, tmp_path):
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
        # Nobody writes meanwhile, because a load balancer sends no clients to a server that is not ready.
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
    until(lambda: "admin.listen: every machine that can reach 0.0.0.0:" in server.log())


# The command, and the control socket

def health(server, *flags, **addresses):
    """Runs a command as an operator does, with the server's own settings."""
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
    assert status == 1 and "control.sock" in printed and "no server listens there" in printed
    port, = free_ports(1)
    status, printed, _ = health(server, "--json", at=f"127.0.0.1:{port}")
    assert status == 1 and json.loads(printed)["ready"] is False and "Connection refused" in printed


def test_the_command_does_not_wait_for_a_server_that_hangs(server):
    host, port = server.administration[0]
    with server.paused():
        for place in ("off", f"{host}:{port}"):
            status, printed, _ = health(server, at=place)
            assert status == 1 and "no answer came" in printed, place


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
    assert status == 1 and "is not token-cache" in printed


@pytest.mark.parametrize(
    ("part", "pause"), [(b"x" * 4096, 0), (b"X: y\r\n" * 512, 0), (b"x", 0.5)],
    ids=["no line", "no end of the head", "a byte now and then"])
def test_the_command_does_not_read_without_end(server, part, pause):
    with socket.create_server(("127.0.0.1", 0)) as other:
        def answer():
            connection, _ = other.accept()
            with connection, contextlib.suppress(OSError):
                while True:
                    connection.sendall(part)
                    time.sleep(pause)

        thread = threading.Thread(target=answer)
        thread.start()
        status, printed, _ = health(server, at=f"127.0.0.1:{other.getsockname()[1]}")
        thread.join()
    assert status == 1 and "is not token-cache" in printed


def command(server, name, *flags):
    done = run(name, "--data-directory", str(server.data), *flags)
    return done.returncode, done.stdout.strip(), done.stderr.strip()


def test_the_commands_reload_and_drain(serve):
    server = serve()
    assert command(server, "reload") == (0, "reloaded: no setting has changed", "")
    assert json.loads(command(server, "reload", "--json")[1]) == {"outcome": "no setting has changed", "reloaded": True}
    (server.folder / "token-cache.yaml").write_text("loops: many")
    status, printed, fault = command(server, "reload")
    assert (status, fault) == (1, "") and "no setting changes" in printed and "loops is" in printed
    assert command(server, "drain") == (0, "the server answers the requests it has received, and stops", "")
    assert server.wait() == 0
    server.was_ended = True
    assert f"token-cache has stopped: drain requested by uid {os.getuid()}, process " in server.log().splitlines()[-1]
    for name in "reload", "drain":
        status, printed, fault = command(server, name)
        assert (status, printed) == (1, "") and f"no server uses the data folder {server.data}" in fault


def test_the_log_ends_with_the_signal_that_has_ended_it(server):
    assert server.stop() == 0
    assert server.log().splitlines()[-1].endswith("token-cache has stopped: SIGTERM received")


@pytest.mark.skipif(os.geteuid() != 0, reason="only root becomes other users")
def test_another_user_cannot_have_it_do_anything(server):
    server.folder.chmod(0o755)
    server.data.chmod(0o755)
    done = run("drain", "--data-directory", str(server.data),
               prefix=["setpriv", "--reuid=65534", "--regid=65534", "--clear-groups"])
    assert done.returncode == 1 and "this user may not connect to" in done.stderr, done
    assert readiness(server)[0] == 200


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
