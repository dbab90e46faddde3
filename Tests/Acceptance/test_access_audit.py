"""What the audit log says of requests, and what clients are answered when it cannot be written."""
import signal

import pytest

from access import (
    API, DENIED, INVALID_TOKEN, Outcome, api_request, bearer, fetch, make_key, session_settings, store, token_of,
    unknown_session,
)
from administration import ADMINISTRATION, metrics
from contract import NOT_FOUND, STORED, WRITE_FAILED, found
from http_client import Connection, exchange
from server_process import until
from storage_shim import ALWAYS
from store_files import audit_events, make_audit_keys, verify_audit


@pytest.fixture(name="start")
def started(serve, tmp_path):
    """A function that starts a server with users and an audit log, and returns it with its API and the log's path."""
    def start(settings=None, events="all", required="on", **options):
        log, data = tmp_path / "audit.ndjson", tmp_path / "data"
        make_audit_keys(tmp_path / "first.key", data)
        access, key = session_settings(tmp_path / "keys")
        audit = {"file": str(log), "events": events, "required": required}
        server = serve({**access, **(settings or {}), "audit": audit}, data=data, **options)
        return server, API(server, key), log
    return start


def events(log):
    """The events of requests."""
    return [event for event in audit_events(log) if event["actor"] != "server"]


def test_each_request_is_in_the_log_once_it_is_answered(start, tmp_path):
    (tmp_path / "keys").mkdir()
    reader = make_key(tmp_path / "keys" / "api-keys", "reader", "tokens:read")
    server, api, log = start()
    made, other = api.make_session("anna"), api.make_session("ben")
    session, unknown = made["session"], unknown_session()
    key = api.key
    # A request, and what the log says of it: action, outcome, actor, whether it names the user and the session.
    table = [
        (fetch(bearer(session)), "read_token", "not_found", "user", True, True),
        (store("x", unique_id=session), "store_token", "ok", "user", True, True),
        (fetch(unique_id=session), "read_token", "ok", "user", True, True),
        (store("y", bearer(session), 'If-Match: "1"'), "store_token", "precondition_failed", "user", True, True),
        (fetch(bearer(unknown)), "authenticate", "denied", "none", False, None),
        (fetch(bearer(session), unique_id="ben"), "authenticate", "denied", "none", False, None),
        (api_request(key, "GET", "/v1/users/anna/token"), "read_token", "ok", "api_key", True, False),
        (api_request(key, "PUT", "/v1/users/anna/token", {"token_info": "z"}, "If-Match: *"), "store_token", "ok", "api_key", True,
         False),
        (api_request(key, "GET", "/v1/users/anna/sessions"), "list_sessions", "ok", "api_key", True, False),
        (api_request(key, "POST", "/v1/sessions", {"user": "anna"}), "create_session", "ok", "api_key", True, True),
        (api_request(key, "DELETE", f"/v1/sessions/{made['id']}"), "end_session", "ok", "api_key", True, None),
        (api_request(key, "DELETE", f"/v1/sessions/{made['id']}"), "end_session", "not_found", "api_key", None, None),
        (api_request(key, "DELETE", "/v1/users/anna/sessions"), "end_sessions", "ok", "api_key", True, False),
        (api_request(key, "DELETE", "/v1/users/anna/sessions"), "end_sessions", "ok", "api_key", True, False),
        (api_request(key, "DELETE", "/v1/users/anna/token"), "remove_token", "ok", "api_key", True, False),
        (api_request(key, "DELETE", "/v1/users/anna"), "erase_user", "ok", "api_key", True, False),
        (api_request(reader, "DELETE", "/v1/users/anna"), "authenticate", "denied", "none", None, False)]
    users = set()
    with Connection(server.address) as connection:
        for data, action, outcome, actor, has_user, has_session in table:
            before = len(events(log))
            response = connection.exchange(data)
            # It is there already: the line was written before the answer.
            event, = events(log)[before:]
            assert (event["action"], event["outcome"], event["actor"]) == (action, outcome, actor), (data, event)
            assert event["request_id"] == response.headers["x-request-id"] and event["address"] == "127.0.0.1"
            assert event.get("api_key") == ("backend" if actor == "api_key" else None)
            for field, expected in (("user_hash", has_user), ("session_hash", has_session)):
                assert expected is None or (field in event) == expected, (data, event)
            users |= {event[name] for name in ["user_hash"] if name in event}
    assert len(users) == 1
    assert exchange(server.address, fetch(bearer(other["session"]))).body == NOT_FOUND
    assert events(log)[-1]["user_hash"] not in users
    assert server.stop() == 0
    verify_audit(log, key=tmp_path / "first.key")
    text = log.read_text()
    assert not [secret for secret in (session, unknown, key, "anna", made["session"][4:]) if secret in text]


