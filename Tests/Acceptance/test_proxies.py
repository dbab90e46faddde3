"""token-cache behind the reverse proxies of deploy/: the real programs with the shipped configurations."""
import contextlib
import re
import subprocess
from pathlib import Path

import pytest

from contract import STORED, found, fresh_id
from http_client import form, lines
from proxies import HOST
from proxy_site import FORGED, FORM_HEADERS, NOTHING, REDIRECTS, check_error


# Serving

def curl(site, *arguments):
    result = subprocess.run(
        ["curl", "--silent", "--show-error", "--max-time", "20", "--cacert", site.certificate.file,
         "--resolve", f"{HOST}:{site.proxy.https_port}:127.0.0.1", *arguments],
        capture_output=True, timeout=30, check=False)
    assert result.returncode == 0, result.stderr
    return result.stdout


@pytest.mark.parametrize("path", ["/token", "/token.php"])
def test_curl_stores_and_fetches_over_https(site, path):
    base, unique_id = f"https://{HOST}:{site.proxy.https_port}{path}", fresh_id()
    token_info = '{"token":"a+b & c/d","größe":1}'
    data = ["--data-urlencode", f"unique_id={unique_id}", "--data-urlencode", f"token_info={token_info}"]
    assert curl(site, *data, base) == STORED
    assert curl(site, "--get", "--data-urlencode", f"unique_id={unique_id}", base) == found(token_info)
    assert curl(site, "--form", f"unique_id={unique_id}", "--form", "token_info=new", base) == STORED
    assert curl(site, f"{base}?unique_id={unique_id}") == found("new")


def test_only_the_two_paths_are_forwarded(site):
    before = len(site.server_log())
    for path in "/", "/other", "/token/", "/token/x", "/tokens", "/token.phpx", "/metrics", "/token%3Funique_id=a":
        assert site.request("GET", path).status == 404, path
    assert len(site.server_log()) == before


@pytest.mark.parametrize("version, works", [("tls1", False), ("tls1_1", False), ("tls1_2", True), ("tls1_3", True)])
def test_old_versions_of_tls_are_refused(site, version, works):
    result = subprocess.run(
        ["openssl", "s_client", f"-{version}", "-cipher", "DEFAULT@SECLEVEL=0", "-servername", HOST,
         "-connect", f"127.0.0.1:{site.proxy.https_port}"],
        stdin=subprocess.DEVNULL, capture_output=True, timeout=20, check=False)
    assert (result.returncode == 0) == works, result.stderr


def test_secure_answers_tell_browsers_to_stay_with_https(site):
    response = site.request("GET", "/token?unique_id=nobody")
    assert response.headers.get("strict-transport-security", "").startswith("max-age=31536000")


# Plain HTTP

@pytest.mark.parametrize("headers", [{}, FORGED], ids=["honest", "forged"])
@pytest.mark.parametrize("method, status", REDIRECTS.items(), ids=REDIRECTS)
def test_plain_http_is_redirected_whatever_it_claims(site, method, status, headers):
    unique_id, before = fresh_id(), len(site.server_log())
    body = form(unique_id, "leaked") if method in ("POST", "PUT") else None
    target = f"/token.php?unique_id={unique_id}&token_info=leaked&x=%2F+%0d%0a%zz"
    response = site.request(method, target, body, {**FORM_HEADERS, **headers}, open_connection=site.plain)
    assert response.status == status
    assert response.headers["location"] == f"https://{HOST}{target}"
    if method != "HEAD":
        check_error(response, status)
    assert len(site.server_log()) == before, "nothing reached the server"
    assert NOTHING.fullmatch(site.stored(unique_id))


HOSTS = ["evil.test", "evil.test:80", "a b", "a\tb", "evil.test/x?", "me@evil.test", "\xe4", ""]


@pytest.mark.parametrize("host", HOSTS)
def test_a_redirect_never_goes_to_a_host_that_the_client_chose(site, host):
    with site.plain() as connection:
        connection.send(lines("GET /token HTTP/1.1", f"Host: {host}", "Connection: close"))
        answer = connection.receive_to_end()
    location = re.search(rb"(?im)^location: (.*)\r$", answer)
    assert not location or location[1].startswith(f"https://{HOST}/".encode()), answer
    assert location or answer.startswith((b"HTTP/1.1 400", b"HTTP/1.0 400")), answer


# Connections to the server

def connections_to(port):
    """The source ports of the connections to a local port, including those that ended within the last minute."""
    suffix, clients = f":{port:04X}", set()
    for table in "/proc/net/tcp", "/proc/net/tcp6":
        for line in Path(table).read_text().splitlines()[1:]:
            _, local, remote, state = line.split()[:4]
            if remote.endswith(suffix) and not remote.startswith("00000000:"):
                clients.add(local)
            if local.endswith(suffix) and state != "0A":
                clients.add(remote)
    return clients


def test_connections_to_the_server_are_kept(site):
    site.works()
    before = connections_to(site.port)
    count = 200
    for _ in range(20):
        # Each of these clients makes one request.
        assert site.request("GET", "/token?unique_id=nobody").status == 200
    with contextlib.ExitStack() as stack:
        connections = [stack.enter_context(site.secure()) for _ in range(4)]
        for number in range(count - 20):
            response = site.exchange(connections[number % 4], "GET", "/token?unique_id=nobody")
            assert NOTHING.fullmatch(response.body)
    opened = connections_to(site.port) - before
    assert len(opened) <= 10, f"{count} requests took {len(opened)} new connections to the server"


# Faults

def test_the_health_check_is_answered_by_the_proxy_itself(site):
    for open_connection in site.secure, site.plain:
        before = len(site.server_log())
        assert site.request("GET", "/healthz", open_connection=open_connection).body.strip() == b"ok"
        assert len(site.server_log()) == before
    with site.without_server():
        for open_connection in site.secure, site.plain:
            assert site.request("GET", "/healthz", open_connection=open_connection).status == 200


def test_a_killed_server_is_reported_and_used_again_at_once_when_it_is_back(site):
    unique_id = fresh_id()
    assert site.request("POST", "/token", form(unique_id, "kept"), FORM_HEADERS).body == STORED
    with site.without_server():
        for method, body in ("GET", None), ("POST", form(unique_id, "lost")):
            assert site.request(method, f"/token?unique_id={unique_id}", body, FORM_HEADERS).status in (502, 503)
    for _ in range(10):
        assert site.request("GET", f"/token?unique_id={unique_id}").body == found("kept")
    site.works()
