"""A small HTTP client that sends encoded requests and returns whole answers."""

import contextlib
import functools
import socket
import ssl

CONNECTIONS = 64


def ask(connection: socket.socket, request: bytes) -> bytes:
    """Sends a request and returns the whole answer."""
    connection.sendall(request)
    return receive(connection)


def receive(connection: socket.socket) -> bytes:
    """One answer with its body, which has a Content-Length."""
    answer = b""
    while True:
        head, separator, body = answer.partition(b"\r\n\r\n")
        if separator and len(body) >= content_length(head):
            return answer
        received = connection.recv(65_536)
        if not received:
            raise ConnectionResetError("the connection was closed before the answer")
        answer += received


def content_length(head: bytes) -> int:
    """The value of the field; 0 without one."""
    for line in head.split(b"\r\n")[1:]:
        name, _, value = line.partition(b":")
        if name.lower() == b"content-length":
            return int(value)
    return 0


@functools.cache
def tls() -> ssl.SSLContext:
    """A TLS context without the system's authorities, which take long to load, and without sessions."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    return context


def connect(port: int, is_tls: bool = False) -> socket.socket:
    """A connection to a local server, whose certificate is not checked."""
    # Long enough for a server under Callgrind on a core that tests use as well.
    connection = socket.create_connection(("127.0.0.1", port), timeout=60)
    if not is_tls:
        return connection
    return tls().wrap_socket(connection)


def open_connections(
    stack: contextlib.ExitStack, port: int, count: int, is_tls: bool = False
) -> list[socket.socket]:
    """Connections that the stack closes."""
    return [stack.enter_context(connect(port, is_tls)) for _ in range(count)]


def ask_all(port: int, requests: list[bytes], is_tls: bool = False) -> list[bytes]:
    """Sends all requests over a few connections at once and returns their answers in order."""
    answers = []
    with contextlib.ExitStack() as stack:
        connections = open_connections(stack, port, CONNECTIONS, is_tls)
        for start in range(0, len(requests), CONNECTIONS):
            batch = list(zip(connections, requests[start:start + CONNECTIONS]))
            for connection, request in batch:
                connection.sendall(request)
            answers += [receive(connection) for connection, _ in batch]
    return answers
