"""Devices that run the client library's example `two-devices`, with a server in each of several modes of access."""
import json
import os
import shutil
import subprocess
from pathlib import Path

import pytest

from http_client import exchange, lines
from server_process import run

LOGGED_IN, CACHED = "open, after the user has logged in", "open, without a login"
REPOSITORY = Path(__file__).parents[2]
# An address at which nothing listens.
NOWHERE = "127.0.0.1:1"


def two_devices():
    """The path of the example, which is built if it is not beside a program; without a toolchain, the test is skipped."""
    for variable in "TOKEN_CACHE_POSTGRES_BINARY", "TOKEN_CACHE_BINARY":
        example = Path(os.environ.get(variable, "")).parent / "two-devices"
        if os.access(example, os.X_OK):
            return str(example)
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
        # Further environment variables of each device, by its name.
        self.environments = {}

    @staticmethod
    def settings(folder):
        """The server's settings."""
        return {}

    def identity(self, name):
        """The options that name a device's user."""
        return ["--user", self.user]

    def start(self, name, *commands, is_online=True, environment=None):
        """Starts a process of a device, of which several may run at once."""
        address = "{}:{}".format(*self.server.address) if is_online else NOWHERE
        command = [two_devices(), "--device", name, "--folder", str(self.folder), "--server", f"http://{address}/token.php",
                   *self.identity(name), *commands]
        return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
                                env={**os.environ, **self.environments.get(name, {}), **(environment or {})})

    @staticmethod
    def finish(name, process):
        """Waits for a process; returns the lines that it printed, without the device's name, and its error message."""
        output, error = process.communicate(timeout=60)
        return [line.removeprefix(f"{name}: ") for line in output.splitlines()], error

    def attempt(self, name, *commands, **options):
        """Starts a process and waits for it; returns its lines and its error message."""
        return self.finish(name, self.start(name, *commands, **options))

    def run(self, name, *commands, **options):
        """The lines that a device prints; fails if there is an error message."""
        printed, error = self.attempt(name, *commands, **options)
        assert not error, error
        return printed

    def waits(self, name):
        """Whether a device holds a write that it has still to send to the server."""
        return any("write" in json.loads(file.read_text()) for file in (self.folder / name).glob("*.json"))


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
        """The id and the secret of a device's session, which the app's server makes when it is first needed."""
        if name not in self.sessions:
            status, made = self.ask("POST", "/v1/sessions", {"user": self.user})
            assert status == 201, made
            self.sessions[name] = (made["id"], made["session"])
        return self.sessions[name]

    def identity(self, name):
        return ["--user", self.user, "--session", self.session(name)[1]]


class DevicesBehindProxy(Devices):
    """The devices of one user of a server in mode `header`, which takes them for its trusted proxy."""

    @staticmethod
    def settings(folder):
        return {"access": {"mode": "header", "header": {"name": "Remote-User"}}, "trusted_proxies": "127.0.0.1"}

    def identity(self, name):
        return ["--user", self.user, "--header", f"Remote-User: {self.user}"]


MODES = {"open": Devices, "session": DevicesWithSessions, "header": DevicesBehindProxy}
