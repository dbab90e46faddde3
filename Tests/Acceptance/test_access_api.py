"""The API of an app's server: its requests, and what it says of those that are wrong."""
import hashlib
import json
import os
import re
import stat
import sys
import time

import pytest

from access import API, api_request, bearer, fetch, session_settings
from administration import ADMINISTRATION
from contract import NOT_FOUND, STORED, check_http_error, found
from http_client import Connection, exchange, get
from server_process import run


@pytest.fixture(name="api")
def server_with_api(serve, tmp_path):
    settings, key = session_settings(tmp_path / "keys")
    return API(serve({**settings, **ADMINISTRATION}), key)


# Users whose paths need escapes
USERS = ["anna", "a/b", "a%2Fb", "a b+c", "größe", "?#[]@&=", ".", "..", "...", "user:42", "tck_x", "sessions", "token", "a" * 1024]


@pytest.mark.parametrize("user", USERS, ids=lambda user: user[:20])
def test_a_user_is_the_same_in_paths_bodies_and_apps(api, user):
    session = api.session(user)
    assert api.put(user, "from the backend").body == STORED
    assert exchange(api.server.address, fetch(bearer(session))).body == found("from the backend")
    assert exchange(api.server.address, fetch(bearer(session), unique_id=user)).body == found("from the backend")
    assert api.get(user).body == found("from the backend")
    assert [listed["id"] for listed in api.sessions(user)]
    api.erase(user)
    assert api.get(user).body == NOT_FOUND and api.sessions(user) == []


@pytest.mark.parametrize("user, path", [("anna", "anna"), ("a+b c", "a%2Bb+c"), ("ben", "anna&user=ben"), ("anna", "anna&user[]=ben")])
def test_any_user_may_be_in_the_query(api, user, path):
    response = api.call("PUT", f"/v1/user/token?user={path}", {"token_info": "x"}, "If-None-Match: *")
    assert response.body == STORED
    assert api.get(user).body == found("x")


OF_USERS = [("GET", "/token"), ("PUT", "/token"), ("GET", "/sessions"), ("DELETE", "")]


@pytest.mark.parametrize("user", ["anna%2Ftoken", "anna%2ftoken", "%2F", "a%2F..%2Fb", ".", "..", "%2e%2E"])
def test_a_user_that_proxies_would_change_is_not_in_the_path(api, user):
    for method, rest in OF_USERS:
        body = {"token_info": "x"} if method == "PUT" else None
        message = check_http_error(api.call(method, f"/v1/users/{user}{rest}", body), 400)
        assert "/v1/user/token?user=a%2Fb" in message


BAD_USERS = ["", "%", "%2", "%zz", "%00", "a%00b", "%ff", "%c3%28", "%3Cb%3E", "a%3Cb%3Ea", "a" * 1025]


@pytest.mark.parametrize("path", BAD_USERS, ids=lambda path: path[:12] or "empty")
def test_a_user_that_cannot_be_one_is_explained(api, path):
    for method, rest in OF_USERS:
        body = {"token_info": "x"} if method == "PUT" else None
        # In a query, a percent sign alone stands for itself.
        in_query = [] if path in ("%", "%2", "%zz") else [f"/v1/user{rest}?user={path}", f"/v1/user{rest}"]
        for target in (f"/v1/users/{path}{rest}", *in_query):
            message = check_http_error(api.call(method, target, body), 400)
            assert "user" in message and "1024 bytes" in message


BAD_BODIES = [b"", b"{", b"[]", b"null", b'"anna"', b"{}", b'{"user":null}', b'{"user":1}', b'{"user":""}', b'{"user":["anna"]}',
              b'{"user":"a\\u0000b"}', b'{"user":"<b>"}', b'{"user":"a<b>c"}', b'{"user":"\xff"}', b"user=anna", b'{"user":"anna"} x',
              b'{"user":"anna",}', json.dumps({"user": "a" * 1025}).encode(), b'{"User":"anna"}']


