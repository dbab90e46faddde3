"""token-cache behind the reverse proxies of deploy/: the real programs with the shipped configurations."""
import concurrent.futures
import contextlib
import http.client
import json
import re
import socket
import ssl
import subprocess
import threading
from pathlib import Path

import pytest

from contract import STORED, check_http_error, error, found, fresh_id
from http_client import FORM, Connection, Response, chunks, form, get, lines, post
from ports import free_ports
from proxies import HOST, PROXIES, Certificate, Nginx, TLSConnection, install_packages
from server_process import Server, until
from shared_servers import finish

BODY_LIMIT = 1 << 20
CANARY = "canary4711"
FORGED = {
    "X-Forwarded-Proto": "https", "Forwarded": "for=127.0.0.1;proto=https", "X-Forwarded-For": "127.0.0.1",
    "X-Forwarded-Host": "evil.test", "X-Forwarded-Port": "443", "X-Forwarded-Server": "evil.test",
    "X-Real-IP": "127.0.0.1", "Remote-User": "admin", "X-Request-Id": CANARY,
    "traceparent": "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01",
}


@pytest.fixture(scope="module")
def certificate(tmp_path_factory):
    reason = install_packages()
    if reason:
        pytest.skip(reason)
    return Certificate(tmp_path_factory.mktemp("certificate"))


class Site:
    """A proxy and the server behind it, which can be killed and restarted on the same port with the same data."""

    def __init__(self, folder, proxy, certificate):
        self.folder = folder
        self.certificate = certificate
        self.port, = free_ports(1)
        self.servers = []
        self.start_server()
        try:
            self.proxy = proxy(folder / "proxy", self.port, certificate)
        except BaseException:
            self.server.kill()
            raise

    @property
    def server(self):
        return self.servers[-1]

    def start_server(self):
        # One loop, so that the order of the access log is that of the requests.
        settings = {"listen": f"127.0.0.1:{self.port}", "access_log": "combined", "loops": 1}
        self.marks = 0
        self.servers.append(Server(self.folder / f"server{len(self.servers)}", settings, data=self.folder / "data"))

    @contextlib.contextmanager
    def without_server(self):
        """Kills the server, and restarts it at the end."""
        self.server.kill()
        try:
            yield
        finally:
            self.start_server()

    def close(self):
        crashed = not self.proxy.is_running()
        self.proxy.stop()
        finish(self.server)
        assert not crashed, f"the proxy ended by itself: {self.proxy.log()[-2000:]}"

    # Requests

    def secure(self, **options):
        """A TLS connection to the proxy."""
        return TLSConnection(("127.0.0.1", self.proxy.https_port), self.certificate.context, **options)

    def plain(self, **options):
        """A connection to the proxy's port for plain HTTP."""
        return Connection(("127.0.0.1", self.proxy.http_port), **options)

    def exchange(self, connection, method, target, body=None, headers=None):
        """One request on a connection that can be used again, with the answer as clients read it."""
        client = http.client.HTTPConnection(HOST)
        client.sock = connection.socket
        client.request(method, target, body, headers or {})
        answer = client.getresponse()
        return Response(answer.status, {name.lower(): value for name, value in answer.getheaders()}, answer.read())

    def request(self, method, target, body=None, headers=None, open_connection=None):
        """One request on its own connection, over TLS by default."""
        with (open_connection or self.secure)() as connection:
            return self.exchange(connection, method, target, body, headers)

    def stored(self, unique_id):
        """The server's answer for an id, asked directly and not through the proxy."""
        with Connection(self.server.address) as connection:
            return connection.exchange(get(unique_id)).body

    def speaks_for_itself(self, response):
        """Whether an answer is one of the proxy's built-in answers to data that is not HTTP, which cannot be configured."""
        statuses, media_type = self.proxy.fixed_answers
        return response.status in statuses and response.headers["content-type"].startswith(media_type)

    def works(self):
        """Checks a round trip through the proxy."""
        unique_id = fresh_id()
        assert self.request("POST", "/token", form(unique_id, "works"), FORM_HEADERS).body == STORED
        assert self.request("GET", f"/token?unique_id={unique_id}").body == found("works")
        return True

    def server_log(self):
        """Method, path and status of each request that reached the server since it was started."""
        # The log is written a little later, but in order: once it has our own request, it has all those before.
        with Connection(self.server.address) as connection:
            connection.exchange(lines("MARK /token HTTP/1.1", "Host: localhost"))
        self.marks += 1
        until(lambda: self._logged().count(MARK) == self.marks)
        return [entry for entry in self._logged() if entry != MARK]

    def _logged(self):
        return re.findall(r'"(\S+) (\S+) \S+" (\d+) ', self.server.output())


