"""Stores of many tokens, made without a POST for each."""

import contextlib
import os
import re
import shutil
import sqlite3
import time
from collections.abc import Iterator
from pathlib import Path

from machine import BenchmarkError
from peers import Certificate, RunningPeer, TokenCache
from workloads import GET_MISS, ID_FORMAT, NUMBERED_INFO, Workload

# Rows per statement; an interrupt is noticed between statements.
BATCH = 100_000
# Bytes per token on the disk while the store is made, which then contains it unencrypted, sealed and in files in which rows are
# sorted.
BYTES_PER_TOKEN = 2_000
# The log line when the database is in the page cache, or when there is too little memory.
PRELOADED = re.compile("the system has the database in its memory|the database is not read ahead")
# For a slow disk.
PRELOAD_SECONDS = 600


def check_space(folder: Path, count: int) -> None:
    """Refuses to start if the store would fill the disk."""
    needed, free = count * BYTES_PER_TOKEN + (1 << 28), shutil.disk_usage(folder).free
    if free < needed:
        raise BenchmarkError(
            f"{folder} has {free / (1 << 30):.1f} GiB free, and to make a store of {count:,} tokens takes "
            f"{needed / (1 << 30):.1f} GiB; make room, or measure a smaller one with --quick"
        )


class Store(TokenCache):
    """token-cache on a sealed store of numbered tokens."""

    def __init__(self, core: int, folder: Path, binary: Path, certificate: Certificate, count: int) -> None:
        super().__init__(core, folder, binary, certificate)
        self.count = count
        self.name = f"{count:,} tokens"
        self.data = folder / f"{count}-tokens"
        self.making_seconds = 0.0

    @property
    def database(self) -> Path:
        """The database's file."""
        return self.data / "tokens.db"

    def make(self) -> None:
        """Makes the store: the server creates the schema, SQLite the unencrypted rows, and `token-cache copy` encrypts them.

        The rows are those of a store that version 1.0 has not encrypted.
        """
        begin = time.monotonic()
        with self.serving(GET_MISS):
            pass
        self.insert_rows()
        clear = self.data.with_name(f"{self.data.name}-clear")
        self.data.rename(clear)
        self.run("copy", "--from", str(clear), "--to", str(self.data))
        shutil.rmtree(clear)
        self.making_seconds = time.monotonic() - begin

    def insert_rows(self) -> None:
        """Fills the closed database, in one transaction that nothing protects from a crash."""
        with contextlib.closing(sqlite3.connect(self.database, isolation_level=None)) as connection:
            for setting in ("journal_mode = OFF", "synchronous = OFF", "cache_size = -65536", "temp_store = MEMORY"):
                connection.execute(f"PRAGMA {setting}")
            connection.execute("BEGIN")
            for start in range(0, self.count, BATCH):
                connection.execute(
                    """
                    WITH RECURSIVE numbers (number) AS (
                        VALUES (?1) UNION ALL SELECT number + 1 FROM numbers WHERE number < ?2 - 1
                    )
                    INSERT INTO token (slot, key, written_at, expires_at, key_number, version, value)
                    SELECT number + 1, CAST(printf(?3, number) AS BLOB), unixepoch(), NULL, 0, 0, CAST(?4 AS BLOB) FROM numbers
                    """,
                    (start, min(start + BATCH, self.count), ID_FORMAT, NUMBERED_INFO),
                )
            connection.execute("UPDATE store SET tokens = ?, key_ring = NULL", (self.count,))
            connection.execute("COMMIT")

    def forget(self) -> None:
        """Removes the database from the page cache, as a restart of the machine would."""
        with self.database.open("rb") as file:
            os.fsync(file.fileno())
            os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)

    @contextlib.contextmanager
    def serving(self, workload: Workload) -> Iterator[RunningPeer]:
        """Runs the server, and waits until it has read the database into the page cache."""
        with super().serving(workload) as running:
            log = self.folder / f"{self.name}.log"
            deadline = time.monotonic() + PRELOAD_SECONDS
            while not PRELOADED.search(log.read_text()):
                if time.monotonic() > deadline:
                    raise BenchmarkError(f"the store of {self.name} is not in memory:\n{log.read_text()}")
                time.sleep(0.01)
            yield running

    def environment(self) -> dict[str, str]:
        """The settings, with a log level that reports the end of preloading."""
        return super().environment() | {"TOKEN_CACHE_LOG_LEVEL": "debug"}
