"""The status page, in a real browser, and the status that it shows."""
import contextlib
import json
import os
import re

import pytest

from access import API, bearer, fetch, session_settings, unknown_session
from administration import ADMINISTRATION, fetched, status
from browser import PROGRAM, Browser
from contract import STORED, fresh_id
from http_client import Connection, exchange, get, post
from ports import free_ports
from server_process import until
from store_files import command, failing_writes, printed
from test_reload import rewrite

AXE = "axe-playwright-python==0.1.8"


def warnings(server):
    return [warning["text"] for warning in status(server)["warnings"]]


@pytest.fixture(name="server")
def watched_server(serve):
    return serve(ADMINISTRATION)


# The status

def test_the_status_counts_what_happened(server):
    for request in (post("a", "b"), get("a"), get("a"), get("nobody"), get("a", path="/nowhere"), post("a", "c")):
        exchange(server.address, request)
    now = status(server)
    assert now["listeners"] == [f"http://127.0.0.1:{server.address[1]}"]
    assert now["requests"] == {"by_code": {"40400": 1}}
    assert sum(loop["requests"] for loop in now["loops"]) == 6 and now["host"] == os.uname().nodename
    assert (now["store"]["tokens"], now["store"]["writes"], now["store"]["sessions"]) == (1, 2, 0)
    assert now["connections"]["accepted"] == 6 and now["process"]["id"] == server.process.pid
    assert (now["ready"], now["reasons"], now.get("certificate")) == (True, [], None)


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
    server = serve({**ADMINISTRATION, "listen": "0.0.0.0:0", "https": {"mode": "off"}})
    assert [text.split(" ")[0] for text in warnings(server)] == [
        "access.mode", f"http://0.0.0.0:{server.address[1]}", "https.mode"]


# The headers of the page

def test_the_page_may_load_nothing_but_itself(server):
    pages = [fetched(server.administration[0], "/") for _ in range(2)]
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
    assert fetched(server.administration[0], "/", "HEAD").headers["content-length"] == str(len(pages[0].body))


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
    with opened(server, tmp_path / "browser", 1280, 800, "light") as browser:
        yield browser
        assert browser.problems == []


def state(page):
    return page.evaluate("document.getElementById('state')?.dataset.state")


def figure(page, name):
    """The number that the page shows; None as long as it shows nothing."""
    text = page.evaluate(f"document.querySelector('[data-figure={name}]').textContent")
    found = re.match(r"[0-9,.]+", text)
    return float(found[0].replace(",", "")) if found else None


def chart(page, title, expression):
    """The value of an expression about one chart, which it calls `chart`."""
    return page.evaluate(f"(chart => {expression})(charts.find(({{ title }}) => title === {json.dumps(title)}))")


def text(page, name):
    """What an element shows."""
    return page.evaluate(f"byID('{name}').textContent")


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


def test_charts_have_what_was_before_and_show_any_moment(server, tmp_path):
    server.get("a")
    until(lambda: sum(json.loads(fetched(server.administration[0], "/history").body)["figures"]["get"]) > 0)
    with opened(server, tmp_path / "browser", 1280, 800, "light") as page:
        # All charts of a store on this machine
        until(lambda: page.evaluate("charts.filter(chart => !chart.section.hidden && chart.view).length") == 12)
        assert chart(page, "Requests a second", "Math.max(...chart.values[0].filter(value => !Number.isNaN(value)))") > 0
        assert page.evaluate("document.querySelector('.events').textContent").endswith("has started")
        # With the pointer, whose line is in all charts
        left, top, width = chart(
            page, "Memory", "(({ left, top, width }) => [left, top, width])(chart.svg.getBoundingClientRect())")

        def shown():
            # The newest moment, which may have no values yet.
            page.call("Input.dispatchMouseEvent", type="mouseMoved", x=left + width - 1, y=top + 40)
            return not page.evaluate("tip.hidden") and "MiB" in page.evaluate("tip.textContent")

        until(shown)
        assert page.evaluate("charts.filter(chart => chart.view).every(chart => chart.cursor.getAttribute('d') !== '')")
        # and by keyboard
        chart(page, "Connections", "chart.plot.focus()")
        told = set()
        for key in ("ArrowLeft", "ArrowLeft", "Home", "Escape"):
            page.call("Input.dispatchKeyEvent", type="keyDown", key=key, code=key)
            told.add(chart(page, "Connections", "chart.plot.ariaValueText"))
        assert len(told) == 4 and page.evaluate("selection.position") is None
        assert page.problems == []


