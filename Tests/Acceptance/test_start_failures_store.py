"""The commands agree on starts with a data folder, a store or a key ring that cannot be used."""
import contextlib
import os
import sqlite3
import subprocess

import pytest

from server_process import Server
from start_cases import AS_NOBODY, NOBODY, Cases, World, check, needs_root

CASES = Cases()
case, simple = CASES.case, CASES.simple


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
    @spoiled(f"{file} of another user's", file.removesuffix("-wal"), needs_root, refusing="scd" if file == "keys" else "sd")
    def _(world, file=file):
        os.chown(world.data / file, 0, 0)


@spoiled("a database that is none", "not a usable database")
def _(world):
    (world.data / "tokens.db").write_bytes(b"no database, whatever its name says\n" * 500)


@spoiled("a database of a later version", "version 99")
def _(world):
    with contextlib.closing(sqlite3.connect(world.data / "tokens.db")) as connection:
        connection.execute("PRAGMA user_version = 99")
    world.give(*world.data.iterdir())


@spoiled("a data folder in use", "is in use by process", refusing="s")
def _(world):
    server = Server(world.folder / "other", {"data_directory": str(world.data)}, prefix=AS_NOBODY)
    world.stack.callback(server.kill)


# Sealing

@spoiled("no key ring", "keys is missing")
def _(world):
    (world.data / "keys").unlink()


@spoiled("a key ring that others may read", "can be read by others|others may read", refusing="scd")
def _(world):
    (world.data / "keys").chmod(0o644)


@spoiled("a key ring that is none", "line 1", refusing="scd")
def _(world):
    (world.data / "keys").write_text("index 12\n")


@spoiled("the key ring of another store", "not the one that the store was sealed with")
def _(world):
    other = World(world.folder / "another", world.stack)
    other.folder.mkdir()
    other.make_store()
    (world.data / "keys").write_bytes((other.data / "keys").read_bytes())


@spoiled("a sealed store without sealing", "is sealed, and sealing is off")
def _(world):
    world.set(sealing={"enabled": "off"})


simple("a key ring without a folder", "scd", "its folder does not exist", sealing={"key_ring": "FOLDER/none/keys"})


@pytest.mark.parametrize("arrange, refusing, text", CASES.parameters)
def test_the_commands_agree(arrange, refusing, text):
    check(arrange, refusing, text)
