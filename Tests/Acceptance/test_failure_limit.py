"""An address that fails too often gets 429 for what fails; what succeeds, and other addresses, are served as before."""
import json

import pytest

from contract import NOT_FOUND, STORED, found, fresh_id
from http_client import exchange, get, post
from server_process import run, until
from test_metrics import metrics

LIMITED = {"access": {"failures": "5/h"}}


def guess(server, *lines, index=0):
    """The answer to a GET of an id that has no token."""
    return exchange(server.addresses[index], get(fresh_id(), *lines))


def test_by_default_nothing_is_limited_in_mode_open(serve):
    server = serve()
    assert {guess(server).body for _ in range(100)} == {NOT_FOUND}


def test_an_address_that_guesses_gets_429_and_what_is_good_is_served(serve):
    server = serve({**LIMITED, "admin": {"listen": "127.0.0.1:0"}})
    known = fresh_id()
    assert exchange(server.address, post(known, "abc")).body == STORED
    assert [guess(server).status for _ in range(8)] == [200] * 5 + [429] * 3
    limited = guess(server)
    assert json.loads(limited.body)["errorCode"] == "42900"
    # One failure is made up for in 720 seconds.
    assert 600 < int(limited.headers["retry-after"]) <= 720
    for _ in range(10):
        assert exchange(server.address, get(known)).body == found("abc")
        assert exchange(server.address, post(known, "abc")).body == STORED
    assert metrics(server).items() >= {"token_cache_limited_failures_total": 4, "token_cache_limited_addresses": 1}.items()


def test_behind_a_trusted_proxy_the_clients_are_limited_each(serve):
    server = serve({**LIMITED, "https": {"mode": "off"}})

    def statuses(client, count):
        return [guess(server, f"X-Forwarded-For: {client}").status for _ in range(count)]

    assert statuses("192.0.2.1", 7) == [200] * 5 + [429] * 2
    # The same address in its IPv6 form, and another one.
    assert statuses("::ffff:192.0.2.1", 1) == [429]
    assert statuses("192.0.2.2", 7) == [200] * 5 + [429] * 2
    # All of a network with 64 bits is one.
    assert [statuses(f"2001:db8:0:1::{number}", 1)[0] for number in range(1, 8)] == [200] * 5 + [429] * 2
    assert statuses("2001:db8:0:2::1", 1) == [200]


def test_a_claim_of_somebody_who_is_no_proxy_does_not_count(serve):
    server = serve({**LIMITED, "https": {"mode": "off"}, "trusted_proxies": "none"})
    assert [guess(server, f"X-Forwarded-For: 192.0.2.{number}").status for number in range(7)] == [200] * 5 + [429] * 2


def test_a_reload_changes_the_rate(serve):
    server = serve(LIMITED)
    assert [guess(server).status for _ in range(7)] == [200] * 5 + [429] * 2
    file = server.folder / "token-cache.yaml"
    for rate, expected in [("2/h", [200] * 2 + [429] * 5), ("off", [200] * 7)]:
        settings = json.loads(file.read_text())
        file.write_text(json.dumps({**settings, "access": {"failures": rate}}))
        assert run("reload", "--data-directory", str(server.data)).returncode == 0
        assert [guess(server).status for _ in range(7)] == expected


def test_api_keys_are_taken_and_refused_as_their_file_changes(serve, tmp_path):
    file = tmp_path / "api-keys"
    environment = {"TOKEN_CACHE_ACCESS_API_KEYS_FILE": str(file)}

    def add(name):
        return run("access", "keys", "add", name, "--scope", "tokens:read", environment=environment).stdout.strip()

    first = add("first")
    server = serve({"access": {"api": {"keys_file": str(file)}}})
    path = f"/v1/users/{fresh_id()}/token"

    def status(key):
        request = f"GET {path} HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer {key}\r\n\r\n"
        return exchange(server.address, request.encode()).status

    assert status(first) != 401 and status("tck_" + "A" * 43) == 401
    second = add("second")
    until(lambda: status(second) != 401)
    assert status(first) != 401
    run("access", "keys", "remove", "first", environment=environment)
    until(lambda: status(first) == 401)
    # A file that cannot be used leaves the keys as they are, and is reported once.
    file.write_text("nonsense\n")
    until(lambda: "the file of API keys cannot be used, so the previous keys stay in use" in server.log())
    assert status(second) != 401
    assert first not in server.log() and second not in server.log()


@pytest.mark.parametrize("content, fragment", [(None, "does not exist"), ("{}", "line 1: a key needs name")])
def test_a_server_does_not_start_without_its_api_keys(tmp_path, content, fragment):
    file = tmp_path / "api-keys"
    if content is not None:
        file.write_text(content)
        file.chmod(0o600)
    done = run("serve", "--listen", "127.0.0.1:0", "--data-directory", str(tmp_path / "data"),
               environment={"TOKEN_CACHE_ACCESS_API_KEYS_FILE": str(file)})
    assert done.returncode == 1 and fragment in done.stderr, done