def test_each_change_that_fails_is_in_the_log(shim, tmp_path):
    access, key = session_settings(tmp_path / "keys")
    log = tmp_path / "audit.ndjson"
    make_audit_keys(tmp_path / "first.key", shim.data)
    server = shim.serve(tmp_path / "server", {**access, "audit": {"file": str(log)}})
    session = API(server, key).make_session("anna")
    shim.set(sync_failures=ALWAYS)
    for method, path, body, action in (
            ("POST", "/v1/sessions", {"user": "anna"}, "create_session"),
            ("DELETE", f"/v1/sessions/{session['id']}", None, "end_session"),
            ("DELETE", "/v1/users/anna/sessions", None, "end_sessions"),
            ("PUT", "/v1/users/anna/token", {"token_info": "x"}, "store_token"),
            ("DELETE", "/v1/users/anna/token", None, "remove_token"),
            ("DELETE", "/v1/users/anna", None, "erase_user")):
        before = len(events(log))
        headers = ["If-None-Match: *"] if method == "PUT" else []
        exchange(server.address, api_request(key, method, path, body, *headers))
        event, = events(log)[before:]
        assert (event["action"], event["outcome"], event["actor"]) == (action, "failed", "api_key"), (path, event)
    server.kill()
    verify_audit(log, key=tmp_path / "first.key")


def test_an_erasure_that_has_begun_is_recorded_before_the_server_ends(serve, shim, tmp_path):
    access, key = session_settings(tmp_path / "keys")
    log, data, ring = tmp_path / "audit.ndjson", tmp_path / "data", shim.disk / "keys"
    make_audit_keys(tmp_path / "first.key", data)
    # The erasures are recorded beside the key ring, and that disk is slow.
    settings = {**access, **ADMINISTRATION, "audit": {"file": str(log)}, "sealing": {"key_ring": str(ring)}}
    server = serve(settings, data=data, environment=shim.environment)
    API(server, key).make_session("anna")
    shim.set(sync_delay_microseconds=1 << 31)
    with Connection(server.address) as connection:
        connection.send(api_request(key, "DELETE", "/v1/users/anna"))
        until(lambda: (shim.disk / "erasures.new").exists())
        connection.reset()
    server.send_signal()

    def is_deaf():
        try:
            Connection(server.administration[0]).close()
        except OSError:
            return True
        return False

    # Now only the store and the audit log are left.
    until(is_deaf)
    shim.set(sync_delay_microseconds=0)
    assert server.wait() == 0
    assert (shim.disk / "erasures").exists()
    last = events(log)[-1]
    assert (last["action"], last["outcome"], last["actor"]) == ("erase_user", "ok", "api_key")


def fill(server, session):
    """Reads until no further line fits into the file, which may not grow beyond a limit."""
    data = fetch(bearer(session)) * 50
    with Connection(server.address) as connection:
        def is_full():
            connection.send(data)
            return 503 in [connection.receive().status for _ in range(50)]
        until(is_full, pause=0)


LIMIT = 400 << 10


