"""The status page, in a real browser, and the status and the history that it shows."""
import contextlib
import http.client
import json
import os
import re

import pytest

from access import API, bearer, fetch, session_settings, unknown_session
from administration import ADMINISTRATION, status
from browser import PROGRAM, Browser
from contract import STORED, fresh_id
from http_client import Connection, Response, exchange, get, lines, post
from ports import free_ports
from server_process import UNSEALED, until
from store_files import failing_writes

CANARY = "canary4711"


def ask(server, path, method="GET"):
    """An answer of the administration, of any type."""
    connection = http.client.HTTPConnection(*server.administration[0], timeout=20)
    try:
        connection.request(method, path)
        response = connection.getresponse()
        headers = {name.lower(): value for name, value in response.getheaders()}
        return Response(response.status, headers, response.read())
    finally:
        connection.close()


def warnings(server):
    return [warning["text"] for warning in status(server)["warnings"]]


@pytest.fixture(name="server")
def watched_server(serve):
    return serve(ADMINISTRATION)


# The status

def test_the_status_counts_what_happened(server):
    for request in (post("a", "b"), get("a"), get("a"), get("nobody"), get("a", path="/nowhere"), post("a", "c")):
        exchange(server.address, request)
    # Times are recorded after the answer is sent.
    until(lambda: [sum(status(server)["latency"][name]["counts"]) for name in ("get", "post")] == [4, 2])
    now = status(server)
    assert now["requests"] == {
        "get": 4, "post": 2, "other": 0, "errors": 1, "not_found": 1,
        "by_listener": [{"name": f"http://127.0.0.1:{server.address[1]}", "requests": 6}],
        "by_code": [{"status": 404, "code": 40400, "count": 1}]}
    assert sum(loop["requests"] for loop in now["loops"]) == 6 and now["host"] == os.uname().nodename
    assert (now["store"]["tokens"], now["store"]["writes"]) == (1, 2)
    assert now["cache"]["hits"] == 1 and now["connections"]["accepted"] == 6
    assert (now["ready"], now["reasons"], now.get("certificate")) == (True, [], None)
    assert now["access"] == {
        "mode": "open", "failures": {}, "cached_sessions": 0}
    assert now["store"]["sessions"] == 0
    assert sum(now["latency"]["commit"]["counts"]) == 2 <= sum(now["latency"]["sync"]["counts"])
    for distribution in now["latency"].values():
        assert len(distribution["counts"]) == len(distribution["bounds"]) + 1
        assert distribution["bounds"] == sorted(distribution["bounds"])
    assert now["started_at"] <= now["time"] and now["process"]["resident_bytes"] > 1 << 20


def test_the_status_tells_who_is_served_and_who_is_not(serve, tmp_path):
    settings, key = session_settings(tmp_path)
    settings["access"]["failures"] = "2/min"
    server = serve({**ADMINISTRATION, **settings})
    session = API(server, key).session("anna")
    assert exchange(server.address, fetch(bearer(session))).status == 200
    exchange(server.address, fetch())
    refused = [exchange(server.address, fetch(bearer(unknown_session()))).status for _ in range(4)]
    now = status(server)
    assert refused.count(429) >= 1 and refused.count(401) >= 1
    assert now["access"] == {
        "mode": "session", "failures": {"unknown": refused.count(401), "limited": refused.count(429), "missing": 1},
        "cached_sessions": 1}
    assert now["store"]["sessions"] == 1


def test_what_is_risky_is_warned_of(serve):
    server = serve({**ADMINISTRATION, **UNSEALED, "listen": "0.0.0.0:0", "https": {"mode": "off"}})
    assert [text.split(" ")[0] for text in warnings(server)] == [
        "access.mode", f"http://0.0.0.0:{server.address[1]}", "https.mode", "sealing.enabled"]


# The headers of the page

def test_the_page_may_load_nothing_but_itself(server):
    pages = [ask(server, "/") for _ in range(2)]
    nonces = []
    for page in pages:
        assert (page.status, page.headers["content-type"]) == (200, "text/html; charset=utf-8")
        policy = dict(part.split(" ", 1) for part in page.headers["content-security-policy"].split("; "))
        nonce = re.fullmatch(r"'nonce-([0-9a-f]{32})'", policy.pop("script-src"))[1]
        assert policy == {
            "default-src": "'none'", "style-src": f"'nonce-{nonce}'", "connect-src": "'self'", "img-src": "data:",
            "base-uri": "'none'", "form-action": "'none'", "frame-ancestors": "'none'"}
        assert page.headers["x-content-type-options"] == "nosniff" and page.headers["cache-control"] == "no-store"
        assert page.headers["referrer-policy"] == "no-referrer"
        assert page.headers["cross-origin-resource-policy"] == "same-origin"
        nonces.append(nonce)
        text = page.body.decode()
        assert re.findall(r'nonce="([^"]*)"', text) == [nonce, nonce]
        assert not re.findall(r'(?:src|href|url\()=?"?(?:https?:|//)', text) and "{" + "style}" not in text
        assert " style=" not in text and not re.search(r"\son[a-z]+=\"", text)
    assert nonces[0] != nonces[1]
    assert ask(server, "/", "HEAD").headers["content-length"] == str(len(pages[0].body))


