"""Tokens are refreshed at their provider when they are read, one exchange at a time, and no refresh token is sent twice."""
import errno
import hashlib
import http.server
import json
import random
import signal
import ssl
import threading
import time
import urllib.parse
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from access import API, INVALID_TOKEN, bearer, fetch, session_settings
from access import store as store_for
from administration import ADMINISTRATION, ask, metrics
from certificates import make_certificate
from contract import STORED, fresh_id
from failing_calls import FailingCalls
from http_client import Connection, ProtocolError, exchange, get, post_of
from postgres_store import PostgresStore
from server_process import run, until
from storage_shim import ALWAYS, compile_library
from store_files import make_audit_keys, printed, verify_audit
from test_durability import fill
from test_metrics import REFRESH, check_uses
from token_provider import CLIENT, SECRET, StandIn, dictionary

LEASE = "TokenCacheClient:RefreshLease"


@pytest.fixture
def provider():
    with StandIn() as stand_in:
        yield stand_in


@pytest.fixture
def refresh(refresh_binary, serve, provider, tmp_path):
    """A function that starts servers that refresh: `refresh(provider="facebook", wait="1s")`, with further options of `Server`."""
    def start(more=None, options=None, **settings):
        of_provider = provider.settings(tmp_path, **{"wait": "5s", **settings})
        return serve({**ADMINISTRATION, **of_provider, **(more or {})}, program=refresh_binary, **(options or {}))
    return start


@pytest.fixture(scope="session")
def silent_names_library(tmp_path_factory):
    """The library in shim/silent_names.c."""
    return compile_library(tmp_path_factory.mktemp("names"), Path(__file__).parent / "shim" / "silent_names.c")


def store(server, unique_id, token_info):
    body = urllib.parse.urlencode({"unique_id": unique_id, "token_info": token_info}).encode()
    assert exchange(server.address, post_of(body, "Content-Type: application/x-www-form-urlencoded")).body == STORED


def read(server, unique_id):
    """The token info as text, and the advice."""
    response = exchange(server.address, get(unique_id))
    return json.loads(response.body).get("token_info"), response.headers.get("token-refresh")


def without_lease(token_info):
    """A token info whose last member is a lease, as it was before."""
    start = token_info.find(f',"{LEASE}"')
    return token_info if start < 0 else token_info[:start] + "}"


def refreshes(server, outcome):
    return metrics(server)[f'token_cache_refreshes_total{{outcome="{outcome}"}}']


def failures(server, cause):
    return metrics(server)[f'token_cache_refresh_failures_total{{cause="{cause}"}}']


def logged_in(server, provider, user="anna", **options):
    """Stores the token of a user who has just logged in, under an id that it returns with the token info."""
    unique_id, token_info = fresh_id(), provider.log_in(user, **options)
    store(server, unique_id, token_info)
    return unique_id, token_info


def test_an_expired_token_is_waited_for(refresh, provider):
    server = refresh()
    unique_id = fresh_id()
    store(server, unique_id, '{ "x":[1, "\\u00e9"], "access_token" : "old", "expires_in":0,"refresh_token":"%s" }' % provider._give("anna"))
    token_info, advice = read(server, unique_id)
    assert advice is None
    token = provider.valid["anna"]
    access = json.loads(token_info)["access_token"]
    assert token_info == (
        f'{{ "x":[1, "\\u00e9"], "access_token" : "{access}", "expires_in":3600,"refresh_token":"{token}" }}')
    [(path, fields, authorization)] = provider.requests
    assert path == "/token" and fields == {"grant_type": "refresh_token", "refresh_token": "refresh-anna-1"}
    assert authorization.startswith("Basic ")
    # It is fresh now: nobody is asked.
    for _ in range(3):
        assert read(server, unique_id) == (token_info, None)
    assert len(provider.requests) == 1 and refreshes(server, "refreshed") == 1
    assert ask(server.administration[0], "GET", "/status")[1]["refresh"] == {"fault": "", "refreshed": 1, "refused": 0, "lost": 0}


def test_a_token_that_is_due_is_answered_and_refreshed_behind(refresh, provider):
    server = refresh()
    arrived, answered = threading.Event(), threading.Event()

    def later(request):
        arrived.set()
        answered.wait(20)
        request.usual(request)

    provider.answer = later
    unique_id = fresh_id()
    due = {**json.loads(provider.log_in("anna")), "expires_in": 10_000, "expires_at": int(time.time()) + 900}
    store(server, unique_id, json.dumps(due))
    assert read(server, unique_id) == (json.dumps(due), None)
    assert arrived.wait(20)
    token_info, advice = read(server, unique_id)
    assert (without_lease(token_info), advice) == (json.dumps(due), None)
    answered.set()
    until(lambda: json.loads(read(server, unique_id)[0])["refresh_token"] != due["refresh_token"])
    refreshed = json.loads(read(server, unique_id)[0])
    assert refreshed["refresh_token"] == provider.valid["anna"]
    assert abs(refreshed["expires_at"] - time.time() - 3600) < 60 and refreshed["expires_in"] == 3600
    assert len(provider.requests) == 1


