"""What the size of the store costs: GET, the start, and the commands that read or write all tokens."""

import dataclasses
import multiprocessing
import os
import shutil
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

import machine
import measurement
import stores
import workloads
from machine import BenchmarkError
from measurement import Result, Wrk
from peers import Certificate, TokenCache, stop
from sealed_rows import KeyRing
from stores import Store
from workloads import GET_MISS, GET_UNCACHED, ID_FORMAT, NUMBERED_INFO

# The other store has this part of the tokens.
PART = 4
ROUNDS = 5
SECONDS = 5
STARTS = 5
PEAK_SECONDS = 0.02
# Bytes per token of a database that is sealed from the beginning, with a little to spare.
BYTES_PER_TOKEN = 560
UNCACHED = {"TOKEN_CACHE_CACHE_MAX_BYTES": "0"}


@dataclasses.dataclass(frozen=True)
class Command:
    """A command's run over all tokens."""

    name: str
    tokens: int
    seconds: float
    cpu_seconds: float
    peak_bytes: int
    """Its resident memory at its largest, as far as it was seen."""


@dataclasses.dataclass(frozen=True)
class Start:
    """Milliseconds from exec to the first answer, without reading the database ahead."""

    tokens: int
    cached: float
    """With the database in the page cache as far as it fits."""
    uncached: float
    """As after a start of the machine."""


@dataclasses.dataclass(frozen=True)
class LargeReport:
    """The results of a run."""

    machine: dict[str, str]
    sizes: dict[int, int]
    """Bytes of the database by tokens."""
    lookups: list[Result]
    starts: list[Start]
    commands: list[Command]


class SealedStore(Store):
    """A store whose rows are sealed here, in the order of their slots, which takes less time and space than
    `token-cache copy`."""

    def make(self) -> None:
        begin = time.monotonic()
        with self.serving(GET_MISS):
            pass
        ring, written_at = KeyRing(self.data / "keys"), int(time.time())

        def sealed(number: int) -> bytes:
            return ring.sealed((ID_FORMAT % number).encode(), NUMBERED_INFO.encode(), written_at, None)[1]

        def key(number: int) -> bytes:
            return ring.key((ID_FORMAT % number).encode())

        with self.filling() as connection:
            connection.create_function("key", 1, key)
            connection.create_function("sealed", 1, sealed)
            self.number_slots(connection, lambda number: stores.slot_of(key(number)))
            connection.execute(
                """
                INSERT INTO token (slot, key, written_at, expires_at, key_number, version, value)
                SELECT slot + row_number() OVER (PARTITION BY slot ORDER BY number) - 1, key(number), ?1, NULL, ?2, 0, sealed(number)
                FROM numbered
                """,
                (written_at, ring.number),
            )
        self.making_seconds = time.monotonic() - begin


