"""The reverse proxies log requests, but neither ids nor tokens."""
import contextlib
import re
import ssl

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


def test_what_fails_is_logged_under_its_path(site):
    failed = re.compile(r'"GET /token HTTP/1\.1" 50[23] |"uri":"/token".*"status":50[23]')
    before = len(failed.findall(site.proxy.log()))
    with site.without_server():
        site.request("GET", f"/token?unique_id={CANARY}")
    until(lambda: len(failed.findall(site.proxy.log())) > before)
    assert CANARY not in site.proxy.log()
