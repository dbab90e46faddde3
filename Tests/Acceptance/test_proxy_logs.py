"""The reverse proxies log requests by an id that is the server's as well, that no client chooses, and without ids of users and tokens."""
import contextlib
import re
import ssl

import pytest

from http_client import FORM, form, lines
from proxies import HOST
from proxy_site import BODY_LIMIT, CANARY, FORGED, FORM_HEADERS, send_all
from server_process import until


def leaky_requests(site):
    """Requests with the canary wherever an id may be; the proxy or the server answers or refuses each."""
    target = f"/token?unique_id={CANARY}&token_info={CANARY}"
    for open_connection in site.secure, site.plain:
        for method in "GET", "HEAD", "POST", "PUT":
            site.request(method, target, open_connection=open_connection)
        for path in "/other", "/", "/healthz", "/token/", "/%2e%2e/token", "/token/../..", "/token%3F" + CANARY, "/%00":
            site.request("GET", f"{path}?unique_id={CANARY}", open_connection=open_connection)
        site.request("GET", "/token", headers={"Referer": f"https://{HOST}{target}"}, open_connection=open_connection)
        site.request("POST", "/token", form(CANARY, CANARY), FORM_HEADERS, open_connection=open_connection)
        for headers in FORGED, {**FORGED, "Connection": ", ".join(FORGED)}:
            site.request("GET", "/token", headers=headers, open_connection=open_connection)
        for data in (
            lines(f"GET {target} HTTP/1.1", f"Host: {HOST}", "X"),
            lines(f"GET {target} HTTP/1.1", f"Host: {HOST}", f"Host: {CANARY}"),
            lines(f"GET {target} HTTP/1.1", f"Host: {CANARY} {CANARY}"),
            lines(f"GET {target} HTTP/9.1", f"Host: {HOST}"),
            lines(f"GET {target} {CANARY} HTTP/1.1", f"Host: {HOST}"),
            lines(f"GET /token?unique_id={CANARY * 2000} HTTP/1.1", f"Host: {HOST}"),
            lines(f"GET {target} HTTP/1.1", f"Host: {HOST}", f"X: {CANARY * 10000}"),
            lines(f"GET {target} HTTP/1.1", f"Host: {HOST}", *(f"X: {CANARY}" for _ in range(300))),
            lines(f"GET http://{HOST}{target} HTTP/1.1", f"Host: {HOST}"),
            lines(f"GET /../..{target} HTTP/1.1", f"Host: {HOST}"),
            lines(f"GET /%zz{target} HTTP/1.1", f"Host: {HOST}"),
            lines(f"POST {target} HTTP/1.1", f"Host: {HOST}", f"Content-Length: {BODY_LIMIT * 2}"),
            lines(f"POST {target} HTTP/1.1", f"Host: {HOST}", FORM, "Transfer-Encoding: chunked", body=f"{CANARY}\r\n".encode()),
        ):
            with open_connection(timeout=0.3) as connection:
                send_all(connection, data)
                with contextlib.suppress(TimeoutError, ConnectionError, ssl.SSLError):
                    connection.receive_to_end()
        # A client that disconnects inside a body.
        with open_connection() as connection:
            connection.send(lines(f"POST {target} HTTP/1.1", f"Host: {HOST}", FORM, "Content-Length: 99", body=b"a=b"))


def test_no_id_gets_into_a_log_of_the_proxy(site):
    leaky_requests(site)
    with site.without_server():
        assert site.request("GET", f"/token?unique_id={CANARY}").status in (502, 503)
    until(lambda: re.search(r"\b50[23]\b", site.proxy.log()))
    log = site.proxy.log()
    assert "/token" in log and "POST" in log, "requests are logged"
    assert CANARY not in log, [line for line in log.splitlines() if CANARY in line][:5]


CHOSEN = "chosen-by-a-client"
CLAIMS = {
    "nothing": [],
    "an id": [f"X-Request-Id: {CHOSEN}"],
    "two ids": [f"X-Request-Id: {CHOSEN}", f"X-Request-Id: {CHOSEN}2"],
    "lower case": [f"x-request-id: {CHOSEN}"],
    "empty": ["X-Request-Id:"],
    # Some proxies do not forward headers that Connection names, even if they set them themselves.
    "named by Connection": ["Connection: X-Request-Id", f"X-Request-Id: {CHOSEN}"],
    "named by Connection in lower case": ["Connection: keep-alive, x-request-id", f"X-Request-Id: {CHOSEN}"],
    "beside another header": [f"X-Correlation-Id: {CHOSEN}", f"X-Request-Id: {CHOSEN}"],
}
# What the server makes itself if it gets no id.
MADE_HERE = re.compile(r"[0-9a-f]{16}")


@pytest.mark.parametrize("claim", CLAIMS)
def test_the_same_id_is_in_the_answer_and_in_both_logs(site, claim):
    with site.secure() as connection:
        connection.send(lines("GET /token?unique_id=nobody HTTP/1.1", f"Host: {HOST}", *CLAIMS[claim]))
        given = connection.receive().headers["x-request-id"]
    assert CHOSEN not in given and not MADE_HERE.fullmatch(given), "the proxy made the id"
    mine = until(lambda: [line for line in site.server.output().splitlines() if f" {given} " in line])
    theirs = until(lambda: [line for line in site.proxy.log().splitlines() if given in line])
    assert len(mine) == 1 and '"GET /token ' in mine[0]
    assert len(theirs) == 1 and "/token" in theirs[0] and "GET" in theirs[0]
    assert CHOSEN not in site.server.output() + site.proxy.log()


def test_an_answer_of_the_proxy_itself_has_an_id_in_its_log(site):
    before = len(site.proxy.log().splitlines())
    for status, path, open_connection in (302, "/token", site.plain), (404, "/other", site.secure):
        answer = site.request("GET", path, headers={"X-Request-Id": CHOSEN}, open_connection=open_connection)
        assert answer.status == status
        entry = until(lambda: [
            line for line in site.proxy.log().splitlines()[before:] if re.search(rf"\b{status}\b", line)])[-1]  # noqa: B023
        assert re.search(site.proxy.request_id, entry), entry
        assert CHOSEN not in entry
