"""An address that fails too often gets 429 for whatever it sends; other addresses are served as before."""
import json

import pytest

from access import API, api_request, bearer, fetch, session_settings, store, unknown_session
from administration import ADMINISTRATION, metrics
from contract import NOT_FOUND, STORED, check_http_error, found, fresh_id
from http_client import Connection, exchange, get
from store_files import printed
from test_reload import rewrite

LIMITED = {"access": {"failures": "5/h"}}


def check_limited(response):
    check_http_error(response, 429)
    # One failure is made up for in 720 seconds.
    assert 600 < int(response.headers["retry-after"]) <= 720
    assert "www-authenticate" not in response.headers


def guess(server, *lines, index=0):
    """The answer to a GET of an id that has no token."""
    return exchange(server.addresses[index], get(fresh_id(), *lines))


# Mode open


def test_an_address_that_guesses_does_not_learn_which_id_exists(serve):
    server = serve({**LIMITED, **ADMINISTRATION})
    known = fresh_id()
    assert server.post(known, "abc") == STORED
    for _ in range(10):
        assert server.get(known) == found("abc")
    assert [guess(server).status for _ in range(8)] == [200] * 5 + [429] * 3
    limited = guess(server)
    check_limited(limited)
    assert json.loads(limited.body)["errorCode"] == "42900"
    # Whatever it sends, the answer is the same, and nothing is stored.
    assert server.get(known) == limited.body
    assert server.post(known, "def") == limited.body
    figures = metrics(server)
    assert figures['token_cache_access_failures_total{reason="limited"}'] == 6
    assert figures["token_cache_store_writes_total"] == 1


def test_behind_a_trusted_proxy_the_clients_are_limited_each(serve):
    server = serve({**LIMITED, "https": {"mode": "off"}})

    def statuses(client, count):
        return [guess(server, f"X-Forwarded-For: {client}").status for _ in range(count)]

    assert statuses("192.0.2.1", 7) == [200] * 5 + [429] * 2
    assert statuses("192.0.2.2", 7) == [200] * 5 + [429] * 2


def test_a_reload_changes_the_rate(serve):
    server = serve(LIMITED)
    assert [guess(server).status for _ in range(7)] == [200] * 5 + [429] * 2
    for rate, expected in [("2/h", [200] * 2 + [429] * 5), ("off", [200] * 7)]:
        rewrite(server, access={"failures": rate})
        printed(server.data, "reload")
        assert [guess(server).status for _ in range(7)] == expected


# Modes with users

@pytest.fixture(name="limited")
def limited_server(serve, tmp_path):
    settings, key = session_settings(tmp_path / "keys")
    settings["access"]["failures"] = "5/h"
    server = serve({**settings, **ADMINISTRATION})
    return server, API(server, key)


GUESSES = {
    "unknown session in unique_id": lambda: fetch(unique_id=unknown_session()),
    "unknown session in a POST": lambda: store("x", unique_id=unknown_session()),
    "unknown session in Authorization": lambda: fetch(bearer(unknown_session())),
    "malformed session": lambda: fetch(unique_id=fresh_id()),
    "unknown API key": lambda: api_request("tck_" + fresh_id() + "AAAAAAAAAAA", "GET", "/v1/users/anna/token"),
    "malformed API key": lambda: api_request(fresh_id(), "POST", "/v1/sessions", {"user": "anna"}),
}


@pytest.mark.parametrize("request_of", GUESSES.values(), ids=GUESSES)
def test_an_address_that_guesses_gets_429_for_good_credentials_as_well(limited, request_of):
    server, api = limited
    session = api.session("anna")
    with Connection(server.address) as connection:
        assert connection.exchange(store("hello", bearer(session))).body == STORED
        for _ in range(5):
            assert connection.exchange(request_of()).status in (200, 401)
        for request in [other() for other in GUESSES.values()] + [
                fetch(unique_id=session), store("bye", bearer(session)), fetch(),
                api_request(api.key, "GET", "/v1/users/anna/token")]:
            check_limited(connection.exchange(request))


def test_what_is_no_guess_is_never_limited(limited):
    server, api = limited
    session = api.session("anna")
    with Connection(server.address) as connection:
        for _ in range(20):
            check_http_error(connection.exchange(fetch()), 401)
            check_http_error(connection.exchange(fetch("Authorization: Basic eDp5")), 401)
            check_http_error(connection.exchange(fetch(bearer(session), unique_id="ben")), 403)
            assert connection.exchange(fetch(unique_id=session)).body == NOT_FOUND
            check_http_error(connection.exchange(store("x", bearer(session), 'If-Match: "1"')), 412)
        check_http_error(connection.exchange(fetch(bearer(unknown_session()))), 401)