@pytest.mark.parametrize("token_info", [
    '{"access_token":"a","expires_in":3600,"refresh_token":"r"}', '{"access_token":"a","refresh_token":"r"}',
    '{"access_token":"a","expires_in":0}', '{"access_token":"a","expires_in":0,"refresh_token":"r"', "text", "{}",
    json.dumps({"access_token": "a", "expires_in": 0, "refresh_token": "r", "filling": "x" * 20_000}),
])
def test_other_tokens_are_answered_as_ever(refresh, provider, token_info):
    server = refresh()
    unique_id = fresh_id()
    store(server, unique_id, token_info)
    for _ in range(2):
        assert read(server, unique_id) == (token_info, None)
    assert not provider.requests


def test_facebooks_tokens_are_exchanged_before_they_expire(refresh, provider):
    server = refresh(provider="facebook")
    day, now = 86_400, time.time()
    fresh, due, young, of_another = (fresh_id() for _ in range(4))
    for unique_id, days_left, days_old, more in ((fresh, 50, 10, {}), (due, 5, 55, {}), (young, 0.01, 0.9, {}), (
            of_another, 5, 55, {"com.facebook.sdk:TokenInformationAppIDKey": "another"})):
        store(server, unique_id, dictionary("EAAold", now + days_left * day, now - days_old * day, **more))
        assert json.loads(read(server, unique_id)[0])["com.facebook.sdk:TokenInformationTokenKey"] == "EAAold"
    until(lambda: "EAA1" in read(server, due)[0])
    assert [fields for _, fields, _ in provider.requests] == [{
        "grant_type": "fb_exchange_token", "client_id": CLIENT, "client_secret": SECRET, "fb_exchange_token": "EAAold"}]
    dates = [json.loads(read(server, due)[0])[f"com.facebook.sdk:TokenInformation{name}DateKey"] for name in ("Expiration", "Refresh")]
    expires, refreshed = (time.mktime(time.strptime(date, "%Y-%m-%dT%H:%M:%S.000+0000")) - time.timezone for date in dates)
    assert expires - refreshed == 5_183_944 and abs(refreshed - time.time()) < 60
    assert read(server, due)[0] == dictionary("EAA1", expires, refreshed)


def test_facebooks_word_for_a_dead_token_is_believed(refresh, provider):
    server = refresh(provider="facebook")
    provider.answer = lambda request: request.send(400, {"error": {"type": "OAuthException", "code": 190, "error_subcode": 463}})
    unique_id = fresh_id()
    token_info = dictionary("EAAold", time.time() - 10, time.time() - 90_000)
    store(server, unique_id, token_info)
    for _ in range(3):
        found, advice = read(server, unique_id)
        assert (without_lease(found), advice) == (token_info, "login")
    assert len(provider.requests) == 1


def test_a_provider_that_stalls_delays_only_its_token_and_not_for_longer_than_the_time(refresh, provider):
    server = refresh(wait="1s")
    stalled = threading.Event()
    provider.answer = lambda request: (stalled.wait(20), request.usual(request))
    unique_id, token_info = logged_in(server, provider)
    other = fresh_id()
    store(server, other, "another token")
    with ThreadPoolExecutor() as pool:
        begun = time.monotonic()
        waiting = pool.submit(read, server, unique_id)
        until(lambda: provider.requests)
        for _ in range(20):
            assert read(server, other) == ("another token", None)
        assert not waiting.done()
        found, advice = waiting.result()
        assert (without_lease(found), advice) == (token_info, "later")
        assert 0.9 < time.monotonic() - begun < 5
    stalled.set()
    until(lambda: "access-" in read(server, unique_id)[0] and read(server, unique_id)[1] is None)
    assert len(provider.requests) == 1


def test_many_requests_make_one_exchange(refresh, provider):
    server = refresh()
    provider.answer = lambda request: (time.sleep(0.3), request.usual(request))
    unique_id, _ = logged_in(server, provider)
    with ThreadPoolExecutor(100) as pool:
        answers = set(pool.map(lambda _: read(server, unique_id), range(300)))
    assert len(answers) == 1 and len(provider.requests) == 1 and not provider.reused


def test_a_refused_token_is_dead_until_the_next_login(refresh, provider, tmp_path):
    server = refresh(options={"data": tmp_path / "data"})
    unique_id, token_info = logged_in(server, provider)
    provider.valid["anna"] = "another"
    for _ in range(3):
        found, advice = read(server, unique_id)
        assert (without_lease(found), advice) == (token_info, "login")
    assert server.stop() == 0
    server = refresh(options={"data": tmp_path / "data"})
    assert read(server, unique_id)[1] == "login" and len(provider.requests) == 1
    store(server, unique_id, provider.log_in("anna"))
    assert read(server, unique_id)[1] is None and len(provider.requests) == 2


