"""Who gets which answer, in every mode: the credential changes from request to request of one connection."""
import json
import uuid

import pytest

from access import DENIED, INVALID_TOKEN, MISSING, Outcome, api_request, bearer, fetch, found_by, make_key, store, token_of
from access_tables import DELIVERIES
from access_worlds import HEADER, bearer_world, certificate_world, header_world, session_world
from contract import INVALID_INPUT, NOT_FOUND, STORED, WRITE_FAILED, check_http_error, found, fresh_id, unsupported
from http_client import Connection, exchange, get, lines, post
from server_process import finish, until

WORLDS = {
    "session": session_world,
    "bearer": lambda folder: bearer_world(folder, False),
    "bearer-in-unique-id": lambda folder: bearer_world(folder, True),
    "header": header_world,
}


@pytest.fixture(scope="module", name="world", params=WORLDS)
def shared_world(request, tmp_path_factory):
    world = WORLDS[request.param](tmp_path_factory.mktemp(request.param))
    yield world
    finish(world.server)


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("delivery", DELIVERIES)
def test_each_request_of_a_connection_is_judged_by_its_own_credential(world, delivery, seed):
    with Connection(world.server.address) as connection:
        DELIVERIES[delivery](world.table, seed)(connection)


def test_other_methods_do_nothing_whatever_the_credential(world):
    with Connection(world.server.address) as connection:
        for method in ("PUT", "DELETE", "PATCH", "OPTIONS"):
            data = lines(f"{method} /token?unique_id=anna HTTP/1.1", "Host: localhost", bearer("x"), "Remote-User: anna")
            assert connection.exchange(data).body == unsupported(method)
        response = connection.exchange(lines("HEAD /token?unique_id=anna HTTP/1.1", "Host: localhost"), "HEAD")
        assert response.status == 200 and "etag" not in response.headers


# Certificates belong to a connection and not to a request

@pytest.mark.parametrize("delivery", DELIVERIES)
def test_a_certificate_is_the_user_of_all_requests_of_its_connection(tmp_path, delivery):
    world = certificate_world(tmp_path)
    try:
        users = {f"https://users.example.com/{name}": world.authority.issue(
            name, f"URI:https://users.example.com/{name}") for name in ("anna", "ben")}
        for (user, pair), other in zip(users.items(), reversed(users)):
            with world.connect(pair) as connection:
                assert connection.exchange(fetch()).body == NOT_FOUND
                assert connection.exchange(store(token_of(user))).body == STORED
                for seed in range(2):
                    DELIVERIES[delivery](world.table(user, other), seed)(connection)
    finally:
        finish(world.server)


def test_a_certificate_that_names_nobody_or_several_is_refused(tmp_path):
    world = certificate_world(tmp_path, clients="optional")
    try:
        cases = {
            "none": None,
            "two names": world.authority.issue("two", "URI:user:anna", "URI:user:ben"),
            "another kind": world.authority.issue("dns", "DNS:anna.example.com")}
        for name, pair in cases.items():
            with world.connect(pair) as connection:
                for number, data in enumerate((fetch(), store("x"), fetch("Remote-User: anna"))):
                    expected = MISSING if pair is None else INVALID_TOKEN
                    expected[number == 1].check(connection.exchange(data), name)
        pair = world.authority.issue("one", "URI:user:anna", "DNS:a.example.com", "email:a@example.com")
        with world.connect(pair) as connection:
            assert connection.exchange(store("x", unique_id="user:anna")).body == STORED
    finally:
        finish(world.server)


# Header

def test_a_header_counts_from_trusted_proxies_only(serve):
    server = serve({**HEADER, "trusted_proxies": "127.0.0.2"})
    with Connection(server.address) as connection:
        for data in (fetch("Remote-User: anna"), store("x", "Remote-User: anna")):
            check_http_error(connection.exchange(data), 401)


def test_behind_a_proxy_that_does_not_say_whose_connection_it_is_a_header_shows_no_user(serve):
    # Without the HTTPS rule, which would redirect such connections.
    server = serve({**HEADER, "https": {"mode": "off"}, "listen": "127.0.0.1:0?proxy-protocol=required"})
    local = b"\r\n\r\n\x00\r\nQUIT\n\x20\x00\x00\x00"
    unspecified = b"\r\n\r\n\x00\r\nQUIT\n\x21\x00\x00\x00"
    for start in (b"PROXY UNKNOWN\r\n", b"PROXY UNKNOWN ::1 ::1 1 2\r\n", local, unspecified):
        with Connection(server.address) as connection:
            connection.send(start)
            for data in (fetch("Remote-User: anna"), store("x", "Remote-User: anna")):
                MISSING[0].check(connection.exchange(data), repr(start))
    with Connection(server.address) as connection:
        connection.send(b"PROXY TCP4 127.0.0.1 127.0.0.1 4711 80\r\n")
        assert connection.exchange(store("x", "Remote-User: anna")).body == STORED


