"""Whoever fails too often is told to wait, and only in what fails."""
import re

import pytest

from access import API, api_request, bearer, bearer_settings, fetch, session_settings, store, unknown_session
from contract import NOT_FOUND, STORED, check_http_error, found, fresh_id
from http_client import Connection, exchange, get, post
from issuer import Issuer
from server_process import until


def check_limited(response):
    check_http_error(response, 429)
    assert 1 <= int(response.headers["retry-after"]) <= 60
    assert "www-authenticate" not in response.headers
    return True


def guesses(connection, make_request, most=30):
    """Sends failures until one is limited; returns how many were answered as failures."""
    for count in range(most):
        response = connection.exchange(make_request())
        if response.status == 429:
            check_limited(response)
            return count
    raise AssertionError(f"{most} failures were not limited")


@pytest.fixture(name="limited")
def limited_server(serve, tmp_path):
    settings, key = session_settings(tmp_path / "keys")
    settings["access"]["failures"] = "5/min"
    server = serve({**settings, "trusted_proxies": "127.0.0.9", "https": {"mode": "off"}, "admin": {"listen": "127.0.0.1:0"}})
    return server, API(server, key)


REQUESTS = {
    "unknown session in unique_id": lambda: fetch(unique_id=unknown_session()),
    "unknown session in a POST": lambda: store("x", unique_id=unknown_session()),
    "unknown session in Authorization": lambda: fetch(bearer(unknown_session())),
    "malformed session": lambda: fetch(unique_id=fresh_id()),
    "no token": lambda: fetch("Authorization: Bearer"),
    "unknown API key": lambda: api_request("tck_" + fresh_id() + "AAAAAAAAAAA", "GET", "/v1/users/anna/token"),
    "malformed API key": lambda: api_request(fresh_id(), "POST", "/v1/sessions", {"user": "anna"}),
}


@pytest.mark.parametrize("request_of", REQUESTS.values(), ids=REQUESTS)
def test_failures_are_limited_and_what_is_good_is_served(limited, request_of):
    server, api = limited
    session = api.session("anna")
    with Connection(server.address) as connection:
        assert guesses(connection, request_of) >= 5
        # From this address every failure is limited now, and nothing else.
        for other in REQUESTS.values():
            check_limited(connection.exchange(other()))
        assert connection.exchange(store("hello", bearer(session))).body == STORED
        assert connection.exchange(fetch(unique_id=session)).body == found("hello")
        assert api.get("anna").body == found("hello")
        # No credential, or one that belongs to another user, is no guess.
        check_http_error(connection.exchange(fetch()), 401)
        check_http_error(connection.exchange(fetch(bearer(session), unique_id="ben")), 403)


def test_what_is_no_guess_is_never_limited(limited):
    server, api = limited
    session, ended = api.session("anna"), api.make_session("anna")
    with Connection(server.address) as connection:
        for _ in range(40):
            check_http_error(connection.exchange(fetch()), 401)
            check_http_error(connection.exchange(fetch("Authorization: Basic eDp5")), 401)
            check_http_error(connection.exchange(fetch(bearer(session), unique_id="ben")), 403)
            assert connection.exchange(fetch(unique_id=session)).body == NOT_FOUND
            check_http_error(connection.exchange(store("x", bearer(session), 'If-Match: "1"')), 412)
        check_http_error(connection.exchange(fetch(bearer(unknown_session()))), 401)
    api.end(ended["id"])


def test_other_addresses_are_not_limited(limited):
    server, _ = limited
    with Connection(server.address) as connection:
        guesses(connection, REQUESTS["unknown session in unique_id"])
    # Forged, as 127.0.0.1 is no trusted proxy here: it is the same address.
    check_limited(exchange(server.address, fetch("X-Forwarded-For: 192.0.2.1", "X-Real-IP: 192.0.2.1", unique_id="x")))


