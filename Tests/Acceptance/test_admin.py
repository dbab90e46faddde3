"""The administration: its addresses, paths and methods, its refusals of pages in browsers, and what a reload does."""
import contextlib
import json
import os
from pathlib import Path

import pytest

from administration import ADMINISTRATION, ask, fetched, readiness, steer
from certificates import make_certificate
from contract import STORED, check_http_error, fresh_id
from http_client import HOST, Connection, exchange, lines, post_of
from server_process import AS_NOBODY, needs_root, until
from service_manager import StoppedThread
from store_files import command, printed
from test_tls import tls_settings

PATHS = ("/", "/status", "/history", "/settings", "/metrics", "/healthz", "/readyz", "/reload")


@pytest.fixture(name="server")
def administrated_server(serve):
    return serve(ADMINISTRATION)


def test_clients_reach_none_of_it(server):
    for path in PATHS:
        for method in ("GET", "POST"):
            response = exchange(server.address, lines(f"{method} {path} HTTP/1.1", HOST))
            check_http_error(response, 404)
    assert server.is_running() and readiness(server)[0] == 200


@pytest.mark.parametrize("method, path, status", [
    ("GET", "/elsewhere", 404), ("POST", "/", 405), ("POST", "/status", 405), ("POST", "/history", 405),
    ("GET", "/history?since=x", 400), ("POST", "/token", 404), ("POST", "/store/stats", 404), ("POST", "/healthz", 405),
    ("GET", "/reload", 405), ("HEAD", "/reload", 405), ("POST", "/drain", 404),
])
def test_other_paths_and_methods_are_refused(server, method, path, status):
    assert ask(server.administration[0], method, path)[0] == status
    assert ask(server.administration[0], "HEAD", "/readyz") == (200, None)


def test_a_request_that_breaks_the_rules_is_refused_and_the_connection_closed(server):
    with Connection(server.administration[0]) as connection:
        response = connection.exchange(lines("GET /healthz HTTP/1.1"))
        assert response.status == 400 and response.closes and b"Host" in response.body
        connection.expect_end()


def test_over_tcp_nobody_has_it_do_anything(server):
    """TCP does not identify the user: it could be any program of any user of the machine."""
    for fields in (), ("Authorization: Bearer a",), ("Origin: http://localhost",):
        status, answer = ask(server.administration[0], "POST", "/reload", *fields)
        assert status == 403
        assert answer["error"] == (
            "this is done only on control.sock, as its user or root: token-cache reload, or curl -X POST --unix-socket "
            f"{server.data}/control.sock http://localhost/reload")
    assert readiness(server) == (200, {"ready": True, "reasons": []})
    assert "requested by" not in server.log()


FROM_PAGES = {
    "origin": "Origin: https://evil.example", "origin in capitals": "ORIGIN: null", "no origin": "Origin:",
    # U+0301 combines with the colon into one character, which fools a comparison of characters.
    "accent": "Origin:\xcc\x81https://evil.example", "of another site": "Sec-Fetch-Site: cross-site",
    "of the same site": "sec-fetch-site: same-site", "one of two": "Sec-Fetch-Site: none\r\nSec-Fetch-Site: cross-site",
}


@pytest.mark.parametrize("field", FROM_PAGES.values(), ids=FROM_PAGES)
def test_a_page_in_a_browser_cannot_do_anything(server, field):
    """Even if somebody has made the control socket reachable for browsers."""
    status, answer = steer(server, "/reload", *field.split("\r\n"))
    assert status == 403 and "page" in answer["error"]
    assert readiness(server) == (200, {"ready": True, "reasons": []})


# Hosts of requests, with and without a port

OWN_HOSTS = ["localhost", "LOCALHOST:9090", "localhost.", "127.0.0.1", "10.1.2.3:9090", "[::1]", "[fd00::1]:9090", "",
             "tokens.example", "Tokens.Example:9090", "tokens.example.", "full.example", "full.example.:9090", "token-cache:9090"]
OTHER_HOSTS = ["evil.example", "a.example", "127.0.0.1.evil.example", "localhost.evil.example", "evil.example:9090", "127.1",
               "xtokens.example", "tokens.example.evil"]


def test_a_page_that_has_its_own_name_lead_here_reads_nothing(serve):
    """DNS rebinding: the browser would take the answers for those of the page's own site."""
    server = serve({"admin": {"listen": "127.0.0.1:0?host=Tokens.Example&host=full.example."}})
    for host in OWN_HOSTS:
        for path in ("/readyz", "/metrics"):
            assert fetched(server.administration[0], path, host=host).status == 200, (host, path)
    for host in OTHER_HOSTS:
        for path in (*PATHS, "/elsewhere"):
            assert fetched(server.administration[0], path, host=host).status == 421, (host, path)
        # Access to the control socket is controlled by the mode of its file.
        assert fetched(server.data / "control.sock", "/readyz", host=host).status == 200
    absolute = lines("GET http://evil.example/readyz HTTP/1.1", "Host: evil.example")
    assert exchange(server.administration[0], absolute).status == 421
    # HTTP/1.0 probes send no host; browsers always do.
    assert exchange(server.administration[0], lines("GET /readyz HTTP/1.0")).status == 200


def test_an_address_that_others_reach_is_warned_of(serve):
    server = serve({"admin": {"listen": "0.0.0.0:0"}})
    until(lambda: "admin.listen: every machine that can reach 0.0.0.0:" in server.log()
          and "or a proxy that asks for a password or a certificate" in server.log())


