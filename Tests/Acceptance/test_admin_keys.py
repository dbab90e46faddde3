"""Admin keys: who may read the server's state over TCP and steer it, and how keys are made, replaced and refused."""
import base64
import json
import os
import re
import shutil
import socket
import subprocess
import time
import urllib.request
from datetime import datetime
from pathlib import Path

import pytest

from access import API, bearer, make_key, session_settings
from contract import NOT_FOUND, STORED
from http_client import Connection, exchange, get, lines, post
from ports import free_ports
from postgres_store import PostgresStore
from server_process import run, until
from test_access_canaries import traces
from test_admin import HOST

SECRET = re.compile(r"tca_[A-Za-z0-9_-]{43}")
UNKNOWN = "tca_" + base64.urlsafe_b64encode(bytes(range(32))).decode().rstrip("=")


def admin_keys(file, *arguments, **options):
    """Runs `token-cache admin keys` for a file."""
    return run("admin", "keys", *arguments, environment={"TOKEN_CACHE_ADMIN_KEYS_FILE": str(file)}, **options)


def make_admin_key(file, name, scope, *flags):
    """Adds an admin key to a file and returns it."""
    done = admin_keys(file, "add", name, "--scope", scope, *flags)
    assert done.returncode == 0, done
    return done.stdout.strip()


def status_and_body(address, method, path, *fields):
    """An answer that need not be JSON."""
    with Connection(address) as connection:
        connection.send(lines(f"{method} {path} HTTP/1.1", HOST, *fields, "Connection: close"))
        head, _, body = connection.receive_to_end().partition(b"\r\n\r\n")
    return int(head.split()[1]), body.decode()


class Operators:
    """A server with an admin key of each scope."""

    def __init__(self, serve, folder, read="open", **settings):
        folder.mkdir(parents=True, exist_ok=True)
        self.file = folder / "admin-keys"
        self.keys = {scope: make_admin_key(self.file, f"key-to-{scope}", scope) for scope in ("read", "steer")}
        self.server = serve(
            {"admin": {"listen": "127.0.0.1:0", "keys_file": str(self.file), "read": read}, **settings})
        self.control = self.server.data / "control.sock"

    @property
    def address(self):
        return self.server.administration[0]

    def status(self, method, path, *fields, at=None):
        """The status of an answer that need not be JSON."""
        return status_and_body(at or self.address, method, path, *fields)[0]

    def ask(self, method, path, *fields, at=None):
        return exchange(at or self.address, lines(f"{method} {path} HTTP/1.1", HOST, *fields), method)

    def with_key(self, scope, method, path, *fields):
        return self.ask(method, path, bearer(self.keys[scope]), *fields)


@pytest.fixture
def operators(serve, tmp_path):
    return Operators(serve, tmp_path)


@pytest.fixture
def guarded(serve, tmp_path):
    return Operators(serve, tmp_path, read="key")


# Who gets which answer

READING = [("GET", path) for path in ("/status", "/history", "/log", "/settings", "/metrics")]
PROBES = [("GET", "/"), ("GET", "/healthz"), ("GET", "/readyz")]
CREDENTIALS = {
    "none": [], "another scheme": ["Authorization: Basic YTpi"], "unknown": [bearer(UNKNOWN)], "empty": ["Authorization: Bearer "],
    "another kind of key": [bearer("tck_" + UNKNOWN[4:])], "two": [bearer(UNKNOWN), bearer(UNKNOWN)], "scope read": "read", "scope steer": "steer",
}
CHALLENGES = {"none": "Bearer", "scope read": 'Bearer error="insufficient_scope"'}


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
        client.exchange(lines("GET /token?unique_id=a HTTP/1.1", HOST))
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


# Single tokens

TOKEN = json.dumps({"canary-token": "4711", "com.facebook.sdk:TokenInformationExpirationDateKey": "2100-01-31T12:00:00Z"})


def about(operators, path, body, *fields, at=None):
    data = body if isinstance(body, bytes) else json.dumps(body).encode()
    head = [f"POST {path} HTTP/1.1", HOST, f"Content-Length: {len(data)}", *(fields or [bearer(operators.keys["steer"])])]
    response = exchange(at or operators.address, lines(*head, body=data))
    return response.status, json.loads(response.body)


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


# Changes of the file

def status_of(operators, key):
    return operators.ask("GET", "/key", bearer(key)).status


def test_keys_come_and_go_without_a_restart(operators):
    key = make_admin_key(operators.file, "anna", "steer")
    until(lambda: status_of(operators, key) == 200)
    until(lambda: "the admin keys have changed: added anna; there are 3 now" in operators.server.log())
    assert admin_keys(operators.file, "remove", "anna").returncode == 0
    # Many wrong keys get 429.
    until(lambda: status_of(operators, key) != 200)
    until(lambda: "the admin keys have changed: removed anna; there are 2 now" in operators.server.log())
    assert status_of(operators, operators.keys["steer"]) == 200


