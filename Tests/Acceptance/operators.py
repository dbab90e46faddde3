"""Operators: makes their admin keys, and sends requests with them."""
import base64
import json
import re

from access import bearer
from administration import HOST
from http_client import Connection, exchange, lines
from server_process import run

SECRET = re.compile(r"tca_[A-Za-z0-9_-]{43}")
UNKNOWN = "tca_" + base64.urlsafe_b64encode(bytes(range(32))).decode().rstrip("=")
TOKEN = json.dumps({"canary-token": "4711", "com.facebook.sdk:TokenInformationExpirationDateKey": "2100-01-31T12:00:00Z"})


def admin_keys(file, *arguments, **options):
    """Runs `token-cache admin keys` for a file."""
    return run("admin", "keys", *arguments, environment={"TOKEN_CACHE_ADMIN_KEYS_FILE": str(file)}, **options)


def make_admin_key(file, name, scope, *flags):
    """Adds an admin key to a file and returns it."""
    done = admin_keys(file, "add", name, "--scope", scope, *flags)
    assert done.returncode == 0, done
    return done.stdout.strip()


def status_and_body(address, method, path, *fields):
    """An answer that need not be JSON."""
    with Connection(address) as connection:
        connection.send(lines(f"{method} {path} HTTP/1.1", HOST, *fields, "Connection: close"))
        head, _, body = connection.receive_to_end().partition(b"\r\n\r\n")
    return int(head.split()[1]), body.decode()


class Operators:
    """A server with an admin key of each scope."""

    def __init__(self, serve, folder, read="open", **settings):
        folder.mkdir(parents=True, exist_ok=True)
        self.file = folder / "admin-keys"
        self.keys = {scope: make_admin_key(self.file, f"key-to-{scope}", scope) for scope in ("read", "steer")}
        self.server = serve(
            {"admin": {"listen": "127.0.0.1:0", "keys_file": str(self.file), "read": read}, **settings})
        self.control = self.server.data / "control.sock"

    @property
    def address(self):
        return self.server.administration[0]

    def status(self, method, path, *fields, at=None):
        """The status of an answer that need not be JSON."""
        return status_and_body(at or self.address, method, path, *fields)[0]

    def ask(self, method, path, *fields, at=None):
        return exchange(at or self.address, lines(f"{method} {path} HTTP/1.1", HOST, *fields), method)

    def with_key(self, scope, method, path, *fields):
        return self.ask(method, path, bearer(self.keys[scope]), *fields)


def about(operators, path, body, *fields, at=None):
    """The answer to a request about one token."""
    data = body if isinstance(body, bytes) else json.dumps(body).encode()
    head = [f"POST {path} HTTP/1.1", HOST, f"Content-Length: {len(data)}", *(fields or [bearer(operators.keys["steer"])])]
    response = exchange(at or operators.address, lines(*head, body=data))
    return response.status, json.loads(response.body)
