"""Cleans up after a test run that was killed: a process of its own that waits for the end of the run.

    caretaker.remember(folder=path)                     # a new folder, whose processes are killed with it
    caretaker.remember(command=["umount", path])
    caretaker.forget(folder=path)                       # it was removed as usual

A killed run cannot end its databases, whose data fills the memory, nor remove its networks and disks.
"""
import contextlib
import functools
import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import process_tree

SECONDS = 60


@functools.cache
def caretaker():
    """The process. It acts when its input is closed, which the end of ours does in any case."""
    # In a session of its own, so that Ctrl-C does not reach it.
    return subprocess.Popen(
        [sys.executable, __file__], stdin=subprocess.PIPE, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, text=True,
        start_new_session=True, cwd="/")


def tell(is_done, left):
    """Sends a line to it."""
    notes = caretaker().stdin
    notes.write(json.dumps([is_done, left], default=str) + "\n")
    notes.flush()


def remember(**left):
    """Notes a folder or a command for the time after this run."""
    tell(False, left)


def forget(**left):
    """Takes a note back."""
    tell(True, left)


def processes_of(folder):
    """The ids of the processes that work in a folder, or have it in their arguments."""
    for entry in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError):
            place, arguments = os.readlink(entry / "cwd"), (entry / "cmdline").read_bytes()
            if f"{place}/".startswith(f"{folder}/") or f"{folder}/".encode() in arguments:
                yield int(entry.name)


def remove_shared_memory(data):
    """Removes the segment by which PostgreSQL knows that a data folder is in use.

    A killed server leaves it behind, and only its next start would remove it.
    """
    try:
        fields = (data / "postmaster.pid").read_text(encoding="utf-8").splitlines()[6].split()
    except (FileNotFoundError, IndexError):
        # It had not started yet.
        return
    subprocess.run(["ipcrm", "--shmem-id", fields[1]], capture_output=True, check=False, timeout=SECONDS)


def clean_up(folder=None, command=None):
    """Does what one note says."""
    if command:
        subprocess.run(command, capture_output=True, check=False, timeout=SECONDS)
        return
    # With their children, which hide their arguments, and are frozen when their parent was.
    for process in list(processes_of(folder)):
        process_tree.kill(process)
    for file in Path(folder).rglob("postmaster.pid"):
        remove_shared_memory(file.parent)
    shutil.rmtree(folder, ignore_errors=True)


def main():
    """Reads notes until the run has ended, and then does what is left, the latest first."""
    notes = []
    for line in sys.stdin:
        is_done, left = json.loads(line)
        if not is_done:
            notes.append(left)
        elif left in notes:
            notes.remove(left)
    for left in reversed(notes):
        with contextlib.suppress(OSError, subprocess.SubprocessError, AssertionError):
            clean_up(**left)


if __name__ == "__main__":
    main()