class LargeBenchmark:
    """A large store and one of a quarter of its tokens, in one folder."""

    def __init__(self, binary: Path, tokens: int, folder: Path) -> None:
        self.binary = binary
        self.counts = [tokens, tokens // PART]
        self.folder = folder
        self.server_core, self.client_core = machine.choose_cores()
        self.certificate = Certificate.make(folder)

    def measure(self) -> LargeReport:
        """Runs everything; the commands of the small store first, whose files then make room."""
        stores.check_space(self.folder, sum(self.counts), BYTES_PER_TOKEN)
        os.sched_setaffinity(0, {self.client_core})
        made = [self.made(count) for count in self.counts]
        machine.note("measuring GET")
        wrk = Wrk(self.client_core, self.server_core, self.folder, SECONDS)
        for store in made:
            store.settings = UNCACHED
        lookups = measurement.compare(
            [(store, dataclasses.replace(workloads.numbered_gets(store.count), name=GET_UNCACHED.name)) for store in made],
            wrk, ROUNDS)
        for found in lookups:
            machine.note(f"GET of {found.peer}: {found.medians.cpu_microseconds:.2f} us, {found.medians.requests_per_second:,.0f}/s")
        sizes = {store.count: store.database.stat().st_size for store in made}
        starts = [self.starts(store) for store in made]
        commands = []
        for store in reversed(made):
            for command in self.commands(store):
                commands.append(command)
                # A run takes hours: whoever ends it early has these.
                machine.note(f"{command.tokens / command.seconds:,.0f} tokens/s, {command.peak_bytes / (1 << 20):.1f} MiB")
            store.remove()
        return LargeReport(machine.describe(self.binary, self.folder), sizes, lookups, starts, commands)

    def made(self, count: int) -> Store:
        """A new store."""
        machine.note(f"making a store of {count:,} tokens")
        store = SealedStore(self.server_core, self.folder, self.binary, self.certificate, count)
        # In a process of its own: the gigabytes that sorting takes would be missing in the page cache later.
        process = multiprocessing.get_context("fork").Process(target=store.make, daemon=True)
        process.start()
        process.join()
        if process.exitcode != 0:
            raise BenchmarkError(f"the store of {count:,} tokens could not be made")
        return store

    def starts(self, store: Store) -> Start:
        """Starts the server several times."""
        machine.note(f"measuring starts with {store.count:,} tokens")
        # Not the store itself, which waits until the database is in memory.
        server = TokenCache(self.server_core, self.folder, self.binary, self.certificate)
        server.name, server.data = f"start {store.count}", store.data
        workload = workloads.numbered_gets(store.count)
        cached = measurement.start_milliseconds(server, workload, STARTS)
        uncached = []
        for _ in range(STARTS):
            store.forget()
            uncached.append(measurement.start_milliseconds(server, workload, 1))
        return Start(store.count, cached, sorted(uncached)[STARTS // 2])

    def commands(self, store: Store) -> Iterator[Command]:
        """Runs the commands that go over all tokens."""
        backup = self.folder / f"{store.count}-tokens.backup"
        own = ["--data-directory", str(store.data)]
        yield self.command("verify", store, *own)
        if shutil.disk_usage(self.folder).free > store.database.stat().st_size + (1 << 30):
            yield self.command("backup", store, str(backup), *own)
            yield self.command("verify", store, str(backup), *own)
            backup.unlink()
        else:
            machine.note(f"no backup of {store.count:,} tokens: the disk has no room for it")
        yield self.command("keyring rotate", store, *own)

    def command(self, name: str, store: Store, *arguments: str) -> Command:
        """One run on any core; its output goes to a file."""
        machine.note(f"{name} with {store.count:,} tokens")
        output = self.folder / "command.log"
        begin = time.monotonic()
        with output.open("wb") as log:
            process = subprocess.Popen(
                [str(self.binary), *name.split(), *arguments], env=store.environment(), stdin=subprocess.DEVNULL, stdout=log,
                stderr=log, preexec_fn=lambda: os.sched_setaffinity(0, {self.server_core, self.client_core}))
            peak = 0
            try:
                while (ended := os.wait4(process.pid, os.WNOHANG))[0] == 0:
                    # Not the maximum that wait4 tells, which counts the memory of this process before the program's start.
                    peak = max(peak, resident_peak(process.pid))
                    time.sleep(PEAK_SECONDS)
            except BaseException:
                stop(process)
                raise
        seconds, (_, status, usage) = time.monotonic() - begin, ended
        process.returncode = os.waitstatus_to_exitcode(status)
        if process.returncode != 0:
            raise BenchmarkError(f"token-cache {name} failed:\n{output.read_text()[-2_000:]}")
        return Command(name, store.count, seconds, usage.ru_utime + usage.ru_stime, peak)


def resident_peak(pid: int) -> int:
    """The most resident memory so far, in bytes; 0 when the process has ended and is not yet waited for."""
    value = machine.value_of(f"/proc/{pid}/status", "VmHWM", ":")
    return 0 if value == "unknown" else int(value.split()[0]) * 1024


def as_text(report: LargeReport) -> str:
    """The tables."""
    lines = [f"{name}: {value}" for name, value in report.machine.items()] + [""]
    lines += [f"{tokens:>13,} tokens: {size / (1 << 30):.2f} GiB" for tokens, size in report.sizes.items()]
    lines += ["", "GET from SQLite            req/s   p50 us   p99 us   CPU us/request   CPU ratio"]
    for result in report.lookups:
        one = result.medians
        lines.append(
            f"{result.peer:22} {one.requests_per_second:9,.0f} {one.p50_microseconds:8,.0f} {one.p99_microseconds:8,.0f}"
            f" {one.cpu_microseconds:16.2f} {result.ratio:11.2f}")
    lines += ["", "Start                        cached ms   uncached ms"]
    lines += [f"{start.tokens:>13,} tokens {start.cached:17.1f} {start.uncached:13.1f}" for start in report.starts]
    lines += ["", "Command                  tokens    seconds      tokens/s   CPU us/token   peak MiB"]
    for one in report.commands:
        lines.append(
            f"{one.name:18} {one.tokens:>12,} {one.seconds:10.1f} {one.tokens / one.seconds:13,.0f}"
            f" {one.cpu_seconds / one.tokens * 1e6:14.2f} {one.peak_bytes / (1 << 20):10.1f}")
    return "\n".join(lines)
