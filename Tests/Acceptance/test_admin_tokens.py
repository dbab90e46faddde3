"""Operators look up and delete single tokens over the administration, and never see them."""
import json
import time
from datetime import datetime

import pytest

from access import API, session_settings
from contract import NOT_FOUND, STORED
from http_client import exchange, get, post
from operators import TOKEN, Operators, about, make_admin_key
from postgres_store import PostgresStore


def check_single_tokens(operators):
    body = {"unique_id": "canary-id"}
    nothing = (200, {"found": False})
    assert about(operators, "/token", body) == nothing
    assert about(operators, "/token/delete", body) == (200, {"deleted": False})
    assert exchange(operators.server.address, post("canary-id", TOKEN)).body == STORED
    for at in (operators.address, operators.control):
        status, facts = about(operators, "/token", body, at=at)
        assert status == 200 and facts.keys() == {"found", "size", "age_seconds", "stored_at", "expires_at"}
        assert (facts["found"], facts["size"], facts["expires_at"]) == (True, len(TOKEN), "2100-01-31T12:00:00Z")
        stored = datetime.fromisoformat(facts["stored_at"].replace("Z", "+00:00")).timestamp()
        assert 0 <= facts["age_seconds"] and abs(stored + facts["age_seconds"] - time.time()) < 600
    assert exchange(operators.server.address, post("canary-id", "plain")).body == STORED
    assert about(operators, "/token", body)[1]["expires_at"] is None
    assert about(operators, "/token/delete", body) == (200, {"deleted": True})
    assert about(operators, "/token", body) == nothing
    assert exchange(operators.server.address, get("canary-id")).body == NOT_FOUND


def test_one_token_is_looked_up_and_deleted_without_being_shown(operators):
    check_single_tokens(operators)
    log = operators.server.log() + operators.server.output()
    assert "canary" not in log


def test_the_id_is_stripped_of_tags_as_those_of_clients_are(operators):
    assert exchange(operators.server.address, post("<b>me</b>", "hello")).body == STORED
    for body in ({"unique_id": "<i>me</i>"}, {"unique_id": "me", "more": 1}):
        assert about(operators, "/token", body)[1]["size"] == 5


def test_of_two_ids_the_last_counts_as_it_does_for_clients(operators):
    assert exchange(operators.server.address, post("one", "hello")).body == STORED
    for ids, found in ((("one", "two"), False), (("two", "one"), True)):
        assert about(operators, "/token", b'{"unique_id":"%b","unique_id":"%b"}' % tuple(map(str.encode, ids)))[1]["found"] is found


def test_in_the_modes_with_users_the_id_is_the_user(serve, tmp_path):
    settings, key = session_settings(tmp_path / "keys")
    operators = Operators(serve, tmp_path / "admin", **settings)
    api = API(operators.server, key)
    api.put("anna", "hello")
    assert about(operators, "/token", {"unique_id": "anna"})[1]["size"] == 5
    assert about(operators, "/token/delete", {"unique_id": "anna"}) == (200, {"deleted": True})


@pytest.mark.parametrize("body", [
    b"", b"canary", b"{}", b"[]", b'{"unique_id":1}', b'{"unique_id":null}', b'{"unique_id":"canary"', b'{"unique_id":""}',
    b'{"unique_id":"<b></b>"}', json.dumps({"unique_id": "canary" * 200}).encode(), b'{"unique_id":"a\\u0000canary"}',
    b'{"unique_id":"canary\xff"}',
], ids=repr)
def test_a_body_without_one_id_is_refused_and_not_repeated(operators, body):
    for path in ("/token", "/token/delete"):
        status, answer = about(operators, path, body)
        assert status == 400 and "canary" not in answer["error"], answer


def test_the_longest_id_fits_however_it_is_escaped_and_longer_bodies_do_not(operators):
    body = b'{"unique_id":"' + b"\\u0061" * 1024 + b'"}'
    assert about(operators, "/token", body) == (200, {"found": False})
    long = json.dumps({"unique_id": "a", "more": "b" * 9000})
    assert about(operators, "/token", long.encode())[0] == 413
    assert about(operators, "/token", long.encode(), at=operators.control)[0] == 413


def test_ids_are_in_bodies_only(operators):
    for path in ("/token", "/token/delete"):
        assert operators.with_key("steer", "GET", path + "?unique_id=a").status == 405
        assert operators.with_key("steer", "POST", path + "?unique_id=a").status == 400


def test_one_token_of_a_store_on_postgresql_is_looked_up_and_deleted(postgres, postgres_binary, tmp_path):
    file = tmp_path / "admin-keys"
    key = make_admin_key(file, "anna", "steer")
    with PostgresStore(postgres_binary, tmp_path / "store", postgres) as store:
        server = store.serve("server", {"admin": {"listen": "127.0.0.1:0", "keys_file": str(file)}})

        class Remote:
            keys = {"steer": key}
            address, control = server.administration[0], server.data / "control.sock"

        Remote.server = server
        check_single_tokens(Remote)
