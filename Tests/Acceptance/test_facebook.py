"""What Facebook says of people who have left the app, and what becomes of their tokens."""
import base64
import hashlib
import hmac
import json
import threading
import time
from urllib.parse import urlsplit

import pytest

from access import API, APP_SECRET, bearer, fetch, session_settings, write_app_secret
from administration import ADMINISTRATION
from contract import NOT_FOUND, STORED, check_http_error, found
from http_client import FORM, exchange, form, get, lines, post, post_of
from postgres_store import PostgresStore
from server_process import run, until
from store_files import audit_events, make_audit_keys, verify_audit
from test_refresh import store as store_encoded
from token_provider import StandIn, dictionary

DEAUTHORIZE, DELETION = "/facebook/deauthorize", "/facebook/data-deletion"
# The user of the token infos and messages, and somebody else.
USER, OTHER = "10224408712345678", "222"


def encoded(data):
    return base64.urlsafe_b64encode(data).rstrip(b"=").decode()


def signed_request(user=USER, secret=APP_SECRET, **members):
    """A message as Facebook makes it; members that are None are left out."""
    payload = {"algorithm": "HMAC-SHA256", "issued_at": int(time.time()), "user_id": user, **members}
    text = encoded(json.dumps({name: value for name, value in payload.items() if value is not None}).encode())
    return encoded(hmac.new(secret.encode(), text.encode(), hashlib.sha256).digest()) + "." + text


def tell(server, message, path=DEAUTHORIZE):
    return exchange(server.address, post_of(f"signed_request={message}".encode(), FORM, path=path))


def token_info(user=USER):
    """A token info with the keys of Facebook's SDK."""
    return json.dumps({"com.facebook.sdk:TokenInformationTokenKey": "EAAB", "com.facebook.sdk:TokenInformationUserFBIDKey": user})


def store(server, unique_id, info):
    assert exchange(server.address, post(unique_id, info)).body == STORED


def read(server, unique_id):
    return exchange(server.address, get(unique_id)).body


def walk(server):
    """Walks over the whole store."""
    done = run("verify", "--data-directory", str(server.data))
    assert done.returncode == 0, done


@pytest.fixture(name="settings")
def facebook_settings(tmp_path):
    return {**write_app_secret(tmp_path / "app-secret"), **ADMINISTRATION}


def test_who_leaves_the_app_has_no_token_any_more(serve, settings, tmp_path):
    log, data = tmp_path / "audit.ndjson", tmp_path / "data"
    make_audit_keys(tmp_path / "first.key", data)
    server = serve({**settings, "audit": {"file": str(log)}}, data=data)
    for unique_id, info in {"phone": token_info(), "tablet": token_info(int(USER)), "other": token_info(OTHER), "text": "no JSON"}.items():
        store(server, unique_id, info)
    message = signed_request()
    assert tell(server, message).body == STORED
    noted = time.time()
    for gone in ("phone", "tablet"):
        until(lambda gone=gone: read(server, gone) == NOT_FOUND, 60)
    # The person logs in again, in another second. The message that is sent once more says nothing new.
    until(lambda: time.time() > noted + 1)
    store(server, "phone", token_info())
    assert tell(server, message).body == STORED
    walk(server)
    assert read(server, "phone") == found(token_info()) and read(server, "other") == found(token_info(OTHER))
    assert read(server, "text") == found("no JSON")
    # A later message does.
    assert tell(server, signed_request()).body == STORED
    until(lambda: walk(server) or read(server, "phone") == NOT_FOUND, 60)
    assert server.stop() == 0
    removals = [event for event in audit_events(log) if event["actor"] == "facebook"]
    assert [(event["action"], event["outcome"], "user_hash" in event) for event in removals] == 3 * [("remove_token", "ok", True)]
    verify_audit(log, key=tmp_path / "first.key")
    assert USER not in server.log() + log.read_text()


