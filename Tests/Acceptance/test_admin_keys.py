"""Admin keys: who may read the server's state over TCP and steer it, and who is refused."""
import json
import os
import re
from pathlib import Path

import pytest

from access import bearer
from administration import HOST
from http_client import Connection, exchange, lines
from operators import UNKNOWN, Operators, admin_keys, status_and_body
from server_process import run
from test_access_canaries import traces


# Who gets which answer

READING = [("GET", path) for path in ("/status", "/history", "/log", "/settings", "/metrics")]
PROBES = [("GET", "/"), ("GET", "/healthz"), ("GET", "/readyz")]
CREDENTIALS = {
    "none": [], "another scheme": ["Authorization: Basic YTpi"], "unknown": [bearer(UNKNOWN)], "empty": ["Authorization: Bearer "],
    "another kind of key": [bearer("tck_" + UNKNOWN[4:])], "two": [bearer(UNKNOWN), bearer(UNKNOWN)], "scope read": "read", "scope steer": "steer",
}
CHALLENGES = {"none": "Bearer", "another scheme": "Bearer", "scope read": 'Bearer error="insufficient_scope"'}


@pytest.mark.parametrize("credential", CREDENTIALS)
def test_each_endpoint_asks_for_the_key_that_it_needs(serve, tmp_path, credential):
    shown = CREDENTIALS[credential]
    for read in ("open", "key"):
        operators = Operators(serve, tmp_path / read, read)
        fields = shown if isinstance(shown, list) else [bearer(operators.keys[shown])]
        has_key = isinstance(shown, str)
        for method, path in PROBES:
            assert operators.status(method, path, *fields) == 200, path
        for method, path in READING:
            assert operators.status(method, path, *fields) == (200 if has_key or read == "open" else 401), path
        response = operators.ask("GET", "/key", *fields)
        assert response.status == (200 if has_key else 401)
        if has_key:
            assert json.loads(response.body) == {"name": f"key-to-{shown}", "scope": shown}
        for path in ("/reload", "/drain", "/token", "/token/delete"):
            if credential == "scope steer" and path == "/drain":
                continue
            response = operators.ask("POST", path, *fields)
            # With the right key, a request about a token lacks its body.
            good = 400 if path.startswith("/token") else 200
            assert response.status == {"scope steer": good, "scope read": 403}.get(credential, 401), path
            if response.status != good:
                expected = CHALLENGES.get(credential, 'Bearer error="invalid_token"')
                assert response.headers["www-authenticate"] == expected
                assert "token-cache admin keys" in json.loads(response.body)["error"] or credential == "scope read"
        assert operators.server.is_running()


def test_on_the_control_socket_nothing_needs_a_key(guarded):
    for method, path in (*PROBES, *READING, ("POST", "/reload")):
        assert guarded.status(method, path, at=guarded.control) == 200, path
    response = guarded.ask("GET", "/key", at=guarded.control)
    assert json.loads(response.body) == {
        "name": f"uid {os.getuid()}, process {os.getpid()} over control.sock", "scope": "steer"}
    # A key there is not looked at.
    assert guarded.ask("POST", "/reload", bearer(UNKNOWN), at=guarded.control).status == 200


def test_a_key_with_the_scope_steer_reloads_and_drains(operators):
    response = operators.with_key("steer", "POST", "/reload")
    assert json.loads(response.body) == {"reloaded": True, "outcome": "no setting has changed"}
    assert "reload requested by admin key key-to-steer from 127.0.0.1: no setting has changed" in operators.server.log()
    assert json.loads(operators.with_key("steer", "POST", "/drain").body) == {"draining": True}
    assert operators.server.wait() == 0
    operators.server.was_ended = True
    last = operators.server.log().splitlines()[-1]
    assert last.endswith("token-cache has stopped: drain requested by admin key key-to-steer from 127.0.0.1")


def test_get_changes_nothing_whatever_the_key(operators):
    for path in ("/reload", "/drain"):
        assert operators.with_key("steer", "GET", path).status == 405
    assert operators.server.is_running() and "requested by" not in operators.server.log()


def test_a_credential_in_the_url_is_none(operators):
    assert operators.ask("POST", f"/reload?access_token={operators.keys['steer']}").status == 401


def test_readiness_without_a_key_has_no_reasons(serve, tmp_path):
    guarded = Operators(serve, tmp_path, "key")
    with Connection(guarded.address) as anybody, Connection(guarded.address) as program, \
            Connection(guarded.server.address) as client:
        # Accepted before the server stops, which then waits for the rest of the client's request.
        for connection in anybody, program:
            connection.exchange(lines("GET /healthz HTTP/1.1", HOST))
        client.exchange(lines("GET /token?unique_id=a HTTP/1.1", HOST))
        client.send(lines("POST /token?unique_id=a HTTP/1.1", HOST, "Content-Length: 10"))
        assert guarded.with_key("steer", "POST", "/drain").status == 200
        response = anybody.exchange(lines("GET /readyz HTTP/1.1", HOST, bearer(UNKNOWN)))
        assert (response.status, json.loads(response.body)) == (503, {"ready": False, "reasons": []})
        response = program.exchange(lines("GET /readyz HTTP/1.1", HOST, bearer(guarded.keys["read"])))
        assert (response.status, json.loads(response.body)) == (503, {"ready": False, "reasons": ["the server is stopping"]})
        host, port = guarded.address
        done = run("health", "--data-directory", str(guarded.server.data),
                   environment={"TOKEN_CACHE_ADMIN_LISTEN": f"{host}:{port}"})
        assert (done.returncode, done.stdout) == (1, "not ready: the server is stopping\n")
    assert guarded.server.wait() == 0
    guarded.server.was_ended = True


