"""token-cache on PostgreSQL beside pgbench, which sends a statement for each request to the same server."""

import contextlib
import dataclasses
import itertools
import os
import shutil
import subprocess
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import machine
import measurement
import sealed_rows
from client import CONNECTIONS, ask_all
from machine import BenchmarkError, note
from measurement import Wrk
from nginx import Nginx
from peers import Certificate, RunningPeer, TokenCache
from pgbench import PgBench
from postgres_figures import Cost, LogOfWrites, Report, Runs, Sizes
from postgres_server import WAL_BYTES, PostgresServer, settings
from sealed_rows import KeyRing
from workloads import ID_FORMAT, SEED, Numbered, form, get, post

FEW_ROWS = 100_000
INFO_BYTES = 330
SERVERS = (1, 2, 4)
# Bytes for each row in PostgreSQL's files, and for the log beside them.
BYTES_PER_ROW = 1_000


@dataclasses.dataclass(frozen=True)
class Plan:
    """How much to measure, and how long."""

    rounds: int
    seconds: int
    many_rows: int
    log_seconds: int
    """How long the writes run whose log is examined."""


FULL = Plan(rounds=11, seconds=5, many_rows=10_000_000, log_seconds=20)
QUICK = Plan(rounds=2, seconds=2, many_rows=300_000, log_seconds=4)


class OnPostgres(TokenCache):
    """token-cache with one loop, on a database."""

    def __init__(self, cores: list[int], folder: Path, binary: Path, certificate: Certificate, server: PostgresServer,
                 database: str, number: int = 1) -> None:
        super().__init__(cores[0], folder, binary, certificate)
        self.cores = cores
        self.server = server
        self.name = f"{database}-{number}"
        self.data = folder / self.name
        self.settings = {
            "TOKEN_CACHE_LOOPS": "1", "TOKEN_CACHE_STORE_URL": server.url(database), "PGPASSWORD": server.password,
            # The same for all servers of all databases.
            "TOKEN_CACHE_SEALING_KEY_RING": str(folder / "keys"),
        }

    def migrate(self) -> None:
        """Makes the tables."""
        done = subprocess.run(
            [str(self.binary), "migrate", "--data-directory", str(self.data)], env=self.environment(),
            capture_output=True, text=True, check=False)
        if done.returncode != 0:
            raise BenchmarkError(f"token-cache migrate failed:\n{done.stderr}{done.stdout}")


class PostgresBenchmark:
    """The measurements, with their files in one folder."""

    def __init__(self, binary: Path, plan: Plan, folder: Path, server: PostgresServer) -> None:
        self.binary, self.plan, self.folder, self.server = binary, plan, folder, server
        self.cores = sorted(os.sched_getaffinity(0))
        self.certificate = Certificate.make(folder)
        self.info = token_info()
        self.connections = 0
        self.loading_seconds = 0.0

    def measure(self) -> Report:
        """Runs everything."""
        check_space(self.plan.many_rows)
        for database in ("tokens", "many"):
            with self.peer(database).serving(gets(FEW_ROWS, b'"errorCode"')):
                # The first server makes the key ring, and that of a database says which keys its rows may have.
                pass
        ring = KeyRing(self.folder / "keys")
        self.load("tokens", sealed_rows.sealed_rows(ring, FEW_ROWS, self.info.encode()))
        value_bytes = sealed_rows.OVERHEAD + len(ID_FORMAT % 0) + INFO_BYTES
        bench = PgBench(self.server, "pgbench", self.folder, FEW_ROWS, value_bytes)
        self.peer("pgbench")
        self.server.sql("INSERT INTO sealing_key VALUES (1, '')", "pgbench")
        self.load("pgbench", bench.rows())
        begin = time.monotonic()
        self.load("many", sealed_rows.sealed_rows(ring, self.plan.many_rows, self.info.encode()))
        self.loading_seconds = time.monotonic() - begin
        sizes = self.sizes()
        statements, rows, logs = self.beside_pgbench(bench)
        rows |= self.several_servers()
        more_rows, log = self.many_rows()
        return Report(
            machine=self.describe(),
            method=(
                f"all programs share the cores {', '.join(map(str, self.cores))}; token-cache with one loop behind wrk with "
                f"{CONNECTIONS} keep-alive\nconnections, pgbench -M prepared -c {CONNECTIONS} -j 1, all over TCP on this "
                f"machine; {FEW_ROWS:,} sealed tokens of {INFO_BYTES} bytes;\nmedians of {self.plan.rounds} rounds of "
                f"{self.plan.seconds} s each, in turn"
            ),
            statements=statements, settings=settings(), rows=rows | more_rows, connections=self.connections,
            logs=[*logs, log], sizes=sizes, loading_seconds=self.loading_seconds,
        )

    def describe(self) -> dict[str, str]:
        """The machine, and what ran on it."""
        found = machine.describe(self.binary, self.folder)
        del found["libraries"]
        return found | {
            "postgresql": self.server.value("SHOW server_version"),
            "libpq": machine.package_version("libpq5"),
            "nginx": machine.first_line(machine.program("nginx"), "-v").rpartition("/")[2],
        }

    # Databases

    def peer(self, database: str, number: int = 1) -> OnPostgres:
        """A server of token-cache; the first one of a database makes that."""
        peer = OnPostgres(self.cores, self.folder, self.binary, self.certificate, self.server, database, number)
        if not self.server.sql(f"SELECT 1 FROM pg_database WHERE datname = '{database}'"):
            self.server.create_database(database)
            peer.migrate()
        return peer

    def load(self, database: str, rows: Iterator[bytes]) -> None:
        """Fills a database."""
        note(f"filling the database {database}")
        sealed_rows.load(self.server, database, rows)

    def sizes(self) -> Sizes:
        """Of the table with many rows."""
        heap, toast = self.server.sql(
            "SELECT pg_relation_size(oid), pg_total_relation_size(reltoastrelid) FROM pg_class WHERE relname = 'token'",
            "many")[0]
        indexes = self.server.sql(
            "SELECT indexrelname, pg_relation_size(indexrelid) FROM pg_stat_user_indexes WHERE relname = 'token' ORDER BY 1",
            "many")
        return Sizes(
            self.plan.many_rows, int(heap), int(toast), {name: int(size) for name, size in indexes})

    # Runs

    def drive(self, peers: list[RunningPeer], workload: Numbered, seed: int, seconds: int | None = None) -> Cost:
        """Drives servers at once, with equal shares of the connections."""
        wrk = Wrk(
            ",".join(map(str, self.cores)), self.cores[0], self.folder, seconds or self.plan.seconds,
            CONNECTIONS // len(peers))

        def load() -> tuple[int, float]:
            with contextlib.ExitStack() as stack:
                driving = [
                    stack.enter_context(wrk.driving(peer.port, workload, seed + number))
                    for number, peer in enumerate(peers)]
                figures = measurement.together([
                    wrk.figures(process, f"{peer.name}, {workload.name}", len(peer.answer))
                    for process, peer in zip(driving, peers)])
            return figures.requests, figures.requests_per_second

        return self.cost(load, peers)

    def cost(
        self, run: Callable[[], tuple[int, float]], peers: list[RunningPeer], beforehand: tuple[float, float] = (0.0, 0.0)
    ) -> Cost:
        """What a run costs, given its requests and their rate.

        - beforehand: processor time of the database and the client that does not count.
        """
        begin, stolen = time.monotonic(), self.stolen_seconds()
        before = self.cpu(peers)
        requests, rate = run()
        after = self.cpu(peers)
        elapsed = time.monotonic() - begin
        server, database, client = (
            (last - first - less) / requests * 1e6 for first, last, less in zip(before, after, (0.0, *beforehand)))
        return Cost(
            requests, rate, server, database, client,
            (self.stolen_seconds() - stolen) / elapsed / len(self.cores))

    def cpu(self, peers: list[RunningPeer]) -> tuple[float, float, float]:
        """Processor time used so far by servers, PostgreSQL, and clients that have ended."""
        times = os.times()
        return (
            sum(peer.cpu_seconds() for peer in peers), self.server.cpu_seconds(),
            times.children_user + times.children_system)

    def stolen_seconds(self) -> float:
        """Of all cores."""
        return sum(machine.stolen_seconds(core) for core in self.cores)

    def compare(self, name: str, entrants: dict[str, Callable[[int], Cost]], is_writing: bool = False) -> Runs:
        """Runs programs in turn, in the opposite order in every second round."""
        note(f"measuring {name}")
        runs: Runs = {entrant: [] for entrant in entrants}
        for number in range(self.plan.rounds):
            order = list(entrants) if number % 2 == 0 else list(reversed(entrants))
            for entrant in order:
                if is_writing:
                    # All begin alike: a page's first change after a checkpoint is logged with the whole page.
                    self.server.sql("CHECKPOINT")
                runs[entrant].append(entrants[entrant](SEED + number))
        return runs

    # Measurements

    def beside_pgbench(self, bench: PgBench) -> tuple[list[str], dict[str, Runs], list[LogOfWrites]]:
        """The rows in which token-cache meets pgbench, and what their writes log."""
        reading, writing = gets(FEW_ROWS), posts(FEW_ROWS, self.info)
        with contextlib.ExitStack() as stack:
            peer = stack.enter_context(self.peer("tokens").serving(reading))
            self.connections = self.connection_count("tokens")
            statements = self.statements(peer)
            bench.prepare(*statements)
            nginx = Nginx(self.cores[0], self.folder, self.certificate, {reading.expected: peer.answer})
            nginx.cores = self.cores
            other = stack.enter_context(nginx.serving(reading))
            answering = dataclasses.replace(peer, answer=ask_all(peer.port, writing.requests)[0])

            def bench_run(kind: str) -> Callable[..., Cost]:
                return lambda seed, seconds=self.plan.seconds: self.cost(
                    lambda: bench.run(kind, seed, f"-T{seconds}"), [], bench.connecting)

            write, bench_write = self.driver(answering, writing), bench_run("post")
            rows = {
                "get": self.compare("GET", {
                    "token-cache": self.driver(peer, reading), "nginx": self.driver(other, reading, False),
                    "pgbench": bench_run("get"),
                }),
                "post": self.compare("POST", {"token-cache": write, "pgbench": bench_write}, is_writing=True),
            }
            logs = [
                self.log_of("token-cache", FEW_ROWS, lambda: write(SEED, self.plan.log_seconds)),
                self.log_of("pgbench", bench.count, lambda: bench_write(SEED, self.plan.log_seconds)),
            ]
        return statements, rows, logs

    def several_servers(self) -> dict[str, Runs]:
        """One, two and four servers on one database, under the same number of clients' connections."""
        rows = {}
        reading, writing = gets(FEW_ROWS), posts(FEW_ROWS, self.info)
        for name, workload in (("servers_get", reading), ("servers_post", writing)):
            with contextlib.ExitStack() as stack:
                peers = [
                    stack.enter_context(self.peer("tokens", number + 1).serving(workload))
                    for number in range(SERVERS[-1])]
                # The reference comes last.
                entrants = {
                    str(count): lambda seed, count=count: self.drive(peers[:count], workload, seed)
                    for count in sorted(SERVERS, reverse=True)}
                rows[name] = self.compare(
                    f"{workload.name} with several servers", entrants, is_writing=workload is writing)
        return rows

    def many_rows(self) -> tuple[dict[str, Runs], LogOfWrites]:
        """The same requests to many rows and to few."""
        many = f"{self.plan.many_rows:,} rows"
        counts = {many: ("many", self.plan.many_rows), f"{FEW_ROWS:,} rows": ("tokens", FEW_ROWS)}
        rows = {}
        for name, workload in {"many_get": gets, "many_post": lambda count: posts(count, self.info)}.items():
            with contextlib.ExitStack() as stack:
                entrants = {
                    entrant: self.driver(stack.enter_context(self.peer(database).serving(workload(count))), workload(count))
                    for entrant, (database, count) in counts.items()}
                is_writing = name == "many_post"
                rows[name] = self.compare(f"{workload(1).name} of many rows", entrants, is_writing)
                if is_writing:
                    log = self.log_of(
                        "token-cache", self.plan.many_rows, lambda: entrants[many](SEED, self.plan.log_seconds))
        return rows, log

    def driver(self, peer: RunningPeer, workload: Numbered, uses_database: bool = True) -> Callable[..., Cost]:
        """Drives one server, given the seed and, if they are not those of the plan, the seconds."""

        def run(seed: int, seconds: int | None = None) -> Cost:
            cost = self.drive([peer], workload, seed, seconds)
            return cost if uses_database else dataclasses.replace(cost, database=0.0)

        return run

    def log_of(self, name: str, rows: int, run: Callable[[], Cost]) -> LogOfWrites:
        """What a run writes to the log, beginning right after a checkpoint."""
        note(f"measuring the log of {name} on {rows:,} rows")
        self.server.sql("CHECKPOINT")
        start = self.server.log_position()
        requests = int(run().requests)
        return LogOfWrites(name, rows, requests, self.server.log_since(start))

    def connection_count(self, database: str) -> int:
        """Connections of servers to a database at the moment."""
        return int(self.server.value(
            f"SELECT count(*) FROM pg_stat_activity WHERE datname = '{database}' AND usename = 'token_cache'"))

    def statements(self, peer: RunningPeer) -> list[str]:
        """The statements that the server sends for a single GET and a single POST, as PostgreSQL shows them."""
        found: dict[str, str] = {}
        beginnings = {"SELECT version": "get", "INSERT INTO token ": "post"}
        for attempt in itertools.count():
            ask_all(peer.port, [gets(FEW_ROWS).requests[0], posts(FEW_ROWS, self.info).requests[0]])
            for [query] in self.server.sql(
                "SELECT translate(query, E'\\n|', '  ') FROM pg_stat_activity WHERE datname = 'tokens'"):
                for beginning, kind in beginnings.items():
                    if query.startswith(beginning):
                        found[kind] = query
            if len(found) == len(beginnings):
                return [found["get"], found["post"]]
            if attempt == 20:
                raise BenchmarkError(f"PostgreSQL does not show the statements of token-cache, only {found}")
            time.sleep(0.1)


# Requests

def token_info() -> str:
    """A token info as the app's library stores it, of `INFO_BYTES`, that tells when it expires."""
    end = time.strftime("%Y-%m-%dT%H:%M:%S.000+0000", time.gmtime(time.time() + sealed_rows.LIFE_SECONDS))
    text = (
        f'{{"com.facebook.sdk:TokenInformationExpirationDateKey":"{end}",'
        '"com.facebook.sdk:TokenInformationPermissionsKey":["public_profile"],'
        '"com.facebook.sdk:TokenInformationTokenKey":"%s"}'
    )
    return text % ("x" * (INFO_BYTES - len(text) + 2))


def gets(count: int, expected: bytes = b'"token_info":') -> Numbered:
    """GET requests for numbered tokens."""
    return Numbered("GET", [get(ID_FORMAT % 0)], 0, expected, count=count)


def posts(count: int, info: str) -> Numbered:
    """POST requests that replace numbered tokens."""
    body = form(ID_FORMAT % 0, info)
    return Numbered("POST", [post(body)], len(body), b'{"status":"true"}', count=count)


def check_space(rows: int) -> None:
    """Refuses to start if the databases would fill the disk."""
    needed, free = rows * BYTES_PER_ROW + WAL_BYTES + (2 << 30), shutil.disk_usage("/var/tmp").free
    if free < needed:
        raise BenchmarkError(
            f"/var/tmp has {free / (1 << 30):.1f} GiB free, and a database of {rows:,} rows takes "
            f"{needed / (1 << 30):.1f} GiB; make room, or measure a smaller one with --quick")