@pytest.mark.parametrize("act", ["login", "removal", "erasure"])
@pytest.mark.parametrize("is_refused", [False, True])
def test_what_is_stored_meanwhile_wins(refresh, provider, act, is_refused):
    server = refresh()
    unique_id, _ = logged_in(server, provider)
    login = '{"access_token":"of the new login","expires_in":3600,"refresh_token":"r"}'

    def meanwhile(request):
        if act == "login":
            store(server, unique_id, login)
        elif act == "removal":
            printed(server.data, "delete", unique_id)
        else:
            printed(server.data, "erase", unique_id)
        if is_refused:
            request.send(400, {"error": "invalid_grant"})
        else:
            request.usual(request)

    provider.answer = meanwhile
    expected = (login, None) if act == "login" else (None, None)
    assert read(server, unique_id) == expected
    if not is_refused:
        until(lambda: refreshes(server, "superseded") == 1)
    assert read(server, unique_id) == expected and refreshes(server, "refused") == 0


def test_the_same_login_that_is_stored_meanwhile_gets_the_new_token(refresh, provider):
    server = refresh()
    unique_id, token_info = logged_in(server, provider)
    provider.answer = lambda request: (
        store(server, unique_id, token_info.replace('"a b"', '"a b", "picture": "of the app"')), request.usual(request))
    refreshed = json.loads(read(server, unique_id)[0])
    assert refreshed["refresh_token"] == provider.valid["anna"] and refreshed["picture"] == "of the app"
    assert refreshes(server, "refreshed") == 1


MISTAKES = {
    "no token endpoint": lambda request: request.send(200, b"<html>Please log in to the network.</html>"),
    "an error as a page": lambda request: request.send(500, b"<html>Sorry.</html>"),
    "400 without a body": lambda request: request.send(400, b""),
    "too many requests": lambda request: request.send(429, {"error": "rate_limited"}, Retry_After="1"),
    "5 MB": lambda request: request.send(200, b"<html>" + b"x" * 5_000_000),
    "a wrong secret": lambda request: request.send(401, {"error": "invalid_client"}),
    "a redirect": lambda request: request.send(307, b"", Location="/elsewhere"),
}


@pytest.mark.parametrize("mistake", MISTAKES)
def test_after_a_failure_that_used_nothing_up_the_token_is_exchanged_later(refresh, provider, mistake):
    server = refresh()
    provider.answer = MISTAKES[mistake]
    unique_id, token_info = logged_in(server, provider)
    assert read(server, unique_id) == (token_info, "later")
    assert len(provider.requests) == 1
    # At once, nobody is asked again.
    assert read(server, unique_id) == (token_info, "later") and len(provider.requests) == 1
    provider.answer = None
    if mistake == "400 without a body":
        # This token is left alone, and others are not.
        other, _ = logged_in(server, provider, "berta")
        assert read(server, other)[1] is None and failures(server, "rejected") == 1
        return
    assert "tokens cannot be refreshed" in server.log()
    until(lambda: read(server, unique_id)[1] is None)
    assert not provider.reused and "tokens are refreshed again" in server.log()


def test_the_time_that_the_provider_asks_for_is_kept(refresh, provider):
    server = refresh()
    provider.answer = lambda request: request.send(429, {}, Retry_After="4")
    unique_id, _ = logged_in(server, provider)
    assert read(server, unique_id)[1] == "later"
    provider.answer, begun = None, time.monotonic()
    until(lambda: read(server, unique_id)[1] is None)
    assert time.monotonic() - begun > 3


def test_a_new_login_is_not_left_alone_because_of_the_former_one(refresh, provider):
    server = refresh()
    unique_id, _ = logged_in(server, provider)
    provider.answer = lambda request: request.send(400, b"")
    assert read(server, unique_id)[1] == "later"
    provider.answer = None
    store(server, unique_id, provider.log_in("anna"))
    assert read(server, unique_id)[1] is None


def test_a_provider_that_rejects_one_login_after_another_is_left_alone(refresh, provider):
    server = refresh()
    provider.answer = lambda request: request.send(400, b"")
    ids = [logged_in(server, provider, name)[0] for name in ("anna", "berta", "carla", "dora")]
    assert [read(server, unique_id)[1] for unique_id in ids] == ["later"] * 4
    assert "rejects them without a reason" in server.log()
    assert ask(server.administration[0], "GET", "/status")[1]["refresh"]["fault"] == "rejected"
    provider.answer = None
    until(lambda: read(server, ids[3])[1] is None)
    assert "tokens are refreshed again" in server.log() and read(server, ids[2])[1] is None


def half(request):
    request.send_response(200)
    request.send_header("Content-Length", "1000")
    request.end_headers()
    request.wfile.write(json.dumps(request.server.exchanged)[:40].encode())
    request.close_connection = True


