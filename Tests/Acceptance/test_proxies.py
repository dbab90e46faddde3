"""token-cache behind the reverse proxies of deploy/: what is served, what they tell the server and clients, and what they log."""
import contextlib
import re
import ssl
import subprocess

import pytest

from administration import metrics
from contract import STORED, error, found, fresh_id
from http_client import FORM, form, lines
from proxies import HOST, PROXIES
from proxy_site import BODY_LIMIT, CANARY, FORGED, FORM_HEADERS, NOTHING, REDIRECTS, Recorder, SameAnswer, check_error, send_all
from server_process import until


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

def accepted(site):
    """How many connections the server has accepted."""
    return metrics(site.server)["token_cache_connections_accepted_total"]


def test_connections_to_the_server_are_kept(site):
    site.works()
    before = accepted(site)
    count = 200
    for _ in range(20):
        # Each of these clients makes one request.
        assert site.request("GET", "/token?unique_id=nobody").status == 200
    with contextlib.ExitStack() as stack:
        connections = [stack.enter_context(site.secure()) for _ in range(4)]
        for number in range(count - 20):
            response = site.exchange(connections[number % 4], "GET", "/token?unique_id=nobody")
            assert NOTHING.fullmatch(response.body)
    assert accepted(site) - before <= 10, f"{count} requests took more connections to the server"


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


# What the proxies tell the server

FORWARDED = [name.lower() for name in FORGED]
FORGED_LINES = [f"{name}: {value}" for name, value in FORGED.items()]
CLAIMS = {
    "nothing": [],
    "forged": FORGED_LINES,
    "forged twice": FORGED_LINES * 2,
    "plain http": ["X-Forwarded-Proto: http"],
    "empty": [f"{name}:" for name in FORGED],
    "lower case": [line.lower() for line in FORGED_LINES],
    # Headers that Connection names are for the next hop only, and some proxies drop them even if they set them themselves.
    "named by Connection": [f"Connection: {', '.join(FORGED)}", *FORGED_LINES],
    "named by Connection with close": [f"Connection: close, {', '.join(FORGED)}", *FORGED_LINES],
    "named by Connection, not sent": ["Connection: X-Forwarded-Proto", "Connection: X-Forwarded-For"],
}


@pytest.fixture(scope="module")
def heads(site):
    """What the server receives for each of the requests in CLAIMS."""
    result = {}
    with site.without_server(), Recorder(site.port) as recorder:
        for name, fields in CLAIMS.items():
            with site.secure(source="127.0.0.2") as connection:
                connection.send(lines("GET /token?unique_id=a HTTP/1.1", f"Host: {HOST}", *fields))
                answer = connection.socket.recv(65536)
                assert answer.startswith(b"HTTP/1.1 200"), answer
            result[name] = {field: recorder.values(field) for field in FORWARDED}
    return result


@pytest.mark.parametrize("claim", CLAIMS)
def test_the_server_is_told_the_truth_about_the_client(site, heads, claim):
    told = heads[claim]
    assert told["x-forwarded-proto"] == ["https"]
    assert told["x-forwarded-for"] == ["127.0.0.2"]
    assert told["x-forwarded-host"] in ([], [HOST])
    request_id, = told["x-request-id"]
    assert request_id and CANARY not in request_id
    for name in "forwarded", "x-forwarded-port", "x-forwarded-server", "x-real-ip", "remote-user":
        assert told[name] == [], name


@pytest.mark.parametrize("length", [40, 8_000])
def test_credentials_and_conditions_reach_the_server_as_they_are(site, length):
    """The longer one is as long as the JWTs of some providers, and as Apache takes it."""
    fields = {"authorization": f"Bearer {'a' * length}", "if-match": '"64bd3f1a2c"', "if-none-match": '"1", "64bd3f1a2c"'}
    with site.without_server(), Recorder(site.port) as recorder, site.secure() as connection:
        connection.send(lines("POST /token HTTP/1.1", f"Host: {HOST}", FORM, "Content-Length: 3", "Connection: close",
                              *(f"{name}: {value}" for name, value in fields.items()), body=b"a=b"))
        assert connection.receive_to_end().startswith(b"HTTP/1.1 200")
        assert {name: recorder.values(name) for name in fields} == {name: [value] for name, value in fields.items()}


# What the proxies pass on to clients

@pytest.mark.parametrize("status", [200, 201, 302, 308, 400, 401, 403, 404, 405, 408, 412, 413, 414, 417, 421, 428, 429, 431, 500, 501,
                                    503, 505])
