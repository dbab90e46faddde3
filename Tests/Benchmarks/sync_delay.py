"""Delays and counts the syncs of a server."""

import contextlib
import dataclasses
import mmap
import os
import struct
import subprocess
import tempfile
from collections.abc import Iterator
from pathlib import Path


@dataclasses.dataclass(frozen=True)
class Syncs:
    """Counts of the server's syncs."""

    log: int
    """Of the log, which each commit syncs.

    About one in several hundred of SQLite is counted twice, because the first commit after a checkpoint syncs it once more.
    """
    database: int
    """Of other files."""
    log_seconds: float

    def __sub__(self, other: "Syncs") -> "Syncs":
        return Syncs(self.log - other.log, self.database - other.database, self.log_seconds - other.log_seconds)

    @property
    def milliseconds(self) -> float:
        """The time of a sync of the log."""
        return self.log_seconds / max(1, self.log) * 1e3


class SyncDelay:
    """The library `sync_delay.c`, and the memory that it shares with the benchmark."""

    LAYOUT = "=QQQQ"

    def __init__(self, folder: Path) -> None:
        library = folder / "sync_delay.so"
        source = Path(__file__).with_name("sync_delay.c")
        subprocess.run(["cc", "-shared", "-fPIC", "-O2", "-Wall", "-o", str(library), str(source)], check=True)
        # In memory, because writing to the pages of a file on a disk might wait for the disk.
        self.file = tempfile.NamedTemporaryFile(prefix="token-cache-sync-delay-", dir="/dev/shm")
        self.file.truncate(struct.calcsize(self.LAYOUT))
        self.memory = mmap.mmap(self.file.fileno(), struct.calcsize(self.LAYOUT))
        # PostgreSQL's server runs as a user of its own.
        os.chmod(self.file.name, 0o666)
        folder.chmod(0o711)
        library.chmod(0o755)
        self.settings = {"LD_PRELOAD": str(library), "SYNC_DELAY_STATE": self.file.name}
        """The environment variables of the server."""
        self.counted = Syncs(0, 0, 0)
        """Those of the last block of `counting`."""

    def set(self, milliseconds: float) -> None:
        """Changes the delay of each sync from now on."""
        struct.pack_into("=Q", self.memory, 0, round(milliseconds * 1e6))

    def syncs(self) -> Syncs:
        """The counts so far."""
        _, log, database, nanoseconds = struct.unpack_from(self.LAYOUT, self.memory)
        return Syncs(log, database, nanoseconds / 1e9)

    @contextlib.contextmanager
    def counting(self) -> Iterator[None]:
        """Counts the syncs during the block."""
        before = self.syncs()
        yield
        self.counted = self.syncs() - before