def test_a_token_that_is_exchanged_while_its_user_leaves_is_removed_too(refresh_binary, serve, settings, tmp_path):
    arrived, has_left = threading.Event(), threading.Event()
    with StandIn() as provider:
        provider.answer = lambda request: (arrived.set(), has_left.wait(20), request.usual(request))
        server = serve({**settings, **provider.settings(tmp_path, provider="facebook")}, program=refresh_binary)
        day, now = 86_400, time.time()
        due = dictionary("EAAold", now + 5 * day, now - 55 * day, **{"com.facebook.sdk:TokenInformationUserFBIDKey": USER})
        store_encoded(server, "phone", due)
        assert "EAAold" in read(server, "phone").decode()
        assert arrived.wait(20)
        begun = int(time.time())
        until(lambda: int(time.time()) > begun)
        assert tell(server, signed_request()).body == STORED
        has_left.set()
        until(lambda: walk(server) or read(server, "phone") == NOT_FOUND, 60)


def test_a_departure_survives_a_kill(serve, settings, tmp_path):
    server = serve(settings, data=tmp_path / "data")
    store(server, "phone", token_info())
    assert tell(server, signed_request()).body == STORED
    server.kill()
    server = serve(settings, data=tmp_path / "data")
    until(lambda: walk(server) or read(server, "phone") == NOT_FOUND, 60)


def test_whoever_wants_the_data_deleted_is_erased_and_may_ask_for_it(serve, settings, tmp_path):
    access, key = session_settings(tmp_path / "keys")
    server = serve({**settings, **access})
    api = API(server, key)
    session = api.session("anna")
    assert api.put("anna", token_info()).body == STORED
    response = tell(server, signed_request(), DELETION)
    answer = json.loads(response.body)
    assert answer.keys() == {"url", "confirmation_code"} and answer["confirmation_code"].isalnum()
    url = urlsplit(answer["url"])
    assert (url.scheme, url.netloc, url.path) == ("https", "localhost", DELETION)
    # Facebook may send a message again, if it got no answer in time.
    message = signed_request(issued_at=int(time.time()) - 60)
    assert json.loads(tell(server, message, DELETION).body) == answer

    def state():
        return json.loads(exchange(server.address, lines(f"GET {url.path}?{url.query} HTTP/1.1", "Host: localhost")).body)["deletion"]

    until(lambda: exchange(server.address, fetch(bearer(session))).status == 401, 60)
    until(lambda: state() == "complete", 60)
    assert api.get("anna").body == NOT_FOUND and api.sessions("anna") == []
    for code in ("", "00", "0" * 48, answer["confirmation_code"][:-1] + "x", answer["confirmation_code"][::-1]):
        check_http_error(exchange(server.address, lines(f"GET {DELETION}?code={code} HTTP/1.1", "Host: localhost")), 404)


REFUSED = {
    "another secret": lambda: (signed_request(secret=APP_SECRET[::-1]), "its signature does not match the app secret"),
    "altered": lambda: (signed_request().split(".")[0] + "." + signed_request(OTHER).split(".")[1], "its signature does not match"),
    "unsigned": lambda: ("." + signed_request().split(".")[1], "its signature does not match"),
    "without a dot": lambda: (signed_request().replace(".", ""), "it is not one of Facebook's"),
    "empty": lambda: ("", "it is not one of Facebook's"),
    "long": lambda: (signed_request(padding="x" * 4_000), "it is not one of Facebook's"),
    "another algorithm": lambda: (signed_request(algorithm="none"), "another algorithm than HMAC-SHA256"),
    "no algorithm": lambda: (signed_request(algorithm=None), "another algorithm than HMAC-SHA256"),
    "old": lambda: (signed_request(issued_at=int(time.time()) - 90_000), "more than a day before or after"),
    "future": lambda: (signed_request(issued_at=int(time.time()) + 90_000), "more than a day before or after"),
    "without a time": lambda: (signed_request(issued_at=None), "it is not one of Facebook's"),
    "nobody": lambda: (signed_request(user=None), "it is not one of Facebook's"),
    "not a user": lambda: (signed_request(user="1 2"), "it is not one of Facebook's"),
}


