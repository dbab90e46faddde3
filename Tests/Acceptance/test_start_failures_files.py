"""The commands agree on starts with files of keys and logs that cannot be used."""
import json
import os

import pytest

from server_process import run
from start_cases import IS_ROOT, NOBODY, Cases, check, needs_root

CASES = Cases()
case, simple = CASES.case, CASES.simple

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
ACCESS_LOG = {"access_log": "combined", "access_log_file": "FILE"}
with_file("API keys that are none", "scd", "line 1", API, "nothing")
with_file("API keys that others may write", "scd", "can be changed by other users", API, "", 0o666)
with_file("API keys of another user's", "scd", "file", API, "", owner=0)
with_file("JWT keys that are none", "scd", "file", JWT, "nothing")
with_file("JWT keys that others may write", "scd", "can be changed by other users", JWT, "{}", 0o666)
with_file("JWT keys of another user's", "scd", "file", JWT, "{}", owner=0)
with_file("an access log", "", "", ACCESS_LOG, "")
with_file("an access log of another user's", "scd", "file", ACCESS_LOG, "", owner=0)
simple("no JWT keys", "scd", "none.json", access={**JWT["access"], "bearer": {**JWT["access"]["bearer"], "keys_file": "FOLDER/none.json"}})
simple("an access log without a folder", "scd", "none/access.log", access_log="combined", access_log_file="FOLDER/none/access.log")
simple("an audit log without a key", "scd", "running key .* does not exist", audit={"file": "FOLDER/audit"})


def with_pipe(name, refusing, settings):
    def arrange(world):
        pipe = world.folder / "pipe"
        os.mkfifo(pipe, 0o600)
        world.give(pipe)
        world.settings.update(json.loads(json.dumps(settings).replace("FILE", str(pipe))))
    case(f"a pipe as {name}", refusing, "pipe.*is no regular file")(arrange)


with_pipe("API keys", "scd", API)
with_pipe("key ring", "scd", {"sealing": {"key_ring": "FILE"}})


@case("a pipe as database", "sd", "it is no regular file")
def database_that_is_a_pipe(world):
    world.make_store()
    (world.data / "tokens.db").unlink()
    os.mkfifo(world.data / "tokens.db")
    world.give(world.data / "tokens.db")


@case("a pipe as WAL", "sd", "it is no regular file")
def wal_that_is_a_pipe(world):
    world.make_store()
    (world.data / "tokens.db-wal").unlink(missing_ok=True)
    os.mkfifo(world.data / "tokens.db-wal")
    world.give(world.data / "tokens.db-wal")


def audited(name, refusing, text, *marks):
    def add(spoil):
        def arrange(world):
            log = world.folder / "audit"
            world.set(audit={"file": str(log)})
            made = run("audit", "key", str(world.folder / "first.key"), "--data-directory", str(world.data))
            assert made.returncode == 0, made.stderr
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


@audited("an audit log without a folder", "scd", "none/audit")
def _(world, _):
    world.set(audit={"file": str(world.folder / "none" / "audit")})


@audited("something else than an audit log", "scd", "something else in it than an audit log")
def _(world, _):
    world.write("audit", "something else\n")


@pytest.mark.parametrize("arrange, refusing, text", CASES.parameters)
def test_the_commands_agree(arrange, refusing, text):
    check(arrange, refusing, text)
