"""A PostgreSQL server for measurements: one of the acceptance tests, but on a disk, and with the settings of a real one."""

import contextlib
import shutil
import tempfile
from pathlib import Path

import machine
from machine import CLOCK_TICKS
from peers import children
from postgres_cluster import Postgres
from postgres_programs import give_to_owner

ROLE = "token_cache"
# Bytes of WAL before a checkpoint, which therefore does not come in the middle of a run.
WAL_BYTES = 8 << 30
# Millions of rows take longer than statements of tests.
SECONDS = 3_600


def settings() -> dict[str, str]:
    """What differs from PostgreSQL's defaults and concerns its speed."""
    quarter = int(machine.value_of("/proc/meminfo", "MemTotal", ":").split()[0]) // 4 // 1024
    return {
        "shared_buffers": f"{quarter}MB", "max_connections": "200", "max_wal_size": f"{WAL_BYTES >> 30}GB",
        "checkpoint_timeout": "15min",
    }


class Disk:
    """A folder in /var/tmp, which is on a disk, in the place of one in memory."""

    def __init__(self) -> None:
        self.folder = Path(tempfile.mkdtemp(prefix="token-cache-postgres-", dir="/var/tmp"))
        give_to_owner(self.folder)

    def close(self) -> None:
        """Removes it."""
        shutil.rmtree(self.folder, ignore_errors=True)


class PostgresServer(Postgres):
    """A running server, with a role that owns the databases."""

    def __init__(self, folder: Path) -> None:
        super().__init__(folder, settings=settings(), disk=Disk())
        self.create_role(ROLE, "password of the role")

    def sql(self, text: str, database: str = "postgres", **options: str) -> list[tuple[str, ...]]:
        return super().sql(text, database, seconds=SECONDS, **options)

    def cpu_seconds(self) -> float:
        """Processor time used so far by all of its processes, also those that have ended."""
        root = self.process.pid
        # Before the processes, so that one that ends meanwhile is counted once rather than twice.
        fields = Path(f"/proc/{root}/stat").read_text().rpartition(")")[2].split()
        ended_ticks = int(fields[13]) + int(fields[14])
        nanoseconds = 0
        for pid in (root, *children(root)):
            with contextlib.suppress(FileNotFoundError, ProcessLookupError):
                # Not in ticks, as each of hundreds of processes may take less than one in a run.
                nanoseconds += int(Path(f"/proc/{pid}/schedstat").read_text().split()[0])
        return ended_ticks / CLOCK_TICKS + nanoseconds / 1e9
