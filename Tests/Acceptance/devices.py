"""Devices that run the client library's example `two-devices`, with a server in each of several modes of access."""
import functools
import json
import os
import shutil
import subprocess
from pathlib import Path

import pytest

from access import API, session_settings

LOGGED_IN, CACHED = "open, after the user has logged in", "open, without a login"
REPOSITORY = Path(__file__).parents[2]
# An address at which nothing listens.
NOWHERE = "127.0.0.1:1"


@functools.cache
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
        settings, key = session_settings(folder)
        (folder / "key").write_text(key)
        return settings

    @property
    def api(self):
        """What the app's server calls."""
        return API(self.server, (self.folder.parent / "key").read_text())

    def identity(self, name):
        if name not in self.sessions:
            self.sessions[name] = self.api.make_session(self.user)
        return ["--user", self.user, "--session", self.sessions[name]["session"]]


class DevicesBehindProxy(Devices):
    """The devices of one user of a server in mode `header`, which takes them for its trusted proxy."""

    @staticmethod
    def settings(folder):
        return {"access": {"mode": "header", "header": {"name": "Remote-User"}}, "trusted_proxies": "127.0.0.1"}

    def identity(self, name):
        return ["--user", self.user, "--header", f"Remote-User: {self.user}"]


MODES = {"open": Devices, "session": DevicesWithSessions, "header": DevicesBehindProxy}