def test_a_key_expires(operators):
    key = make_admin_key(operators.file, "anna", "steer", "--expires", "2100-01-01")
    operators.ask("POST", "/reload", at=operators.control)
    assert status_of(operators, key) == 200
    operators.file.write_text(re.sub(r'"expires":[0-9]+', '"expires":7', operators.file.read_text()))
    operators.ask("POST", "/reload", at=operators.control)
    response = operators.ask("GET", "/key", bearer(key))
    assert response.status == 401 and "has expired" in json.loads(response.body)["error"]


def test_a_file_that_cannot_be_used_leaves_the_keys_in_use(operators):
    good = operators.file.read_text()
    for text, mode, fault in (("nonsense", 0o600, "line 1: it is no admin key as token-cache admin keys add writes one"),
                              (good, 0o622, "can be changed by other users")):
        operators.file.write_text(text)
        operators.file.chmod(mode)
        # Each reload says so, also if the log has it already.
        for _ in range(2):
            outcome = json.loads(operators.with_key("steer", "POST", "/reload").body)
            assert outcome["reloaded"] and "the file of admin keys cannot be used, so the previous keys stay in use: " in outcome["outcome"]
            assert fault in outcome["outcome"], outcome
        assert fault in operators.server.log()
    operators.file.unlink()
    outcome = json.loads(operators.with_key("steer", "POST", "/reload").body)["outcome"]
    assert "token-cache admin keys add" in outcome
    operators.file.write_text(good)
    operators.file.chmod(0o600)
    assert json.loads(operators.with_key("steer", "POST", "/reload").body)["outcome"] == "no setting has changed"


def test_a_reload_turns_keys_on_and_off(serve, tmp_path):
    server = serve({"admin": {"listen": "127.0.0.1:0"}})
    file, configuration = tmp_path / "admin-keys", server.folder / "token-cache.yaml"
    settings = json.loads(configuration.read_text())

    def reload(**admin):
        configuration.write_text(json.dumps({**settings, "admin": {**settings["admin"], **admin}}))
        response = exchange(server.data / "control.sock", lines("POST /reload HTTP/1.1", HOST))
        return response.status, json.loads(response.body)["outcome"]

    def status(path, *fields):
        return exchange(server.administration[0], lines(f"GET {path} HTTP/1.1", HOST, *fields)).status

    refused, outcome = reload(read="key")
    assert refused == 500 and "admin.read is key, and admin.keys_file is not set" in outcome
    refused, outcome = reload(keys_file=str(file))
    assert refused == 500 and f"the file {file} of admin.keys_file does not exist" in outcome
    key = make_admin_key(file, "anna", "read")
    assert reload(read="key", keys_file=str(file))[0] == 200
    assert (status("/status"), status("/status", bearer(key))) == (401, 200)
    assert reload()[0] == 200
    assert (status("/status"), status("/key", bearer(key))) == (200, 401)


# Guesses

def refusals(operators):
    _, text = status_and_body(operators.address, "GET", "/metrics", bearer(operators.keys["read"]))
    return {reason: int(count) for reason, count in
            re.findall(r'^token_cache_admin_refusals_total\{reason="(\w+)"\} (\d+)$', text, re.M)}


def test_whoever_guesses_is_limited_and_counted_and_good_keys_count_all_the_same(guarded):
    answers = [guarded.ask("GET", "/status", bearer(UNKNOWN)) for _ in range(40)]
    limited = [answer for answer in answers if answer.status == 429]
    assert [answer.status for answer in answers[:30]] == [401] * 30
    # One more wrong key is allowed every two seconds.
    assert limited and {answer.status for answer in answers} == {401, 429}
    assert all(1 <= int(answer.headers["retry-after"]) <= 2 for answer in limited)
    assert guarded.with_key("read", "GET", "/status").status == 200
    # Who shows no key guesses nothing, and a probe goes on.
    assert guarded.ask("GET", "/status").status == 401
    assert guarded.ask("GET", "/healthz", bearer(UNKNOWN)).status == 200
    guarded.with_key("read", "POST", "/reload")
    counts = refusals(guarded)
    assert counts["unknown"] + counts["limited"] == 41 and counts["limited"] >= len(limited)
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


# Starts

def test_a_start_says_what_is_missing(tmp_path):
    environment = {"TOKEN_CACHE_LISTEN": "127.0.0.1:0", "TOKEN_CACHE_ADMIN_LISTEN": "127.0.0.1:0",
                   "TOKEN_CACHE_DATA_DIRECTORY": str(tmp_path / "data"), "TOKEN_CACHE_ADMIN_READ": "key"}
    for command in ("check-config", "serve"):
        done = run(command, environment=environment)
        assert done.returncode == 1 and "admin.read is key, and admin.keys_file is not set" in done.stderr, done
        assert "token-cache admin keys add NAME --scope read" in done.stderr
    file = tmp_path / "admin-keys"
    environment["TOKEN_CACHE_ADMIN_KEYS_FILE"] = str(file)
    done = run("serve", environment=environment)
    assert done.returncode == 1 and f"the file {file} of admin.keys_file does not exist" in done.stderr
    make_admin_key(file, "anna", "read")
    file.chmod(0o620)
    done = run("serve", environment=environment)
    assert done.returncode == 1 and "the admin keys in" in done.stderr and "can be changed by other users" in done.stderr


