"""The store under load: group commit on slow disks, and the effect of checkpoints on latency."""

import contextlib
import dataclasses
import os
import statistics
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

import hummingbird
import machine
import measurement
import postgres_peer
import postgres_server
import redis
import stores
from client import CONNECTIONS, ask_all
from hummingbird import Hummingbird
from machine import BenchmarkError
from measurement import Figures, Sample, Wrk
from peers import Certificate, Peer, RunningPeer
from postgres_peer import Postgres
from redis import Redis
from stores import Store
from sync_delay import SyncDelay
from workloads import POST, SEED, TOKEN_COUNT, Workload, numbered_gets, numbered_posts

# Milliseconds: none, and those of a good and of a usual solid-state disk, and of a rotating one.
SYNC_DELAYS = [0, 0.5, 2, 10]
GROUP_CONNECTIONS = [1, 64, 512]
# Milliseconds that each connection waits on average before a request; 0 is full load.
PAUSES = [10, 0]
SAMPLE_SECONDS = 0.02


@dataclasses.dataclass(frozen=True)
class Plan:
    """How much to measure, and how long."""

    rounds: int
    seconds: int
    large_store_tokens: int
    """Tokens of a database of 1 GiB, or 128 MiB with --quick."""
    checkpoint_rounds: int
    checkpoint_seconds: int


FULL = Plan(
    rounds=3, seconds=3, large_store_tokens=2_140_000, checkpoint_rounds=3, checkpoint_seconds=8
)
QUICK = Plan(
    rounds=1, seconds=2, large_store_tokens=267_000, checkpoint_rounds=1, checkpoint_seconds=4
)


@dataclasses.dataclass(frozen=True)
class GroupResult:
    """POST to one server at one delay and with one number of connections."""

    server: str
    delay_milliseconds: float
    connections: int
    medians: Sample
    requests_per_commit: float
    sync_milliseconds: float


@dataclasses.dataclass(frozen=True)
class CheckpointResult:
    """POST and GET at the same time, on one store under one load."""

    pause_milliseconds: int
    store: str
    database_bytes: int
    post: Figures
    """The medians, and the largest maximum; so are the next values."""
    get: Figures
    database_syncs_per_second: float
    largest_log_bytes: int


@dataclasses.dataclass(frozen=True)
class StorageReport:
    """The results of a run."""

    machine: dict[str, str]
    method: str
    groups: list[GroupResult]
    checkpoints: list[CheckpointResult]
    plan: Plan


