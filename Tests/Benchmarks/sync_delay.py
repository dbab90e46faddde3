"""A slower disk for the server, whose syncs are counted."""

import dataclasses
import mmap
import os
import struct
import subprocess
from pathlib import Path


@dataclasses.dataclass(frozen=True)
class Syncs:
    """What the server has had synced."""

    log: int
    database: int
    log_seconds: float

    def __sub__(self, other: "Syncs") -> "Syncs":
        return Syncs(self.log - other.log, self.database - other.database, self.log_seconds - other.log_seconds)

    @property
    def commits(self) -> int:
        """Each syncs the log, as each part of a checkpoint does before the database is synced.

        One in some hundred is counted twice, as the first after a checkpoint syncs the log once more; and more without
        need when readers hold checkpoints up.
        """
        return self.log - self.database

    @property
    def milliseconds(self) -> float:
        """What a sync of the log takes."""
        return self.log_seconds / max(1, self.log) * 1e3


class SyncDelay:
    """The library `sync_delay.c`, and the memory that it shares with the benchmark."""

    LAYOUT = "=QQQQ"

    def __init__(self, folder: Path) -> None:
        library = folder / "sync_delay.so"
        source = Path(__file__).with_name("sync_delay.c")
        subprocess.run(["cc", "-shared", "-fPIC", "-O2", "-Wall", "-o", str(library), str(source)], check=True)
        # Not a file: to write to a page of one may have to wait for the disk.
        descriptor = os.memfd_create("sync-delay")
        os.truncate(descriptor, struct.calcsize(self.LAYOUT))
        self.memory = mmap.mmap(descriptor, struct.calcsize(self.LAYOUT))
        self.settings = {"LD_PRELOAD": str(library), "SYNC_DELAY_STATE": f"/proc/{os.getpid()}/fd/{descriptor}"}
        """Variables of the server's environment."""

    def set(self, milliseconds: int) -> None:
        """Changes what each sync takes longer from now on."""
        struct.pack_into("=Q", self.memory, 0, milliseconds * 1_000_000)

    def syncs(self) -> Syncs:
        """So far."""
        _, log, database, nanoseconds = struct.unpack_from(self.LAYOUT, self.memory)
        return Syncs(log, database, nanoseconds / 1e9)
