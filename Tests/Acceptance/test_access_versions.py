"""Answers with versions: how they are framed, which conditions they obey, and where they have none."""
import pytest

from access import API, api_request, bearer, fetch, make_key, session_settings
from contract import STORED, found
from http_client import Connection, exchange, get, post

# Longer than what is answered at once.
LONG = "x" * 100_000


@pytest.fixture
def api(serve, tmp_path):
    settings, key = session_settings(tmp_path / "access")
    return API(serve(settings), key)


def test_nothing_follows_the_answer_to_head_however_long_the_token(api):
    assert api.put("anna", LONG).body == STORED
    assert api.put("ben", "short").body == STORED
    with Connection(api.server.address) as connection:
        for _ in range(3):
            connection.send(api_request(api.key, "HEAD", "/v1/users/anna/token"))
            connection.send(api_request(api.key, "GET", "/v1/users/ben/token"))
            head = connection.receive("HEAD")
            assert (head.status, head.body) == (200, b"") and "etag" in head.headers
            assert connection.receive().body == found("short")


def test_conditions_on_long_tokens_are_answered_without_them(api):
    tag = api.put("anna", LONG).headers["etag"]
    session = api.session("anna")
    with Connection(api.server.address) as connection:
        response = connection.exchange(fetch(bearer(session), f"If-None-Match: {tag}"))
        assert (response.status, response.body, response.headers["etag"]) == (304, b"", tag)
        assert connection.exchange(fetch(bearer(session), 'If-Match: "1"')).status == 412
        assert connection.exchange(fetch(bearer(session))).body == found(LONG)


def test_the_api_shows_versions_in_mode_open_and_the_contract_does_not(serve, tmp_path):
    key = make_key(tmp_path / "keys", "backend")
    server = serve({"access": {"api": {"keys_file": str(tmp_path / "keys")}}})
    api = API(server, key)
    for info in "a", LONG:
        assert "etag" not in exchange(server.address, post("anna", info)).headers
        for _ in range(2):
            response = exchange(server.address, get("anna"))
            assert response.body == found(info) and "etag" not in response.headers
            tag = api.get("anna").headers["etag"]
        assert api.get("anna", f"If-None-Match: {tag}").status == 304
        assert api.put("anna", "b", 'If-Match: "1"').status == 412
        assert api.put("anna", "b", f"If-Match: {tag}").body == STORED
        assert exchange(server.address, get("anna")).body == found("b")
        # A condition that no answer of the contract could have led to means nothing.
        assert exchange(server.address, get("anna", "If-Match: *", 'If-None-Match: "1"')).body == found("b")
