"""Counts a server's instructions and allocations for each request with Callgrind; unlike times, they hardly depend on what else the
machine does."""

import re
import subprocess
from pathlib import Path
from typing import NamedTuple

import machine
from client import ask_all
from machine import BenchmarkError
from peers import RunningPeer, TokenCache, make_certificate
from workloads import GET_HIT, GET_UNCACHED, LOADING, POST, TLS_GET, Workload

# Both counts have the same connections, so their difference is that of the requests alone.
FEW, MANY = 256, 1_280
TOTAL = re.compile(r"^totals: (\d+)$", re.MULTILINE)
# A function's name is there only where its number comes first.
CALL = re.compile(r"^c?fn=\((?P<number>\d+)\)(?: (?P<name>.+))?$|^calls=(?P<count>\d+) ", re.MULTILINE)
ALLOCATORS = {"malloc", "calloc", "realloc", "posix_memalign", "aligned_alloc"}
UNCACHED = {"TOKEN_CACHE_CACHE_MAX_BYTES": "0"}
ROWS: list[tuple[Workload, dict[str, str]]] = [(GET_HIT, {}), (GET_UNCACHED, UNCACHED), (POST, {}), (TLS_GET, {})]
"""What is counted, and with which settings."""


class Counts(NamedTuple):
    """What requests cost, in user space."""

    instructions: float
    allocations: float


class CallgrindTokenCache(TokenCache):
    """token-cache in Callgrind's virtual processor, some fifty times slower."""

    start_limit = 120

    def command(self, port: int, workload: Workload) -> list[str]:
        return [
            "valgrind", "--quiet", "--tool=callgrind", f"--callgrind-out-file={self.folder}/callgrind.%p",
            *super().command(port, workload),
        ]

    def count(self, workload: Workload) -> Counts:
        """What one request costs."""
        with self.serving(workload) as running:
            # The first requests fill caches and make buffers.
            self.cost(running, workload, MANY)
            few, many = (self.cost(running, workload, count) for count in (FEW, MANY))
        return Counts(*((more - less) / (MANY - FEW) for more, less in zip(many, few)))

    def cost(self, running: RunningPeer, workload: Workload, count: int) -> Counts:
        """What this many requests and their connections cost."""
        [pid] = running.pids
        control(pid, "--zero")
        ask_all(running.port, workload.requests[:count], workload.is_tls)
        before = set(self.folder.glob(f"callgrind.{pid}.*"))
        control(pid, "--dump")
        [dump] = set(self.folder.glob(f"callgrind.{pid}.*")) - before
        profile = dump.read_text()
        return Counts(int(TOTAL.findall(profile)[-1]), allocations(profile))


def allocations(profile: str) -> int:
    """How often a profile's program has asked for memory."""
    names: dict[str, str] = {}
    count, called = 0, ""
    for line in CALL.finditer(profile):
        if line["number"]:
            called = names.setdefault(line["number"], line["name"] or "")
        elif called in ALLOCATORS:
            count += int(line["count"])
    return count


def control(pid: int, action: str) -> None:
    """Tells Callgrind what to do, and waits until it has done it."""
    done = subprocess.run(["callgrind_control", action, str(pid)], capture_output=True, text=True, check=False)
    if done.returncode != 0 or "OK" not in done.stdout:
        raise BenchmarkError(f"callgrind_control {action} failed:\n{done.stdout}{done.stderr}")


def measure(binary: Path, folder: Path) -> dict[str, Counts]:
    """What a request costs by the name of the row; the files are in a new folder."""
    folder.mkdir()
    core, _ = machine.choose_cores()
    certificate = make_certificate(folder)
    store(TokenCache(core, folder, binary, certificate))
    server = CallgrindTokenCache(core, folder, binary, certificate)
    counts = {}
    for workload, settings in ROWS:
        server.settings = settings
        counts[workload.name] = server.count(workload)
    return counts


def store(server: TokenCache) -> None:
    """Stores the tokens that the GETs ask for."""
    with server.serving(LOADING) as running:
        ask_all(running.port, LOADING.requests)


def as_text(counts: dict[str, Counts]) -> str:
    """A line for each row."""
    lines = [f"{name:24} {count.instructions:12,.0f} {count.allocations:11,.1f}" for name, count in counts.items()]
    return "\n".join([f"{'A request, in user space':24} instructions allocations", *lines])