def test_commands_need_no_key(guarded):
    host, port = guarded.address
    environment = {"TOKEN_CACHE_ADMIN_LISTEN": f"{host}:{port}", "TOKEN_CACHE_LISTEN": "127.0.0.1:0"}
    for command in (["health"], ["stats"], ["reload"], ["doctor"]):
        done = run(*command, "--data-directory", str(guarded.server.data), environment=environment)
        assert done.returncode == 0, done


# Pages of other sites

@pytest.mark.parametrize("fields", [
    ["Origin: https://evil.example"], ["Origin: null"], ["Origin: http://localhost:1"], ["Origin: "],
    ["Origin: http://localhost", "Origin: http://localhost"], ["Sec-Fetch-Site: cross-site"], ["Sec-Fetch-Site: same-site"],
    ["Origin: http://localhost", "Sec-Fetch-Site: cross-site"],
], ids=" ".join)
def test_a_page_of_another_site_does_nothing_even_with_a_key(operators, fields):
    response = operators.with_key("steer", "POST", "/reload", *fields)
    assert response.status == 403 and "page" in json.loads(response.body)["error"]
    assert "reload requested" not in operators.server.log()


@pytest.mark.parametrize("fields", [
    ["Origin: http://localhost"], ["Origin: http://localhost", "Sec-Fetch-Site: same-origin"],
    # Behind a proxy that ends TLS.
    ["Origin: https://localhost", "Sec-Fetch-Site: same-origin"],
], ids=" ".join)
def test_the_page_itself_may_do_what_its_key_may(operators, fields):
    assert operators.with_key("steer", "POST", "/reload", *fields).status == 200
    assert operators.with_key("read", "POST", "/reload", *fields).status == 403


def test_a_key_is_good_for_the_servers_own_names_only(operators):
    request = lines("POST /reload HTTP/1.1", "Host: pages.example", bearer(operators.keys["steer"]))
    assert exchange(operators.address, request).status == 421


# Guesses

def refusals(operators):
    _, text = status_and_body(operators.address, "GET", "/metrics", bearer(operators.keys["read"]))
    return {reason: int(count) for reason, count in
            re.findall(r'^token_cache_admin_refusals_total\{reason="(\w+)"\} (\d+)$', text, re.M)}


def test_whoever_guesses_is_counted_and_logged(guarded):
    # A key has 256 random bits: nobody guesses one, however often he tries.
    assert {guarded.ask("GET", "/status", bearer(UNKNOWN)).status for _ in range(40)} == {401}
    assert guarded.with_key("read", "GET", "/status").status == 200
    # Who shows no key guesses nothing, and a probe goes on.
    assert guarded.ask("GET", "/status").status == 401
    assert guarded.ask("GET", "/healthz", bearer(UNKNOWN)).status == 200
    guarded.with_key("read", "POST", "/reload")
    counts = refusals(guarded)
    assert counts["unknown"] == 41 and "limited" not in counts
    assert counts["missing"] == 1 and counts["scope"] == 1 and counts["expired"] == 0
    assert "notice: 127.0.0.1 sent an admin key that was refused: unknown" in guarded.server.log()
    # Anybody could otherwise drive real warnings out of those that the page shows.
    assert "sent an admin key" not in status_and_body(guarded.address, "GET", "/log", bearer(guarded.keys["read"]))[1]


def test_whoever_shows_no_key_is_counted_where_there_are_none(serve):
    server = serve({"admin": {"listen": "127.0.0.1:0"}})
    assert exchange(server.administration[0], lines("POST /reload HTTP/1.1", HOST, bearer(UNKNOWN))).status == 403
    response = exchange(server.administration[0], lines("GET /key HTTP/1.1", HOST, bearer(UNKNOWN)))
    assert response.status == 401 and "admin.keys_file" in json.loads(response.body)["error"]
    _, metrics = status_and_body(server.administration[0], "GET", "/metrics")
    assert 'token_cache_admin_refusals_total{reason="disabled"} 2' in metrics


# Secrets

def test_keys_are_told_to_nobody(guarded):
    secrets = [*guarded.keys.values(), UNKNOWN]
    seen = b""
    for fields in ([bearer(secret)] for secret in secrets):
        for method, path in (*PROBES, *READING, ("GET", "/key"), ("POST", "/reload"), ("GET", "/x"), ("POST", "/status")):
            with Connection(guarded.address) as connection:
                connection.send(lines(f"{method} {path} HTTP/1.1", HOST, *fields, "Connection: close"))
                seen += connection.receive_to_end()
    assert not traces(secrets, seen)
    seen = guarded.file.read_bytes() + admin_keys(guarded.file, "list", "--json").stdout.encode()
    seen += (guarded.server.log() + guarded.server.output()).encode()
    process = Path(f"/proc/{guarded.server.process.pid}")
    seen += (process / "cmdline").read_bytes() + (process / "environ").read_bytes()
    assert not traces(secrets, seen)
    limits = (process / "limits").read_text()
    assert re.search(r"^Max core file size +0 +0 ", limits, re.M)
