"""The reverse proxies tell the server the truth about clients, and pass its answers on as they are."""
import pytest

from contract import error
from http_client import lines
from proxies import HOST
from proxy_site import CANARY, FORGED, Backend, SameAnswer


# What the proxies tell the server

class Recorder(Backend):
    """Records the heads of the requests that the proxy sends."""

    def __init__(self, port):
        self.heads = []
        super().__init__(port)

    def answer(self, connection):
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


# What the proxies pass on to clients

@pytest.mark.parametrize("status", [201, 302, 308, 400, 401, 403, 404, 405, 408, 412, 413, 414, 417, 421, 428, 429, 431, 500, 501,
                                    503, 505])
def test_what_the_server_answers_passes_through_as_it_is(site, status):
    body = error(status * 100, "Said by the server.")
    answer = lines(f"HTTP/1.1 {status} Said", "Content-Type: application/json", f"Content-Length: {len(body)}",
                   "Cache-Control: no-store", "Location: https://elsewhere.test/", "Connection: close", body=body)
    with site.without_server(), SameAnswer(site.port, answer):
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
    with site.without_server(), SameAnswer(site.port, answer), site.secure() as connection:
        connection.send(lines("GET /token?unique_id=a HTTP/1.1", f"Host: {HOST}", "Connection: close"))
        head = connection.receive_to_end().partition(b"\r\n\r\n")[0].decode()
    seen = [tuple(line.split(": ", 1)) for line in head.split("\r\n")[1:]]
    for name, value in headers.items():
        assert [found for field, found in seen if field.lower() == name] == [value], head