def test_what_cannot_be_recorded_is_not_answered(start):
    # One loop, as a reload reaches one after the other.
    server, api, log = start({**ADMINISTRATION, "loops": 1}, file_size=LIMIT)
    session = api.session("anna")
    assert exchange(server.address, store(token_of("anna"), bearer(session))).body == STORED
    fill(server, session)
    unavailable = Outcome(503)
    with Connection(server.address) as connection:
        unavailable.check(connection.exchange(fetch(bearer(session))))
        unavailable.check(connection.exchange(store("lost", bearer(session))))
        Outcome(200, NOT_FOUND, is_failure=True).check(connection.exchange(fetch(unique_id=session)))
        Outcome(200, WRITE_FAILED, is_failure=True).check(connection.exchange(store("lost", unique_id=session)))
        for method, path, body in (("GET", "/v1/users/anna/token", None), ("POST", "/v1/sessions", {"user": "anna"}),
                                   ("PUT", "/v1/users/anna/token", {"token_info": "lost"}), ("DELETE", "/v1/users/anna", None),
                                   ("GET", "/v1/users/anna/sessions", None)):
            unavailable.check(connection.exchange(api_request(api.key, method, path, body, "If-Match: *")), path)
    assert exchange(server.administration[0], fetch(path="/readyz")).status == 503
    # Nothing was done that could not be recorded. The setting can be changed even if the log cannot be continued in a new file.
    log.rename(f"{log}.full")
    log.mkdir()
    file = server.folder / "token-cache.yaml"
    file.write_text(file.read_text().replace('"required": "on"', '"required": "off"'))
    server.process.send_signal(signal.SIGHUP)
    until(lambda: exchange(server.address, fetch(bearer(session))).body == found(token_of("anna")))
    assert metrics(server)["token_cache_last_reload_successful"] == 0
    # Another loop may take the settings over a little later.
    listings = []

    def is_listed():
        listings.append(api.call("GET", "/v1/users/anna/sessions"))
        return listings[-1].status == 200

    until(is_listed)
    assert listings[-1].body.count(b'"id"') == 1
    log.rmdir()
    server.process.send_signal(signal.SIGHUP)
    until(lambda: metrics(server)["token_cache_last_reload_successful"] == 1)


def test_changes_of_keys_are_recorded_once_that_is_possible_again(start, tmp_path):
    server, api, log = start(file_size=LIMIT)
    session = api.session("anna")
    assert exchange(server.address, store("x", bearer(session))).body == STORED
    names = [f"key{number}" for number in range(9)]
    for name in names:
        make_key(tmp_path / "more", name)
    fill(server, session)
    # All at once: their lines are longer than what may be left of the file.
    keys = tmp_path / "keys" / "api-keys"
    with open(keys, "a", encoding="utf-8") as file:
        file.write((tmp_path / "more").read_text())
    until(lambda: f"the API keys have changed: added {', '.join(names)}; there are 10 now" in server.log())
    assert "add_api_key" not in log.read_text()
    # A new file has room again.
    log.rename(tmp_path / "audit.ndjson.1")
    server.process.send_signal(signal.SIGHUP)

    def recorded():
        added = [event for event in events(log) if event["action"] == "add_api_key"] if log.exists() else []
        return [event["key"] for event in added]

    until(lambda: recorded() == names)
    assert server.stop() == 0
    verify_audit(tmp_path / "audit.ndjson.1", log, key=tmp_path / "first.key")
    assert recorded() == names


def test_without_the_requirement_requests_go_on_and_the_gap_is_recorded(start, tmp_path):
    server, api, log = start(required="off", file_size=LIMIT)
    session = api.session("anna")
    assert exchange(server.address, store("x", bearer(session))).body == STORED
    with Connection(server.address) as connection:
        def is_full():
            connection.send(fetch(bearer(session)) * 50)
            assert {connection.receive().body for _ in range(50)} == {found("x")}
            return log.stat().st_size > LIMIT - 2000

        until(is_full, pause=0)
        for _ in range(20):
            assert connection.exchange(fetch(unique_id=session)).body == found("x")
        DENIED[0].check(connection.exchange(fetch(unique_id=unknown_session())))
        INVALID_TOKEN[0].check(connection.exchange(fetch(bearer(unknown_session()))))
        assert connection.exchange(store("y", bearer(session))).body == STORED
    # A new file has room again.
    log.rename(tmp_path / "audit.ndjson.1")
    server.process.send_signal(signal.SIGHUP)
    until(lambda: log.exists() and (exchange(server.address, fetch(bearer(session))).body == found("y")) and events(log))
    assert server.stop() == 0
    assert sum(event.get("lost_events", 0) for event in audit_events(log)) > 0, log.read_text()[:2000]