def test_the_warning_about_other_machines_knows_of_keys(serve, tmp_path):
    file = tmp_path / "admin-keys"
    make_admin_key(file, "anna", "read")
    for admin, fragment in (({}, "set admin.read to key"),
                            ({"keys_file": str(file), "read": "key"}, "in plain HTTP")):
        server = serve({"admin": {"listen": "0.0.0.0:0", **admin}})
        assert fragment in server.log() and "admin.listen" in server.log()


# Commands

def test_keys_are_made_listed_and_removed_by_name(tmp_path):
    file = tmp_path / "admin-keys"
    assert admin_keys(file).stdout == f"there are no admin keys in {file}\n"
    done = admin_keys(file, "add", "anna", "--scope", "steer")
    assert done.returncode == 0 and SECRET.fullmatch(done.stdout.removesuffix("\n")), done
    secret = done.stdout.strip()
    assert secret not in done.stderr and "not shown again" in done.stderr
    assert secret[4:] not in file.read_text() and file.stat().st_mode & 0o777 == 0o600
    assert admin_keys(file, "add", "prometheus", "--scope", "read", "--expires", "90d").returncode == 0
    listed = {key["name"]: key["scopes"] for key in json.loads(admin_keys(file, "list", "--json").stdout)["keys"]}
    assert listed == {"anna": ["steer"], "prometheus": ["read"]}
    again = admin_keys(file, "add", "anna", "--scope", "read")
    assert (again.returncode, again.stdout) == (1, "") and "there is a key anna already" in again.stderr
    assert admin_keys(file, "remove", "anna").returncode == 0
    assert "there is no admin key anna" in admin_keys(file, "remove", "anna").stderr
    wrong = admin_keys(file, "add", "a", "--scope", "sessions")
    assert wrong.returncode != 0 and "'read' and 'steer'" in wrong.stderr
    unset = run("admin", "keys")
    assert unset.returncode == 1 and "admin.keys_file is not set" in unset.stderr
    # There the service's user may read what root has made, which gets the owner of its folder.
    assert "/var/lib/token-cache/admin-keys" in unset.stderr


def test_a_key_of_one_kind_is_none_of_the_other(operators, tmp_path):
    api_key = make_key(tmp_path / "api-keys", "backend")
    assert status_of(operators, api_key) == 401
    mixed = tmp_path / "mixed"
    shutil.copy(tmp_path / "api-keys", mixed)
    done = admin_keys(mixed, "list")
    assert done.returncode == 1 and "unknown scope or none; allowed are read, steer" in done.stderr


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


# Prometheus

@pytest.mark.skipif(not shutil.which("prometheus"), reason="there is no prometheus")
def test_prometheus_scrapes_with_a_key_as_its_example_shows(guarded, tmp_path):
    example = (Path(__file__).parents[2] / "deploy" / "prometheus" / "prometheus.yaml").read_text()
    key = tmp_path / "token-cache.key"
    key.write_text(guarded.keys["read"] + "\n")
    host, port = guarded.address
    text = re.sub(r"^    # (authorization:|  credentials_file:)", r"    \1", example, flags=re.M)
    text = text.replace("/etc/prometheus/token-cache.key", str(key)).replace('"127.0.0.1:9090"', f'"{host}:{port}"')
    text = text.replace("scrape_interval: 15s", "scrape_interval: 1s").replace("  - alerts.yaml", "  []")
    assert "authorization:\n      credentials_file:" in text
    (tmp_path / "prometheus.yaml").write_text(text.replace("rule_files:\n  []", "rule_files: []"))
    own, = free_ports(1)
    with open(tmp_path / "prometheus.log", "w", encoding="utf-8") as log:
        process = subprocess.Popen(
            ["prometheus", f"--config.file={tmp_path}/prometheus.yaml", f"--storage.tsdb.path={tmp_path}/data",
             f"--web.listen-address=127.0.0.1:{own}"], stdout=log, stderr=log)
    try:
        def is_up():
            try:
                with urllib.request.urlopen(f"http://127.0.0.1:{own}/api/v1/query?query=token_cache_ready", timeout=5) as answer:
                    result = json.load(answer)["data"]["result"]
            except OSError:
                return False
            return [sample["value"][1] for sample in result] == ["1"]

        until(is_up)
    finally:
        process.terminate()
        process.wait(timeout=30)