# Reloads, by requests over the control socket and by the command

def test_reloading_tells_what_came_of_it(serve, tmp_path):
    pair = make_certificate(tmp_path)
    server = serve({**ADMINISTRATION, **tls_settings(pair)})
    status, answer = steer(server, "/reload")
    assert (status, answer["reloaded"]) == (200, True) and "certificates reloaded" in answer["outcome"]
    Path(pair[0]).write_text("no certificate")
    status, answer = steer(server, "/reload")
    assert (status, answer["reloaded"]) == (500, False) and "in use stay" in answer["outcome"]
    assert f"reload requested by uid {os.getuid()}, process {os.getpid()} over control.sock: " in server.log()


def outcome(server, *arguments):
    done = command(server.data, *arguments)
    return done.returncode, done.stdout.strip(), done.stderr.strip()


def test_the_command_reload(serve):
    server = serve()
    assert outcome(server, "reload") == (0, "reloaded: no setting has changed", "")
    assert json.loads(outcome(server, "reload", "--json")[1]) == {"outcome": "no setting has changed", "reloaded": True}
    (server.folder / "token-cache.yaml").write_text("log_level: many")
    status, told, fault = outcome(server, "reload")
    assert (status, fault) == (1, "") and "no setting changes" in told and "log_level is" in told
    assert server.stop() == 0
    assert server.log().splitlines()[-1].endswith("token-cache has stopped: SIGTERM received")
    status, told, fault = outcome(server, "reload")
    assert (status, told) == (1, "") and f"no server uses the data folder {server.data}" in fault
    assert "If data_directory was changed since the server started, it uses the former folder" in fault


@needs_root
def test_another_user_cannot_have_it_do_anything(server):
    server.folder.chmod(0o755)
    server.data.chmod(0o755)
    done = command(server.data, "reload", prefix=AS_NOBODY)
    assert done.returncode == 1 and "this user may not connect to" in done.stderr, done
    assert readiness(server)[0] == 200


# What each of 200 connections sends before it leaves the server waiting; the listener admits 64.
LEFT_WAITING = {
    "nothing": b"", "half a head": b"GET /healthz HTTP/1.1\r\nHost: loc",
    "half a body": lines("POST /healthz HTTP/1.1", HOST, "Content-Length: 1000") + b"x",
    "answers that nobody takes": lines("GET / HTTP/1.1", HOST) * 100,
    "answers that take long": (lines("GET /metrics HTTP/1.1", HOST) + lines("GET /settings HTTP/1.1", HOST)) * 50,
    "the next request": lines("GET /healthz HTTP/1.1", HOST),
}


@pytest.mark.parametrize("sent", LEFT_WAITING.values(), ids=LEFT_WAITING)
def test_connections_that_are_left_waiting_keep_no_probe_from_its_answer(serve, connect, sent):
    server = serve({**ADMINISTRATION, "drain_timeout": "1s"})
    for _ in range(200):
        connect(server.administration[0], receive_buffer=4096).send_while_possible(sent)
    for _ in range(3):
        assert ask(server.administration[0], "GET", "/healthz") == (200, {"alive": True})
    # Abandoned connections are closed, whatever they have asked for.
    until(lambda: server.open_sockets() < 100)
    assert server.post(fresh_id(), "a") == STORED
    assert server.stop() == 0


def test_one_connection_too_many_ends_the_one_that_is_idle_for_longest(server, connect):
    connections = [connect(server.administration[0]) for _ in range(64)]
    request = lines("GET /healthz HTTP/1.1", HOST)
    for connection in connections:
        assert connection.exchange(request).status == 200
    # Now the second connection has been idle for the longest time.
    assert connections[0].exchange(request).status == 200
    with Connection(server.administration[0]) as surplus:
        assert surplus.exchange(request).status == 200
    connections[1].expect_end()
    for connection in (connections[0], *connections[2:]):
        assert connection.exchange(request).status == 200


def test_no_request_of_a_command_is_given_up_for_another_one(server, connect):
    """One connection too many is closed if requests have begun on all others."""
    path, body = server.data / "control.sock", json.dumps({"id": "nobody"}).encode()

    def surplus_is_closed():
        with contextlib.suppress(ConnectionError):
            client = connect(path)
            client.send(post_of(body, path="/store/get"))
            return not client.receive_more()
        return True

    begun = [connect(path) for _ in range(8)]
    for client in begun:
        client.send(post_of(body, "Expect: 100-continue", path="/store/get").removesuffix(body))
        # Its request has been read now; until then its connection could be closed.
        assert client.receive().status == 100
    assert all(surplus_is_closed() for _ in range(3))
    for client in begun:
        client.send(body)
    for client in begun:
        assert client.receive_any().status == 200


def test_it_is_answered_whatever_clients_have_the_server_do(server):
    """The administration has a thread of its own; the threads of clients are stopped here."""
    with StoppedThread(server.process, "loop 0"), StoppedThread(server.process, "loop 1"):
        assert ask(server.administration[0], "GET", "/healthz") == (200, {"alive": True})
        assert readiness(server) == (200, {"ready": True, "reasons": []})
        assert ask(server.administration[0], "GET", "/status")[1]["ready"]
        text = fetched(server.administration[0], "/metrics").body.decode()
        assert "\ntoken_cache_ready 1\n" in text and "\ntoken_cache_connections_open 0\n" in text
        printed(server.data, "stats")
    assert server.post(fresh_id(), "a") == STORED
