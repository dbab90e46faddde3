"""Requests to a server's administration, over TCP and over the control socket."""
import json

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