class StorageBenchmark:
    """The two measurements, with their files in one folder."""

    def __init__(self, binary: Path, plan: Plan, folder: Path) -> None:
        self.binary = binary
        self.plan = plan
        self.folder = folder
        self.server_core, self.client_core = machine.choose_cores()
        self.certificate = Certificate.make(folder)
        self.delay = SyncDelay(folder)

    def measure(self) -> StorageReport:
        """Runs everything."""
        stores.check_space(self.folder, self.plan.large_store_tokens)
        machine.raise_descriptor_limit()
        swift_nio = hummingbird.build()
        os.sched_setaffinity(0, {self.client_core})
        small = self.made(TOKEN_COUNT)
        groups = self.groups(small, self.peers(swift_nio))
        large = self.made(self.plan.large_store_tokens)
        machine.note("measuring checkpoints")
        checkpoints = self.checkpoints([large, small])
        return StorageReport(
            machine=machine.describe(self.binary, self.folder) | {
                **hummingbird.versions(), "redis": redis.version(), "postgresql": postgres_server.version(),
            },
            method=(
                f"server on core {self.server_core}, wrk, redis-benchmark or pgbench on core {self.client_core}; "
                "sealed stores, random ids;\n"
                "latencies with wrk's correction for what was not asked while an answer was late, which the other two lack;\n"
                "each client of pgbench writes rows of its own, so that none waits for another's commit"
            ),
            groups=groups, checkpoints=checkpoints, plan=self.plan,
        )

    def made(self, count: int) -> Store:
        """A new store."""
        machine.note(f"making a store of {count:,} tokens")
        store = Store(self.server_core, self.folder, self.binary, self.certificate, count)
        store.make()
        return store

    def wrk(self, seconds: int, connections: int = CONNECTIONS) -> Wrk:
        """A load on the client's core."""
        return Wrk(self.client_core, self.server_core, self.folder, seconds, connections)

    @contextlib.contextmanager
    def counting(self, peer: Peer, workload: Workload) -> Iterator[RunningPeer]:
        """Runs a server whose syncs are counted and not delayed."""
        self.delay.set(0)
        peer.settings = self.delay.settings
        try:
            with peer.serving(workload) as running:
                yield running
        finally:
            peer.settings = {}

    # Group commit

    def peers(self, binary: Path) -> list[tuple[Peer, Workload]]:
        """Other servers that promise as much."""
        core, folder = self.server_core, self.folder
        return [
            (Hummingbird(core, folder, binary), POST), (Redis(core, folder), redis.SET),
            (Postgres(core, folder), postgres_peer.UPSERT),
        ]

    def groups(self, store: Store, others: list[tuple[Peer, Workload]]) -> list[GroupResult]:
        """POST at each delay with each number of connections, to one server after the other."""
        return [
            result
            for peer, workload in [(store, numbered_posts(store.count)), *others]
            for result in self.groups_of(peer, workload)
        ]

    def groups_of(self, peer: Peer, workload: Workload) -> list[GroupResult]:
        """The same of one server."""
        machine.note(f"measuring group commit of {peer.name}")
        cells = [(delay, connections) for delay in SYNC_DELAYS for connections in GROUP_CONNECTIONS]
        found: dict[tuple[float, int], list[tuple[Sample, float, float]]] = {cell: [] for cell in cells}
        with self.counting(peer, workload) as running:
            for number in range(self.plan.rounds):
                for delay, connections in cells:
                    self.delay.set(0)
                    peer.settle(running, workload)
                    self.delay.set(delay)
                    driver = peer.driver(self.wrk(self.plan.seconds, connections))
                    driver.during = self.delay.counting
                    sample, syncs = driver.run(running, workload, SEED + number), self.delay.counted
                    # Not every peer names its log as those that are known.
                    commits = syncs.log or syncs.database
                    if commits == 0:
                        raise BenchmarkError(f"{peer.name}: no sync was counted, so none was delayed")
                    found[delay, connections].append((sample, sample.requests / commits, syncs.milliseconds))
            self.delay.set(0)
        return [
            GroupResult(
                peer.name, delay, connections,
                measurement.median([sample for sample, _, _ in runs]),
                statistics.median(group for _, group, _ in runs),
                statistics.median(milliseconds for _, _, milliseconds in runs),
            )
            for (delay, connections), runs in found.items()
        ]

    # Checkpoints

    def checkpoints(self, entrants: list[Store]) -> list[CheckpointResult]:
        """The same loads on all stores in turn."""
        cells = [(pause, store) for pause in PAUSES for store in entrants]
        found: dict[tuple[int, str], list[CheckpointResult]] = {(pause, store.name): [] for pause, store in cells}
        for number in range(self.plan.checkpoint_rounds):
            for pause, store in cells:
                found[pause, store.name].append(self.checkpoint_run(store, pause, SEED + number))
        return [combined(runs) for runs in found.values()]

    def checkpoint_run(self, store: Store, pause: int, seed: int) -> CheckpointResult:
        """POSTs and GETs at the same time."""
        posts, gets = numbered_posts(store.count, pause), numbered_gets(store.count, pause)
        wrk = self.wrk(self.plan.checkpoint_seconds)
        with self.counting(store, gets) as running:
            answer_bytes = [len(answer) for answer in ask_all(running.port, [posts.requests[0], gets.requests[0]])]
            before = self.delay.syncs()
            with wrk.driving(running.port, posts, seed) as posting, wrk.driving(running.port, gets, seed) as getting:
                largest_log_bytes = self.watch_log(store, posting)
                post = wrk.figures(posting, f"{store.name}, POST", answer_bytes[0])
                get = wrk.figures(getting, f"{store.name}, GET", answer_bytes[1])
            syncs = self.delay.syncs() - before
        if syncs.database == 0:
            raise BenchmarkError(f"{store.name}: there was no checkpoint, so nothing was measured")
        return CheckpointResult(
            pause, store.name, store.database.stat().st_size, post, get,
            syncs.database / post.microseconds * 1e6, largest_log_bytes,
        )

    @staticmethod
    def watch_log(store: Store, process: subprocess.Popen) -> int:
        """The largest size of the WAL while a process runs."""
        log, largest = store.data / "tokens.db-wal", 0
        while process.poll() is None:
            largest = max(largest, log.stat().st_size)
            time.sleep(SAMPLE_SECONDS)
        return largest


def combined(runs: list[CheckpointResult]) -> CheckpointResult:
    """The medians, and the largest of the maxima."""

    def figures(all_figures: list[Figures]) -> Figures:
        columns = zip(*(dataclasses.astuple(one) for one in all_figures))
        medians = Figures(*(statistics.median(column) for column in columns))
        return dataclasses.replace(medians, max_microseconds=max(one.max_microseconds for one in all_figures))

    return dataclasses.replace(
        runs[0],
        post=figures([run.post for run in runs]),
        get=figures([run.get for run in runs]),
        database_syncs_per_second=statistics.median(run.database_syncs_per_second for run in runs),
        largest_log_bytes=max(run.largest_log_bytes for run in runs),
    )