def only_a_head(request):
    request.send_response(200)
    request.send_header("Content-Length", "90")
    request.end_headers()
    request.close_connection = True


UNKNOWN = {
    "half an answer": half,
    "a head without its body": only_a_head,
    "no answer": lambda request: setattr(request, "close_connection", True),
    "a gateway's error": lambda request: request.send(504, b"<html>"),
    "5 MB of JSON": lambda request: request.send(200, b'{"access_token":"' + b"x" * 5_000_000 + b'"}'),
    "no token": lambda request: request.send(200, {}),
    "nothing for a long time": lambda request: time.sleep(15),
}


@pytest.mark.parametrize("mistake", UNKNOWN)
def test_an_exchange_with_an_unknown_outcome_is_not_repeated(refresh, provider, mistake, tmp_path):
    server = refresh(options={"data": tmp_path / "data"}, wait="15s")

    def used_up(request):
        _, request.server.exchanged = provider.exchange(request.fields["refresh_token"])
        UNKNOWN[mistake](request)

    provider.answer = used_up
    unique_id, token_info = logged_in(server, provider)
    found, advice = read(server, unique_id)
    assert (without_lease(found), advice) == (token_info, "login")
    provider.answer = None
    for _ in range(2):
        time.sleep(1.1)
        assert read(server, unique_id)[1] == "login"
        assert server.stop() == 0
        server = refresh(options={"data": tmp_path / "data"})
    assert len(provider.requests) == 1
    store(server, unique_id, provider.log_in("anna"))
    assert read(server, unique_id)[1] is None


def test_a_provider_may_say_that_it_has_made_something(refresh, provider):
    server = refresh()
    provider.answer = lambda request: request.send(201, provider.exchange(request.fields["refresh_token"])[1])
    unique_id, _ = logged_in(server, provider)
    assert read(server, unique_id)[1] is None and len(provider.requests) == 1


def test_what_a_proxy_has_not_passed_on_was_not_sent(refresh, provider):
    class Proxy(http.server.BaseHTTPRequestHandler):
        def do_CONNECT(self):
            self.send_error(503)

        def log_message(self, *_):
            pass

    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), Proxy) as proxy:
        threading.Thread(target=proxy.serve_forever, kwargs={"poll_interval": 0.05}, daemon=True).start()
        environment = {"https_proxy": f"http://127.0.0.1:{proxy.server_address[1]}"}
        server = refresh(options={"environment": environment}, url="https://login.example.com/token")
        unique_id, token_info = logged_in(server, provider)
        assert read(server, unique_id) == (token_info, "later") and failures(server, "unreachable") == 1
        proxy.shutdown()


def test_where_refresh_tokens_stay_valid_an_exchange_is_repeated(refresh, provider):
    server = refresh()
    provider.rotates = False
    unique_id, _ = logged_in(server, provider)
    # From now on the server knows.
    assert read(server, unique_id)[1] is None
    other, token_info = logged_in(server, provider, "berta")
    provider.answer = UNKNOWN["no answer"]
    assert read(server, other) == (token_info, "later")
    provider.answer = None
    until(lambda: read(server, other)[1] is None)


def test_a_device_that_refreshes_is_not_disturbed(refresh, provider):
    server = refresh(wait="2s")
    plain = provider.log_in("anna")
    lease = hashlib.sha256(b"access-anna").hexdigest() + " device-1"
    leased = json.dumps({**json.loads(plain), LEASE: lease})
    unique_id = fresh_id()
    store(server, unique_id, leased)
    assert read(server, unique_id) == (leased, "later")
    with ThreadPoolExecutor() as pool:
        waiting = pool.submit(read, server, unique_id)
        time.sleep(0.5)
        new = '{"access_token":"of the device","expires_in":3600,"refresh_token":"r"}'
        store(server, unique_id, new)
        assert waiting.result() == (new, None)
    assert not provider.requests


@pytest.mark.parametrize("fails", [False, True])
def test_an_app_that_stores_its_token_at_each_start_causes_no_second_exchange(refresh, provider, fails):
    server = refresh(wait="8s")
    unique_id, token_info = logged_in(server, provider)

    def meanwhile(request):
        store(server, unique_id, token_info)
        assert LEASE in exported(server)
        request.send(429, {"error": "rate_limited"}, Retry_After="1") if fails else request.usual(request)

    provider.answer = meanwhile
    with ThreadPoolExecutor() as pool:
        answers = list(pool.map(lambda _: read(server, unique_id), range(4)))
    assert len(provider.requests) == 1
    if fails:
        # The token was not used up, and the mark goes.
        provider.answer = None
        until(lambda: read(server, unique_id)[1] is None)
    else:
        assert all(advice is None for _, advice in answers)
    assert json.loads(read(server, unique_id)[0])["refresh_token"] == provider.valid["anna"] and not provider.reused


