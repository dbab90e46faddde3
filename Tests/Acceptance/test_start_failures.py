"""`serve`, `doctor` and `check-config` agree on starts that fail, each in what it can know, and on those that are fine.

As root, the server's user is somebody else, whose rights decide.
"""
import contextlib
import json
import os
import re
import socket
import sqlite3
import subprocess
from pathlib import Path

import pytest

from certificates import make_certificate
from contract import STORED
from ports import free_ports
from server_process import AS_NOBODY, NOBODY, Server, binary, clean_environment, needs_root
from store_files import CLEAR_STORE, make_audit_keys

IS_ROOT = os.geteuid() == 0
AS_USER = AS_NOBODY if IS_ROOT else []


class World:
    """The folder of a server's user, with settings that a start accepts until a case spoils them."""

    def __init__(self, folder, stack):
        self.folder, self.stack = folder, stack
        self.data = folder / "data"
        self.settings = {"listen": ["127.0.0.1:0"], "admin": {"listen": "off"}, "data_directory": str(self.data)}
        self.file = folder / "token-cache.yaml"
        self.has_settings = True
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
            assert server.post("an id", "a token") == STORED
            assert server.stop() == 0
        finally:
            server.kill()
        self.give(self.data, *self.data.iterdir())

    def taken_port(self):
        return self.stack.enter_context(socket.create_server(("127.0.0.1", 0))).getsockname()[1]

    def set(self, **settings):
        self.settings.update(settings)

    def command(self, name, *flags, prefix=()):
        if self.has_settings:
            self.file.write_text(json.dumps(self.settings))
        return [*self.prefix, *prefix, binary(), name, "--config", str(self.file), *flags]


# For `check`: how a world is spoiled, the commands that refuse it, and their message.
CASES = []


def case(name, refusing, text, marks=()):
    """Adds a case: `refusing` has the initials of serve, check-config and doctor if they refuse it."""
    def add(arrange):
        CASES.append(pytest.param(arrange, refusing, text, marks=marks, id=name))
        return arrange
    return add


def simple(name, refusing, text, **settings):
    """A case of settings alone; in their texts, FOLDER stands for the folder."""
    @case(name, refusing, text)
    def _(world):
        world.settings.update(json.loads(json.dumps(settings).replace("FOLDER", str(world.folder))))


# The commands

def serve(world):
    """The message of a start that fails; None of one that succeeds."""
    process = subprocess.Popen(world.command("serve", prefix=AS_USER), cwd="/", env=clean_environment(),
                               stderr=subprocess.PIPE, text=True)
    try:
        printed = []
        for line in process.stderr:
            if " serves on " in line:
                return None
            printed.append(line)
        assert process.wait(30) == 1, printed
        assert not re.search(r"\b(SELECT|INSERT|UPDATE|DELETE|CREATE|PRAGMA)\b", "".join(printed)), "SQL is for us alone"
        return "".join(printed)
    finally:
        process.kill()
        process.communicate()


def check_config(world):
    done = subprocess.run(world.command("check-config", prefix=AS_USER), cwd="/", env=clean_environment(),
                          capture_output=True, text=True, timeout=30, check=False)
    assert (done.returncode == 0) == (done.stderr == "") == (done.stdout != ""), done
    return done.stderr or None


def doctor(world):
    """The problems that it finds."""
    done = subprocess.run(world.command("doctor", "--json", prefix=AS_USER), cwd="/", env=clean_environment(),
                          capture_output=True, text=True, timeout=60, check=False)
    assert done.stderr == "", done.stderr
    report = json.loads(done.stdout)
    assert done.returncode == (1 if report["problems"] else 0)
    found = [f'{finding["text"]}; {finding["advice"]}' for finding in report["findings"] if finding["state"] == "problem"]
    return "\n".join(found) or None


simple("a value that is not allowed", "scd", 'drain_timeout is "many"', drain_timeout="many")
simple("settings that contradict each other", "scd", "limits.buffers is", limits={"buffers": "1MiB"})


for kind, make, told in (("no", lambda file: None, "No such file"), ("a folder as", Path.mkdir, "it is no regular file"),
                         ("a pipe as", os.mkfifo, "it is no regular file")):
    @case(f"{kind} settings file", "scd", rf"settings.yaml cannot be read: {told}")
    def _(world, make=make):
        world.file = world.folder / "settings.yaml"
        make(world.file)
        world.has_settings = False


@case("settings of another user", "scd", "Permission denied", needs_root)
def _(world):
    world.command("serve")
    world.file.chmod(0o600)
    os.chown(world.file, 0, 0)


# Certificates

def with_tls(world):
    # It lasts so long that nobody warns of its end.
    pair = make_certificate(world.folder, days=30)
    world.give(*pair)
    world.set(listen=["https://127.0.0.1:0"], tls={"certificate": pair[0], "private_key": pair[1]})
    return pair


@case("certificate and key", "", "")
def _(world):
    with_tls(world)