def test_the_page_and_the_status_show_nothing_of_clients(server):
    exchange(server.address, post(CANARY, CANARY))
    exchange(server.address, get(CANARY, f"X-{CANARY}: {CANARY}"))
    exchange(server.address, get(CANARY, path=f"/{CANARY}"))
    exchange(server.address, lines(f"{CANARY.upper()} /token HTTP/1.1", "Host: localhost"))
    shown = b"".join(ask(server, path).body for path in ("/", "/status", "/history", "/log", "/settings"))
    assert CANARY.encode() not in shown.lower()
    for secret in server.data.joinpath("keys").read_text().split():
        assert len(secret) < 20 or secret.encode() not in shown


# In a browser

@contextlib.contextmanager
def opened(server, folder, width, height, scheme):
    """The page of a server in a browser, when it has shown its first figures."""
    if not PROGRAM:
        pytest.skip("there is no chromium")
    host, port = server.administration[0]
    with Browser(folder) as browser:
        browser.size(width, height, prefers_color_scheme=scheme)
        browser.open(f"http://{host}:{port}/")
        until(lambda: state(browser) == "ready")
        yield browser


@pytest.fixture(name="page")
def page_in_a_browser(server, tmp_path):
    with opened(server, tmp_path / "browser", 360, 760, "dark") as browser:
        yield browser


def state(page):
    return page.evaluate("document.getElementById('state')?.dataset.state")


def figure(page, name):
    """The number that the page shows; None as long as it shows nothing."""
    text = page.evaluate(f"document.querySelector('[data-figure={name}]').textContent")
    found = re.match(r"[0-9,.]+", text)
    return float(found[0].replace(",", "")) if found else None


def test_figures_move_under_load(server, page):
    until(lambda: figure(page, "get") == 0 and figure(page, "tokens") == 0)
    ids = [fresh_id() for _ in range(20)]
    with Connection(server.address) as connection:
        def load():
            for unique_id in ids:
                assert connection.exchange(post(unique_id, "a")).body == STORED
                for _ in range(3):
                    connection.exchange(get(unique_id))
            connection.exchange(get("a", path="/nowhere"))
            connection.exchange(get("somebody-guesses"))
            names = ("get", "post", "errors", "hit_ratio", "not_found_ratio", "get_p99", "post_p99", "commit_p99", "sync_p99", "processor")
            return all((figure(page, name) or 0) > 0 for name in names)

        until(load)
        until(lambda: figure(page, "tokens") == 20 and figure(page, "connections") == 1)
    until(lambda: figure(page, "get") == 0 and figure(page, "connections") == 0)
    # Every chart of a store on this machine, and the last minutes of each.
    lines = "charts.filter(chart => !chart.section.hidden).map(chart => chart.series[0].line.getAttribute('d'))"
    assert len(page.evaluate(lines)) == 12
    # Lines are drawn less often than numbers.
    until(lambda: all(re.match(r"M[0-9. MLh-]+$", path) for path in page.evaluate(lines)))
    named = page.evaluate("[...document.querySelectorAll('.panel:not([hidden]) .plot')].map(plot => plot.ariaValueText)")
    assert all(re.match("now: .*; most in the last five minutes: ", name) for name in named)
    assert page.problems == []


def test_the_page_tells_when_the_store_fails_and_when_it_is_over(server, page):
    with failing_writes(server):
        until(lambda: state(page) == "unready")
        assert "Not ready: tokens cannot be stored" in page.evaluate("document.getElementById('notes').textContent")
    until(lambda: state(page) == "ready")
    assert "Not ready" not in page.evaluate("document.getElementById('notes').textContent")
    assert page.problems == []


def test_the_page_tells_when_the_server_has_gone_and_when_it_is_back(serve, tmp_path):
    settings = {"admin": {"listen": f"127.0.0.1:{free_ports(1)[0]}"}}
    server = serve(settings)
    with opened(server, tmp_path / "browser", 360, 760, "dark") as page:
        assert server.stop() == 0
        until(lambda: state(page) == "unreachable")
        assert "cannot be reached, last answer at " in page.evaluate("document.getElementById('state').textContent")
        assert page.evaluate("document.title").startswith("! ")
        again = serve(settings)
        until(lambda: state(page) == "ready")
        assert exchange(again.address, post("a", "b")).body == STORED
        until(lambda: figure(page, "tokens") == 1)
        assert not [problem for problem in page.problems if "Failed to load resource" not in problem]


def history(server, query=""):
    """The answer of /history."""
    response = ask(server, f"/history{query}")
    assert (response.status, response.headers["content-type"]) == (200, "application/json")
    return json.loads(response.body)


def test_requests_are_in_the_history_with_their_times(server):
    for request in (post("a", "b"), get("a"), get("a"), get("a", path="/nowhere"), get(CANARY)):
        exchange(server.address, request)
    # Before the first ten seconds are over.
    until(lambda: any(history(server)["figures"]["get_p99"]) and any(history(server)["figures"]["commit_p99"]))
    now = history(server)
    assert (now["step"], now["rows"]) == (10, 360)
    assert all(len(values) == len(now["positions"]) for values in now["figures"].values())
    assert now["positions"] == sorted(set(now["positions"])) and now["positions"][-1] <= now["now"]["position"]
    assert sum(now["figures"]["post"]) > 0 and sum(now["figures"]["errors"]) > 0 and sum(now["figures"]["failures"]) == 0
    assert now["figures"]["tokens"][-1] == 1 and now["figures"]["memory"][-1] > 1 << 20
    assert not {"waiting", "read_p99"} & set(now["figures"])
    assert CANARY not in json.dumps(now)
    (event,) = now["events"]
    assert event["kind"] == "start" and event["position"] <= now["positions"][0]