def check_error(response, status):
    """Checks an error answer that the proxy generated."""
    check_http_error(response, status)
    assert response.headers["content-type"] == "application/json"
    assert response.headers["cache-control"] == "no-store"


def send_all(connection, data):
    """Sends; it is not an error if the proxy has already answered and closed."""
    with contextlib.suppress(ConnectionError, ssl.SSLEOFError, ssl.SSLZeroReturnError):
        connection.send(data)


FORM_HEADERS = {"Content-Type": "application/x-www-form-urlencoded"}
# The server's log entry for an unknown method.
MARK = ("-", "/token", "200")
NOTHING = re.compile(rb'\{"status":"false","errorCode":"50002",.*')


@pytest.fixture(scope="module", params=PROXIES)
def site(request, tmp_path_factory, certificate):
    site = Site(tmp_path_factory.mktemp(request.param), PROXIES[request.param], certificate)
    yield site
    site.close()


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


# Plain HTTP

# A method, whether it has a body, and the status of the redirect
REDIRECTS = {"GET": 302, "HEAD": 302, "POST": 308, "PUT": 308, "DELETE": 308}


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


# What the proxies tell the server

class Recorder:
    """Replaces the server and records the heads of the requests that the proxy sends."""

    def __init__(self, port):
        self.heads = []
        self.listener = socket.create_server(("127.0.0.1", port))
        self.thread = threading.Thread(target=self._serve, daemon=True)
        self.thread.start()

    def _serve(self):
        while True:
            try:
                connection, _ = self.listener.accept()
            except OSError:
                return
            with connection:
                received = b""
                while b"\r\n\r\n" not in received and (data := connection.recv(65536)):
                    received += data
                if received:
                    self.heads.append(received.partition(b"\r\n\r\n")[0].decode("latin-1").split("\r\n"))
                    connection.sendall(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\nConnection: close\r\n\r\nok")

    def values(self, name):
        """All values of a header in the last request."""
        fields = [line.partition(":") for line in self.heads[-1][1:]]
        return [value.strip() for field, _, value in fields if field.lower() == name]

    def close(self):
        self.listener.shutdown(socket.SHUT_RDWR)
        self.thread.join()
        self.listener.close()


@pytest.fixture(scope="module")
def heads(site):
    """What the server receives for each of the requests in CLAIMS."""
    result = {}
    with site.without_server():
        recorder = Recorder(site.port)
        try:
            for name, fields in CLAIMS.items():
                with site.secure(source="127.0.0.2") as connection:
                    connection.send(lines("GET /token?unique_id=a HTTP/1.1", f"Host: {HOST}", *fields))
                    answer = connection.socket.recv(65536)
                    assert answer.startswith(b"HTTP/1.1 200"), answer
                result[name] = {field: recorder.values(field) for field in FORWARDED}
        finally:
            recorder.close()
    return result


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


@pytest.mark.parametrize("claim", CLAIMS)
def test_the_server_is_told_the_truth_about_the_client(site, heads, claim):
    told = heads[claim]
    assert told["x-forwarded-proto"] == ["https"]
    assert told["x-forwarded-for"] == ["127.0.0.2"]
    assert told["x-forwarded-host"] in ([], [HOST])
    request_id, = told["x-request-id"]
    assert request_id and CANARY not in request_id
    for name in "forwarded", "x-forwarded-port", "x-forwarded-server", "x-real-ip", "remote-user", "traceparent":
        assert told[name] == [], name


# Errors of the proxy itself

def raw_answer(connection, data, method="GET"):
    """The answer to bytes that need not be a request."""
    send_all(connection, data)
    client = http.client.HTTPResponse(connection.socket, method=method)
    client.begin()
    return Response(client.status, {name.lower(): value for name, value in client.getheaders()}, client.read())


@pytest.mark.parametrize("method", ["GET", "POST", "DELETE"])
def test_an_unknown_path_gets_an_error_in_the_contracts_shape(site, method):
    body = form("a", "b") if method == "POST" else None
    check_error(site.request(method, "/other?unique_id=a", body, FORM_HEADERS), 404)
    assert site.works()


# Requests, and the statuses of which each proxy answers one
BROKEN = {
    "malformed header": (lines("GET /token HTTP/1.1", f"Host: {HOST}", "a b: c"), {400}),
    "no host": (lines("GET /token HTTP/1.1"), {400}),
    "two hosts": (lines("GET /token HTTP/1.1", f"Host: {HOST}", "Host: evil.test"), {400}),
    "malformed length": (lines("POST /token HTTP/1.1", f"Host: {HOST}", "Content-Length: x"), {400}),
    "unknown coding": (lines("POST /token HTTP/1.1", f"Host: {HOST}", "Transfer-Encoding: x"), {400, 422, 501}),
    "long header": (lines("GET /token HTTP/1.1", f"Host: {HOST}", f"X: {'x' * 70_000}"), {400, 431}),
    "long target": (lines(f"GET /token?{'x' * 70_000} HTTP/1.1", f"Host: {HOST}"), {400, 414, 431}),
    "large body": (lines("POST /token HTTP/1.1", f"Host: {HOST}", FORM, f"Content-Length: {BODY_LIMIT + 1}"), {413}),
}


@pytest.mark.parametrize("data, statuses", BROKEN.values(), ids=BROKEN)
@pytest.mark.parametrize("kind", ["plain", "secure"])
def test_what_a_proxy_refuses_gets_an_error_in_the_contracts_shape(site, kind, data, statuses):
    with getattr(site, kind)() as connection:
        response = raw_answer(connection, data)
    if kind == "plain" and response.status in (302, 308):
        # For a large body, for example, which is not read.
        statuses = {302, 308}
    assert response.status in statuses, response
    if site.speaks_for_itself(response):
        return
    check_error(response, response.status)


def test_plain_http_on_the_port_of_tls_gets_an_error_or_nothing(site):
    with Connection(("127.0.0.1", site.proxy.https_port)) as connection:
        connection.send(get("a"))
        answer = b""
        with contextlib.suppress(ConnectionError):
            answer = connection.receive_to_end()
    head, _, body = answer.partition(b"\r\n\r\n")
    fixed = {400} <= site.proxy.fixed_answers[0] and head.startswith(b"HTTP/1.0 400")
    assert not answer or fixed or json.loads(body)["errorCode"] == "40000", answer


class Backend:
    """Replaces the server: answers each request with the same bytes, or not at all."""

    def __init__(self, port, answer):
        self.answer = answer
        self.connections = []
        self.listener = socket.create_server(("127.0.0.1", port))
        self.thread = threading.Thread(target=self._serve, daemon=True)
        self.thread.start()

    def _serve(self):
        while True:
            try:
                connection, _ = self.listener.accept()
            except OSError:
                return
            connection.recv(65536)
            if self.answer is None:
                self.connections.append(connection)
            else:
                connection.sendall(self.answer)
                connection.close()

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.listener.shutdown(socket.SHUT_RDWR)
        self.thread.join()
        self.listener.close()
        for connection in self.connections:
            connection.close()


@pytest.mark.parametrize("method", ["GET", "POST"])
def test_a_server_that_is_down_or_breaks_off_gives_errors_in_the_contracts_shape(site, method):
    body = form("a", "b") if method == "POST" else None
    with site.without_server():
        response = site.request(method, "/token?unique_id=a", body, FORM_HEADERS)
        assert response.status in (502, 503)
        check_error(response, response.status)
        with Backend(site.port, b"HTTP/1.1 200 OK\r\nContent-Le"):
            response = site.request(method, "/token?unique_id=a", body, FORM_HEADERS)
        assert response.status == 502
        check_error(response, 502)
    assert site.works()


def test_what_fails_is_logged_under_its_path(site):
    failed = re.compile(r'"GET /token HTTP/1\.1" 50[23] |"uri":"/token".*"status":50[23]')
    before = len(failed.findall(site.proxy.log()))
    with site.without_server():
        site.request("GET", f"/token?unique_id={CANARY}")
    until(lambda: len(failed.findall(site.proxy.log())) > before)
    assert CANARY not in site.proxy.log()


@pytest.mark.parametrize("status", [201, 302, 308, 400, 401, 403, 404, 405, 408, 412, 413, 414, 417, 421, 428, 429, 431, 500, 501,
                                    503, 505])
def test_what_the_server_answers_passes_through_as_it_is(site, status):
    body = error(status * 100, "Said by the server.")
    answer = lines(f"HTTP/1.1 {status} Said", "Content-Type: application/json", f"Content-Length: {len(body)}",
                   "Cache-Control: no-store", "Location: https://elsewhere.test/", "Connection: close", body=body)
    with site.without_server(), Backend(site.port, answer):
        response = site.request("GET", "/token?unique_id=a")
    assert (response.status, response.body) == (status, body)
    assert response.headers["content-type"] == "application/json"
    assert response.headers["location"] == "https://elsewhere.test/"


@pytest.mark.parametrize("status", [200, 401, 403, 412, 421, 429, 503])
def test_the_headers_of_the_servers_answers_pass_through_once(site, status):
    body = error(status * 100, "Said by the server.")
    headers = {"content-type": "application/json", "content-length": str(len(body)), "cache-control": "no-store",
               "x-content-type-options": "nosniff", "x-request-id": "0123456789abcdef",
               "strict-transport-security": "max-age=31536000", "etag": '"64bd3f1a2c"',
               "www-authenticate": 'Bearer error="invalid_token"', "retry-after": "7"}
    answer = lines(f"HTTP/1.1 {status} Said", *(f"{name}: {value}" for name, value in headers.items()), "Connection: close",
                   body=body)
    with site.without_server(), Backend(site.port, answer), site.secure() as connection:
        connection.send(lines("GET /token?unique_id=a HTTP/1.1", f"Host: {HOST}", "Connection: close"))
        head = connection.receive_to_end().partition(b"\r\n\r\n")[0].decode()
    seen = [tuple(line.split(": ", 1)) for line in head.split("\r\n")[1:]]
    for name, value in headers.items():
        assert [found for field, found in seen if field.lower() == name] == [value], head


@pytest.mark.parametrize("name", PROXIES)
def test_a_server_that_does_not_answer_gives_an_error_in_the_contracts_shape(tmp_path, certificate, name):
    """The proxy waits for a second here instead of a minute."""
    old, new = PROXIES[name].patience
    port, = free_ports(1)
    hasty = type("Hasty", (PROXIES[name],), {
        "deployed": lambda self, replacements: PROXIES[name].deployed(self, {**replacements, old: new})})
    with Backend(port, None):
        proxy = hasty(tmp_path / "proxy", port, certificate)
        try:
            with TLSConnection(("127.0.0.1", proxy.https_port), certificate.context) as connection:
                response = raw_answer(connection, lines("GET /token?unique_id=a HTTP/1.1", f"Host: {HOST}"))
        finally:
            proxy.stop()
    assert response.status in (502, 504)
    check_error(response, response.status)


# Limits

@pytest.mark.parametrize("coding", ["length", "chunked"])
def test_a_body_over_the_limit_is_refused_and_the_proxy_stays_healthy(site, coding):
    unique_id = fresh_id()
    body = form(unique_id, "x" * BODY_LIMIT)
    head = ["POST /token HTTP/1.1", f"Host: {HOST}", FORM]
    if coding == "chunked":
        data = lines(*head, "Transfer-Encoding: chunked", body=chunks(body, 65536))
    else:
        data = lines(*head, f"Content-Length: {len(body)}", body=body)
    with site.secure() as connection:
        send_all(connection, data)
        assert connection.socket.recv(65536).startswith(b"HTTP/1.1 413")
    assert NOTHING.fullmatch(site.stored(unique_id))
    assert site.works()


def test_a_body_at_the_limit_is_stored(site):
    unique_id = fresh_id()
    token_info = "x" * (BODY_LIMIT - len(form(unique_id, "")))
    assert site.request("POST", "/token", form(unique_id, token_info), FORM_HEADERS).body == STORED
    assert site.request("GET", f"/token?unique_id={unique_id}").body == found(token_info)


def test_a_body_of_absurd_length_is_refused(site):
    for length in "18446744073709551617", "9" * 40, "9223372036854775807":
        with site.secure() as connection:
            head = lines("POST /token HTTP/1.1", f"Host: {HOST}", FORM, f"Content-Length: {length}")
            # Some proxies wait for the first bytes of a body.
            send_all(connection, head + b"x" * 65536)
            answer = b""
            with contextlib.suppress(ConnectionError):
                answer = connection.socket.recv(65536)
            # HAProxy closes the connection without an answer.
            assert answer[:12] in (b"HTTP/1.1 413", b"HTTP/1.1 400", b"HTTP/1.0 400", b"")
    assert site.works()


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


# Smuggling: a request whose body contains a second one, which only a parser that disagrees with the first finds.

OUTER = ["POST /token HTTP/1.1", f"Host: {HOST}", FORM]
CHUNKED = "Transfer-Encoding: chunked"


def length(body):
    return f"Content-Length: {len(body)}"


def in_chunk(inner, size=None, end="\r\n", after=b"\r\n0\r\n\r\n"):
    """A chunked body with the inner request as one chunk."""
    return (size or f"{len(inner):x}").encode("latin-1") + end.encode() + inner + after


def chunk_head(inner):
    """The Content-Length that ends a body right before the inner request."""
    return f"Content-Length: {len(f'{len(inner):x}') + 2}"


def after_last_chunk(inner):
    """A body that ends before the inner request if it is read as chunks."""
    return b"0\r\n\r\n" + inner


def by_length(*fields, shown=None):
    """CL.TE: the length includes the inner request, which follows the last chunk if these fields are believed."""
    def make(inner):
        body = after_last_chunk(inner)
        return lines(*OUTER, shown or length(body), *fields, body=body)
    return make


def by_chunks(*fields):
    """TE.CL: the inner request is in a chunk; if the length is believed, it follows the body."""
    return lambda inner: lines(*OUTER, *fields, chunk_head(inner), body=in_chunk(inner))


def in_chunks(make_body):
    """Chunked only: the trick is in the syntax of the body."""
    return lambda inner: lines(*OUTER, CHUNKED, body=make_body(inner))


def two_lengths(first, second):
    """Two lengths; None stands for the right one, a number ends before the inner request."""
    def make(inner):
        body = b"a=b" + inner
        texts = [str(len(body) if value is None else value) for value in (first, second)]
        return lines(*OUTER, *(f"Content-Length: {text}" for text in texts), body=body)
    return make


def one_length(pattern):
    """A length that some parsers read as 3 and others as the whole."""
    def make(inner):
        body = b"a=b" + inner
        return lines(*OUTER, f"Content-Length: {pattern.format(len(body))}", body=body)
    return make


ATTACKS = {
    "CL.TE": by_length(CHUNKED),
    "CL.TE, in capitals": by_length("TRANSFER-ENCODING: CHUNKED"),
    "CL.TE, xchunked": by_length("Transfer-Encoding: xchunked"),
    "CL.TE, chunked and identity": by_length("Transfer-Encoding: chunked, identity"),
    "CL.TE, identity then chunked": by_length("Transfer-Encoding: identity", CHUNKED),
    "CL.TE, chunked twice": by_length(CHUNKED, CHUNKED),
    "CL.TE, blank before the colon": by_length("Transfer-Encoding : chunked"),
    "CL.TE, vertical tab": by_length("Transfer-Encoding:\x0bchunked"),
    "CL.TE, tab": by_length("Transfer-Encoding:\tchunked"),
    "CL.TE, quoted": by_length('Transfer-Encoding: "chunked"'),
    "CL.TE, NUL": by_length("Transfer-Encoding: chunked\0"),
    "CL.TE, bare CR": by_length("X: a\rTransfer-Encoding: chunked"),
    "CL.TE, bare LF": by_length("X: a\nTransfer-Encoding: chunked"),
    "CL.TE, underscore": by_length("Transfer_Encoding: chunked"),
    "CL.TE, HTTP/1.0": lambda inner: by_length(CHUNKED)(inner).replace(b"HTTP/1.1", b"HTTP/1.0", 1),
    "CL.TE, obs-fold in Transfer-Encoding": by_length("Transfer-Encoding:\r\n chunked"),
    "CL.TE, obs-fold before Transfer-Encoding": by_length("X: a\r\n Transfer-Encoding: chunked"),
    "CL.TE, obs-fold with a tab": by_length("Transfer-Encoding:\r\n\tchunked"),
    "CL.TE, named by Connection": by_length(CHUNKED, "Connection: keep-alive, Transfer-Encoding"),
    "CL named by Connection": by_length("Connection: keep-alive, Content-Length"),
    "TE.CL": by_chunks(CHUNKED),
    "TE.CL, obs-fold in Transfer-Encoding": by_chunks("Transfer-Encoding:\r\n chunked"),
    "TE.CL, blank before the colon": by_chunks("Transfer-Encoding : chunked"),
    "TE.CL, xchunked": by_chunks("Transfer-Encoding: xchunked"),
    "TE.CL, chunked twice": by_chunks(CHUNKED, CHUNKED),
    "TE.CL, chunked then identity": by_chunks(CHUNKED, "Transfer-Encoding: identity"),
    "TE.CL, vertical tab": by_chunks("Transfer-Encoding:\x0bchunked"),
    "TE.CL, HTTP/1.0": lambda inner: by_chunks(CHUNKED)(inner).replace(b"HTTP/1.1", b"HTTP/1.0", 1),
    "duplicated Content-Length": two_lengths(None, None),
    "differing Content-Length, short first": two_lengths(3, None),
    "differing Content-Length, short last": two_lengths(None, 3),
    "Content-Length 0 first": two_lengths(0, None),
    "list of Content-Lengths": one_length("3, {}"),
    "list of equal Content-Lengths": one_length("{0}, {0}"),
    "Content-Length with a plus": one_length("+{}"),
    "hexadecimal Content-Length": one_length("0x{:x}"),
    "Content-Length with a blank": one_length("3 {}"),
    "Content-Length with a NUL": one_length("3\0{}"),
    "negative Content-Length": one_length("-{}"),
    "Content-Length beyond 64 bits": one_length(str((1 << 64) + 3)),
    "Content-Length beyond 64 bits, the whole": lambda inner: lines(
        *OUTER, f"Content-Length: {(1 << 64) + 3 + len(inner)}", body=b"a=b" + inner),
    "Content-Length beyond 32 bits": one_length(str((1 << 32) + 3)),
    "Content-Length with many leading zeros": one_length("{:030d}"),
    "folded Content-Length": one_length("3\r\n {}"),
    "blank before the colon of Content-Length": lambda inner: lines(
        *OUTER, "Content-Length: 3", f"Content-Length : {len(inner) + 3}", body=b"a=b" + inner),
    "GET with a body": lambda inner: lines(
        "GET /token?unique_id=nobody HTTP/1.1", f"Host: {HOST}", length(inner), body=inner),
    "Expect with a body": lambda inner: lines(*OUTER, "Expect: 100-continue", length(inner), body=inner),
    "Upgrade with a body": lambda inner: lines(
        *OUTER, "Connection: Upgrade", "Upgrade: websocket", length(inner), body=inner),
    "chunk": in_chunks(in_chunk),
    "chunk size with 0x": in_chunks(lambda inner: in_chunk(inner, f"0x{len(inner):x}")),
    "chunk size with a plus": in_chunks(lambda inner: in_chunk(inner, f"+{len(inner):x}")),
    "chunk size with a blank before": in_chunks(lambda inner: in_chunk(inner, f" {len(inner):x}")),
    "chunk size with a NUL": in_chunks(lambda inner: in_chunk(inner, f"0\0{len(inner):x}")),
    "chunk size with an underscore": in_chunks(lambda inner: in_chunk(inner, f"0_{len(inner):x}")),
    "negative chunk size": in_chunks(lambda inner: in_chunk(inner, f"-{len(inner):x}")),
    "chunk size beyond 64 bits": in_chunks(lambda inner: in_chunk(inner, f"1{len(inner):016x}")),
    "chunk size beyond 32 bits": in_chunks(lambda inner: in_chunk(inner, f"1{len(inner):08x}")),
    "chunk size with leading zeros": in_chunks(lambda inner: in_chunk(inner, f"{len(inner):032x}")),
    "chunk extension": in_chunks(lambda inner: in_chunk(inner, f'{len(inner):x};a="b\\"c"')),
    "chunk extension with a bare LF": in_chunks(lambda inner: in_chunk(inner, f"{len(inner):x};a\n0\r\n\r\n")),
    "chunk size ended by a bare LF": in_chunks(lambda inner: in_chunk(inner, end="\n")),
    "chunk size ended by a bare CR": in_chunks(lambda inner: in_chunk(inner, end="\r")),
    "chunk longer than its size": in_chunks(lambda inner: b"3\r\na=bXX\r\n0\r\n\r\n" + inner),
    "chunk ended by two bytes of another kind": in_chunks(lambda inner: b"3\r\na=bXX0\r\n\r\n" + inner),
    "chunk ended by a bare LF": in_chunks(lambda inner: b"3\r\na=b\n" + in_chunk(inner)),
    "inner request as a trailer": in_chunks(lambda inner: b"0\r\n" + inner),
    "inner request as a trailer after a fold": in_chunks(lambda inner: b"0\r\nX: a\r\n " + inner),
}


def attack(site, data):
    """Sends an attack and returns all bytes received until the connection ends or falls silent."""
    with site.secure(timeout=0.7) as connection:
        send_all(connection, data)
        with contextlib.suppress(TimeoutError, ConnectionError, ssl.SSLError):
            connection.receive_to_end()
        return connection.unread


@pytest.fixture(scope="module")
def smuggled(site):
    """Runs all attacks at once, among honest clients: the answer to each, and what is stored afterwards."""
    site.works()
    before = len(site.server_log())
    markers = {name: fresh_id() for name in ATTACKS}
    inner = {
        name: post(marker, "smuggled", path="/token.php").replace(b"Host: localhost", b"Host: " + HOST.encode())
        for name, marker in markers.items()
    }
    with concurrent.futures.ThreadPoolExecutor(16) as pool:
        answers = {name: pool.submit(attack, site, make(inner[name])) for name, make in ATTACKS.items()}
        honest = [pool.submit(site.works) for _ in range(40)]
        assert all(client.result() for client in honest)
        answers = {name: answer.result() for name, answer in answers.items()}
    stored = {name: site.stored(marker) for name, marker in markers.items()}
    return answers, stored, site.server_log()[before:]


@pytest.mark.parametrize("name", ATTACKS)
def test_no_second_request_is_smuggled(smuggled, name):
    answers, stored, _ = smuggled
    final = re.findall(rb"HTTP/1\.[01] ([2-5][0-9][0-9]) ", answers[name])
    assert len(final) <= 1, answers[name]
    assert NOTHING.fullmatch(stored[name]), answers[name]


def test_the_server_has_seen_no_smuggled_request(smuggled):
    _, stored, log = smuggled
    assert not [entry for entry in log if entry[1] != "/token"]
    # At most the outer request of an attack gets through; all others are those of honest clients and of `stored`.
    assert len(log) <= len(ATTACKS) + 2 * 40 + len(stored)


def test_the_proxy_works_after_the_attacks(site, smuggled):
    for _ in range(20):
        site.works()


# Logs

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
            lines(f"POST {target} HTTP/1.1", f"Host: {HOST}", FORM, CHUNKED, body=f"{CANARY}\r\n".encode()),
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


# https.mode strict, behind an nginx that forwards plain HTTP instead of redirecting it

class CarelessNginx(Nginx):
    """A proxy on the server's machine that sets one of several headers and forwards plain HTTP."""
    headers = {
        # The header that nginx sets, by the path prefix that selects it
        "scheme": ["X-Forwarded-Proto $scheme"],
        "scheme-and-address": ["X-Forwarded-Proto $scheme", "X-Forwarded-For $remote_addr"],
        "address": ["X-Forwarded-For $proxy_add_x_forwarded_for"],
        "real-address": ["X-Real-IP $remote_addr", "X-Forwarded-For $remote_addr", 'X-Forwarded-Proto ""'],
        "forwarded": ['Forwarded "for=$remote_addr;proto=$scheme"'],
        "appended": ['Forwarded "$http_forwarded, for=$remote_addr;proto=$scheme"'],
    }

    def site(self):
        upstream = self.replacements["127.0.0.1:8080"]
        places = "\n".join(
            f"location /{place}/ {{ proxy_pass http://{upstream}/; proxy_set_header Host $host; "
            + " ".join(f"proxy_set_header {header};" for header in headers) + " }"
            for place, headers in self.headers.items())
        return (
            f"server {{ listen {self.http_port}; listen {self.https_port} ssl; server_name {HOST};\n"
            f"ssl_certificate {self.certificate.file}; ssl_certificate_key {self.certificate.key};\n{places}\n}}\n")


@pytest.fixture(scope="module")
def careless(tmp_path_factory, certificate):
    site = Site(tmp_path_factory.mktemp("careless"), CarelessNginx, certificate)
    yield site
    site.close()


# The header that nginx sets, the one that the client sends, and whether the server must redirect
CARELESS = {
    "scheme": ("scheme", {}),
    "scheme and address": ("scheme-and-address", {}),
    "scheme, Forwarded by the client": ("scheme", {"Forwarded": "proto=https"}),
    "scheme, loopback claimed by the client": ("scheme", {"X-Forwarded-For": "127.0.0.1"}),
    "scheme, forged": ("scheme-and-address", FORGED),
    "no scheme, only the address": ("address", {}),
    "no scheme, loopback claimed by the client": ("address", {"X-Forwarded-For": "127.0.0.1"}),
    "no scheme, only addresses": ("real-address", {}),
    "Forwarded": ("forwarded", {}),
    "Forwarded, appended to a claim": ("appended", {"Forwarded": "for=6.6.6.6;proto=https"}),
    "Forwarded, appended to an open quote": ("appended", {"Forwarded": 'for=6.6.6.6;proto=https;x="'}),
}


@pytest.mark.parametrize("method, status", REDIRECTS.items(), ids=REDIRECTS)
@pytest.mark.parametrize("place, claims", CARELESS.values(), ids=CARELESS)
def test_the_server_redirects_what_a_proxy_passes_on_from_plain_http(careless, place, claims, method, status):
    unique_id = fresh_id()
    body = form(unique_id, "leaked") if method in ("POST", "PUT") else None
    target = f"/token?unique_id={unique_id}&token_info=leaked"
    response = careless.request(
        method, f"/{place}{target}", body, {**FORM_HEADERS, **claims}, open_connection=careless.plain)
    assert (response.status, response.headers.get("location")) == (status, f"https://{HOST}{target}")
    assert response.body == b""
    assert NOTHING.fullmatch(careless.stored(unique_id))


@pytest.mark.parametrize("place", ["scheme", "scheme-and-address", "forwarded", "appended"])
def test_the_server_serves_what_a_proxy_passes_on_from_https(careless, place):
    unique_id = fresh_id()
    answer = careless.request("POST", f"/{place}/token", form(unique_id, "kept"), FORM_HEADERS)
    assert answer.body == STORED
    assert careless.request("GET", f"/{place}/token?unique_id={unique_id}").body == found("kept")


def test_secure_answers_tell_browsers_to_stay_with_https(site):
    response = site.request("GET", "/token?unique_id=nobody")
    assert response.headers.get("strict-transport-security", "").startswith("max-age=31536000")
