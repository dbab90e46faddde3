"""PostgreSQL's programs, which do not run as root, and the first data folder, from which those of all servers are copied."""
import functools
import os
import pwd
import secrets
import shutil
import subprocess
import tempfile
from pathlib import Path

import pytest

import caretaker

# The owner of all data folders and the role that may do everything; as root, also the user that the programs run as.
SUPERUSER = "postgres"
# The role with which standbys read from the primary, and its password.
REPLICATION = "replication"
REPLICATION_PASSWORD = secrets.token_hex(16)
SECONDS = 120
# A server with standbys uses some 200 MB each.
ROOM_IN_MEMORY = 2 << 30


@functools.cache
def programs():
    """The folder of PostgreSQL's programs in Debian's newest package; skips the test if there is none."""
    folders = sorted(Path("/usr/lib/postgresql").glob("*/bin/postgres"), key=lambda path: int(path.parts[-3]))
    if not folders:
        pytest.skip("PostgreSQL is not installed (Debian's package postgresql, which deploy/test installs)")
    return folders[-1].parent


@functools.cache
def owner():
    """The user that PostgreSQL runs as, with the fields of pwd(5)."""
    return pwd.getpwnam(SUPERUSER) if os.geteuid() == 0 else pwd.getpwuid(os.geteuid())


def as_owner():
    """Put before a command, runs it as that user in the same process."""
    if os.geteuid() != 0:
        return []
    return ["setpriv", f"--reuid={owner().pw_uid}", f"--regid={owner().pw_gid}", "--init-groups", "--"]


def environment():
    """The environment of PostgreSQL's programs: ours without settings for its clients."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith(("PG", "TOKEN_CACHE_"))}
    return {**kept, "LC_ALL": "C.UTF-8", "HOME": "/"}


def run_as_owner(program, *arguments, input=None, seconds=SECONDS):
    """Runs one of the programs to its end, which must be good, and returns its output."""
    done = subprocess.run(
        [*as_owner(), str(programs() / program), *map(str, arguments)], env=environment(), cwd="/", input=input,
        capture_output=True, text=True, timeout=seconds, check=False)
    assert done.returncode == 0, f"{program} failed:\n{done.stderr}{done.stdout}"
    return done.stdout


def own_folder(name):
    """A new folder with a short path that PostgreSQL's user can enter, as pytest's folders are root's alone.

    A path must be short because that of a Unix socket has at most 107 bytes. The folder is in memory if there is room: the
    tests kill processes, not the machine, and do not depend on how fast its disk syncs.
    """
    memory = Path("/dev/shm")
    has_room = memory.is_dir() and os.access(memory, os.W_OK) and shutil.disk_usage(memory).free >= ROOM_IN_MEMORY
    folder = Path(tempfile.mkdtemp(prefix=f"{name}-", dir=memory if has_room else "/tmp"))
    caretaker.remember(folder=folder)
    give_to_owner(folder)
    folder.chmod(0o755)
    return folder


def remove_folder(folder):
    """Removes such a folder, whose processes have ended."""
    shutil.rmtree(folder, ignore_errors=True)
    caretaker.forget(folder=folder)


def give_to_owner(path):
    """Makes a file or folder PostgreSQL's own."""
    if os.geteuid() == 0:
        os.chown(path, owner().pw_uid, owner().pw_gid)


def write_private(file, text):
    """Writes a file that only PostgreSQL's user can read, and returns it."""
    with open(file, "w", opener=lambda path, flags: os.open(path, flags, 0o600), encoding="utf-8") as target:
        target.write(text)
    give_to_owner(file)
    return file


@functools.cache
def template():
    """A data folder with the two roles, made once by initdb. It has checksums, without which pg_rewind does not work.

    It remains until the end of the run, when the caretaker removes it.
    """
    folder = own_folder("postgres-template")
    data = folder / "data"
    run_as_owner(
        "initdb", "--no-sync", "--data-checksums", f"--pgdata={data}", f"--username={SUPERUSER}", "--encoding=UTF8",
        "--locale=C.UTF-8", "--auth=peer")
    run_as_owner(
        "postgres", "--single", "-F", "-D", data, "postgres",
        input=f"CREATE ROLE {REPLICATION} LOGIN REPLICATION PASSWORD '{REPLICATION_PASSWORD}'\n")
    return data


def copy_template(target):
    """Copies the first data folder."""
    subprocess.run(["cp", "--archive", "--reflink=auto", str(template()), str(target)], check=True, timeout=SECONDS)