@case("no certificate", "scd", "certificate.pem cannot be read")
def _(world):
    os.unlink(with_tls(world)[0])


@case("a private key of another user's", "scd", "private-key.pem", needs_root)
def _(world):
    os.chown(with_tls(world)[1], 0, 0)


# Descriptors

@case("too few descriptors to start", "s", "files open|limit of open files with ulimit")
def _(world):
    world.prefix = ["prlimit", "--nofile=16:16"]


@case("few descriptors, but enough to start", "", "")
def _(world):
    world.set(drain_timeout="2s")
    world.prefix = ["prlimit", "--nofile=40:40"]


# Addresses

@case("a port in use", "s", "is in use by another program")
def _(world):
    world.set(listen=[f"127.0.0.1:{world.taken_port()}"])


@case("a port of the administration in use", "s", "admin.listen: .* is in use by another program")
def _(world):
    world.set(admin={"listen": f"127.0.0.1:{world.taken_port()}"})


simple("an address of another machine", "scd", "192.0.2.1:8080", listen=["192.0.2.1:8080"])
simple("a host that nobody knows", "scd", "host..invalid:8080", listen=["host..invalid:8080"])
simple("sockets that systemd does not pass", "s", "systemd has passed no sockets", listen=["systemd"])


simple("sealing that is off", "scd", "sealing.enabled is no setting any more: tokens are always encrypted", sealing={"enabled": "off"})


simple("an address twice", "scd", "listen and admin.listen have 127.0.0.1:7070 twice",
       listen=["127.0.0.1:7070"], admin={"listen": "127.0.0.1:7070"})


@case("an address twice, once by name", "s", "is in use by another program.* or the settings name it twice")
def _(world):
    port, = free_ports(1)
    world.set(listen=[f"127.0.0.1:{port}"], admin={"listen": f"localhost:{port}"})


@case("a port for which the user lacks the right", "s", "127.0.0.1:7", needs_root)
def _(world):
    if int(Path("/proc/sys/net/ipv4/ip_unprivileged_port_start").read_text()) <= 7:
        pytest.skip("here everybody may have low ports")
    world.set(listen=["127.0.0.1:7"])


simple("a Unix socket without a folder", "scd", "the folder of unix:", listen=["unix:FOLDER/none/http.sock"])


@case("a file in the place of a Unix socket", "scd", "is not a socket")
def _(world):
    world.write("http.sock", "")
    world.set(listen=[f"unix:{world.folder}/http.sock"])


@case("a Unix socket in use", "s", "is in use by another program")
def _(world):
    path = world.folder / "http.sock"
    other = world.stack.enter_context(socket.socket(socket.AF_UNIX))
    other.bind(str(path))
    other.listen()
    world.give(path)
    world.set(listen=[f"unix:{path}"])


# Files of keys and logs

simple("no API keys", "scd", "api-keys", access={"api": {"keys_file": "FOLDER/api-keys"}})


def with_file(name, refusing, message, settings, text, mode=0o600, owner=NOBODY):
    def arrange(world):
        path = world.write("file", text, mode)
        if IS_ROOT:
            os.chown(path, owner, owner)
        world.settings.update(json.loads(json.dumps(settings).replace("FILE", str(path))))
    case(name, refusing, message, needs_root if owner != NOBODY else ())(arrange)


API = {"access": {"api": {"keys_file": "FILE"}}}
JWT = {"access": {"mode": "bearer", "bearer": {"issuer": "https://a", "audience": "b", "keys_file": "FILE"}}}
ACCESS_LOG = {"access_log": "combined FILE"}
with_file("API keys of another user's", "scd", "file", API, "", owner=0)
with_file("JWT keys that others may write", "scd", "can be changed by other users", JWT, "{}", 0o666)
with_file("an access log", "", "", ACCESS_LOG, "")
with_file("an access log of another user's", "scd", "file", ACCESS_LOG, "", owner=0)
simple("an audit log without a key", "scd", "running key .*/data/audit-key does not exist; make it with token-cache audit key FILE",
       audit={"file": "FOLDER/audit"})


@case("a pipe as key ring", "scd", "pipe.*is no regular file")
def _(world):
    os.mkfifo(world.folder / "pipe", 0o600)
    world.give(world.folder / "pipe")
    world.set(sealing={"key_ring": str(world.folder / "pipe")})


for file in ("tokens.db", "tokens.db-wal"):
    @case(f"a pipe as {file}", "sd", "it is no regular file")
    def _(world, file=file):
        world.make_store()
        (world.data / file).unlink(missing_ok=True)
        os.mkfifo(world.data / file)
        world.give(world.data / file)


def audited(name, refusing, text, *marks):
    def add(spoil):
        def arrange(world):
            log = world.folder / "audit"
            world.set(audit={"file": str(log)})
            make_audit_keys(world.folder / "first.key", world.data)
            world.give(world.data, *world.data.iterdir())
            spoil(world, log)
        case(name, refusing, text, marks)(arrange)
    return add


