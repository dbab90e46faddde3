"""pgbench with the statements of token-cache: what a client costs that sends each in a transaction of its own."""

import os
import random
import re
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

from client import CONNECTIONS
from machine import BenchmarkError
from postgres_server import ROLE, PostgresServer, programs
from sealed_rows import LIFE_SECONDS, VERSION_BITS, opaque_rows, opaque_value
from workloads import SEED

# The keys are numbers, as pgbench has no other variables, and longer than others: this many bytes.
FIRST_KEY = 10**18
# The parameters of the statements in their order.
FETCH = ["key", "limit"]
STORE = ["key", "version", "written_at", "expires_at", "key_number", "value"]
# Writes of a client in what its rows take for one second.
WRITES_IN_A_SECOND = 128


def command(
    server: PostgresServer, database: str, script: Path, connections: int, length: str, seed: int, variables: dict[str, object]
) -> list[str]:
    """Runs a script with one thread, which prepares each statement once for each connection.

    - length: `-t` with a number of transactions for each connection, or `-T` with seconds, which include those of connecting.
    """
    return [
        str(programs() / "pgbench"), "-n", "-M", "prepared", "-c", str(connections), "-j", "1", length,
        f"--random-seed={seed}", "-h", "127.0.0.1", "-p", str(server.port), "-U", ROLE,
        *(f"--define={name}={value}" for name, value in variables.items()), "-f", str(script), database,
    ]


def transactions(done: subprocess.CompletedProcess) -> tuple[int, float]:
    """The transactions of a run, none of which may have failed, and how many there were in a second."""
    processed = re.search(r"transactions actually processed: (\d+)", done.stdout)
    rate = re.search(r"tps = ([\d.]+) ", done.stdout)
    if done.returncode != 0 or not processed or not rate or "failed transactions: 0 " not in done.stdout:
        raise BenchmarkError(f"pgbench failed:\n{done.stdout}{done.stderr}")
    return int(processed[1]), float(rate[1])


def named(statement: str, parameters: list[str]) -> str:
    """A statement with pgbench's variables in place of its parameters."""
    if sorted(set(re.findall(r"\$\d+", statement))) != [f"${number + 1}" for number in range(len(parameters))]:
        raise BenchmarkError(f"token-cache's statement has other parameters than {', '.join(parameters)}: {statement}")
    return re.sub(r"\$(\d+)", lambda found: f":{parameters[int(found[1]) - 1]}", statement)


class PgBench:
    """Runs on a database of its own, whose rows are like those of token-cache."""

    def __init__(self, server: PostgresServer, database: str, folder: Path, count: int, value_bytes: int) -> None:
        self.server, self.database, self.folder = server, database, folder
        # The same number for each client.
        self.count = count // CONNECTIONS * CONNECTIONS
        self.value_bytes = value_bytes
        self.connecting = (0.0, 0.0)

    def rows(self) -> Iterator[bytes]:
        """The rows to load."""
        return opaque_rows([str(FIRST_KEY + number).encode() for number in range(self.count)], self.value_bytes)

    def prepare(self, fetch: str, store: str) -> None:
        """Writes the scripts, and measures what connecting costs."""
        # A client writes rows of its own, as no other has versions that grow with those of this one.
        (self.folder / "get.sql").write_text(
            f"\\set key {FIRST_KEY} + random(0, {self.count - 1})\n{named(fetch, FETCH)};\n")
        (self.folder / "post.sql").write_text(
            f"\\set number :number + 1\n\\set version :version + 1\n"
            f"\\set key {FIRST_KEY} + :client_id + {CONNECTIONS} * random(0, {self.count // CONNECTIONS - 1})\n"
            f"\\set written_at :start + :number / {WRITES_IN_A_SECOND}\n\\set expires_at :written_at + {LIFE_SECONDS}\n"
            f"{named(store, STORE)};\n")
        begin = self.cpu()
        self.run("get", SEED, "-t1")
        self.connecting = tuple(after - before for before, after in zip(begin, self.cpu()))

    def cpu(self) -> tuple[float, float]:
        """Processor time used so far by PostgreSQL, and by programs of ours that have ended."""
        times = os.times()
        return self.server.cpu_seconds(), times.children_user + times.children_system

    def run(self, kind: str, seed: int, length: str) -> tuple[int, float]:
        """Runs a script; the transactions, and how many there were in a second."""
        now = time.time_ns() // 1_000
        variables = {
            "limit": 16_384, "number": 0, "start": now // 1_000_000, "version": now << VERSION_BITS, "key_number": 1,
            # Another one in each run: PostgreSQL does not log what an update leaves as it is.
            "value": opaque_value(random.Random(now), self.value_bytes).decode(),
        }
        script = self.folder / f"{kind}.sql"
        done = subprocess.run(
            command(self.server, self.database, script, CONNECTIONS, length, seed, variables),
            env=self.server.environment(), stdin=subprocess.DEVNULL, capture_output=True, text=True, check=False)
        return transactions(done)
