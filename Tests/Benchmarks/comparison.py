"""Compares this program with that of another commit, in one run."""

import dataclasses
import io
import re
import statistics
import subprocess
import tarfile
from pathlib import Path

import instructions
import machine
import measurement
from machine import BenchmarkError, note
from measurement import Result, Wrk
from peers import TokenCache, make_certificate
from report import described, table
from workloads import GET_HIT, GET_MISS, GET_UNCACHED, POST, TLS_GET, TLS_HANDSHAKE

TITLES = [
    "row", "", "CPU µs/request", "before", "ratio", "half of the pairs", "instructions", "before", "ratio", "allocations", "before",
]
ROWS = [(GET_HIT, {}), (GET_MISS, {}), (GET_UNCACHED, instructions.UNCACHED), (POST, {}), (TLS_GET, {}), (TLS_HANDSHAKE, {})]


@dataclasses.dataclass(frozen=True)
class Plan:
    """How much to measure, and how long."""

    rounds: int
    seconds: int


FULL, QUICK = Plan(rounds=15, seconds=2), Plan(rounds=4, seconds=1)


@dataclasses.dataclass(frozen=True)
class Report:
    """The results of a run: this program first, then the other."""

    machine: dict[str, str]
    reference: str
    results: list[Result]
    counts: tuple[dict[str, instructions.Counts], dict[str, instructions.Counts]]


def build(repository: Path, reference: str) -> tuple[str, Path]:
    """The name and the release binary of another commit, built in a folder that the next comparison uses again."""
    found = subprocess.run(
        ["git", "rev-parse", "--verify", "--quiet", f"{reference}^{{commit}}"],
        cwd=repository, capture_output=True, text=True, check=False,
    )
    if found.returncode != 0:
        raise BenchmarkError(f"there is no commit {reference}; name a commit, a branch or a tag of this checkout")
    commit = found.stdout.strip()
    folder = repository / ".build-compared" / commit[:12]
    if not folder.is_dir():
        archive = subprocess.run(["git", "archive", commit], cwd=repository, stdout=subprocess.PIPE, check=True).stdout
        # Whole or not at all: an interrupted run would leave a part of the sources.
        partial = folder.with_suffix(".partial")
        with tarfile.open(fileobj=io.BytesIO(archive)) as sources:
            sources.extractall(partial, filter="data")
        partial.rename(folder)
    built = subprocess.run([folder / "deploy" / "build"], stdout=subprocess.PIPE, text=True, check=False)
    if built.returncode != 0:
        raise BenchmarkError(f"the release build of {reference} failed, in {folder}")
    return re.sub(r"\s", "", reference), Path(built.stdout.strip())


class Comparison:
    """The measurements, with their files in one folder."""

    def __init__(self, binary: Path, reference: str, other: Path, plan: Plan, folder: Path) -> None:
        self.plan, self.folder = plan, folder
        self.reference = reference
        self.server_core, self.client_core = machine.choose_cores()
        self.certificate = make_certificate(folder)
        self.binaries = {"this": binary, "before": other}

    def measure(self) -> Report:
        """Runs everything."""
        counts = []
        for name, binary in self.binaries.items():
            note(f"counting the instructions of {binary}")
            counts.append(instructions.measure(binary, self.folder / f"counted-{name}"))
        servers = [self.server(name, binary) for name, binary in self.binaries.items()]
        wrk = Wrk(self.client_core, self.server_core, self.folder, self.plan.seconds)
        results = []
        for workload, settings in ROWS:
            note(f"measuring {workload.name}")
            for server in servers:
                server.settings = settings
            results += measurement.compare([(server, workload) for server in servers], wrk, self.plan.rounds)
        described = machine.describe(self.folder)
        return Report(described, self.reference, results, (counts[0], counts[1]))

    def server(self, name: str, binary: Path) -> TokenCache:
        """A server with its own store, in which the tokens are."""
        server = TokenCache(self.server_core, self.folder, binary, self.certificate)
        server.name, server.data = name, self.folder / f"data-{name}"
        instructions.store(server)
        return server


def as_text(report: Report) -> str:
    """The report that the benchmark prints."""
    rows = []
    this, before = report.counts
    for own, other in zip(report.results[::2], report.results[1::2]):
        low, _, high = statistics.quantiles(own.ratios, n=4) if len(own.ratios) > 1 else own.ratios * 3
        row = [
            own.workload, "", f"{own.medians.cpu_microseconds:.2f}", f"{other.medians.cpu_microseconds:.2f}",
            f"{own.ratio:.2f}", f"{low:.2f} - {high:.2f}",
        ]
        if own.workload in this:
            count, earlier = this[own.workload], before[own.workload]
            row += [
                f"{count.instructions:,.0f}", f"{earlier.instructions:,.0f}", f"{count.instructions / earlier.instructions:.3f}",
                f"{count.allocations:.1f}", f"{earlier.allocations:.1f}",
            ]
        rows.append(row + [""] * (len(TITLES) - len(row)))
    return (
        f"{described(report.machine)}\n\nThis checkout beside {report.reference}; ratios below 1 are better. Half of the pairs of runs "
        f"are within the range.\n\n{table(TITLES, rows)}"
    )
