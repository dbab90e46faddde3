"""HTTP/1.1 over sockets and TLS: sends exactly the given bytes, and reads answers strictly."""
import email.utils
import http.client
import os
import re
import socket
import ssl
import struct
import time
from dataclasses import dataclass

FIELD_LINE = re.compile(rb"([!#$%&'*+.^_`|~0-9A-Za-z-]+): ?([\t\x20-\x7e]*)")
STATUS_LINE = re.compile(rb"HTTP/1\.1 ([1-5][0-9][0-9]) ([A-Za-z -]+)")
DATE = re.compile(r"(Mon|Tue|Wed|Thu|Fri|Sat|Sun), [0-9]{2} [A-Z][a-z]{2} [0-9]{4} [0-9]{2}:[0-9]{2}:[0-9]{2} GMT")
HOST = "Host: localhost"
CONTINUE = b"HTTP/1.1 100 Continue\r\n\r\n"
# TLS of a client that accepts any certificate.
TRUSTING = ssl.create_default_context()
TRUSTING.check_hostname, TRUSTING.verify_mode = False, ssl.CERT_NONE


class ProtocolError(AssertionError):
    """The server sent something that is not an HTTP answer, or closed the connection inside an answer."""


@dataclass(frozen=True)
class Response:
    """One answer; the names of its headers are in lower case."""
    status: int
    headers: dict
    body: bytes

    @property
    def closes(self):
        """Whether the server announces that it closes the connection."""
        return self.headers.get("connection", "").lower() == "close"


class Connection:
    """One connection to a server."""

    def __init__(self, address, timeout=20.0, receive_buffer=None, context=None, host=None, source=None):
        """Connects to a host and port, or to the path of a Unix socket.

        - context, host: for a connection over TLS; what it accepts, and the name that it asks for.
        - source: the address that it comes from.
        """
        if isinstance(address, (str, os.PathLike)):
            family, address = socket.AF_UNIX, str(address)
        else:
            family = socket.AF_INET6 if ":" in address[0] else socket.AF_INET
        self.socket = socket.socket(family, socket.SOCK_STREAM)
        if receive_buffer is not None:
            self.socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, receive_buffer)
        if family != socket.AF_UNIX:
            self.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self.socket.settimeout(timeout)
        self.unread = b""
        try:
            if source:
                self.socket.bind((source, 0))
            self.socket.connect(address)
            if context:
                self.socket = context.wrap_socket(self.socket, server_hostname=host)
        except BaseException:
            self.socket.close()
            raise

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.close()

    def close(self):
        self.socket.close()

    def reset(self):
        """Ends the connection with RST instead of FIN."""
        self.socket.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        self.socket.close()

    def finish_sending(self):
        self.socket.shutdown(socket.SHUT_WR)

    # Sending

    def send(self, data):
        self.socket.sendall(data)

    def send_while_possible(self, data):
        """Sends; it is not an error if the server has already answered and closed its side."""
        try:
            self.socket.sendall(data)
        except (BrokenPipeError, ConnectionResetError):
            pass

    def send_pieces(self, pieces, pause=0.001):
        """Sends pieces with a pause between them, so that the server reads most of them one by one."""
        for piece in pieces:
            self.send_while_possible(piece)
            time.sleep(pause)

    # Receiving

    def receive(self, method="GET"):
        """The next answer to a request with this method; interim answers (1xx) are returned too."""
        lines = self._until(b"\r\n\r\n").split(b"\r\n")
        status_line = STATUS_LINE.fullmatch(lines[0])
        if not status_line:
            raise ProtocolError(f"not a status line: {lines[0]!r}")
        status = int(status_line[1])
        headers = {}
        for line in lines[1:]:
            field = FIELD_LINE.fullmatch(line)
            if not field:
                raise ProtocolError(f"not a header line: {line!r}")
            name = field[1].decode().lower()
            if name in headers:
                raise ProtocolError(f"repeated header: {name}")
            headers[name] = field[2].decode().strip()
        if status == 100:
            return Response(status, headers, b"")
        check_common_headers(headers)
        if method == "HEAD" or status == 304:
            return Response(status, headers, b"")
        if not re.fullmatch(r"0|[1-9][0-9]*", headers.get("content-length", "")):
            raise ProtocolError(f"no usable Content-Length: {headers}")
        return Response(status, headers, self.receive_raw(int(headers["content-length"])))

    def receive_any(self, method="GET"):
        """The next answer, of any type and with any fields, as other clients read it."""
        answer = http.client.HTTPResponse(self.socket, method=method)
        answer.begin()
        return Response(answer.status, {name.lower(): value for name, value in answer.getheaders()}, answer.read())

    def receive_raw(self, count):
        """Exactly this many bytes, unparsed."""
        parts, length = [self.unread], len(self.unread)
        while length < count:
            data = self.socket.recv(262144)
            if not data:
                raise ProtocolError(f"the connection ended after {length} of {count} bytes")
            parts.append(data)
            length += len(data)
        whole = b"".join(parts)
        self.unread = whole[count:]
        return whole[:count]

    def receive_to_end(self):
        """Everything up to the server's FIN; a reset raises ConnectionResetError."""
        while self.receive_more():
            pass
        rest, self.unread = self.unread, b""
        return rest

    def expect_end(self):
        """Checks that the server closes the connection without another byte."""
        rest = self.receive_to_end()
        if rest:
            raise ProtocolError(f"after the last answer came {rest[:300]!r}")

    def exchange(self, data, method="GET"):
        """Sends a request and returns its answer."""
        self.send(data)
        return self.receive(method)

    def is_silent(self, seconds):
        """Whether nothing arrives for a while and the connection stays open."""
        if self.unread:
            return False
        timeout = self.socket.gettimeout()
        self.socket.settimeout(seconds)
        try:
            self.unread += self.socket.recv(65536)
            return False
        except TimeoutError:
            return True
        finally:
            self.socket.settimeout(timeout)

    def receive_more(self):
        """Receives what has come; false at the server's FIN."""
        data = self.socket.recv(262144)
        self.unread += data
        return bool(data)

    def _until(self, mark):
        while mark not in self.unread:
            if not self.receive_more():
                raise ProtocolError(f"the connection ended, having brought {self.unread[:300]!r}")
        found, _, self.unread = self.unread.partition(mark)
        return found