@pytest.mark.parametrize("body", BAD_BODIES, ids=lambda body: repr(body[:24]))
def test_a_session_is_made_for_a_user_only(api, body):
    message = check_http_error(api.call("POST", "/v1/sessions", body), 400)
    assert '"user"' in message and "anna" not in message
    assert api.sessions("anna") == []


@pytest.mark.parametrize("body", [b"", b"{", b"[]", b"{}", b'{"token_info":1}', b'{"token_info":null}', b'{"token_info":[1]}',
                                  b'{"token_info":"\xff"}', b"token_info=x"], ids=lambda body: repr(body))
def test_a_token_is_a_string_or_an_object(api, body):
    response = api.call("PUT", "/v1/users/anna/token", body, "If-None-Match: *")
    assert "token_info" in check_http_error(response, 400)
    assert api.get("anna").body == NOT_FOUND


def test_a_write_says_what_it_replaces(api):
    check_http_error(api.call("PUT", "/v1/users/anna/token", {"token_info": "a"}), 428)
    check_http_error(api.put("anna", "a", "If-Match: *"), 412)
    stored = api.put("anna", "a")
    assert stored.body == STORED
    tag = stored.headers["etag"]
    check_http_error(api.put("anna", "b"), 412)
    check_http_error(api.put("anna", "b", 'If-Match: "0"'), 412)
    check_http_error(api.put("anna", "b", f"If-Match: {tag}", "If-None-Match: *"), 400)
    check_http_error(api.put("anna", "b", f"If-Match: {tag[1:]}"), 400)
    assert api.get("anna").body == found("a")
    response = api.put("anna", {"access_token": "b", "more": [1, 2.50]}, f"If-Match: {tag}")
    assert response.body == STORED and response.headers["etag"] != tag
    assert api.get("anna").body == found('{"access_token": "b", "more": [1, 2.5]}')
    assert api.put("anna", "c", "If-Match: *").body == STORED


def test_a_read_may_have_conditions(api):
    tag = api.put("anna", "a").headers["etag"]
    response = api.get("anna")
    assert (response.body, response.headers["etag"]) == (found("a"), tag)
    response = api.get("anna", f"If-None-Match: {tag}")
    assert (response.status, response.body, response.headers["etag"]) == (304, b"", tag)
    check_http_error(api.get("anna", 'If-Match: "0"'), 412)
    response = api.call("HEAD", "/v1/users/anna/token")
    assert response.status == 200 and response.body == b""


def test_a_deleted_token_is_gone_for_the_app_too(api):
    session = api.session("anna")
    assert api.call("DELETE", "/v1/users/anna/token").body == NOT_FOUND
    tag = api.put("anna", "a").headers["etag"]
    check_http_error(api.call("DELETE", "/v1/users/anna/token", None, 'If-Match: "0"'), 412)
    assert api.call("DELETE", "/v1/users/anna/token", None, f"If-Match: {tag}").body == STORED
    assert exchange(api.server.address, fetch(bearer(session))).body == NOT_FOUND
    assert api.call("DELETE", "/v1/users/anna/token").body == NOT_FOUND


@pytest.mark.parametrize("path, methods", [
    ("/v1/sessions", "POST"), ("/v1/sessions/" + "A" * 22, "DELETE"), ("/v1/users/anna", "DELETE"),
    ("/v1/users/anna/sessions", "GET, HEAD, DELETE"), ("/v1/user?user=anna", "DELETE"), ("/v1/users/anna/token", "GET, HEAD, PUT, DELETE")])
def test_a_wrong_method_is_told_the_right_ones(api, path, methods):
    for method in {"GET", "POST", "PUT", "DELETE", "PATCH", "OPTIONS"} - set(methods.split(", ")):
        response = api.call(method, path)
        check_http_error(response, 405)
        assert response.headers["allow"] == methods


@pytest.mark.parametrize("path", ["/v1/", "/v1/session", "/v1/sessions/a/b", "/v1/users", "/v1/users/",
                                  "/v1/users/anna/", "/v1/users/anna/tokens", "/v1/user/tokens?user=a", "/v1/user/token/x?user=a", "/v1/users/anna/token/", "/v1/users/anna/token/x",
                                  "/v1", "/V1/sessions", "/v2/sessions", "//v1/sessions", "/v1/./sessions"])
