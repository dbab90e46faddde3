"""Cases of starts, and a check that `serve`, `doctor` and `check-config` agree on those that fail, each in what it can know.

As root, the server's user is somebody else, whose rights decide.
"""
import contextlib
import json
import os
import re
import shutil
import socket
import subprocess
import tempfile
from pathlib import Path

import pytest

from contract import STORED
from http_client import exchange, post
from ports import free_ports
from server_process import Server, binary, clean_environment

IS_ROOT = os.geteuid() == 0
# The user nobody, who owns nothing on most machines.
NOBODY = 65534
AS_NOBODY = ["setpriv", f"--reuid={NOBODY}", f"--regid={NOBODY}", "--clear-groups"] if IS_ROOT else []
needs_root = pytest.mark.skipif(not IS_ROOT, reason="only root can make files of another user's")


class World:
    """The folder of a server's user, with settings that a start accepts until a case spoils them."""

    def __init__(self, folder, stack):
        self.folder, self.stack = folder, stack
        self.data = folder / "data"
        self.settings = {"listen": ["127.0.0.1:0"], "admin": {"listen": "off"}, "data_directory": str(self.data), "loops": 1}
        self.file = folder / "token-cache.yaml"
        self.text = None
        self.prefix = []

    def give(self, *paths):
        """Gives files to the server's user."""
        for path in paths if IS_ROOT else ():
            os.chown(path, NOBODY, NOBODY, follow_symlinks=False)

    def write(self, name, text, mode=0o600):
        """A file of the server's user."""
        path = self.folder / name
        path.write_text(text)
        path.chmod(mode)
        self.give(path)
        return path

    def make_store(self):
        """The store of a server that has stored a token and ended."""
        server = Server(self.folder / "first", {"data_directory": str(self.data)})
        try:
            assert exchange(server.address, post("an id", "a token")).body == STORED
            assert server.stop() == 0
        finally:
            server.kill()
        self.give(self.data, *self.data.iterdir())

    def free_port(self):
        return free_ports(1)[0]

    def taken_port(self):
        return self.stack.enter_context(socket.create_server(("127.0.0.1", 0))).getsockname()[1]

    def set(self, **settings):
        self.settings.update(settings)

    def command(self, name, *flags, prefix=()):
        text = self.text if self.text is not None else json.dumps(self.settings)
        if not self.file.is_dir() and text != "":
            self.file.write_text(text)
        return [*self.prefix, *prefix, binary(), name, "--config", str(self.file), *flags]


@contextlib.contextmanager
def new_world():
    """A `World` in a new folder, which is removed at the end."""
    # Other users cannot enter pytest's folders.
    with contextlib.ExitStack() as stack:
        folder = Path(tempfile.mkdtemp(prefix="token-cache-test-"))
        stack.callback(shutil.rmtree, folder)
        made = World(folder, stack)
        folder.chmod(0o755)
        made.give(folder)
        if IS_ROOT and subprocess.run([*AS_NOBODY, "test", "-x", binary()], check=False).returncode:
            pytest.skip("the program cannot be executed by the user nobody")
        yield made


class Cases:
    """The cases of a test file as parameters of `check`: the fault, the commands that refuse it, and their message."""

    def __init__(self):
        self.parameters = []

    def case(self, name, refusing, text, marks=()):
        """Adds a case: `refusing` has the initials of serve, check-config and doctor if they refuse it."""
        def add(arrange):
            self.parameters.append(pytest.param(arrange, refusing, text, marks=marks, id=name))
            return arrange
        return add

    def simple(self, name, refusing, text, marks=(), **settings):
        """A case of settings alone; in their texts, FOLDER stands for the folder."""
        def arrange(world):
            world.settings.update(json.loads(json.dumps(settings).replace("FOLDER", str(world.folder))))
        self.case(name, refusing, text, marks)(arrange)


# The commands

def serve(world):
    """The message of a start that fails; None of one that succeeds."""
    process = subprocess.Popen(world.command("serve", prefix=AS_NOBODY), cwd="/", env=clean_environment(),
                               stderr=subprocess.PIPE, text=True)
    try:
        printed = []
        for line in process.stderr:
            if " serves on " in line:
                return None
            printed.append(line)
        assert process.wait(30) == 1, printed
        return "".join(printed)
    finally:
        process.kill()
        process.communicate()


def check_config(world):
    done = subprocess.run(world.command("check-config", prefix=AS_NOBODY), cwd="/", env=clean_environment(),
                          capture_output=True, text=True, timeout=30, check=False)
    assert (done.returncode == 0) == (done.stderr == "") == (done.stdout != ""), done
    return done.stderr or None


def doctor(world):
    """The problems that it finds."""
    done = subprocess.run(world.command("doctor", "--json", prefix=AS_NOBODY), cwd="/", env=clean_environment(),
                          capture_output=True, text=True, timeout=60, check=False)
    assert done.stderr == "", done.stderr
    report = json.loads(done.stdout)
    assert done.returncode == (1 if report["problems"] else 0)
    found = [f'{finding["text"]}; {finding["advice"]}' for finding in report["findings"] if finding["state"] == "problem"]
    return "\n".join(found) or None


def check(arrange, refusing, text):
    """Checks that the commands named by `refusing` refuse a case with this text, and that the others accept it."""
    with new_world() as world:
        arrange(world)
        # The doctor comes before the start, which would make what is missing.
        found = {"c": check_config(world), "d": doctor(world), "s": serve(world)}
        for command, message in found.items():
            if command in refusing:
                assert message and re.search(text, message), (command, message)
            else:
                assert message is None, (command, message)