@audited("an audit log", "", "")
def _(_, __):
    pass


@audited("an audit log of another user's", "scd", "audit", needs_root)
def _(_, log):
    log.write_text("")


@audited("something else than an audit log", "scd", "is not an audit log")
def _(world, _):
    world.write("audit", "something else\n")


# The data folder

@case("no data folder, and no right to make one", "scd", "data", needs_root)
def _(world):
    os.chown(world.folder, 0, 0)


@case("a data folder of another user's", "scd", "data", needs_root)
def _(world):
    world.make_store()
    for path in [world.data, *world.data.iterdir()]:
        os.chown(path, 0, 0)


@case("a file in the place of the data folder", "scd", "data is not a directory")
def _(world):
    world.write("data", "")


@case("a data folder on a disk that is read-only", "scd", "[Rr]ead-only(.|\n)*ReadWritePaths=(.|\n)*mount", needs_root)
def _(world):
    world.data.mkdir()
    mount = ["mount", "-t", "tmpfs", "-o", f"ro,mode=0700,uid={NOBODY}", "none", world.data]
    if subprocess.run(mount, capture_output=True, check=False).returncode:
        pytest.skip("nothing can be mounted here")
    world.stack.callback(subprocess.run, ["umount", world.data], check=True)


@case("a path too long for the control socket", "", "")
def _(world):
    world.set(data_directory=str(world.folder / ("long" * 30)))


def spoiled(name, text, *marks, refusing="sd"):
    """A case of a store that is there."""
    def add(spoil):
        def arrange(world):
            world.make_store()
            spoil(world)
        case(name, refusing, text, marks)(arrange)
    return add


@spoiled("a store as it should be", "", refusing="")
def _(_):
    pass


for file in ("tokens.db", "tokens.db-wal", "lock", "keys"):
    @spoiled(f"{file} of another user's", file.removesuffix("-wal"), needs_root, refusing={"keys": "scd", "lock": "s"}.get(file, "sd"))
    def _(world, file=file):
        os.chown(world.data / file, 0, 0)


for kind, damage in {
        "text": lambda whole: b"no database, whatever its name says\n" * 500, "empty": lambda whole: bytes(8192),
        "without a schema": lambda whole: whole[:100] + bytes(len(whole) - 100)}.items():
    @spoiled(f"a database that is {kind}", "is not a usable database|is a database of another program")
    def _(world, damage=damage):
        file = world.data / "tokens.db"
        file.write_bytes(damage(file.read_bytes()))


for kind, statement, told in (("a later version", "PRAGMA user_version = 99", "version 99"),
                              ("another program", "PRAGMA application_id = 4711", "of another program")):
    @spoiled(f"a database of {kind}", told)
    def _(world, statement=statement):
        with contextlib.closing(sqlite3.connect(world.data / "tokens.db")) as connection:
            connection.execute(statement)
        world.give(*world.data.iterdir())


@spoiled("a data folder in use", "is in use by process", refusing="s")
def _(world):
    server = Server(world.folder / "other", {"data_directory": str(world.data)}, prefix=AS_USER)
    world.stack.callback(server.kill)


# Sealing

@spoiled("no key ring", "keys is missing")
def _(world):
    (world.data / "keys").unlink()


@spoiled("a key ring that others may read", "can be read by others|others may read", refusing="scd")
def _(world):
    (world.data / "keys").chmod(0o644)


@spoiled("the key ring of another store", "not the one that the store was sealed with")
def _(world):
    other = World(world.folder / "another", world.stack)
    other.folder.mkdir()
    other.make_store()
    (world.data / "keys").write_bytes((other.data / "keys").read_bytes())


@spoiled("a store in the clear, of version 1.0", "holds tokens in the clear")
def _(world):
    (world.data / "tokens.db-wal").unlink()
    (world.data / "tokens.db").write_bytes(CLEAR_STORE.read_bytes())


@pytest.mark.parametrize("arrange, refusing, text", CASES)
def test_the_commands_agree(public_folder, arrange, refusing, text):
    """Those named by `refusing` refuse a case with this text, and the others accept it."""
    if IS_ROOT and subprocess.run([*AS_USER, "test", "-x", binary()], check=False).returncode:
        pytest.skip("the program cannot be executed by the user nobody")
    with contextlib.ExitStack() as stack:
        world = World(public_folder, stack)
        world.give(public_folder)
        arrange(world)
        # The doctor comes before the start, which would make what is missing.
        # A server that uses the folder already writes to it.
        files = [] if "in use" in text else world.data.glob("tokens.db*")
        stored = {path: path.read_bytes() for path in files if path.is_file()}
        found = {"c": check_config(world), "d": doctor(world), "s": serve(world)}
        assert "s" not in refusing or all(path.read_bytes() == content for path, content in stored.items()), "it was changed"
        for command, message in found.items():
            if command in refusing:
                assert message and re.search(text, message), (command, message)
            else:
                assert message is None, (command, message)
