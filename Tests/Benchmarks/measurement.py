"""Measures the processor time of a server's processes divided by the requests that they answered."""

import contextlib
import dataclasses
import statistics
import subprocess
from collections.abc import Iterator
from pathlib import Path

from client import CONNECTIONS, ask, ask_all, open_connections
from machine import BenchmarkError, stolen_seconds
from peers import Peer, RunningPeer, stop
from workloads import SEED, Workload


@dataclasses.dataclass(frozen=True)
class Figures:
    """The numbers that `figures.lua` prints."""

    requests: int
    microseconds: int
    received_bytes: int
    failed: int
    p50_microseconds: int
    p99_microseconds: int

    @property
    def requests_per_second(self) -> float:
        """Over the whole run."""
        return self.requests / self.microseconds * 1e6


@dataclasses.dataclass(frozen=True)
class Sample:
    """One run of wrk against one peer, or the medians of several."""

    requests: float
    requests_per_second: float
    p50_microseconds: float
    p99_microseconds: float
    cpu_microseconds: float
    """Processor time per request."""
    busy: float
    """The share of the time in which the server's cores worked; below 1 the client was the limit."""
    stolen: float
    """The share of the time in which the host gave the server's core to other virtual machines."""
    resident_bytes: float


@dataclasses.dataclass(frozen=True)
class Result:
    """A peer's figures in one row."""

    workload: str
    peer: str
    medians: Sample
    reference: str
    """The peer that it is compared with."""
    figure: str
    """The field of the sample that is compared."""
    ratios: list[float]
    """The ratios of that figure, one for each pair of runs."""

    @property
    def ratio(self) -> float:
        """The median."""
        return statistics.median(self.ratios)


def median(samples: list[Sample]) -> Sample:
    """The median of each figure by itself."""
    columns = zip(*(dataclasses.astuple(sample) for sample in samples))
    return Sample(*(statistics.median(column) for column in columns))


class Wrk:
    """The load: keep-alive connections from one thread on its own core, or on any of a list (`0,1`)."""

    def __init__(
        self, core: int | str, server_core: int, folder: Path, seconds: int, connections: int = CONNECTIONS
    ) -> None:
        self.core = core
        self.server_core = server_core
        self.folder = folder
        self.seconds = seconds
        self.connections = connections

    def cores(self, peer: RunningPeer) -> list[int | str]:
        """The cores on which wrk runs, once on each."""
        return [self.core]

    def run(self, peer: RunningPeer, workload: Workload, seed: int) -> Sample:
        """Drives a peer once, for `seconds`."""
        stolen_before, cpu_before = stolen_seconds(self.server_core), peer.cpu_seconds()
        with contextlib.ExitStack() as stack:
            driving = [stack.enter_context(self.driving(peer.port, workload, seed, core)) for core in self.cores(peer)]
            what = f"{peer.name}, {workload.name}"
            figures = together([self.figures(process, what, len(peer.answer)) for process in driving])
        cpu, stolen = peer.cpu_seconds() - cpu_before, stolen_seconds(self.server_core) - stolen_before
        return Sample(
            requests=figures.requests,
            requests_per_second=figures.requests_per_second,
            p50_microseconds=figures.p50_microseconds,
            p99_microseconds=figures.p99_microseconds,
            cpu_microseconds=cpu / figures.requests * 1e6,
            busy=cpu / figures.microseconds * 1e6 / len(peer.cores),
            stolen=stolen / figures.microseconds * 1e6,
            resident_bytes=peer.resident_bytes(),
        )

    @contextlib.contextmanager
    def driving(
        self, port: int, workload: Workload, seed: int, core: int | str | None = None
    ) -> Iterator[subprocess.Popen]:
        """Runs wrk during the block, and ends it afterwards."""
        scripts, scheme = Path(__file__).parent, "https" if workload.is_tls else "http"
        script, *arguments = workload.script(self.folder, seed)
        cores = str(self.core if core is None else core)
        process = subprocess.Popen(
            ["taskset", "--cpu-list", cores, "wrk", "-t1", f"-c{self.connections}", f"-d{self.seconds}s",
             "--timeout", "10s", "-s", str(scripts / script), f"{scheme}://127.0.0.1:{port}", "--", *arguments],
            stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
        )
        try:
            yield process
        finally:
            stop(process)

    def figures(self, process: subprocess.Popen, what: str, answer_bytes: int) -> Figures:
        """The figures of wrk at its end; all answers must have this length."""
        output, errors = process.communicate(timeout=self.seconds + 60)
        last = output.strip().rpartition("\n")[2].split()
        if process.returncode != 0 or last[:1] != ["figures"]:
            raise BenchmarkError(f"wrk failed:\n{output}{errors}")
        figures = Figures(*(int(number) for number in last[1:]))
        if figures.failed:
            raise BenchmarkError(f"{what}: {figures.failed} requests failed")
        # Answers that were cut off at the end of the run count as bytes, but not as requests.
        surplus = figures.received_bytes - figures.requests * answer_bytes
        if not 0 <= surplus <= self.connections * answer_bytes:
            raise BenchmarkError(f"{what}: answers of an unexpected length")
        return figures


class WrkBeside(Wrk):
    """The load from the server's own cores, as much from each as the other one gives alone."""

    def cores(self, peer: RunningPeer) -> list[int | str]:
        return [*peer.cores]


class PacedClient(Wrk):
    """The load at the rate of a `Paced` workload, whatever its protocol."""

    def __init__(self, wrk: Wrk) -> None:
        super().__init__(wrk.core, wrk.server_core, wrk.folder, wrk.seconds, wrk.connections)
        self.program = wrk.folder / "paced"
        source = Path(__file__).with_name("paced.c")
        subprocess.run(["gcc", "-std=gnu11", "-O2", "-Wall", "-Wextra", "-Werror", "-o", self.program, source], check=True)

    def run(self, peer: RunningPeer, workload: Workload, seed: int) -> Sample:
        stolen_before, cpu_before = stolen_seconds(self.server_core), peer.cpu_seconds()
        _, file, size, _, offset = workload.script(self.folder, seed)
        process = subprocess.run(
            ["taskset", "--cpu-list", str(self.core), self.program, str(peer.port), str(self.connections),
             f"{workload.requests_per_second}", str(self.seconds), file, size, str(len(peer.answer)), offset, str(seed)],
            stdin=subprocess.DEVNULL, capture_output=True, text=True, check=False, timeout=self.seconds + 60,
        )
        if process.returncode != 0:
            raise BenchmarkError(f"{peer.name}, {workload.name}: {process.stderr}")
        requests, microseconds, p50, p99 = (float(figure) for figure in process.stdout.split())
        cpu, stolen = peer.cpu_seconds() - cpu_before, stolen_seconds(self.server_core) - stolen_before
        return Sample(
            requests, requests / microseconds * 1e6, p50, p99, cpu / requests * 1e6, cpu / microseconds * 1e6 / len(peer.cores),
            stolen / microseconds * 1e6, peer.resident_bytes(),
        )


def together(parts: list[Figures]) -> Figures:
    """Combines samples of the same time: sums, and the worst latencies."""

    def total(name: str) -> int:
        return sum(getattr(part, name) for part in parts)

    def worst(name: str) -> int:
        return max(getattr(part, name) for part in parts)

    return Figures(
        total("requests"), worst("microseconds"), total("received_bytes"), total("failed"),
        worst("p50_microseconds"), worst("p99_microseconds"),
    )


def compare(
    entrants: list[tuple[Peer, Workload]], wrk: Wrk, rounds: int, figure: str = "cpu_microseconds"
) -> list[Result]:
    """Drives peers in turn (A B A B), each with its workload, so that changes of the machine's speed affect all of them.

    The others are compared with the last peer.
    """
    samples: dict[str, list[Sample]] = {peer.name: [] for peer, _ in entrants}
    with contextlib.ExitStack() as stack:
        running = [(stack.enter_context(peer.serving(workload)), workload) for peer, workload in entrants]
        for peer, workload in running:
            # Fills the servers' caches before the first run.
            if workload.body_bytes == 0 and workload.keeps_connections:
                ask_all(peer.port, workload.requests, workload.is_tls)
        drivers = [peer.driver(wrk) for peer, _ in entrants]
        for number in range(rounds):
            for driver, (peer, workload) in zip(drivers, running):
                samples[peer.name].append(driver.run(peer, workload, SEED + number))
    reference = entrants[-1][0].name
    results = []
    for peer, workload in entrants:
        ratios = [
            getattr(one, figure) / getattr(other, figure)
            for one, other in zip(samples[peer.name], samples[reference])
        ]
        results.append(Result(workload.name, peer.name, median(samples[peer.name]), reference, figure, ratios))
    return results


def idle_connection_bytes(peer: Peer, workload: Workload, count: int) -> float:
    """The resident memory of an idle keep-alive connection that has had one answer."""
    with peer.serving(workload) as server, contextlib.ExitStack() as stack:
        before = server.resident_bytes()
        for connection in open_connections(stack, server.port, count, workload.is_tls):
            ask(connection, workload.requests[0])
        return (server.resident_bytes() - before) / count


def start(peer: Peer, workload: Workload, count: int) -> tuple[float, float]:
    """The medians of the milliseconds from exec to the first answer, on an existing store, and of the resident bytes after it."""
    times, sizes = [], []
    for _ in range(count):
        with peer.serving(workload) as server:
            times.append(server.start_seconds * 1e3)
            sizes.append(server.resident_bytes())
    return statistics.median(times), statistics.median(sizes)
