"""What all answers have in common, and which paths and addresses are answered.

The headers of each answer (type, caching, date, exact length) are checked by `Connection.receive` in all tests.
"""
import socket
import subprocess

import pytest

from contract import NOT_FOUND, STORED, check_http_error, found, fresh_id
from http_client import FORM, HOST, Connection, exchange, form, get, lines, post



@pytest.mark.parametrize("path", ["/token", "/token.php"])
def test_both_paths_serve_the_same_store(plain, path):
    unique_id = fresh_id()
    assert plain.post(unique_id, "abc", path=path) == STORED
    for other in ("/token", "/token.php"):
        assert plain.get(unique_id, path=other) == found("abc")


@pytest.mark.parametrize("target, status", [("/token", 200), ("/token?unique_id=a", 200), ("/other", 404)])
def test_the_answer_to_head_has_no_body(plain, target, status):
    with Connection(plain.address) as connection:
        connection.send(lines(f"HEAD {target} HTTP/1.1", HOST) + get("nobody"))
        assert connection.receive("HEAD").status == status
        # A byte of a body would be taken for the start of this answer.
        assert connection.receive().body == NOT_FOUND


def has_ipv6():
    """Whether this machine has ::1; many containers do not."""
    try:
        socket.create_server(("::1", 0), family=socket.AF_INET6).close()
    except OSError:
        return False
    return True


@pytest.mark.skipif(not has_ipv6(), reason="this machine has no IPv6")
def test_several_addresses_of_both_families_are_served(serve):
    server = serve({"listen": ["127.0.0.1:0", "http://[::1]:0", "http://127.0.0.1:0/", "localhost:0"]})
    assert len(server.addresses) >= 4
    assert {host for host, _ in server.addresses} == {"127.0.0.1", "::1"}
    unique_id = fresh_id()
    assert server.post(unique_id, "abc") == STORED
    for address in server.addresses:
        assert exchange(address, get(unique_id)).body == found("abc")


def curl(*arguments):
    """The output of curl."""
    command = ["curl", "--silent", "--show-error", "--fail", "--max-time", "30", *arguments]
    return subprocess.run(command, capture_output=True, check=True).stdout


def test_a_person_with_curl_stores_and_reads(plain):
    unique_id = fresh_id()
    url = f"{plain.base}/token"
    text = '{"token": "a+b&c=d/e", "name": "Zoë"}'
    assert curl("-d", f"unique_id={unique_id}", "--data-urlencode", f"token_info={text}", url) == STORED
    assert curl(f"{url}?unique_id={unique_id}") == found(text)
    assert curl("--http1.0", f"{url}?unique_id={unique_id}") == found(text)
    assert curl("-F", f"unique_id={unique_id}", "-F", "token_info=from a form", url) == STORED
    assert curl("-G", "--data-urlencode", f"unique_id={unique_id}", url) == found("from a form")
    large = ["-H", "Transfer-Encoding: chunked", "-d", f"unique_id={unique_id}", "-d", "token_info=" + "x" * 100_000]
    assert curl(*large, url) == STORED
    assert curl(f"{url}?unique_id={unique_id}", f"{url}?unique_id={unique_id}") == found("x" * 100_000) * 2
    head = curl("--head", url).decode()
    assert head.startswith("HTTP/1.1 200 OK\r\n") and head.endswith("\r\n\r\n")


# Pages of other sites, in a browser on the server's machine

def test_a_page_of_another_site_neither_stores_nor_fetches(plain):
    """Here for a form of another site; HTTPSPolicyTests have what browsers send for others, for images and for sandboxes."""
    unique_id, headers = fresh_id(), ["Origin: https://evil.example", "Sec-Fetch-Site: cross-site", "Sec-Fetch-Mode: navigate"]
    with Connection(plain.address) as connection:
        assert connection.exchange(post(unique_id, "mine")).body == STORED
        for request in post(unique_id, "theirs", *headers), get(unique_id, *headers), get("", *headers):
            message = check_http_error(connection.exchange(request), 403)
            assert "page" in message and unique_id not in message
        answer = connection.exchange(lines("HEAD /token HTTP/1.1", "Host: localhost", *headers), "HEAD")
        assert answer.status == 403
        # The connection stays open and serves programs.
        assert connection.exchange(get(unique_id)).body == found("mine")
    assert unique_id not in plain.log() + plain.output()


def test_a_name_that_was_led_to_this_machine_is_not_answered(plain):
    unique_id = fresh_id()
    body = form(unique_id, "theirs")
    for host in f"evil.example:{plain.address[1]}", "evil.example", "127.0.0.1.evil.example":
        # For the browser this is the page's own site.
        page = [f"Host: {host}", f"Origin: http://{host}", "Sec-Fetch-Site: same-origin"]
        for request in (lines("POST /token HTTP/1.1", *page, FORM, f"Content-Length: {len(body)}", body=body),
                        lines(f"GET /token?unique_id={unique_id} HTTP/1.1", *page)):
            message = check_http_error(exchange(plain.address, request), 421)
            assert "https.public_host" in message and "evil" not in message
    assert plain.get(unique_id) == NOT_FOUND
