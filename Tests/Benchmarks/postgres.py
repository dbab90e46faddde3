"""token-cache on PostgreSQL beside pgbench, which sends a statement for each request to the same server."""

import contextlib
import dataclasses
import operator
import os
import random
import re
import shutil
import statistics
import string
import subprocess
import time
from collections.abc import Callable
from pathlib import Path

import machine
import report
from client import CONNECTIONS, ask_all
from machine import BenchmarkError, note
from measurement import Wrk
from nginx import Nginx
from peers import RunningPeer, TokenCache, make_certificate
from postgres_programs import environment, programs
from postgres_server import ROLE, WAL_BYTES, PostgresServer, settings
from report import Goal
from stores import Store
from workloads import ID_FORMAT, NUMBERED_INFO, SEED, Numbered, form, numbered_gets, post

FEW_ROWS = 100_000
# For each row, in PostgreSQL's files, in its WAL and in the store from which it is copied.
BYTES_PER_ROW = 3_000
# What sealing adds to the id and the token info of a value.
SEALING_BYTES = 42
# Assumptions: users, requests of each a day, how many times as many there are at the peak, and space for dead rows.
USERS, READS_A_DAY, WRITES_A_DAY, PEAK, SPARE = 100_000_000, 3, 0.2, 4, 1.2
# The statements of token-cache for a single request. The keys are numbers, as pgbench has no other variables; each client writes
# rows of its own, as the versions that a client writes have to grow.
SCRIPTS = {
    "get": f"""\\set key {10**18} + random(0, {FEW_ROWS - 1})
SELECT version, written_at, expires_at, key_number, CASE WHEN octet_length(value) <= :limit::bigint THEN value END AS value
FROM token WHERE key = :key::text::bytea AND value IS NOT NULL;
""",
    "post": f"""\\set version :version + 1
\\set key {10**18} + :client_id + {CONNECTIONS} * random(0, {FEW_ROWS // CONNECTIONS - 1})
INSERT INTO token (key, version, written_at, expires_at, key_number, value)
VALUES (:key::text::bytea, :version::bigint, :now::bigint, NULL, 1, :value::bytea) ON CONFLICT (key) DO UPDATE
SET version = excluded.version, written_at = excluded.written_at, expires_at = excluded.expires_at,
key_number = excluded.key_number, value = excluded.value WHERE token.version <= excluded.version;
""",
}


@dataclasses.dataclass(frozen=True)
class Plan:
    """How much to measure, and how long."""

    rounds: int
    seconds: int
    many_rows: int


FULL = Plan(rounds=11, seconds=5, many_rows=10_000_000)
QUICK = Plan(rounds=2, seconds=2, many_rows=300_000)


@dataclasses.dataclass(frozen=True)
class Cost:
    """One run, or the medians of several; processor times are microseconds per request."""

    requests: float
    rate: float
    """Requests in a second."""
    server: float
    """Of token-cache or nginx."""
    database: float
    client: float

    @property
    def total(self) -> float:
        """Of all programs."""
        return self.server + self.database + self.client

    @property
    def thrift(self) -> float:
        """Requests in a second of processor time of all programs."""
        return 1e6 / self.total


RATE, THRIFT = operator.attrgetter("rate"), operator.attrgetter("thrift")
Runs = dict[str, list[Cost]]
"""The runs of some programs, one each in a round; those of the reference come last."""


@dataclasses.dataclass(frozen=True)
class Report:
    """The results of a run."""

    machine: dict[str, str]
    method: str
    rows: dict[str, Runs]
    many_rows: int
    row_bytes: float
    """On the disk, with the index; the next value is that of the index."""
    index_bytes: float
    wal_bytes: float
    """For each write to the many rows, with the images of pages after a checkpoint."""


class OnPostgres(TokenCache):
    """token-cache with one loop, on a database with the tokens of a store."""

    def __init__(self, cores: list[int], store: Store, server: PostgresServer, database: str) -> None:
        super().__init__(cores[0], store.folder, store.binary, store.certificate)
        # A loop serves on each core, so one core makes one loop.
        self.cores = cores[:1]
        self.name = database
        self.data = self.folder / database
        self.url = server.url(ROLE, database, sslmode="disable")
        self.settings = {
            "TOKEN_CACHE_STORE_URL": self.url, "PGPASSWORD": server.passwords[ROLE],
            "TOKEN_CACHE_SEALING_KEY_RING": str(store.data / "keys"),
        }


class PostgresBenchmark:
    """The measurements, with their files in one folder."""

    def __init__(self, binary: Path, plan: Plan, folder: Path, server: PostgresServer) -> None:
        self.binary, self.plan, self.folder, self.server = binary, plan, folder, server
        self.cores = sorted(os.sched_getaffinity(0))
        self.certificate = make_certificate(folder)
        self.wrk = Wrk(",".join(map(str, self.cores)), self.cores[0], folder, plan.seconds)

    def measure(self) -> Report:
        """Runs everything."""
        check_space(self.plan.many_rows)
        few, many = self.filled("tokens", FEW_ROWS), self.filled("many", self.plan.many_rows)
        rows = self.beside_pgbench(few)
        more_rows, wal_bytes = self.many_rows(few, many)
        total, index = self.server.sql(
            "SELECT pg_total_relation_size('token'), pg_relation_size('token_pkey')", many.name)[0]
        described = machine.describe(self.folder) | {
            "postgresql": self.server.value("SHOW server_version"), "libpq": machine.package_version("libpq5"),
            "nginx": machine.first_line(machine.program("nginx"), "-v").rpartition("/")[2],
        }
        del described["libraries"]
        own = ", ".join(f"{name} = {value}" for name, value in settings().items())
        return Report(
            machine=described,
            method=(
                f"All programs share the cores {', '.join(map(str, self.cores))}; token-cache with one loop, on one of them, behind wrk with "
                f"{CONNECTIONS} keep-alive connections, pgbench -M prepared -c {CONNECTIONS} -j 1, all over TCP on this "
                f"machine; {FEW_ROWS:,} sealed tokens of {len(NUMBERED_INFO)} bytes; medians of {self.plan.rounds} rounds of "
                f"{self.plan.seconds} s each, in turn. PostgreSQL's settings: {own}; fsync, "
                "full_page_writes and synchronous_commit are on, as by default"
            ),
            rows=rows | more_rows, many_rows=self.plan.many_rows, row_bytes=int(total) / self.plan.many_rows,
            index_bytes=int(index) / self.plan.many_rows, wal_bytes=wal_bytes,
        )

    def filled(self, database: str, count: int) -> OnPostgres:
        """A server on a new database with so many tokens, copied from a store in SQLite."""
        note(f"filling the database {database}")
        store = Store(self.cores[0], self.folder, self.binary, self.certificate, count)
        store.make()
        peer = OnPostgres(self.cores, store, self.server, database)
        self.server.create_database(database, ROLE)
        peer.run("migrate", "--data-directory", str(peer.data))
        peer.run("copy", "--from", str(store.data), "--to", peer.url, "--data-directory", str(peer.data))
        store.database.unlink()
        self.server.sql("VACUUM ANALYZE token", database)
        return peer

    # Runs

    def cost(
        self, run: Callable[[], tuple[int, float]], peer: RunningPeer | None = None, less: tuple[float, ...] = (0, 0, 0)
    ) -> Cost:
        """The cost of a run, which returns its requests and their rate, without the processor times `less`."""
        before = self.cpu(peer)
        requests, rate = run()
        times = zip(before, self.cpu(peer), less)
        return Cost(requests, rate, *((last - first - own) / requests * 1e6 for first, last, own in times))

    def cpu(self, peer: RunningPeer | None) -> tuple[float, ...]:
        """Processor time used so far by a server, PostgreSQL, and clients that have ended."""
        times = os.times()
        return (
            peer.cpu_seconds() if peer else 0, self.server.cpu_seconds(), times.children_user + times.children_system)

    def driver(self, peer: RunningPeer, workload: Numbered) -> Callable[[int], Cost]:
        """Drives one server, given the seed."""

        def run(seed: int) -> tuple[int, float]:
            with self.wrk.driving(peer.port, workload, seed) as process:
                figures = self.wrk.figures(process, f"{peer.name}, {workload.name}", len(peer.answer))
            return figures.requests, figures.requests_per_second

        return lambda seed: self.cost(lambda: run(seed), peer)

    def compare(self, name: str, entrants: dict[str, Callable[[int], Cost]]) -> Runs:
        """Runs programs in turn, in the opposite order in every second round."""
        note(f"measuring {name}")
        runs: Runs = {entrant: [] for entrant in entrants}
        for number in range(self.plan.rounds):
            for entrant in list(entrants) if number % 2 == 0 else reversed(entrants):
                # So that all begin alike: the first change of a page after a checkpoint logs the whole page.
                self.server.sql("CHECKPOINT")
                runs[entrant].append(entrants[entrant](SEED + number))
        return runs

    # Measurements

    def beside_pgbench(self, few: OnPostgres) -> dict[str, Runs]:
        """The rows of token-cache beside pgbench, which has a table of the same form."""
        value_bytes = SEALING_BYTES + len(ID_FORMAT % 0) + len(NUMBERED_INFO)
        self.server.sql(f"CREATE DATABASE pgbench TEMPLATE {few.name} OWNER {ROLE}")
        self.server.sql(
            f"""
            TRUNCATE token;
            INSERT INTO token (key, version, written_at, key_number, value)
            SELECT ({10**18} + number)::text::bytea, 0, 0, 1, rpad(md5(number::text), {value_bytes}, md5(number::text))::bytea
            FROM generate_series(0, {FEW_ROWS - 1}) AS number ORDER BY md5(number::text);
            VACUUM ANALYZE token
            """, "pgbench")
        bench = PgBench(self.server, self.folder, value_bytes)
        before = self.cpu(None)
        bench.run("get", SEED, "-t1")
        connecting = tuple(last - first for first, last in zip(before, self.cpu(None)))

        def bench_run(kind: str) -> Callable[[int], Cost]:
            return lambda seed: self.cost(lambda: bench.run(kind, seed, f"-T{self.plan.seconds}"), less=connecting)

        reading, writing = gets(FEW_ROWS), posts(FEW_ROWS)
        with contextlib.ExitStack() as stack:
            peer = stack.enter_context(few.serving(reading))
            nginx = Nginx(self.cores[0], self.folder, self.certificate, {reading.expected: peer.answer})
            nginx.cores = self.cores
            other = stack.enter_context(nginx.serving(reading))
            answering = dataclasses.replace(peer, answer=ask_all(peer.port, writing.requests)[0])
            return {
                "GET": self.compare("GET", {
                    "token-cache": self.driver(peer, reading), "nginx": self.driver(other, reading),
                    "pgbench": bench_run("get"),
                }),
                "POST": self.compare(
                    "POST", {"token-cache": self.driver(answering, writing), "pgbench": bench_run("post")}),
            }

    def many_rows(self, few: OnPostgres, many: OnPostgres) -> tuple[dict[str, Runs], float]:
        """The same requests to many rows and to few, and the bytes of WAL for each write to the many."""
        counts = {many: self.plan.many_rows, few: FEW_ROWS}
        rows = {}
        for workload in (gets, posts):
            with contextlib.ExitStack() as stack:
                drivers = {
                    f"{count:,} rows": self.driver(stack.enter_context(peer.serving(workload(count))), workload(count))
                    for peer, count in counts.items()}
                name = f"{workload(1).name} of many rows"
                rows[name] = self.compare(name, drivers)
                if workload is posts:
                    self.server.sql("CHECKPOINT")
                    start = self.server.value("SELECT pg_current_wal_insert_lsn()")
                    cost = next(iter(drivers.values()))(SEED)
                    logged = float(self.server.value(f"SELECT pg_current_wal_insert_lsn() - '{start}'"))
        return rows, logged / cost.requests


class PgBench:
    """Runs the scripts on a database of its own."""

    def __init__(self, server: PostgresServer, folder: Path, value_bytes: int) -> None:
        self.server, self.folder, self.value_bytes = server, folder, value_bytes
        for kind, text in SCRIPTS.items():
            (folder / f"{kind}.sql").write_text(text)

    def run(self, kind: str, seed: int, length: str) -> tuple[int, float]:
        """Runs a script for transactions of each connection (`-t1`) or seconds (`-T5`); returns the transactions and their rate."""
        now = time.time_ns() // 1_000
        variables = {
            "limit": 16_384, "now": now // 1_000_000, "version": now << 10,
            # Another one in each run, because PostgreSQL does not log what an update leaves unchanged.
            "value": "".join(random.Random(now).choices(string.ascii_letters, k=self.value_bytes)),
        }
        done = subprocess.run(
            [str(programs() / "pgbench"), "-n", "-M", "prepared", "-c", str(CONNECTIONS), "-j", "1", length,
             f"--random-seed={seed}", "-h", "127.0.0.1", "-p", str(self.server.port), "-U", ROLE,
             *(f"--define={name}={value}" for name, value in variables.items()), "-f", str(self.folder / f"{kind}.sql"),
             "pgbench"],
            env={**environment(), "PGPASSWORD": self.server.passwords[ROLE]}, stdin=subprocess.DEVNULL,
            capture_output=True, text=True, check=False)
        processed = re.search(r"transactions actually processed: (\d+)", done.stdout)
        rate = re.search(r"tps = ([\d.]+) ", done.stdout)
        if done.returncode != 0 or not processed or not rate or "failed transactions: 0 " not in done.stdout:
            raise BenchmarkError(f"pgbench failed:\n{done.stdout}{done.stderr}")
        return int(processed[1]), float(rate[1])


# Requests

def gets(count: int) -> Numbered:
    """GET requests for numbered tokens."""
    return dataclasses.replace(numbered_gets(count), name="GET")


def posts(count: int) -> Numbered:
    """POST requests that replace numbered tokens."""
    body = form(ID_FORMAT % 0, NUMBERED_INFO)
    return Numbered("POST", [post(body)], len(body), b'{"status":"true"}', count=count)


def check_space(rows: int) -> None:
    """Refuses to start if the databases would fill the disk."""
    needed, free = rows * BYTES_PER_ROW + WAL_BYTES + (2 << 30), shutil.disk_usage("/var/tmp").free
    if free < needed:
        raise BenchmarkError(
            f"/var/tmp has {free / (1 << 30):.1f} GiB free, and a database of {rows:,} rows takes "
            f"{needed / (1 << 30):.1f} GiB; make room, or measure a smaller one with --quick")


# The page

def median(runs: list[Cost]) -> Cost:
    """The median of each figure by itself."""
    return Cost(*(statistics.median(column) for column in zip(*map(dataclasses.astuple, runs))))


def ratio(runs: Runs, entrant: str, reference: str, figure: Callable[[Cost], float]) -> float:
    """The median of the ratios of the pairs of runs."""
    return statistics.median(figure(one) / figure(other) for one, other in zip(runs[entrant], runs[reference]))


def goals(found: Report) -> list[Goal]:
    """What is promised of the store on PostgreSQL."""
    promised = [
        Goal(f"{name}, requests{by}", ratio(found.rows[name], "token-cache", "pgbench", figure), least, "x pgbench", at_least=True)
        for name, least in (("GET", 1.5), ("POST", 2.0))
        for by, figure in (("/s", RATE), (" by CPU time of all programs", THRIFT))]
    server = ratio(found.rows["GET"], "token-cache", "nginx", lambda run: run.server)
    return [*promised, Goal("GET, CPU time of token-cache", server, 3.0, "x nginx `return 200`")]


def cells(title: str, runs: Runs) -> report.Rows:
    """A line for each program, compared with the last one; nginx only answers."""
    reference = list(runs)[-1]
    lines = []
    for entrant, samples in runs.items():
        found = median(samples)
        against = [
            "" if entrant in (reference, "nginx") else f"{ratio(runs, entrant, reference, figure):.2f} x {reference}"
            for figure in (RATE, THRIFT)]
        times = (found.server, found.database, found.client, found.total)
        lines.append([title, entrant, f"{found.rate:,.0f}", against[0], *(f"{time:.2f}" for time in times), against[1]])
    return lines


def plan(found: Report) -> report.Rows:
    """What the figures mean for many users, as deploy/postgresql/README.md has it in round numbers."""
    read, write = (median(next(iter(found.rows[f"{name} of many rows"].values()))) for name in ("GET", "POST"))
    reads, writes = (USERS * a_day * PEAK / 86_400 for a_day in (READS_A_DAY, WRITES_A_DAY))
    return [
        ["GET/s at the peak", f"users x {READS_A_DAY} a day x {PEAK}", f"{reads:,.0f}"],
        ["POST/s at the peak", f"users x {WRITES_A_DAY} a day x {PEAK}", f"{writes:,.0f}"],
        ["GB on each copy's disk", f"users x {found.row_bytes:,.0f} bytes/row x {SPARE}", f"{USERS * found.row_bytes * SPARE / 1e9:,.0f}"],
        ["GB of primary key", f"users x {found.index_bytes:,.0f} bytes/row", f"{USERS * found.index_bytes / 1e9:,.0f}"],
        ["cores of PostgreSQL at the peak", "rates x CPU µs, many rows", f"{(reads * read.database + writes * write.database) / 1e6:.1f}"],
        ["cores of token-cache at the peak", "rates x CPU µs, without TLS", f"{(reads * read.server + writes * write.server) / 1e6:.1f}"],
        ["GB of WAL a day", f"writes x {found.wal_bytes:,.0f} bytes", f"{USERS * WRITES_A_DAY * found.wal_bytes / 1e9:,.0f}"],
        ["MB/s of WAL at the peak", "POST/s at the peak x these bytes", f"{writes * found.wal_bytes / 1e6:,.0f}"],
    ]


REMARKS = [
    "Rates depend on how the programs share the cores, so processor time is the second measure: that of token-cache or nginx, of "
    "all processes of PostgreSQL, and of wrk or pgbench. Ratios are medians of those of pairs of runs.",
    "pgbench sends the statements that token-cache sends for single requests, each as a transaction. For requests of one turn, "
    "token-cache sends the same as one statement with several rows.",
    "The keys of pgbench have 19 bytes instead of 32, its clients never wait for one another, and what they spend on connecting "
    "does not count: all three are in its favour.",
    "Before each run there is a checkpoint, after which the first change of a page logs all of it.",
    "nginx answers with `return 200` and the body of token-cache's answer; only its own processor time is compared.",
]


def as_page(found: Report) -> str:
    """The page that the benchmark prints and writes."""
    titles = [
        "row", "program", "requests/s", "", "CPU µs/request", "PostgreSQL", "client", "together", "by CPU time"]
    rows = [line for name, runs in found.rows.items() for line in cells(name, runs)]
    sections = {
        "Promises": report.promises(goals(found)), "Everything that was compared": report.table(titles, rows),
        f"What this means for {USERS:,} users": report.table(["figure", "from", "value"], plan(found)),
    }
    return report.page(
        "Benchmark results on PostgreSQL", " --postgres", found.machine, found.method, sections, REMARKS)
