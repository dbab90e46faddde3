"""Requests that a page of another site makes a browser on the server's machine send are refused."""
import pytest

from contract import NOT_FOUND, STORED, check_http_error, found, fresh_id
from http_client import FORM, Connection, exchange, form, get, lines, post

# The headers that browsers send for a form or an image of another site's page, and for pages from files or sandboxes
FOREIGN = {
    "form": ["Origin: https://evil.example", "Sec-Fetch-Site: cross-site", "Sec-Fetch-Mode: navigate"],
    "form of an old browser": ["Origin: https://evil.example"],
    "image": ["Sec-Fetch-Site: cross-site", "Sec-Fetch-Mode: no-cors", "Sec-Fetch-Dest: image"],
    "page on another port": ["Origin: http://127.0.0.1:1", "Sec-Fetch-Site: same-site"],
    "sandbox": ["Origin: null"],
}


def port(server):
    return server.address[1]


@pytest.mark.parametrize("headers", FOREIGN.values(), ids=FOREIGN)
def test_a_page_of_another_site_neither_stores_nor_fetches(serve, headers):
    server, unique_id = serve(), fresh_id()
    with Connection(server.address) as connection:
        assert connection.exchange(post(unique_id, "mine")).body == STORED
        for request in post(unique_id, "theirs", *headers), get(unique_id, *headers), get("", *headers):
            message = check_http_error(connection.exchange(request), 403)
            assert "page" in message and unique_id not in message
        answer = connection.exchange(lines("HEAD /token HTTP/1.1", "Host: localhost", *headers), "HEAD")
        assert answer.status == 403
        # The connection stays open and serves programs.
        assert connection.exchange(get(unique_id)).body == found("mine")
    assert unique_id not in server.log() + server.output()


def test_a_name_that_was_led_to_this_machine_is_not_answered(serve):
    server, unique_id = serve(), fresh_id()
    body = form(unique_id, "theirs")
    for host in f"evil.example:{port(server)}", "evil.example", "127.0.0.1.evil.example":
        # For the browser this is the page's own site.
        page = [f"Host: {host}", f"Origin: http://{host}", "Sec-Fetch-Site: same-origin"]
        for request in (lines("POST /token HTTP/1.1", *page, FORM, f"Content-Length: {len(body)}", body=body),
                        lines(f"GET /token?unique_id={unique_id} HTTP/1.1", *page)):
            message = check_http_error(exchange(server.address, request), 421)
            assert "https.public_host" in message and "evil" not in message
    assert exchange(server.address, get(unique_id)).body == NOT_FOUND


def test_a_name_that_was_led_to_this_machine_is_no_proxy_by_saying_so(serve):
    server, unique_id = serve(), fresh_id()
    body = form(unique_id, "theirs")
    # A page may send such a header to its own origin, whose port is the server's.
    page = [f"Host: evil.example:{port(server)}", "X-Forwarded-Proto: https"]
    for request in (lines("POST /token HTTP/1.1", *page, FORM, f"Content-Length: {len(body)}", body=body),
                    lines(f"GET /token?unique_id={unique_id} HTTP/1.1", *page)):
        message = check_http_error(exchange(server.address, request), 421)
        assert "https.public_host" in message and "evil" not in message
    assert exchange(server.address, get(unique_id)).body == NOT_FOUND


def test_what_is_no_foreign_page_is_answered(serve):
    server, unique_id = serve({"https": {"public_host": "tokens.example.com"}}), fresh_id()
    assert exchange(server.address, post(unique_id, "mine")).body == STORED
    own = f"127.0.0.1:{port(server)}"
    for headers in (
        [f"Host: {own}", f"Origin: http://{own}", "Sec-Fetch-Site: same-origin"], [f"Host: {own}", "Sec-Fetch-Site: none"],
        ["Host: localhost"], ["Host: a.localhost:80"], ["Host: [::1]"], ["Host: machine"], ["Host: tokens.example.com"],
        # Requests that came through a proxy by https: an app's page may belong to any site.
        ["Host: evil.example", "X-Forwarded-Proto: https", "Origin: null"],
    ):
        request = lines(f"GET /token?unique_id={unique_id} HTTP/1.1", *headers)
        assert exchange(server.address, request).body == found("mine"), headers


@pytest.mark.parametrize("mode", ["proxy", "off"])
def test_the_other_modes_answer_pages_as_token_php_does(serve, mode):
    server, unique_id = serve({"https": {"mode": mode}}), fresh_id()
    assert exchange(server.address, post(unique_id, "theirs", "Origin: https://evil.example")).body == STORED
    request = lines(f"GET /token?unique_id={unique_id} HTTP/1.1", "Host: evil.example")
    assert exchange(server.address, request).body == found("theirs")
