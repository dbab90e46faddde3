"""Compares token-cache with its peers."""

import dataclasses
import json
import os
import shutil
from pathlib import Path

import machine
import measurement
import memory
import operations
import redis
import stores
import workloads
from client import CONNECTIONS, ask_all
from instructions import UNCACHED
from machine import BenchmarkError, note
from measurement import PacedClient, Result, Wrk, WrkBeside
from memory import Memory
from nginx import Nginx, PhpFpm, php_fpm_program
from operations import Operation
from peers import Peer, TokenCache, make_certificate
from redis import Redis
from stores import Store
from workloads import GET_HIT, GET_MISS, GET_UNCACHED, POST, TLS_GET, TLS_HANDSHAKE, TOKEN_COUNT, Workload

IDLE_CONNECTIONS = 5_000
IDLE_TLS_CONNECTIONS = 2_000


@dataclasses.dataclass(frozen=True)
class Plan:
    """How much to measure, and how long."""

    rounds: int
    seconds: int
    many_tokens: int
    starts: int
    busy_connections: int
    """Connections in the measurement of memory; the next value is the requests."""
    busy_requests: int
    busy_seconds: int


FULL = Plan(
    rounds=15, seconds=2, many_tokens=10_000_000, starts=10, busy_connections=15_000, busy_requests=10_000_000,
    busy_seconds=20,
)
QUICK = Plan(
    rounds=2, seconds=1, many_tokens=200_000, starts=5, busy_connections=1_000, busy_requests=400_000, busy_seconds=2,
)


@dataclasses.dataclass(frozen=True)
class Idle:
    """The memory of a connection that had one answer and is idle."""

    peer: str
    is_tls: bool
    connections: int
    bytes: float


@dataclasses.dataclass(frozen=True)
class Start:
    """A start, from exec to the first answer."""

    tokens: int
    milliseconds: float
    resident_bytes: float
    """After that answer."""


@dataclasses.dataclass(frozen=True)
class Report:
    """The results of a run of the benchmark."""

    machine: dict[str, str]
    method: str
    rows: dict[str, list[Result]]
    """By a short name: token-cache first, and last the peer that it is compared with."""
    idle: list[Idle]
    starts: list[Start]
    memory: Memory
    operations: list[Operation]
    disk_bytes: int
    """Bytes read from disks, not from the page cache, while many tokens were requested."""
    making_seconds: float
    """Seconds that making the store of many tokens took."""


