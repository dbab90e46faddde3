"""Plays apps on devices: runs the example `two-devices`, which is built with the client library."""
import json
import os
import shutil
import subprocess
from pathlib import Path

import pytest

from http_client import exchange, lines
from server_process import run

REPOSITORY = Path(__file__).parents[2]


def two_devices():
    """The path of the built example; skips the test if it is not built and there is no toolchain to do so."""
    beside = Path(os.environ.get("TOKEN_CACHE_BINARY", "")).parent
    for folder in (beside, REPOSITORY / ".build" / "debug"):
        if os.access(folder / "two-devices", os.X_OK):
            return str(folder / "two-devices")
    if not shutil.which("swift"):
        pytest.skip("two-devices is not built, and the Swift toolchain is missing")
    subprocess.run(["swift", "build", "--product", "two-devices"], cwd=REPOSITORY, check=True, timeout=900,
                   capture_output=True)
    return str(REPOSITORY / ".build" / "debug" / "two-devices")


class Devices:
    """The devices of one user, in a folder of their own; they show the user's unique id."""

    def __init__(self, folder, server, user):
        self.folder = Path(folder)
        self.server = server
        self.user = user

    def identity(self, name):
        """The options by which a device says whose it is."""
        return ["--user", self.user]

    def command(self, name, *commands):
        """The command line of a device."""
        host, port = self.server.address
        return [two_devices(), "--device", name, "--folder", str(self.folder),
                "--server", f"http://{host}:{port}/token.php", *self.identity(name), *commands]

    def run(self, name, *commands):
        """What a device prints, line by line, without its name."""
        done = subprocess.run(self.command(name, *commands), capture_output=True, text=True, timeout=60, check=False)
        assert done.returncode == 0, done.stderr
        return [line.removeprefix(f"{name}: ") for line in done.stdout.splitlines()]

    def start(self, name, *commands):
        """A device that runs beside the test."""
        return subprocess.Popen(self.command(name, *commands), stdout=subprocess.PIPE, text=True)


class DevicesWithSessions(Devices):
    """The devices of one user of a server in mode `session`; each has a session of its own, made by the app's server."""

    def __init__(self, folder, server, user):
        super().__init__(folder, server, user)
        self.sessions = {}

    @staticmethod
    def settings(folder):
        """The server's settings, with the key of the app's server beside them in the file `key`."""
        keys = folder / "api-keys.json"
        environment = {"TOKEN_CACHE_ACCESS_API_KEYS_FILE": str(keys)}
        scopes = [part for scope in ("sessions", "tokens:read", "tokens:write", "erase") for part in ("--scope", scope)]
        done = run("access", "keys", "add", "backend", *scopes, environment=environment)
        assert done.returncode == 0, done.stderr
        (folder / "key").write_text(done.stdout)
        return {"access": {"mode": "session", "api": {"keys_file": str(keys)}}}

    def ask(self, method, path, body=None):
        """The answer to a request of the app's server, and its status."""
        key = (self.folder.parent / "key").read_text().strip()
        data = b"" if body is None else json.dumps(body).encode()
        answer = exchange(self.server.address, lines(
            f"{method} {path} HTTP/1.1", "Host: localhost", f"Authorization: Bearer {key}",
            "Content-Type: application/json", f"Content-Length: {len(data)}", body=data), method)
        return answer.status, json.loads(answer.body) if answer.body else None

    def session(self, name):
        """A device's session: its id and the secret, which the app's server makes at the first time."""
        if name not in self.sessions:
            status, made = self.ask("POST", "/v1/sessions", {"user": self.user})
            assert status == 201, made
            self.sessions[name] = (made["id"], made["session"])
        return self.sessions[name]

    def identity(self, name):
        return ["--user", self.user, "--session", self.session(name)[1]]
