"""Requests to a server's administration, over TCP and over the control socket."""
import json
import urllib.request

from http_client import exchange, lines

HOST = "Host: localhost"
ADMINISTRATION = {"admin": {"listen": "127.0.0.1:0"}}


def ask(address, method, path, *fields):
    """A JSON answer of the administration; the address may be the path of the control socket."""
    response = exchange(address, lines(f"{method} {path} HTTP/1.1", HOST, *fields), method)
    return response.status, json.loads(response.body) if response.body else None


def steer(server, path, *fields):
    """Sends a POST over the control socket."""
    return ask(server.data / "control.sock", "POST", path, *fields)


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


def fetched(server):
    """The text of the metrics and its media type."""
    host, port = server.administration[0]
    with urllib.request.urlopen(f"http://{host}:{port}/metrics", timeout=20) as response:
        return response.read().decode(), response.headers["Content-Type"]


def metrics(server):
    """The samples, as they are written, with their values."""
    text, _ = fetched(server)
    samples = [line.rsplit(" ", 1) for line in text.splitlines() if not line.startswith("#")]
    assert len({name for name, _ in samples}) == len(samples), "no sample comes twice"
    return {name: float(value) for name, value in samples}