def test_names_that_are_not_resolved_hold_up_no_stop(refresh, provider, silent_names_library, tmp_path):
    options = {"data": tmp_path / "data", "environment": {"LD_PRELOAD": str(silent_names_library)}}
    server = refresh(options=options, url="https://login.example.com/token", wait="0s")
    unique_id, token_info = logged_in(server, provider)
    assert read(server, unique_id)[1] == "later"
    until(lambda: LEASE in read(server, unique_id)[0])
    assert server.stop() == 0
    # Nothing was sent, and no mark is left behind.
    server = refresh(options={"data": tmp_path / "data"})
    assert read(server, unique_id)[1] is None and len(provider.requests) == 1


def test_what_a_reload_says_about_the_audit_log_holds_for_refreshes(refresh, provider, small_disk, tmp_path):
    data, log = tmp_path / "data", small_disk / "audit.ndjson"
    make_audit_keys(tmp_path / "first.key", data)
    server = refresh({"audit": {"file": str(log), "required": "on"}}, options={"data": data}, wait="1s")
    fill(small_disk / "filler")

    def is_failing():
        # Lines fit until the last page of the file is full too.
        read(server, logged_in(server, provider, fresh_id())[0])
        return metrics(server)["token_cache_audit_failing"]

    until(is_failing, pause=0)
    unique_id, _ = logged_in(server, provider)
    assert read(server, unique_id)[1] == "later"
    file = server.folder / "token-cache.yaml"
    file.write_text(file.read_text().replace('"required": "on"', '"required": "off"'))
    server.process.send_signal(signal.SIGHUP)
    until(lambda: read(server, unique_id)[1] is None)


def test_a_session_that_ends_while_its_request_waits_gets_nothing(refresh, provider, tmp_path):
    access, key = session_settings(tmp_path / "access")
    server = refresh(access)
    api = API(server, key)
    first, second = (api.make_session("anna") for _ in range(2))

    def ask(session):
        return exchange(server.address, fetch(bearer(session["session"])))

    login = provider.log_in("anna")
    assert exchange(server.address, store_for(login, bearer(first["session"]))).body == STORED
    arrived, answered = threading.Event(), threading.Event()
    provider.answer = lambda request: (arrived.set(), answered.wait(20), request.usual(request))
    with ThreadPoolExecutor() as pool:
        waiting = [pool.submit(ask, session) for session in (first, second)]
        assert arrived.wait(20)
        api.end(second["id"])
        answered.set()
        response, refused = (request.result() for request in waiting)
    INVALID_TOKEN[0].check(refused)
    token_info = json.loads(response.body)["token_info"]
    assert json.loads(token_info)["refresh_token"] == provider.valid["anna"] and "token-refresh" not in response.headers
    # The answer has the version that is stored now.
    condition = f"If-Match: {response.headers['etag']}"
    assert exchange(server.address, store_for("new", bearer(first["session"]), condition)).body == STORED
    assert len(provider.requests) == 1


def test_a_stop_waits_for_the_answer(refresh, provider, tmp_path):
    server = refresh(options={"data": tmp_path / "data"}, wait="0s")
    arrived = threading.Event()
    provider.answer = lambda request: (arrived.set(), time.sleep(2), request.usual(request))
    unique_id, _ = logged_in(server, provider)
    assert read(server, unique_id)[1] == "later"
    assert arrived.wait(20)
    assert server.stop() == 0
    server = refresh(options={"data": tmp_path / "data"})
    token_info, advice = read(server, unique_id)
    assert json.loads(token_info)["refresh_token"] == provider.valid["anna"] and advice is None
    assert len(provider.requests) == 1


def test_an_answer_that_cannot_be_stored_is_kept_until_it_can(refresh_binary, provider, shim, tmp_path):
    server = shim.serve(
        tmp_path / "server", {**ADMINISTRATION, **provider.settings(tmp_path, wait="0s")}, program=refresh_binary)
    unique_id, token_info = logged_in(server, provider)
    provider.answer = lambda request: (shim.set(write_failures=ALWAYS, error=errno.EIO), request.usual(request))
    assert read(server, unique_id)[1] == "later"
    until(lambda: "tokens cannot be stored" in server.log())
    assert shim.faults() > 0
    shim.heal()
    until(lambda: read(server, unique_id)[1] is None, 60)
    assert json.loads(read(server, unique_id)[0])["refresh_token"] == provider.valid["anna"] and len(provider.requests) == 1
    assert token_info not in read(server, unique_id)[0]


