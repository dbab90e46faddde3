"""The administration listener: its addresses, paths and methods, and its refusals of pages in browsers."""
import json
import socket

import pytest

from administration import ADMINISTRATION, HOST, ask, readiness, steer
from contract import check_http_error
from http_client import Connection, exchange, lines
from server_process import run, until

PATHS = ("/", "/status", "/history", "/log", "/settings", "/healthz", "/readyz", "/reload", "/drain")


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
    ("GET", "/elsewhere", 404), ("POST", "/", 405), ("POST", "/status", 405), ("POST", "/history", 405), ("GET", "/history?since=x", 400), ("POST", "/token", 404), ("GET", "/key", 404), ("POST", "/store/stats", 404), ("POST", "/healthz", 405),
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
def test_over_tcp_nobody_has_it_do_anything(server, path):
    """TCP does not identify the user: any program of any user of the machine could stop the server."""
    for fields in (), ("Authorization: Bearer a",), ("Origin: http://localhost",):
        status, answer = ask(server.administration[0], "POST", path, *fields)
        assert status == 403
        assert answer["error"] == (
            f"this is done only on control.sock, as its user or root: token-cache {path[1:]}, or curl -X POST --unix-socket "
            f"{server.data}/control.sock http://localhost{path}")
    assert readiness(server) == (200, {"ready": True, "reasons": []})
    assert "requested by" not in server.log()


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
    until(lambda: "admin.listen: every machine that can reach 0.0.0.0:" in server.log()
          and "or a proxy that asks for a password or a certificate" in server.log())