def test_there_is_nothing_at_other_paths(api, path):
    for method in ("GET", "POST", "DELETE"):
        check_http_error(api.call(method, path), 400 if path == "/v1/users/" else 404)


def test_operators_have_no_api_at_their_address(api):
    for method, path in (("POST", "/v1/sessions"), ("GET", "/v1/users/anna/token"), ("DELETE", "/v1/users/anna")):
        for address in (api.server.administration[0], api.server.data / "control.sock"):
            with Connection(address) as connection:
                connection.send(api_request(api.key, method, path, {"user": "anna"}, "Connection: close"))
                assert re.match(rb"HTTP/1.1 40[45] ", connection.receive_to_end())
    assert api.sessions("anna") == []


def test_the_api_obeys_the_rules_for_https(api):
    data = api_request(api.key, "GET", "/v1/users/anna/token", None, "X-Forwarded-Proto: http", host="tokens.example.com")
    response = exchange(api.server.address, data)
    assert (response.status, response.headers["location"]) == (302, "https://tokens.example.com/v1/users/anna/token")
    page = api_request(api.key, "DELETE", "/v1/users/anna", None, "Origin: https://evil.example")
    check_http_error(exchange(api.server.address, page), 403)


def test_without_a_key_nothing_is_told_of_paths(api):
    with Connection(api.server.address) as connection:
        for path in ("/v1/token", "/v1/users/anna/token", "/v1/users/%00/token", "/v1/"):
            check_http_error(connection.exchange(get("anna", path=path)), 401)


SECRET = re.compile(r"tck_[A-Za-z0-9_-]{43}")


@pytest.fixture
def keys(tmp_path):
    """Runs `token-cache access keys` with a file of its own."""
    file = tmp_path / "api-keys"

    def command(*arguments):
        return run("access", "keys", *arguments, environment={"TOKEN_CACHE_ACCESS_API_KEYS_FILE": str(file)})

    command.file = file
    return command


def listed(keys):
    done = keys("list", "--json")
    assert done.returncode == 0, done
    return {key["name"]: key for key in json.loads(done.stdout)["keys"]}


def test_a_key_is_alone_on_standard_output_and_only_its_hash_in_the_file(keys):
    done = keys("add", "backend", "--scope", "sessions", "--scope", "tokens:read")
    assert done.returncode == 0 and SECRET.fullmatch(done.stdout.removesuffix("\n")), done
    secret = done.stdout.strip()
    assert "backend" in done.stderr and secret not in done.stderr and "not shown again" in done.stderr
    [line] = keys.file.read_text().splitlines()
    assert json.loads(line).items() >= {
        "name": "backend", "scopes": ["sessions", "tokens:read"], "sha256": hashlib.sha256(secret.encode()).hexdigest(),
    }.items()
    assert secret[4:] not in line
    assert stat.S_IMODE(os.stat(keys.file).st_mode) == 0o600
    assert secret not in keys("list").stdout + keys("list", "--json").stdout


def test_keys_are_listed_and_removed_by_name(keys):
    # A key that is to be revoked must not seem to be gone because its file is.
    for command in (["list"], ["remove", "one"]):
        assert f"{keys.file} does not exist; `token-cache access keys add" in keys(*command).stderr
    for name in ("one", "two"):
        assert keys("add", name, "--scope", "erase").returncode == 0
    assert list(listed(keys)) == ["one", "two"]
    again = keys("add", "one", "--scope", "erase")
    assert (again.returncode, again.stdout) == (1, "") and "there is a key one already" in again.stderr
    assert keys("remove", "one").returncode == 0
    assert list(listed(keys)) == ["two"]
    missing = keys("remove", "one")
    assert missing.returncode == 1 and "there is no API key one" in missing.stderr
    assert keys("remove", "two").returncode == 0 and keys("list").stdout == f"there are no API keys in {keys.file}\n"