def test_kills_at_every_step_lose_no_login_and_repeat_no_exchange(refresh, provider, tmp_path, is_long):
    """A kill between the provider's answer and the commit loses the answer: then the provider has replaced the token, and the old
    one stays, marked, until the user logs in. Everything else must come out whole."""
    random.seed(57)
    lost, rounds = 0, 200 if is_long else 40
    server = refresh(options={"data": tmp_path / "data"}, wait="0s")
    for number in range(rounds):
        moment = number % 4
        user, process = f"user{number}", server.process

        def answer(request):
            if moment == 0:
                # Before the provider has looked at it.
                process.kill()
                return
            result = provider.exchange(request.fields["refresh_token"])
            if moment == 1:
                process.kill()
            request.send(*result)
            if moment == 2:
                process.kill()
            if moment == 3:
                time.sleep(random.random() / 100)
                process.kill()

        provider.answer = answer
        unique_id, token_info = logged_in(server, provider, user)
        read_quietly(server, unique_id)
        process.wait(20)
        server.was_ended = True
        provider.answer = None
        server = refresh(options={"data": tmp_path / "data"}, wait="0s")
        found, _ = read(server, unique_id)
        if json.loads(found)["refresh_token"] == provider.valid[user]:
            # The new one, or the former one that the provider has never seen.
            continue
        assert without_lease(found) == token_info and LEASE in found
        lost += 1
    assert not provider.reused and len(provider.requests) == rounds
    # With moment 1 always.
    assert rounds // 4 <= lost <= rounds * 3 // 4, lost
    print(f"{lost} of {rounds} answers were lost by kills")


def test_only_a_provider_with_the_right_certificate_is_asked(refresh_binary, serve, tmp_path):
    (tmp_path / "certificate").mkdir()
    certificate, key = make_certificate(tmp_path / "certificate", days=10)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(certificate, key)
    with StandIn(context=context) as provider:
        for environment, advice in (({}, "later"), ({"SSL_CERT_FILE": str(certificate)}, None)):
            server = serve(
                {**ADMINISTRATION, **provider.settings(tmp_path, wait="5s")}, program=refresh_binary, environment=environment)
            unique_id, _ = logged_in(server, provider)
            assert read(server, unique_id)[1] == advice
            assert len(provider.requests) == (advice is None)
        assert "has no valid certificate" in (tmp_path / "server0" / "stderr").read_text()


def test_the_alerts_use_every_metric(refresh):
    check_uses(metrics(refresh()), lambda name: name.startswith(REFRESH), least=2)


def test_events_are_recorded_and_secrets_nowhere(refresh, provider, tmp_path):
    log, data = tmp_path / "audit.log", tmp_path / "data"
    make_audit_keys(tmp_path / "first.key", data)
    server = refresh({"audit": {"file": str(log)}, "log_level": "trace"}, options={"data": data})
    unique_id, _ = logged_in(server, provider, "canary4711")
    refused, _ = logged_in(server, provider, "canary4712")
    provider.valid["canary4712"] = "another"
    assert read(server, unique_id)[1] is None and read(server, refused)[1] == "login"

    def events():
        found = [json.loads(line) for line in log.read_text().splitlines()]
        return [(event["outcome"], event.get("reason"), event["actor"]) for event in found if event["action"] == "refresh_token"]

    until(lambda: len(events()) == 2)
    assert events() == [("ok", None, "server"), ("denied", "invalid_grant", "server")]
    assert server.stop() == 0
    verify_audit(log, key=tmp_path / "first.key")
    texts = server.log() + server.output() + log.read_text()
    for secret in ("canary", SECRET, "refresh-", "access-", unique_id):
        assert secret not in texts


@pytest.mark.parametrize("days", [-1.01, 1.01])
def test_a_clock_that_is_off_by_a_day_loses_no_token(refresh, provider, failing_calls_library, tmp_path, days):
    calls = FailingCalls(failing_calls_library, tmp_path / "clock")
    try:
        server = refresh(options={"environment": calls.environment})
        unique_id, token_info = logged_in(server, provider, expires_in=3600)
        assert read_any(server, unique_id) == token_info
        calls.set_clock(int(days * 86_400))
        for _ in range(3):
            found = json.loads(read_any(server, unique_id))
            assert found["refresh_token"] == provider.valid["anna"]
        assert len(provider.requests) == (days > 0) and not provider.reused
        # And right again: what was obtained by the wrong clock counts by the right one.
        calls.set_clock(0)
        assert json.loads(read_any(server, unique_id))["refresh_token"] == provider.valid["anna"]
    finally:
        calls.close()


def test_new_tokens_are_dated_by_the_clock_that_was_put_right(refresh, provider, failing_calls_library, tmp_path):
    calls = FailingCalls(failing_calls_library, tmp_path / "clock")
    try:
        # The store's clock stays ahead for hours.
        calls.set_clock(3 * 86_400)
        server = refresh(options={"environment": calls.environment})
        calls.set_clock(0)
        fresh = {**json.loads(provider.log_in("anna")), "expires_in": 7200, "expires_at": int(time.time()) + 7200}
        unique_id, due = fresh_id(), {**fresh, "expires_at": int(time.time()) - 1}
        store(server, unique_id, json.dumps(fresh))
        assert read(server, unique_id) == (json.dumps(fresh), None) and not provider.requests
        store(server, unique_id, json.dumps(due))
        refreshed = json.loads(read(server, unique_id)[0])
        assert refreshed["refresh_token"] == provider.valid["anna"]
        assert abs(refreshed["expires_at"] - time.time() - 3600) < 60
    finally:
        calls.close()


