"""How long operators' commands take on a store of many tokens whose server is stopped."""

import dataclasses
import resource
import shutil
import time
from pathlib import Path

from machine import note
from stores import Store


@dataclasses.dataclass(frozen=True)
class Operation:
    """A command that was run once, by itself, on one core."""

    name: str
    tokens: int
    seconds: float
    cpu_seconds: float


def measure(store: Store) -> list[Operation]:
    """Runs the commands in an order in which each finds what it needs, and removes what they have written."""
    data, backup, copied = str(store.data), str(store.folder / "backup.db"), store.folder / "copied"
    commands = {
        "verify": ("verify", "--data-directory", data),
        "backup": ("backup", backup, "--data-directory", data),
        "verify, of the backup": ("verify", backup, "--data-directory", data),
        "restore": ("restore", backup, "--data-directory", data),
        "keyring rotate": ("keyring", "rotate", "--data-directory", data),
        "copy": ("copy", "--from", data, "--to", str(copied)),
    }
    done = []
    for name, command in commands.items():
        note(f"measuring {name}")
        before, begun = children_seconds(), time.monotonic()
        store.run(*command)
        done.append(Operation(name, store.count, time.monotonic() - begun, children_seconds() - before))
    shutil.rmtree(copied)
    Path(backup).unlink()
    return done


def children_seconds() -> float:
    """The processor time of all processes that have ended."""
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime
