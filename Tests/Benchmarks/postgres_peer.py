"""PostgreSQL, which writes each upsert to its log and syncs that before it answers."""

import contextlib
import dataclasses
import random
import signal
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

import pgbench
from machine import BenchmarkError, stolen_seconds
from measurement import Sample, Wrk
from peers import Peer, RunningPeer, stop
from pgbench import FIRST_KEY
from postgres_server import ROLE, PostgresServer
from sealed_rows import opaque_value
from workloads import NUMBERED_INFO, TOKEN_COUNT, Workload

STATEMENT = "INSERT INTO token VALUES (:id, :info) ON CONFLICT (id) DO UPDATE SET info = excluded.info"
UPSERT = Workload("POST", [], 0, b"")
"""What token-cache's POST is for PostgreSQL: a value of the same length for one of as many keys, sent by pgbench."""
SETTINGS = {
    "max_connections": "600",
    # The defaults on Linux: what a durable POST promises, by the call that is delayed.
    "synchronous_commit": "on", "wal_sync_method": "fdatasync",
}
DATABASE = "tokens"
# For hundreds of clients, for each of which the server forks a process.
CONNECT_SECONDS = 60
# pgbench is told to end long before.
LONGEST_SECONDS = 3600


@dataclasses.dataclass(frozen=True)
class RunningPostgres(RunningPeer):
    """A running server; a process for each client comes and goes."""

    server: PostgresServer

    def cpu_seconds(self) -> float:
        return self.server.cpu_seconds()

    def resident_bytes(self) -> int:
        return self.server.resident_bytes()


class Postgres(Peer):
    """PostgreSQL with `synchronous_commit`, which promises as much as a durable POST."""

    name = "postgresql"

    @contextlib.contextmanager
    def serving(self, workload: Workload) -> Iterator[RunningPeer]:
        begin = time.monotonic()
        variables = (f"{name}={value}" for name, value in self.settings.items())
        with PostgresServer.running(SETTINGS, self.pinned("env", *variables)) as server:
            elapsed = time.monotonic() - begin
            server.create_database(DATABASE)
            server.sql(
                f"SET ROLE {ROLE}; CREATE TABLE token (id text PRIMARY KEY, info text NOT NULL); "
                f"INSERT INTO token SELECT {FIRST_KEY} + number, repeat('x', {len(NUMBERED_INFO)}) "
                f"FROM generate_series(0, {TOKEN_COUNT - 1}) AS number", DATABASE)
            server.sql("VACUUM ANALYZE token", DATABASE)
            server.sql("CHECKPOINT")
            yield RunningPostgres(self.name, server.port, self.cores, [server.process.pid], b"", elapsed, server)

    def settle(self, running: RunningPeer, workload: Workload) -> None:
        """Nothing is left behind: its load ends when all requests have their answers."""

    def driver(self, wrk: Wrk) -> Wrk:
        return PgBenchLoad(wrk.core, wrk.server_core, wrk.folder, wrk.seconds, wrk.connections)


class PgBenchLoad(Wrk):
    """The load from pgbench, which speaks PostgreSQL's protocol; counted once all clients are connected."""

    def run(self, peer: RunningPostgres, workload: Workload, seed: int) -> Sample:
        with self.clients(peer.server, seed) as process:
            stolen_before, cpu_before = stolen_seconds(self.server_core), peer.cpu_seconds()
            with self.during():
                begin = time.time()
                time.sleep(self.seconds)
                end = time.time()
            cpu, stolen = peer.cpu_seconds() - cpu_before, stolen_seconds(self.server_core) - stolen_before
            resident_bytes = peer.resident_bytes()
            latencies = self.latencies(process, begin, end)
        seconds = end - begin
        return Sample(
            requests=len(latencies),
            requests_per_second=len(latencies) / seconds,
            p50_microseconds=latencies[len(latencies) // 2],
            p99_microseconds=latencies[len(latencies) * 99 // 100],
            cpu_microseconds=cpu / len(latencies) * 1e6,
            busy=cpu / seconds / len(peer.cores),
            stolen=stolen / seconds,
            resident_bytes=resident_bytes,
        )

    @contextlib.contextmanager
    def clients(self, server: PostgresServer, seed: int) -> Iterator[subprocess.Popen]:
        """Runs pgbench during the block, which begins when each client has sent its statement twice.

        Before that, each connection costs a process, which then reads the catalog and prepares the statement.
        """
        # A client writes rows of its own, so none waits for the lock of another.
        script = self.folder / "upsert.sql"
        script.write_text(
            f"\\set id {FIRST_KEY} + :client_id + {self.connections} * random(0, {TOKEN_COUNT // self.connections - 1})\n"
            f"{STATEMENT};\n")
        # Another value in each run: PostgreSQL does not log what an update leaves as it is.
        info = opaque_value(random.Random(time.time_ns()), len(NUMBERED_INFO)).decode()
        command = pgbench.command(
            server, DATABASE, script, self.connections, f"-T{LONGEST_SECONDS}", seed, {"info": info})
        now = server.value("SELECT clock_timestamp()")
        process = subprocess.Popen(
            ["taskset", "--cpu-list", str(self.core), *command, "--log", f"--log-prefix={self.log}"],
            env=server.environment(), stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
        )
        try:
            for _ in range(2):
                now = self.time_when_all_sent(server, process, now)
            yield process
        finally:
            stop(process)
            for file in self.logs():
                file.unlink()

    def time_when_all_sent(self, server: PostgresServer, process: subprocess.Popen, since: str) -> str:
        """Waits until each client has sent its statement since a time; the server's time then."""
        deadline = time.monotonic() + CONNECT_SECONDS
        while True:
            [[count, now]] = server.sql(
                "SELECT count(*), clock_timestamp() FROM pg_stat_activity "
                f"WHERE query LIKE 'INSERT%' AND query_start > '{since}'")
            if int(count) == self.connections:
                return now
            if process.poll() is not None or time.monotonic() > deadline:
                process.terminate()
                raise BenchmarkError(f"only {count} clients of pgbench are at work:\n{''.join(process.communicate())}")
            time.sleep(0.01)

    @property
    def log(self) -> Path:
        """pgbench adds its process id to the name."""
        return self.folder / "pgbench-log"

    def logs(self) -> list[Path]:
        """The files that pgbench has written."""
        return list(self.folder.glob(f"{self.log.name}.*"))

    def latencies(self, process: subprocess.Popen, begin: float, end: float) -> list[int]:
        """Ends pgbench; the sorted microseconds of the transactions that ended between two times."""
        # As its timer does at the end of the time.
        process.send_signal(signal.SIGALRM)
        output, errors = process.communicate(timeout=CONNECT_SECONDS)
        pgbench.transactions(subprocess.CompletedProcess(process.args, process.returncode, output, errors))
        [file] = self.logs()
        found = []
        for line in file.read_text().splitlines():
            # Client, number of the transaction, microseconds, script, and the time at its end.
            _, _, latency, _, seconds, microseconds = (int(column) for column in line.split())
            if begin <= seconds + microseconds / 1e6 < end:
                found.append(latency)
        if not found:
            raise BenchmarkError(f"no transaction of pgbench ended in time:\n{output}{errors}")
        return sorted(found)