def test_rounds_of_others_do_not_count(serve, settings, tmp_path):
    server = serve(settings, data=tmp_path / "data")
    store(server, "phone", token_info())
    assert tell(server, signed_request(), DELETION).status == 200
    server.kill()

    def passes_over():
        done = run("stats", "--json", "--data-directory", str(server.data))
        return json.loads(done.stdout)["walk"]["last"].get("has_passed_over", False)

    # A command does not look for those who have left.
    walk(server)
    assert passes_over()
    server = serve(settings, data=tmp_path / "data")
    until(lambda: read(server, "phone") == NOT_FOUND, 60)
    walk(server)
    assert not passes_over()


@pytest.mark.parametrize("path", [DEAUTHORIZE, DELETION])
def test_what_facebook_has_not_said_is_refused(serve, settings, path):
    server = serve(settings)
    store(server, "phone", token_info())
    for name, make in REFUSED.items():
        message, reason = make()
        assert reason in check_http_error(tell(server, message, path), 400), name
    walk(server)
    assert read(server, "phone") == found(token_info())
    assert "a message of Facebook's is refused" in server.log() and USER not in server.log()
    refused = exchange(server.address, lines(f"PUT {path} HTTP/1.1", "Host: localhost", "Content-Length: 0"))
    assert "other methods" in check_http_error(refused, 405) and "POST" in refused.headers["allow"]


def test_without_the_secret_there_are_no_such_paths(serve):
    server = serve()
    for path in (DEAUTHORIZE, DELETION):
        check_http_error(tell(server, signed_request(), path), 404)


def test_the_secret_is_private_and_may_change(serve, settings, tmp_path):
    file = tmp_path / "app-secret"
    environment = {"TOKEN_CACHE_FACEBOOK_APP_SECRET_FILE": str(file)}

    def refusal():
        done = run("serve", "--data-directory", str(tmp_path / "new"), environment=environment)
        assert done.returncode == 1 and APP_SECRET not in done.stderr
        return done.stderr

    file.chmod(0o644)
    assert "can be read by all users of this machine; run chmod o-rwx on it" in refusal()
    file.chmod(0o600)
    file.write_text("secret")
    assert "has 32 hexadecimal digits" in refusal()
    file.unlink()
    assert "cannot be read" in refusal()
    file.write_text(APP_SECRET)
    file.chmod(0o600)
    server = serve(settings)
    file.write_text(APP_SECRET[::-1])
    until(lambda: tell(server, signed_request(secret=APP_SECRET[::-1])).body == STORED, 30)
    check_http_error(tell(server, signed_request()), 400)


def test_the_list_is_nobodys_token(serve, settings, tmp_path):
    server = serve(settings)
    store(server, "phone", token_info(OTHER))
    assert tell(server, signed_request()).body == STORED
    exported = run("export", str(tmp_path / "files"), "--data-directory", str(server.data))
    assert (exported.returncode, exported.stdout) == (0, "1 token written\n") and (tmp_path / "files" / "phone.txt").exists()
    body = form("%00departures", "x")
    assert b"30001" in exchange(server.address, post_of(body, FORM)).body
    for tokens in ("tokens.db", "tokens.db-wal"):
        assert USER.encode() not in (server.data / tokens).read_bytes()


def test_servers_of_one_database_carry_it_out_together(postgres_binary, postgres, settings, tmp_path):
    with PostgresStore(postgres_binary, tmp_path / "store", postgres) as database:
        first, second = (database.serve(name, settings) for name in ("first", "second"))
        for unique_id in ("phone", "tablet"):
            store(first, unique_id, token_info())
        store(second, "other", token_info(OTHER))
        assert tell(second, signed_request()).body == STORED
        for gone in ("phone", "tablet"):
            until(lambda gone=gone: read(first, gone) == NOT_FOUND, 120)
        assert read(first, "other") == found(token_info(OTHER))
        messages = [signed_request(str(user)) for user in range(30)]
        servers = [first, second]
        for number, message in enumerate(messages):
            assert tell(servers[number % 2], message).body == STORED