def test_a_key_may_expire_on_a_date_or_after_a_time(keys):
    for name, when in (("a", "90d"), ("b", "2100-01-31"), ("c", "2100-01-31T12:00:00+02:00")):
        assert keys("add", name, "--scope", "erase", "--expires", when).returncode == 0
    assert keys("add", "d", "--scope", "erase").returncode == 0
    assert abs(listed(keys)["a"]["expires_at"] - time.time() - 90 * 86400) < 60
    assert [listed(keys)[name]["expires_at"] for name in "bc"] == [4105036800, 4105072800]
    assert "expires_at" not in listed(keys)["d"] and not listed(keys)["a"]["expired"]
    text = keys.file.read_text()
    keys.file.write_text(re.sub(r'"expires":[0-9]+', '"expires":7', text))
    assert listed(keys)["a"]["expired"] and "has expired 1970-01-01" in keys("list").stdout


@pytest.mark.parametrize("arguments, fragment", [
    (["a"], "--scope"), (["a", "--scope", "all"], "tokens:read"), (["a b", "--scope", "erase"], "name of a key"),
    (["a", "--scope", "erase", "--expires", "2020-01-31"], "in the past"),
    (["a", "--scope", "erase", "--expires", "2100-02-30"], "--expires"),
    (["a", "--scope", "erase", "--expires", "90"], "--expires"),
])
def test_a_key_that_cannot_be_meant_is_not_made(keys, arguments, fragment):
    done = keys("add", *arguments)
    assert done.returncode != 0 and done.stdout == "" and fragment in done.stderr, done
    assert not keys.file.exists()


FULL = ["sh", "-c", 'exec "$@" > /dev/full', "sh"]
CLOSED = [sys.executable, "-c", "import os, signal, sys; signal.signal(signal.SIGPIPE, signal.SIG_DFL); reader, writer = os.pipe(); "
          "os.close(reader); os.dup2(writer, 1); os.execv(sys.argv[1], sys.argv[1:])"]


@pytest.mark.parametrize("output, fault", [(FULL, "standard output cannot be written"), (CLOSED, "")], ids=["full", "closed"])
def test_a_key_that_cannot_be_shown_is_not_kept(keys, output, fault):
    done = run("access", "keys", "add", "a", "--scope", "erase", prefix=output,
               environment={"TOKEN_CACHE_ACCESS_API_KEYS_FILE": str(keys.file)})
    assert done.returncode == 1 and (fault in done.stderr if fault else not done.stderr)
    assert listed(keys) == {}


def test_mistakes_in_the_file_and_its_place_are_named(keys, tmp_path):
    done = run("access", "keys", "list")
    assert done.returncode == 1 and "access.api.keys_file is not set" in done.stderr
    assert "/var/lib/token-cache/api-keys" in done.stderr
    keys.file.write_text("# a comment\n{}\n")
    os.chmod(keys.file, 0o600)
    assert f"{keys.file} has a fault in line 2: it is not an API key" in keys("list").stderr
    added = keys("add", "a", "--scope", "erase")
    assert (added.returncode, added.stdout) == (1, "") and keys.file.read_text() == "# a comment\n{}\n"
    os.chmod(keys.file, 0o622)
    assert "can be changed by other users" in keys("list").stderr
    missing = run("access", "keys", "add", "a", "--scope", "erase",
                  environment={"TOKEN_CACHE_ACCESS_API_KEYS_FILE": str(tmp_path / "none" / "keys")})
    assert (missing.returncode, missing.stdout) == (1, "") and "the folder has to exist" in missing.stderr
    # The audit log needs the data folder; `audit key` makes only the folder of its own key.
    folder = tmp_path / "data"
    arguments, environment = ("access", "keys", "add", "a", "--scope", "erase", "--data-directory", str(folder)), {
        "TOKEN_CACHE_ACCESS_API_KEYS_FILE": str(keys.file), "TOKEN_CACHE_AUDIT_FILE": str(tmp_path / "audit.ndjson")}
    unrecorded = run(*arguments, environment=environment)
    assert (unrecorded.returncode, unrecorded.stdout) == (1, "") and f"mkdir -m 700 {folder}" in unrecorded.stderr
    folder.mkdir(mode=0o700)
    assert "make it with token-cache audit key" in run(*arguments, environment=environment).stderr
