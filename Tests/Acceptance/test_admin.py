"""The administration: its addresses, paths and methods, its refusals of pages in browsers, and what a reload does."""
import json
import os
from pathlib import Path

import pytest

from administration import ADMINISTRATION, HOST, ask, readiness, steer
from certificates import make_certificate
from contract import check_http_error
from http_client import Connection, exchange, lines
from server_process import run, until

PATHS = ("/", "/status", "/history", "/log", "/settings", "/healthz", "/readyz", "/reload")


@pytest.fixture(name="server")
def administrated_server(serve):
    return serve(ADMINISTRATION)


def test_a_server_that_serves_is_alive_and_ready(server):
    assert ask(server.administration[0], "GET", "/healthz") == (200, {"alive": True})
    assert readiness(server) == (200, {"ready": True, "reasons": []})
    assert ask(server.administration[0], "HEAD", "/readyz") == (200, None)


def test_clients_reach_none_of_it(server):
    for path in PATHS:
        for method in ("GET", "POST"):
            response = exchange(server.address, lines(f"{method} {path} HTTP/1.1", HOST))
            check_http_error(response, 404)
    assert server.is_running() and readiness(server)[0] == 200


@pytest.mark.parametrize("method, path, status", [
    ("GET", "/elsewhere", 404), ("POST", "/", 405), ("POST", "/status", 405), ("POST", "/history", 405), ("GET", "/history?since=x", 400), ("POST", "/token", 404), ("GET", "/key", 404), ("POST", "/store/stats", 404), ("POST", "/healthz", 405),
    ("GET", "/reload", 405), ("HEAD", "/reload", 405), ("POST", "/drain", 404),
])
def test_other_paths_and_methods_are_refused(server, method, path, status):
    assert ask(server.administration[0], method, path)[0] == status
    assert readiness(server)[0] == 200


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



def test_an_address_that_others_reach_is_warned_of(serve):
    server = serve({"admin": {"listen": "0.0.0.0:0"}})
    until(lambda: "admin.listen: every machine that can reach 0.0.0.0:" in server.log()
          and "or a proxy that asks for a password or a certificate" in server.log())


# Reloads, by requests over the control socket and by the command

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


def command(server, name, *flags):
    done = run(name, "--data-directory", str(server.data), *flags)
    return done.returncode, done.stdout.strip(), done.stderr.strip()


def test_the_command_reload(serve):
    server = serve()
    assert command(server, "reload") == (0, "reloaded: no setting has changed", "")
    assert json.loads(command(server, "reload", "--json")[1]) == {"outcome": "no setting has changed", "reloaded": True}
    (server.folder / "token-cache.yaml").write_text("loops: many")
    status, printed, fault = command(server, "reload")
    assert (status, fault) == (1, "") and "no setting changes" in printed and "loops is" in printed
    assert server.stop() == 0
    assert server.log().splitlines()[-1].endswith("token-cache has stopped: SIGTERM received")
    status, printed, fault = command(server, "reload")
    assert (status, printed) == (1, "") and f"no server uses the data folder {server.data}" in fault


@pytest.mark.skipif(os.geteuid() != 0, reason="only root becomes other users")
def test_another_user_cannot_have_it_do_anything(server):
    server.folder.chmod(0o755)
    server.data.chmod(0o755)
    done = run("reload", "--data-directory", str(server.data),
               prefix=["setpriv", "--reuid=65534", "--regid=65534", "--clear-groups"])
    assert done.returncode == 1 and "this user may not connect to" in done.stderr, done
    assert readiness(server)[0] == 200