def read_any(server, unique_id):
    """The token info, whatever date the answer has."""
    with Connection(server.address) as connection:
        connection.send(get(unique_id))
        return json.loads(connection.receive_any().body)["token_info"]


@pytest.mark.parametrize(("change", "message"), [
    ({"client_id": ""}, "refresh.client_id is not set"), ({"url": ""}, "refresh.url is not set"),
    ({"url": "http://example.com/token"}, "allowed is empty, or a URL with https"),
    ({"url": "https://user@example.com/token"}, "allowed is empty, or a URL with https"),
    ({"client_secret_file": "/nowhere/secret"}, "refresh.client_secret_file (/nowhere/secret) cannot be read"),
    ({"provider": "off", "hide_refresh_tokens": "on"}, "nobody could use the refresh tokens that the server hides"),
    ({"provider": "facebook", "hide_refresh_tokens": "on"}, "nobody could use the refresh tokens that the server hides"),
    ({"provider": "google"}, "allowed is off, or facebook, oauth2, oauth2-post"), ({"wait": "16s"}, "allowed is a time from"),
])
def test_settings_that_cannot_work_are_refused(refresh_binary, provider, tmp_path, change, message):
    settings = provider.settings(tmp_path)
    settings["refresh"].update(change)
    file = tmp_path / "settings.yaml"
    file.write_text(json.dumps({**settings, "listen": "127.0.0.1:0", "data_directory": str(tmp_path / "data")}))
    for command in ("serve", "check-config"):
        done = run(command, "--config", str(file), program=refresh_binary)
        assert done.returncode != 0 and message in done.stderr


def test_a_program_without_this_says_so(provider, tmp_path):
    file = tmp_path / "settings.yaml"
    file.write_text(json.dumps({**provider.settings(tmp_path), "listen": "127.0.0.1:0", "data_directory": str(tmp_path / "data")}))
    done = run("serve", "--config", str(file))
    assert done.returncode != 0 and "was built without TokenRefresh" in done.stderr


# Refresh tokens that stay in the server

HIDDEN = {"hide_refresh_tokens": "on"}


def written_by_the_client_library(token, refresh_token):
    return dictionary(token, time.time() - 10, time.time() - 3_700, **{"TokenCacheClient:RefreshToken": refresh_token})


def exported(server):
    """What an operator copies: the only token that is stored."""
    folder = server.data.parent / fresh_id()
    printed(server.data, "export", str(folder))
    [file] = folder.iterdir()
    return json.loads(file.read_text())


def answered_to_a_device(text):
    """A token info as a device gets it: without what only a server uses."""
    members = json.loads(text)
    members.pop("refresh_token", None)
    members.pop("TokenCacheClient:RefreshToken", None)
    members.pop(LEASE, None)
    return members


@pytest.mark.parametrize("form", ["an answer", "a dictionary"])
def test_a_device_never_sees_a_refresh_token_and_keeps_its_login(refresh, provider, form):
    server = refresh(**HIDDEN)
    name = "access_token" if form == "an answer" else "com.facebook.sdk:TokenInformationTokenKey"
    token_info = provider.log_in("anna")
    if form == "a dictionary":
        token_info = written_by_the_client_library("access-anna", provider.valid["anna"])
    unique_id, was_seen = fresh_id(), []
    store(server, unique_id, token_info)
    for _ in range(3):
        text, advice = read(server, unique_id)
        assert advice is None and "refresh-anna" not in text and LEASE not in text
        shown = json.loads(text)
        assert shown.keys() == answered_to_a_device(token_info).keys()
        was_seen.append(shown[name])
        # It stores what it got, with something of its own, and says that it has expired, so that the next GET refreshes it.
        expired = {"expires_in": 0} if form == "an answer" else answered_to_a_device(written_by_the_client_library(shown[name], ""))
        store(server, unique_id, json.dumps({**shown, **expired, "picture": "of the app"}))
        assert json.loads(read(server, unique_id)[0])["picture"] == "of the app"
        token_info = json.dumps({**json.loads(token_info), "picture": ""})
    assert len(provider.requests) == 4 and len(set(was_seen)) == 3 and not provider.reused
    # With another access token, it is another login, which has no refresh token.
    other = json.dumps({name: "another", "expires_in": 0})
    store(server, unique_id, other)
    assert read(server, unique_id) == (other, None) and len(provider.requests) == 4