def test_behind_a_proxy_the_clients_addresses_count(serve, tmp_path):
    settings, _ = session_settings(tmp_path / "keys")
    settings["access"]["failures"] = "5/min"
    server = serve(settings)

    def guess(address):
        fields = ["X-Forwarded-Proto: https", f"X-Forwarded-For: {address}"]
        return fetch(*fields, bearer(unknown_session()), host="tokens.example.com")

    with Connection(server.address) as connection:
        guesses(connection, lambda: guess("192.0.2.1"))
        check_limited(connection.exchange(guess("::ffff:192.0.2.1")))
        check_http_error(connection.exchange(guess("192.0.2.2")), 401)
        # One network of 64 bits is one client, which has many addresses.
        numbers = iter(range(1, 1000))
        guesses(connection, lambda: guess(f"2001:db8:1:1::{next(numbers):x}"))
        check_http_error(connection.exchange(guess("2001:db8:1:2::1")), 401)
        # One of 48 bits has sixteen times as many failures.
        networks = iter(range(0x100, 0xffff))
        assert guesses(connection, lambda: guess(f"2001:db8:2:{next(networks):x}::1"), 200) >= 5 * 16


def test_in_mode_bearer_bad_tokens_are_limited(serve, tmp_path):
    issuer = Issuer()
    settings = bearer_settings(tmp_path / "keys.json", issuer)
    settings["access"]["failures"] = "5/min"
    server, bad = serve(settings), Issuer().token("anna")
    with Connection(server.address) as connection:
        guesses(connection, lambda: fetch(bearer(bad)))
        assert connection.exchange(fetch(bearer(issuer.token("anna")))).body == NOT_FOUND


def test_in_mode_open_gets_that_find_nothing_are_limited_if_the_rate_is_set(serve):
    server, unique_id = serve({"access": {"failures": "5/min"}}), fresh_id()
    with Connection(server.address) as connection:
        assert connection.exchange(post(unique_id, "hello")).body == STORED
        guesses(connection, lambda: get(fresh_id()))
        assert connection.exchange(get(unique_id)).body == found("hello")
        # A user who logs in for the first time stores.
        newcomer = fresh_id()
        assert connection.exchange(post(newcomer, "x")).body == STORED
        assert connection.exchange(get(newcomer)).body == found("x")
        check_limited(connection.exchange(get(fresh_id())))


def test_in_mode_open_nothing_is_limited_otherwise(serve):
    server = serve()
    with Connection(server.address) as connection:
        for _ in range(200):
            assert connection.exchange(get(fresh_id())).body == NOT_FOUND


def test_the_rate_can_be_turned_off_and_changed_while_the_server_runs(limited):
    server, _ = limited
    file = server.folder / "token-cache.yaml"
    with Connection(server.address) as connection:
        guesses(connection, REQUESTS["unknown session in Authorization"])
        file.write_text(file.read_text().replace('"5/min"', '"off"'))
        server.process.send_signal(1)
        until(lambda: connection.exchange(REQUESTS["unknown session in Authorization"]()).status == 401)
        for _ in range(50):
            assert connection.exchange(REQUESTS["unknown session in Authorization"]()).status == 401


def test_failures_are_counted_by_their_reasons(limited):
    server, api = limited
    session = api.session("anna")
    with Connection(server.address) as connection:
        for _ in range(3):
            connection.exchange(fetch())
            connection.exchange(fetch(bearer(session), unique_id="ben"))
        guesses(connection, REQUESTS["unknown session in unique_id"])

    def metrics():
        request = fetch("Connection: close", path="/metrics")
        with Connection(server.administration[0]) as connection:
            connection.send(request)
            return connection.receive_to_end().decode()

    def count(reason):
        found = re.search(rf'^token_cache_access_failures_total\{{reason="{reason}"\}} (\d+)$', metrics(), re.M)
        return int(found[1]) if found else 0

    until(lambda: count("missing") == 3 and count("other_user") == 3 and count("unknown") >= 5 and count("limited") >= 1)
