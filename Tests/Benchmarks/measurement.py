"""What is measured and how: processor time of the server's processes divided by the requests they answered."""

import contextlib
import dataclasses
import statistics
import subprocess
from pathlib import Path

from client import CONNECTIONS, ask, open_connections
from machine import BenchmarkError, stolen_seconds
from peers import Peer, RunningPeer
from workloads import SEED, Workload


@dataclasses.dataclass(frozen=True)
class Sample:
    """One run of wrk against one peer, or the medians of several."""

    requests_per_second: float
    p50_microseconds: float
    p99_microseconds: float
    cpu_microseconds: float
    """A request."""
    busy: float
    """The share of the time in which the server's core worked for it; below 1 the client was the limit."""
    stolen: float
    """The share of the time in which the core of the server belonged to other guests of a virtual machine's host."""
    resident_bytes: float


@dataclasses.dataclass(frozen=True)
class Result:
    """A peer's figures in one row."""

    workload: str
    peer: str
    medians: Sample
    ratios: list[float]
    """Processor time a request against the reference peer, one for each pair of runs."""


def median(samples: list[Sample]) -> Sample:
    """The median of each figure by itself."""
    columns = zip(*(dataclasses.astuple(sample) for sample in samples))
    return Sample(*(statistics.median(column) for column in columns))


class Wrk:
    """The load: 64 keep-alive connections from one thread on a core of its own."""

    def __init__(self, core: int, server_core: int, folder: Path, seconds: int) -> None:
        self.core = core
        self.server_core = server_core
        self.folder = folder
        self.seconds = seconds

    def run(self, peer: RunningPeer, workload: Workload, seed: int) -> Sample:
        """Drives a peer once."""
        stolen_before, cpu_before = stolen_seconds(self.server_core), peer.cpu_seconds()
        requests, microseconds, received, failed, p50, p99 = self.figures(peer.port, workload, seed)
        cpu, stolen = peer.cpu_seconds() - cpu_before, stolen_seconds(self.server_core) - stolen_before
        if failed:
            raise BenchmarkError(f"{peer.name}, {workload.name}: {failed} requests failed")
        # The answers cut off at the end of the run are in the bytes and not in the requests.
        surplus = received - requests * len(peer.answer)
        if not 0 <= surplus <= CONNECTIONS * len(peer.answer):
            raise BenchmarkError(f"{peer.name}, {workload.name}: answers of an unexpected length")
        return Sample(
            requests_per_second=requests / microseconds * 1e6,
            p50_microseconds=p50,
            p99_microseconds=p99,
            cpu_microseconds=cpu / requests * 1e6,
            busy=cpu / microseconds * 1e6,
            stolen=stolen / microseconds * 1e6,
            resident_bytes=peer.resident_bytes(),
        )

    def figures(self, port: int, workload: Workload, seed: int) -> list[int]:
        """The numbers that `replay.lua` prints."""
        requests = self.folder / "requests"
        requests.write_bytes(b"".join(workload.requests))
        script = str(Path(__file__).with_name("replay.lua"))
        command = ["taskset", "--cpu-list", str(self.core), "wrk", "-t1", f"-c{CONNECTIONS}", f"-d{self.seconds}s"]
        arguments = [str(requests), str(workload.request_bytes), str(seed)]
        scheme = "https" if workload.is_tls else "http"
        result = subprocess.run(
            [*command, "-s", script, f"{scheme}://127.0.0.1:{port}", "--", *arguments],
            capture_output=True, text=True, timeout=self.seconds + 60, check=False,
        )
        last = result.stdout.strip().rpartition("\n")[2].split()
        if result.returncode != 0 or last[:1] != ["figures"]:
            raise BenchmarkError(f"wrk failed:\n{result.stdout}{result.stderr}")
        return [int(number) for number in last[1:]]


def compare(peers: list[Peer], workload: Workload, wrk: Wrk, rounds: int) -> list[Result]:
    """Drives the peers in turn, A B A B, so that a change of the machine's mood meets them all.

    The last peer is the one the others are compared with.
    """
    samples: dict[str, list[Sample]] = {peer.name: [] for peer in peers}
    with contextlib.ExitStack() as stack:
        running = [stack.enter_context(peer.serving(workload)) for peer in peers]
        for number in range(rounds):
            for peer in running:
                samples[peer.name].append(wrk.run(peer, workload, SEED + number))
    reference = samples[peers[-1].name]
    results = []
    for name, own in samples.items():
        ratios = [one.cpu_microseconds / other.cpu_microseconds for one, other in zip(own, reference)]
        results.append(Result(workload.name, name, median(own), ratios))
    return results


def idle_connection_bytes(peer: Peer, workload: Workload, count: int) -> float:
    """Resident memory a keep-alive connection costs that has had one answer and now waits."""
    with peer.serving(workload) as server, contextlib.ExitStack() as stack:
        before = server.resident_bytes()
        for connection in open_connections(stack, server.port, count, workload.is_tls):
            ask(connection, workload.requests[0])
        return (server.resident_bytes() - before) / count


def start_milliseconds(peer: Peer, workload: Workload, count: int) -> float:
    """The median time from exec to the first answer on a store that has the tokens already."""
    times = []
    for _ in range(count):
        with peer.serving(workload) as server:
            times.append(server.start_seconds * 1e3)
    return statistics.median(times)
