"""A reverse proxy with a server behind it, and replacements for both."""
import contextlib
import http.client
import re
import socket
import ssl
import threading

from administration import ADMINISTRATION
from contract import STORED, check_http_error, found, fresh_id
from http_client import Connection, Response, form, lines
from ports import free_ports
from proxies import HOST
from server_process import Server, finish, until

BODY_LIMIT = 1 << 20
FORM_HEADERS = {"Content-Type": "application/x-www-form-urlencoded"}
NOTHING = re.compile(rb'\{"status":"false","errorCode":"50002",.*')
# The server's log entry for an unknown method.
MARK = ("other", "/token", "200")
# A method, whether it has a body, and the status of the redirect
REDIRECTS = {"GET": 302, "HEAD": 302, "POST": 308, "PUT": 308, "DELETE": 308}
CANARY = "canary4711"
FORGED = {
    "X-Forwarded-Proto": "https", "Forwarded": "for=127.0.0.1;proto=https", "X-Forwarded-For": "127.0.0.1",
    "X-Forwarded-Host": "evil.test", "X-Forwarded-Port": "443", "X-Forwarded-Server": "evil.test",
    "X-Real-IP": "127.0.0.1", "Remote-User": "admin", "X-Request-Id": CANARY,
}


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
        settings = {**ADMINISTRATION, "listen": f"127.0.0.1:{self.port}", "access_log": "combined", "loops": 1}
        self.marks = 0
        self.servers.append(Server(self.folder / f"server{len(self.servers)}", settings, data=self.folder / "data"))

    @contextlib.contextmanager
    def without_server(self):
        """Kills the server, and restarts it at the end."""
        self.server.kill()
        try:
            until(self._is_missed)
            yield
        finally:
            self.start_server()

    def _is_missed(self):
        """Whether the proxy says that the server is down."""
        # HAProxy closes its client's connection if one to the server that it has kept proves to be lost: clients repeat then.
        with contextlib.suppress(ConnectionError):
            return self.request("GET", "/token?unique_id=nobody").status in (502, 503)

    def close(self):
        crashed = not self.proxy.is_running()
        self.proxy.close()
        finish(self.server)
        assert not crashed, f"the proxy ended by itself: {self.proxy.log()[-2000:]}"

    # Requests

    def secure(self, **options):
        """A TLS connection to the proxy."""
        return self.certificate.connect(self.proxy.https_port, **options)

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
        return self.server.get(unique_id)

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


class Backend:
    """Takes the server's place behind a proxy; subclasses decide how to answer."""

    def __init__(self, port):
        self.listener = socket.create_server(("127.0.0.1", port))
        self.thread = threading.Thread(target=self._serve, daemon=True)
        self.thread.start()

    def _serve(self):
        while True:
            try:
                connection, _ = self.listener.accept()
            except OSError:
                return
            # The proxy may have given up its connection.
            with contextlib.suppress(ConnectionError):
                self.answer(connection)

    def answer(self, connection):
        """Answers the request of a connection, and closes it."""
        raise NotImplementedError

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.listener.shutdown(socket.SHUT_RDWR)
        self.thread.join()
        self.listener.close()


class SameAnswer(Backend):
    """Answers each request with the same bytes."""

    def __init__(self, port, data):
        self.data = data
        super().__init__(port)

    def answer(self, connection):
        with connection:
            connection.recv(65536)
            connection.sendall(self.data)


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


# Requests and answers

def send_all(connection, data):
    """Sends; it is not an error if the proxy has already answered and closed."""
    with contextlib.suppress(ConnectionError, ssl.SSLEOFError, ssl.SSLZeroReturnError):
        connection.send(data)


def raw_answer(connection, data, method="GET"):
    """The answer to bytes that need not be a request."""
    send_all(connection, data)
    return connection.receive_any(method)


def check_error(response, status):
    """Checks an error answer that the proxy generated."""
    check_http_error(response, status)
    assert response.headers["content-type"] == "application/json"
    assert response.headers["cache-control"] == "no-store"