def check_common_headers(headers):
    """Checks the headers that every answer has, errors included."""
    is_empty_redirect = "location" in headers and headers.get("content-length", "0") == "0"
    assert headers.get("content-type") == (None if is_empty_redirect else "application/json"), headers
    assert headers.get("cache-control") == "no-store", headers
    assert headers.get("x-content-type-options") == "nosniff", headers
    assert DATE.fullmatch(headers.get("date", "")), headers
    age = time.time() - email.utils.parsedate_to_datetime(headers["date"]).timestamp()
    assert -5 < age < 120, f"Date is {age:.0f} s old"


def exchange(address, data, method="GET"):
    """Sends a request on a connection of its own and returns the answer."""
    with Connection(address) as connection:
        return connection.exchange(data, method)


def lines(*head, body=b""):
    """A request made of the lines of its head, joined with CR LF, and its body."""
    return b"".join(line.encode("latin-1") + b"\r\n" for line in head) + b"\r\n" + body


def get(unique_id, *fields, path="/token"):
    """A GET for an id that needs no encoding."""
    return lines(f"GET {path}?unique_id={unique_id} HTTP/1.1", HOST, *fields)


def form(unique_id, token_info):
    """A form body of values that need no encoding."""
    return f"unique_id={unique_id}&token_info={token_info}".encode("latin-1")


FORM = "Content-Type: application/x-www-form-urlencoded"


def post(unique_id, token_info, *fields, path="/token"):
    """A POST of values that need no encoding."""
    return post_of(form(unique_id, token_info), FORM, *fields, path=path)


def post_of(body, *fields, path="/token"):
    """A POST of any body, whose type is among the fields."""
    return lines(f"POST {path} HTTP/1.1", HOST, f"Content-Length: {len(body)}", *fields, body=body)


def chunks(body, size):
    """A body in chunked coding."""
    pieces = [body[start:start + size] for start in range(0, len(body), size)]
    coded = [b"%x\r\n%s\r\n" % (len(piece), piece) for piece in pieces]
    return b"".join(coded) + b"0\r\n\r\n"


def chunked_post(unique_id, token_info, *fields, size=7):
    """A POST whose body comes in chunks."""
    body = chunks(form(unique_id, token_info), size)
    return lines("POST /token HTTP/1.1", HOST, FORM, "Transfer-Encoding: chunked", *fields, body=body)