def test_faults_are_told_marked_and_listed_until_they_are_over(server, page):
    with failing_writes(server):
        until(lambda: state(page) == "unready" and "Not ready: tokens cannot be stored" in text(page, "notes"))
        until(lambda: "fault" in page.evaluate("eventList.textContent"))
    until(lambda: state(page) == "ready" and "Not ready" not in text(page, "notes"))
    until(lambda: "recovery" in page.evaluate("eventList.textContent"))
    rewrite(server, json_bodies="perhaps")
    assert command(server.data, "reload").returncode != 0
    until(lambda: "reload" in page.evaluate("eventList.querySelector('li:first-child.failed')?.textContent ?? ''"))
    until(lambda: "Warning: the last reload of the settings was refused; no setting changes: " in text(page, "notes"))
    rewrite(server, json_bodies="on")
    printed(server.data, "reload")
    until(lambda: page.evaluate("eventList.firstChild.className === '' && byID('notes').hidden"))
    # Each chart has two kinds of marks: for failures, and for all other events.
    marks = "chart.events.map(path => path.getAttribute('d').split('M').length - 1)"
    until(lambda: chart(page, "Memory", marks) == page.evaluate(
        "[eventList.querySelectorAll('li:not(.failed)').length, eventList.querySelectorAll('.failed').length]"))


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
        assert again.post("a", "b") == STORED
        until(lambda: figure(page, "tokens") == 1)
        assert not [problem for problem in page.problems if "Failed to load resource" not in problem]


def test_errors_and_settings_are_listed(serve, tmp_path):
    server = serve({**ADMINISTRATION, "limits": {"body": "3 MiB"}, "drain_timeout": "10s"})
    with opened(server, tmp_path / "browser", 1280, 800, "light") as page:
        rows = "[...document.querySelectorAll('#{} tbody tr')].map(row => [...row.cells].map(cell => cell.textContent))"
        server.post("", "a")
        server.get("a", path="/nowhere")
        # Between what a code means and how many there were is their rate, which falls again.
        until(lambda: ["40400", "no such path", "1"] in [[*row[:2], row[3]] for row in page.evaluate(rows.format("errors"))])
        page.evaluate("byID('settings').open = true")
        until(lambda: page.evaluate(rows.format("settings")))
        shown = {row[0]: row[1:] for row in page.evaluate(rows.format("settings"))}
        value, source, usual = shown["limits.body"]
        assert (value, usual) == ("3 MiB", "1 MiB") and ", line " in source
        # Named in the file, but with its default.
        assert "drain_timeout" not in shown
        page.evaluate("byID('settings-all').click()")
        assert len(page.evaluate(rows.format("settings"))) > len(shown) + 20
        assert page.problems == []


def test_updates_leave_nothing_behind(page):
    """Anything that the page kept of each update would be there 600 times."""
    page.evaluate("poll = async () => {}; clearTimeout(timer)")
    page.evaluate("""(async () => {
        const given = await ask("/status"), names = Object.keys((await ask("/history")).figures);
        let second = 0;
        globalThis.update = count => {
          for (const end = second + count; second < end;) {
            second += 1;
            const now = { position: 1e6 + 10 * second, time: 1.8e9 + 10 * second };
            const events = [{ number: second, position: now.position, kind: "fault", text: "the disk is full", failed: true }];
            showStatus({ ...structuredClone(given), time: now.time, ready: second % 2 > 0, reasons: ["the disk is full"] });
            addHistory({ now, positions: [now.position], figures: Object.fromEntries(names.map(name => [name, [second % 7]])), events });
            if (second % 20 === 0) drawCharts(true);
          }
        };
    })()""")
    until(lambda: page.evaluate("typeof update === 'function'"))

    def measured():
        page.call("HeapProfiler.collectGarbage")
        counts = page.call("Memory.getDOMCounters")
        return counts["nodes"], counts["jsEventListeners"]

    # As many rows as are kept; whatever grows then, grows for ever.
    page.evaluate("update(400)")
    nodes, listeners = measured()
    page.evaluate("update(600)")
    nodes_after, listeners_after = measured()
    assert page.evaluate("history.list.length") == 360
    assert (listeners_after, abs(nodes_after - nodes) <= 100) == (listeners, True), (nodes, nodes_after)


def test_the_page_fits_and_axe_finds_nothing(server, page, python_package):
    (script,) = python_package(AXE, "--no-deps").glob("lib/python*/site-packages/**/axe.min.js")

    def faults():
        page.evaluate(f"{script.read_text(encoding='utf-8')}; 0")
        page.evaluate("""
            globalThis.found = null;
            axe.run(document).then(({ violations }) => { found = violations.flatMap(({ id, nodes }) =>
              nodes.map(({ html, failureSummary }) => `${id}: ${html} ${failureSummary}`)); });
            0""")
        until(lambda: page.evaluate("found") is not None)
        return page.evaluate("found")

    page.evaluate("byID('settings').open = true; byID('settings-all').click()")
    with failing_writes(server):
        until(lambda: state(page) == "unready" and "tokens cannot be stored" in text(page, "notes"))
        for width, scheme in (1280, "dark"), (360, "light"):
            page.size(width, 800, prefers_color_scheme=scheme)
            assert page.evaluate("document.documentElement.scrollWidth") <= width
            assert faults() == []
