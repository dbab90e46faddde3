"""Sessions: their end in each way that there is, writes that do not overwrite each other, versions and erasures."""
import concurrent.futures
import json
import signal

import pytest

from access import API, DENIED, INVALID_TOKEN, api_request, bearer, fetch, make_key, session_settings, store
from contract import NOT_FOUND, STORED, check_http_error, found
from http_client import Connection, exchange, get, post
from server_process import run, until
from store_files import printed


@pytest.fixture(name="start")
def started(serve, tmp_path):
    """A function that starts a server in mode session and returns it with its API: `start(settings, **session)`."""
    def start(settings=None, data=None, **session):
        access, key = session_settings(tmp_path / f"keys{len(list(tmp_path.iterdir()))}", **session)
        server = serve({**access, **(settings or {})}, data=data)
        return server, API(server, key)
    return start


def is_refused(server, session):
    """Whether a session is refused in both places, for both methods."""
    with Connection(server.address) as connection:
        for number, request in enumerate((fetch, lambda *fields, **options: store("stolen", *fields, **options))):
            DENIED[number].check(connection.exchange(request(unique_id=session)))
            INVALID_TOKEN[number].check(connection.exchange(request(bearer(session))))
    return True


# Devices


def test_a_store_that_was_filled_under_users_ids_goes_on_working(start, serve):
    before = serve()
    assert exchange(before.address, store("hello", unique_id="anna")).body == STORED
    assert before.stop() == 0
    server, api = start(data=before.data)
    assert exchange(server.address, fetch(unique_id=api.session("anna"))).body == found("hello")
    assert is_refused(server, "anna")


def test_a_revoked_session_is_refused_and_the_others_go_on(start):
    server, api = start()
    made = [api.make_session("anna") for _ in range(3)]
    assert exchange(server.address, store("hello", bearer(made[0]["session"]))).body == STORED
    # All are in memory, on both loops.
    with Connection(server.address) as one, Connection(server.address) as other:
        for connection in (one, other):
            for device in made:
                assert connection.exchange(fetch(bearer(device["session"]))).body == found("hello")
        api.end(made[1]["id"])
        for connection in (one, other):
            INVALID_TOKEN[0].check(connection.exchange(fetch(bearer(made[1]["session"]))))
            assert connection.exchange(fetch(bearer(made[0]["session"]))).body == found("hello")
            assert connection.exchange(fetch(unique_id=made[2]["session"])).body == found("hello")
    assert is_refused(server, made[1]["session"])
    check_http_error(api.call("DELETE", f"/v1/sessions/{made[1]['id']}"), 404)
    assert {session["id"] for session in api.sessions("anna")} == {made[0]["id"], made[2]["id"]}


def test_a_user_is_logged_out_everywhere(start):
    server, api = start()
    devices, other = [api.session("anna") for _ in range(5)], api.session("ben")
    assert exchange(server.address, store("hello", bearer(devices[0]))).body == STORED
    response = api.call("DELETE", "/v1/users/anna/sessions")
    assert json.loads(response.body) == {"status": "true", "ended": 5}
    assert all(is_refused(server, device) for device in devices)
    assert api.sessions("anna") == []
    assert json.loads(api.call("DELETE", "/v1/users/anna/sessions").body)["ended"] == 0
    # The token and other users' sessions stay.
    assert exchange(server.address, fetch(bearer(api.session("anna")))).body == found("hello")
    assert exchange(server.address, fetch(bearer(other))).body == NOT_FOUND


def test_a_reload_keeps_the_mode_and_the_sessions(start):
    server, api = start()
    session = api.session("anna")
    file = server.folder / "token-cache.yaml"
    settings = json.loads(file.read_text())
    settings["access"]["mode"] = "open"
    file.write_text(json.dumps(settings))
    server.process.send_signal(signal.SIGHUP)
    until(lambda: "access.mode" in server.log())
    assert is_refused(server, "anna")
    assert exchange(server.address, fetch(bearer(session))).status == 200


def test_commands_make_list_and_end_sessions_of_a_running_server(start):
    server, api = start()
    flags = ["--config", str(server.folder / "token-cache.yaml")]
    done = run("access", "sessions", "add", "-", *flags, input="anna\n")
    assert done.returncode == 0, done.stderr
    session = done.stdout.strip()
    assert exchange(server.address, store("hello", bearer(session))).body == STORED
    listed = json.loads(run("access", "sessions", "list", "anna", "--json", *flags).stdout)
    (identity,) = [one["id"] for one in listed["sessions"]]
    assert [one["id"] for one in api.sessions("anna")] == [identity]
    assert session not in run("access", "sessions", "list", "anna", *flags).stdout
    assert run("access", "sessions", "remove", identity, *flags).returncode == 0
    assert is_refused(server, session)
    second = run("access", "sessions", "add", "anna", *flags).stdout.strip()
    assert run("access", "sessions", "remove", "--user", "anna", *flags).returncode == 0
    assert is_refused(server, second)
    assert run("access", "sessions", "remove", identity, *flags).returncode != 0


# Compare-and-set

def versions(server, session):
    """The token's tag."""
    return exchange(server.address, fetch(bearer(session))).headers["etag"]