def test_what_the_server_answers_passes_through_as_it_is_and_once(site, status):
    body = error(status * 100, "Said by the server.")
    headers = {"content-type": "application/json", "content-length": str(len(body)), "cache-control": "no-store",
               "x-content-type-options": "nosniff", "x-request-id": "0123456789abcdef",
               "strict-transport-security": "max-age=31536000", "etag": '"64bd3f1a2c"',
               "www-authenticate": 'Bearer error="invalid_token"', "retry-after": "7",
               "location": "https://elsewhere.test/"}
    answer = lines(f"HTTP/1.1 {status} Said", *(f"{name}: {value}" for name, value in headers.items()), "Connection: close",
                   body=body)
    with site.without_server(), SameAnswer(site.port, answer), site.secure() as connection:
        connection.send(lines("GET /token?unique_id=a HTTP/1.1", f"Host: {HOST}", "Connection: close"))
        head, _, received = connection.receive_to_end().partition(b"\r\n\r\n")
    start, *fields = head.decode().split("\r\n")
    assert start.startswith(f"HTTP/1.1 {status} ") and received == body, head
    seen = [tuple(line.split(": ", 1)) for line in fields]
    for name, value in headers.items():
        assert [found for field, found in seen if field.lower() == name] == [value], head


# Their logs

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
            with open_connection() as connection:
                send_all(connection, data)
                connection.socket.settimeout(0.3)
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


@pytest.mark.parametrize("name, address, socket", [
    ("nginx", "127.0.0.1:8080", "unix:/missing"), ("haproxy", "127.0.0.1:8080", "/missing"),
    ("apache", "http://127.0.0.1:8080/", "unix:/missing|http://localhost/"), ("caddy", "127.0.0.1:8080", "unix//missing"),
], ids=PROXIES)
def test_no_id_gets_into_a_log_if_the_socket_of_the_server_is_missing(tmp_path, proxy_certificate, name, address, socket):
    """nginx logs that at a higher level than a refused connection."""
    class OnSocket(PROXIES[name]):
        def deployed(self, replacements):
            return super().deployed({**replacements, address: socket})

    with OnSocket(tmp_path, 0, proxy_certificate) as proxy:
        with proxy_certificate.connect(proxy.https_port) as connection:
            connection.send(lines(f"GET /token?unique_id={CANARY} HTTP/1.1", f"Host: {HOST}", "Connection: close", f"Referer: /{CANARY}"))
            assert re.match(rb"HTTP/1\.[01] 50[23] ", connection.receive_to_end())
        until(lambda: re.search(r"\b50[23]\b", proxy.log()))
        assert CANARY not in proxy.log()


CHOSEN = "chosen-by-a-client"
CLAIMED_IDS = {
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


@pytest.mark.parametrize("claim", CLAIMED_IDS)
def test_the_same_id_is_in_the_answer_and_in_both_logs(site, claim):
    with site.secure() as connection:
        connection.send(lines("GET /token?unique_id=nobody HTTP/1.1", f"Host: {HOST}", *CLAIMED_IDS[claim]))
        given = connection.receive().headers["x-request-id"]
    assert CHOSEN not in given and not MADE_HERE.fullmatch(given), "the proxy made the id"
    mine = until(lambda: [line for line in site.server.output().splitlines() if f" {given} " in line])
    theirs = until(lambda: [line for line in site.proxy.log().splitlines() if given in line])
    assert len(mine) == 1 and '"GET /token ' in mine[0]
    assert len(theirs) == 1 and "/token" in theirs[0] and "GET" in theirs[0]
    assert CHOSEN not in site.server.output() + site.proxy.log()


def test_an_answer_of_the_proxy_itself_has_its_method_and_an_id_in_the_log(site):
    before = len(site.proxy.log().splitlines())
    for status, method, path, open_connection in (
            (302, "GET", "/token", site.plain), (308, "POST", "/token", site.plain), (404, "GET", "/other", site.secure)):
        answer = site.request(method, path, headers={"X-Request-Id": CHOSEN}, open_connection=open_connection)
        assert answer.status == status
        entry = until(lambda: [
            line for line in site.proxy.log().splitlines()[before:] if re.search(rf"\b{status}\b", line)])[-1]  # noqa: B023
        assert re.search(site.proxy.request_id, entry), entry
        assert method in entry and CHOSEN not in entry, entry
