"""Requests to a server's administration, over TCP and over the control socket."""
import contextlib
import json
import socket
import threading

from http_client import HOST, Connection, exchange, lines, post_of

ADMINISTRATION = {"admin": {"listen": "127.0.0.1:0"}}


def ask(address, method, path, *fields):
    """A JSON answer of the administration; the address may be the path of the control socket."""
    response = exchange(address, lines(f"{method} {path} HTTP/1.1", HOST, *fields), method)
    return response.status, json.loads(response.body) if response.body else None


def steer(server, path, *fields):
    """Sends a POST over the control socket."""
    return ask(server.data / "control.sock", "POST", path, *fields)


def last_line(data, path, request=None, timeout=20):
    """The last line of the answer to a command's request, from JSON; None without an answer, as if the server has ended."""
    body = json.dumps(request or {}).encode()
    try:
        with Connection(data / "control.sock", timeout=timeout) as connection:
            connection.send(post_of(body, path=path))
            found = connection.receive_to_end().partition(b"\r\n\r\n")[2].splitlines()
    except (ConnectionError, FileNotFoundError):
        return None
    return json.loads(found[-1]) if found else None


@contextlib.contextmanager
def impostor(path, answer):
    """Listens at the place of a control socket, and gives each connection to a function, one after the other."""
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(str(path))
        listener.listen()

        def accept():
            with contextlib.suppress(OSError):
                while True:
                    connection, _ = listener.accept()
                    with connection, contextlib.suppress(OSError):
                        answer(connection)

        thread = threading.Thread(target=accept, daemon=True)
        thread.start()
        yield
        listener.shutdown(socket.SHUT_RDWR)
        thread.join()


def readiness(server):
    """The answer of /readyz."""
    return ask(server.administration[0], "GET", "/readyz")


def is_ready(server):
    return readiness(server)[0] == 200


def status(server):
    """The answer of /status."""
    code, answer = ask(server.administration[0], "GET", "/status")
    assert code == 200
    return answer


def fetched(address, path, method="GET", host="localhost"):
    """An answer of the administration, of any type."""
    with Connection(address) as connection:
        connection.send(lines(f"{method} {path} HTTP/1.1", f"Host: {host}"))
        return connection.receive_any(method)


def metrics(server):
    """The samples, as they are written, with their values."""
    text = fetched(server.administration[0], "/metrics").body.decode()
    samples = [line.rsplit(" ", 1) for line in text.splitlines() if not line.startswith("#")]
    assert len({name for name, _ in samples}) == len(samples), "no sample comes twice"
    return {name: float(value) for name, value in samples}