class Benchmark:
    """The measurements, with their files in one folder."""

    def __init__(self, binary: Path, plan: Plan, folder: Path) -> None:
        self.binary = binary
        self.plan = plan
        self.folder = folder
        self.server_core, self.client_core = machine.choose_cores()
        self.certificate = make_certificate(folder)
        self.wrk = Wrk(self.client_core, self.server_core, folder, plan.seconds)

    def measure(self) -> Report:
        """Runs everything."""
        stores.check_space(self.folder, self.plan.many_tokens)
        descriptors = machine.raise_descriptor_limit() - 100
        os.sched_setaffinity(0, {self.client_core})
        rows, idle = self.beside_peers(descriptors)
        few, many = self.made(TOKEN_COUNT), self.made(self.plan.many_tokens)
        disk_bytes = machine.bytes_from_disk()
        rows |= self.lookups(few, many)
        disk_bytes = machine.bytes_from_disk() - disk_bytes
        note("measuring starts")
        starts = [
            Start(store.count, *measurement.start(store, workloads.numbered_gets(store.count), self.plan.starts))
            for store in (few, many)
        ]
        note("measuring memory")
        busy = Wrk(
            self.client_core, self.server_core, self.folder, self.plan.busy_seconds,
            min(self.plan.busy_connections, descriptors),
        )
        return Report(
            machine=machine.describe(self.folder) | {
                "nginx": machine.first_line(machine.program("nginx"), "-v").rpartition("/")[2],
                "php-fpm": machine.first_line(php_fpm_program(), "-v").partition(" (")[0].removeprefix("PHP "),
                "redis": redis.version(),
            },
            method=(
                f"Server on core {self.server_core}, wrk on core {self.client_core}, {CONNECTIONS} keep-alive "
                f"connections, {TOKEN_COUNT:,} sealed tokens; medians of {self.plan.rounds} paired runs of {self.plan.seconds} s"
            ),
            rows=rows, idle=idle, starts=starts,
            memory=memory.measure(many, busy, self.plan.busy_requests), operations=operations.measure(many),
            disk_bytes=disk_bytes, making_seconds=many.making_seconds,
        )

    def beside_peers(self, descriptors: int) -> tuple[dict[str, list[Result]], list[Idle]]:
        """The rows in which token-cache meets other servers."""
        note("storing tokens")
        server = TokenCache(self.server_core, self.folder, self.binary, self.certificate)
        php = PhpFpm(self.server_core, self.folder, self.certificate)
        durable = Redis(self.server_core, self.folder)
        answers = load(server)
        check_answers(php, load(php), answers)
        nginx = Nginx(self.server_core, self.folder, self.certificate, answers)
        rows = {
            "get": self.row(GET_HIT, server, php, nginx),
            "post": self.row(POST, server, php, nginx),
            "redis": self.beside_redis(server, durable),
            "tls": self.row(TLS_GET, server, nginx),
            "handshake": self.row(TLS_HANDSHAKE, server, nginx),
        }
        half, most = (min(rows[row][index].medians.requests_per_second for index in (0, -1)) for row in ("get", "redis"))
        rows["half"] = self.at_rate(half / 2, (server, GET_HIT), (nginx, GET_HIT))
        rows["redis_paced"] = self.at_rate(most * 0.8, (server, POST), (durable, redis.SET))
        server.settings = UNCACHED
        rows["uncached"] = self.row(GET_UNCACHED, server, nginx)
        server.settings = {}
        rows |= self.loops(server)
        note("measuring idle connections")
        count, tls_count = (min(most, descriptors) for most in (IDLE_CONNECTIONS, IDLE_TLS_CONNECTIONS))
        idle = [idle_connections(peer, GET_HIT, count) for peer in (server, nginx)]
        idle += [idle_connections(peer, TLS_GET, tls_count) for peer in (server, nginx)]
        return rows, idle

    def row(self, workload: Workload, *peers: Peer) -> list[Result]:
        """All of them under the same load."""
        note(f"measuring {workload.name}")
        return measurement.compare([(peer, workload) for peer in peers], self.wrk, self.plan.rounds)

    def at_rate(self, requests_per_second: float, *entrants: tuple[Peer, Workload]) -> list[Result]:
        """Each with its workload, at the same rate."""
        paced = [(peer, workloads.paced(workload, requests_per_second)) for peer, workload in entrants]
        note(f"measuring {paced[0][1].name}")
        return measurement.compare(paced, PacedClient(self.wrk), self.plan.rounds, "p99_microseconds")

    def beside_redis(self, server: TokenCache, durable: Redis) -> list[Result]:
        """POST beside Redis' SET, both durable."""
        note("measuring POST beside Redis")
        return measurement.compare([(server, POST), (durable, redis.SET)], self.wrk, self.plan.rounds)

    def loops(self, server: TokenCache) -> dict[str, list[Result]]:
        """Two loops on two cores, then one loop on one core, each core with its own load."""
        note("measuring two loops")
        two = TokenCache(self.server_core, self.folder, self.binary, self.certificate)
        two.name, two.cores = "2 loops, 2 cores", [self.server_core, self.client_core]
        # Each server needs its own data folder.
        two.data = self.folder / "data-of-two-loops"
        shutil.copytree(server.data, two.data, ignore=shutil.ignore_patterns("*.sock"))
        one = TokenCache(self.server_core, self.folder, self.binary, self.certificate)
        one.name = "1 loop, 1 core"
        workload = dataclasses.replace(GET_HIT, name="GET hit, load beside")
        wrk = WrkBeside(self.client_core, self.server_core, self.folder, self.plan.seconds)
        return {"loops": measurement.compare([(two, workload), (one, workload)], wrk, self.plan.rounds)}

    def made(self, count: int) -> Store:
        """A store of this many tokens."""
        note(f"making a store of {count:,} tokens")
        store = Store(self.server_core, self.folder, self.binary, self.certificate, count)
        store.make()
        store.forget()
        return store

    def lookups(self, few: Store, many: Store) -> dict[str, list[Result]]:
        """GET from both stores in turn, with and without the answer cache."""
        rows = {}
        for name, title, settings in [("many", "GET hit", {}), ("many_uncached", GET_UNCACHED.name, UNCACHED)]:
            note(f"measuring {title} of many tokens")
            entrants = []
            for store in (many, few):
                store.settings = settings
                entrants.append((store, dataclasses.replace(workloads.numbered_gets(store.count), name=title)))
            rows[name] = measurement.compare(entrants, self.wrk, self.plan.rounds)
        for store in (many, few):
            store.settings = {}
        return rows


def load(server: Peer) -> dict[bytes, bytes]:
    """Stores the tokens and returns the server's answers by kind."""
    with server.serving(workloads.LOADING) as running:
        answers = ask_all(running.port, workloads.LOADING.requests)
        if any(workloads.LOADING.expected not in answer for answer in answers):
            raise BenchmarkError(f"{server.name}: the tokens could not be stored")
        # The POST comes last, because it replaces the value for the GET.
        return {
            workload.expected: ask_all(running.port, workload.requests[:1])[0]
            for workload in (GET_HIT, GET_MISS, POST)
        }


def check_answers(peer: Peer, found: dict[bytes, bytes], expected: dict[bytes, bytes]) -> None:
    """Checks that a peer gives token-cache's answers, in any notation."""
    for kind, answer in expected.items():
        own, other = (json.loads(one.partition(b"\r\n\r\n")[2]) for one in (found[kind], answer))
        if own != other:
            raise BenchmarkError(f"{peer.name} answers {own} where token-cache answers {other}")


def idle_connections(peer: Peer, workload: Workload, count: int) -> Idle:
    """Opens connections and fetches one answer on each."""
    return Idle(peer.name, workload.is_tls, count, measurement.idle_connection_bytes(peer, workload, count))