# Mode open

def names(response):
    return set(response.headers)


def test_in_mode_open_no_header_and_no_answer_changes(serve, tmp_path):
    file = tmp_path / "keys"
    key = make_key(file, "backend")
    usual = {"content-type", "cache-control", "x-content-type-options", "date", "x-request-id", "content-length"}
    for settings in ({}, {"access": {"api": {"keys_file": str(file)}}}):
        server, unique_id = serve(settings), fresh_id()
        fields = ([], [bearer(key)], [bearer("tcs_" + "A" * 43)], ["If-Match: *"], ['If-Match: "1"'], ["If-None-Match: *"])
        with Connection(server.address) as connection:
            for extra in fields:
                info = uuid.uuid4().hex
                for data, body in ((post(unique_id, info, *extra), STORED), (get(unique_id, *extra), found(info)),
                                   (get("nobody", *extra), NOT_FOUND), (get("", *extra), INVALID_INPUT)):
                    response = connection.exchange(data)
                    assert (response.status, response.body, names(response)) == (200, body, usual), extra


# The API has a table of its own

def api_table(read, write, all_scopes, expired):
    """Requests, each with a key that does not suffice: method, path, key, and the status and challenge of its answer."""
    missing, invalid, scope = "Bearer", 'Bearer error="invalid_token"', 'Bearer error="insufficient_scope"'
    needed = {
        ("POST", "/v1/sessions"): [], ("GET", "/v1/users/anna/sessions"): [], ("DELETE", "/v1/users/anna/sessions"): [],
        ("DELETE", "/v1/sessions/" + "A" * 22): [], ("DELETE", "/v1/users/anna"): [],
        ("GET", "/v1/users/anna/token"): [read], ("PUT", "/v1/users/anna/token"): [write],
        ("DELETE", "/v1/users/anna/token"): [write]}
    for (method, path), enough in needed.items():
        yield method, path, None, 401, missing
        for wrong in ("tck_" + "A" * 43, all_scopes[:-1], "tcs_" + all_scopes[4:], expired, "x"):
            yield method, path, wrong, 401, invalid
        for key in (read, write):
            if key not in enough:
                yield method, path, key, 403, scope


@pytest.fixture(name="keyed")
def server_with_keys(serve, tmp_path):
    file = tmp_path / "keys"
    keys = [make_key(file, "read", "tokens:read"), make_key(file, "write", "tokens:write"), make_key(file, "all")]
    expired = make_key(file, "expired", expires="1s")
    server = serve({"access": {"mode": "session", "api": {"keys_file": str(file)}}})
    return server, keys, expired


@pytest.mark.parametrize("is_pipelined", [False, True])
def test_the_api_does_what_the_key_of_each_request_may(keyed, is_pipelined):
    server, (read, write, full), expired = keyed
    until(lambda: exchange(server.address, api_request(expired, "GET", "/v1/users/a/token")).status == 401)
    requests = []
    for method, path, key, status, challenge in api_table(read, write, full, expired):
        body = {"user": "anna"} if method == "POST" else {"token_info": "stolen"} if method == "PUT" else None
        requests.append((api_request(key, method, path, body, "If-None-Match: *"), Outcome(status, challenge=challenge)))
        # A good one in between.
        requests.append((api_request(full, "GET", "/v1/users/anna/sessions"), Outcome(200, b'{"sessions":[]}')))
        requests.append((api_request(full, "GET", "/v1/users/anna/token"), Outcome(200, NOT_FOUND)))
    with Connection(server.address) as connection:
        for start in range(0, len(requests), 15):
            part = requests[start:start + 15]
            if is_pipelined:
                connection.send(b"".join(data for data, _ in part))
            for data, outcome in part:
                outcome.check(connection.receive() if is_pipelined else connection.exchange(data), data)


def test_keys_and_sessions_are_not_mixed_up(keyed):
    server, (_, _, full), _ = keyed
    made = json.loads(exchange(server.address, api_request(full, "POST", "/v1/sessions", {"user": "anna"})).body)
    with Connection(server.address) as connection:
        check_http_error(connection.exchange(api_request(made["session"], "GET", "/v1/users/anna/token")), 401)
        INVALID_TOKEN[0].check(connection.exchange(fetch(bearer(full))))
        DENIED[0].check(connection.exchange(fetch(unique_id=full)))
        assert connection.exchange(store("x", unique_id=full)).body == WRITE_FAILED
        assert connection.exchange(store(token_of("anna"), bearer(made["session"]))).body == STORED
        found_by("anna")[0].check(connection.exchange(api_request(full, "GET", "/v1/users/anna/token")))