def test_the_older_of_two_refreshes_does_not_win(start):
    server, api = start()
    phone, tablet = api.session("anna"), api.session("anna")
    first = exchange(server.address, store("first", bearer(phone)))
    seen = versions(server, phone)
    assert seen == versions(server, tablet) == first.headers["etag"]
    second = exchange(server.address, store("phone's", bearer(phone), f"If-Match: {seen}"))
    assert second.body == STORED and second.headers["etag"] != seen
    check_http_error(exchange(server.address, store("tablet's", bearer(tablet), f"If-Match: {seen}")), 412)
    check_http_error(exchange(server.address, store("tablet's", f"If-Match: {seen}", unique_id=tablet)), 412)
    assert exchange(server.address, fetch(bearer(tablet))).body == found("phone's")
    # Old apps in between write as ever, and their write has a version too.
    third = exchange(server.address, store("old app's", unique_id=tablet))
    assert third.body == STORED and third.headers["etag"] not in (seen, second.headers["etag"])
    check_http_error(exchange(server.address, store("x", bearer(phone), f"If-Match: {second.headers['etag']}")), 412)


def test_one_of_many_refreshes_at_once_wins(start):
    server, api = start()
    sessions = [api.session("anna") for _ in range(8)]
    exchange(server.address, store("first", bearer(sessions[0])))
    for _ in range(5):
        seen = versions(server, sessions[0])

        def refresh(number, seen=seen):
            return exchange(server.address, store(f"token {number}", bearer(sessions[number]), f"If-Match: {seen}"))

        with concurrent.futures.ThreadPoolExecutor(8) as pool:
            answers = list(pool.map(refresh, range(8)))
        winner, = [number for number, answer in enumerate(answers) if answer.status == 200]
        assert sorted(answer.status for answer in answers) == [200] + [412] * 7
        response = exchange(server.address, fetch(bearer(sessions[0])))
        assert response.body == found(f"token {winner}") and response.headers["etag"] == answers[winner].headers["etag"]


def test_a_get_with_the_present_tag_gets_304(start):
    server, api = start()
    session = api.session("anna")
    tag = exchange(server.address, store("hello", bearer(session))).headers["etag"]
    with Connection(server.address) as connection:
        for value in (tag, f"W/{tag}", f'"1", {tag}', "*"):
            for data in (fetch(bearer(session), f"If-None-Match: {value}"),
                         fetch(f"If-None-Match: {value}", unique_id=session)):
                response = connection.exchange(data)
                assert (response.status, response.body, response.headers["etag"]) == (304, b"", tag)
        response = connection.exchange(fetch(bearer(session), 'If-None-Match: "1"'))
        assert (response.body, response.headers["etag"]) == (found("hello"), tag)
        assert connection.exchange(fetch(bearer(session), f"If-Match: {tag}")).body == found("hello")
        for value in ("hello", '"', f"{tag} {tag}", ""):
            check_http_error(connection.exchange(fetch(bearer(session), f"If-Match: {value}")), 400)


def test_a_version_never_returns(start):
    """Not after the token was deleted and stored again, nor after a restart."""
    server, api = start()
    session, tags = api.session("anna"), []

    def note(response):
        assert response.body == STORED
        tags.append(response.headers["etag"])

    note(exchange(server.address, store("hello", bearer(session))))
    assert api.call("DELETE", "/v1/users/anna/token").body == STORED
    note(exchange(server.address, store("hello", bearer(session))))
    server.kill()
    server, api = start(data=server.data)
    response = exchange(server.address, fetch(bearer(session)))
    assert response.headers["etag"] == tags[-1]
    note(exchange(server.address, store("hello", bearer(session))))
    api.erase("anna")
    note(exchange(server.address, store("hello", bearer(api.session("anna")))))
    assert len(set(tags)) == 4


# Versions

# Longer than what is answered at once.
LONG = "x" * 100_000


@pytest.fixture(name="api")
def api_of_a_server(serve, tmp_path):
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
        assert server.get("anna") == found("b")
        # A condition that no answer of the contract could have led to means nothing.
        assert server.get("anna", "If-Match: *", 'If-None-Match: "1"') == found("b")


# Erasure

def test_an_erased_user_stays_erased_when_an_older_backup_is_restored(serve, tmp_path):
    """Here by the source of a credential; SessionUpkeepTests know where the erasures are found without one."""
    source = tmp_path / "credentials" / "token-cache.keys"
    source.parent.mkdir()
    done = run("keyring", "create", str(source))
    assert done.returncode == 0, done.stderr
    as_a_service = {"CREDENTIALS_DIRECTORY": str(source.parent)}
    server = serve(environment=as_a_service)
    for user in ("anna", "berta"):
        assert server.post(user, f"canary of {user}") == STORED
    printed(server.data, "access", "sessions", "add", "berta")
    backup = tmp_path / "backup.db"
    printed(server.data, "backup", str(backup))
    assert "erased a token and 0 sessions" in printed(server.data, "erase", "anna")
    assert server.get("anna") == NOT_FOUND
    assert server.stop() == 0
    assert (server.data / "erasures").exists()
    restored = printed(server.data, "restore", str(backup), environment={"TOKEN_CACHE_SEALING_KEY_RING": str(source)})
    for told in ("restored 1 token", "left out 1 user that had been erased", "ended 1 session"):
        assert told in restored
    server = serve(data=server.data, environment=as_a_service)
    assert server.get("anna") == NOT_FOUND
    assert server.get("berta") == found("canary of berta")
    assert "no session" in printed(server.data, "access", "sessions", "list", "berta")