@pytest.mark.parametrize("token_info", [
    '{"access_token":"a", "refresh_token":"r" }', '{"refresh_token":"r","access_token":"a"}', '{"refresh_token":"r"}',
    json.dumps({"access_token": "a", "refresh_token": "r", "filling": "x" * 600_000}),
    '{"com.facebook.sdk:TokenInformationTokenKey":"a","TokenCacheClient:RefreshToken":"r","refresh_token":"r"}',
], ids=["at the end", "at the beginning", "alone", "long", "of both names"])
def test_a_refresh_token_of_unknown_lifetime_or_beside_much_else_is_hidden_too(refresh, token_info):
    server = refresh(**HIDDEN)
    unique_id = fresh_id()
    store(server, unique_id, token_info)
    for _ in range(2):
        text, _ = read(server, unique_id)
        assert json.loads(text) == answered_to_a_device(token_info) and '"r"' not in text
    # What the operator copies is whole.
    assert exported(server) == token_info


def test_conditions_and_sessions_hold_where_refresh_tokens_are_hidden(refresh, provider, tmp_path):
    access, key = session_settings(tmp_path / "access")
    server = refresh(access, **HIDDEN)
    session = API(server, key).make_session("anna")

    def put(token_info, *fields):
        return exchange(server.address, store_for(token_info, bearer(session["session"]), *fields))

    assert put(provider.log_in("anna", expires_in=3600)).body == STORED
    shown = exchange(server.address, fetch(bearer(session["session"])))
    token_info, tag = json.loads(shown.body)["token_info"], shown.headers["etag"]
    assert "refresh_token" not in token_info
    assert put(token_info, 'If-Match: "1"').status == put(token_info, "If-None-Match: *").status == 412
    assert put(token_info, f"If-Match: {tag}").body == STORED
    assert put(token_info, f"If-Match: {tag}").status == 412
    assert provider.valid["anna"] in exported(server)
    API(server, key).end(session["id"])
    INVALID_TOKEN[0].check(put(token_info))


def test_devices_that_write_during_an_exchange_lose_no_refresh_token(refresh, provider):
    server = refresh(wait="15s", **HIDDEN)
    unique_id, token_info = logged_in(server, provider)

    def write(number):
        store(server, unique_id, json.dumps({**answered_to_a_device(token_info), "device": number}))

    def meanwhile(request):
        with ThreadPoolExecutor(8) as pool:
            list(pool.map(write, range(30)))
        request.usual(request)

    provider.answer = meanwhile
    text, advice = read(server, unique_id)
    assert advice is None and json.loads(text)["access_token"] != "access-anna" and "device" in json.loads(text)
    assert len(provider.requests) == refreshes(server, "refreshed") == 1
    assert provider.valid["anna"] in exported(server)


def test_a_device_that_gives_its_lease_back_leaves_the_token_to_the_server(refresh, provider, tmp_path):
    access, key = session_settings(tmp_path / "access")
    server = refresh(access, **HIDDEN)
    session = API(server, key).make_session("anna")

    def put(token_info):
        shown = exchange(server.address, fetch(bearer(session["session"])))
        condition = f"If-Match: {shown.headers['etag']}" if "etag" in shown.headers else "If-None-Match: *"
        assert exchange(server.address, store_for(token_info, bearer(session["session"]), condition)).body == STORED

    put(provider.log_in("anna", expires_in=3600))
    bare = '{"access_token":"access-anna","expires_in":3600}'
    lease = hashlib.sha256(b"access-anna").hexdigest() + " device-1"
    put(json.dumps({**json.loads(bare), LEASE: lease}))
    assert lease in exported(server) and provider.valid["anna"] in exported(server)
    put(bare)
    assert LEASE not in exported(server) and provider.valid["anna"] in exported(server)


# Several servers

def test_servers_that_share_a_database_make_one_exchange(refresh_binary, postgres, provider, tmp_path):
    provider.answer = lambda request: (time.sleep(0.3), request.usual(request))
    with PostgresStore(refresh_binary, tmp_path / "store", postgres) as of_all:
        servers = [of_all.serve(f"server{number}", provider.settings(tmp_path, wait="5s")) for number in range(3)]
        unique_id, _ = logged_in(servers[0], provider)
        with ThreadPoolExecutor(60) as pool:
            answers = set(pool.map(lambda number: read(servers[number % 3], unique_id), range(1000)))
        assert len(answers) == 1 and answers.pop()[1] is None
        assert len(provider.requests) == 1
        # One of them is killed while it exchanges another token: the others do not repeat that.
        arrived = threading.Event()
        provider.answer = lambda request: (arrived.set(), time.sleep(20))
        killed, token_info = logged_in(servers[1], provider, "berta")
        with ThreadPoolExecutor() as pool:
            waiting = pool.submit(read_quietly, servers[0], killed)
            assert arrived.wait(20)
            servers[0].process.kill()
            servers[0].was_ended = True
            waiting.result()
        for server in servers[1:]:
            found, advice = read(server, killed)
            assert (without_lease(found), advice) == (token_info, "later")
        assert len(provider.requests) == 2
        provider.answer = None
        store(servers[2], killed, provider.log_in("berta"))
        assert read(servers[1], killed)[1] is None


def read_quietly(server, unique_id):
    """A request to a server that is killed."""
    try:
        return read(server, unique_id)
    except (OSError, ProtocolError):
        return None
