"""The figures of token-cache on PostgreSQL."""

import dataclasses
import statistics
from collections.abc import Callable

from postgres_server import Log


@dataclasses.dataclass(frozen=True)
class Cost:
    """One run, or the medians of several; processor times are microseconds per request."""

    requests: float
    requests_per_second: float
    server: float
    """Of token-cache or nginx."""
    database: float
    client: float
    stolen: float
    """The share of the time in which the host gave the cores to other virtual machines."""

    @property
    def total(self) -> float:
        """Of all programs."""
        return self.server + self.database + self.client


Runs = dict[str, list[Cost]]
"""The runs of some programs, one each in a round."""


@dataclasses.dataclass(frozen=True)
class LogOfWrites:
    """What writes to some rows have logged, beginning right after a checkpoint."""

    name: str
    rows: int
    writes: int
    log: Log


@dataclasses.dataclass(frozen=True)
class Sizes:
    """Bytes of a table on the disk."""

    rows: int
    heap: int
    toast: int
    indexes: dict[str, int]


@dataclasses.dataclass(frozen=True)
class Report:
    """The results of a run."""

    machine: dict[str, str]
    method: str
    statements: list[str]
    settings: dict[str, str]
    rows: dict[str, Runs]
    """By a short name; in each, the runs of the reference come last."""
    connections: int
    """To the database, of each server."""
    logs: list[LogOfWrites]
    sizes: Sizes
    loading_seconds: float


def rate(run: Cost) -> float:
    """Requests in a second."""
    return run.requests_per_second


def thrift(run: Cost) -> float:
    """Requests in a second of processor time of all programs."""
    return 1e6 / run.total


def median(runs: list[Cost]) -> Cost:
    """The median of each figure by itself."""
    return Cost(*(statistics.median(column) for column in zip(*(dataclasses.astuple(run) for run in runs))))


def ratio(one: list[Cost], other: list[Cost], figure: Callable[[Cost], float]) -> float:
    """The median of the ratios of the pairs of runs."""
    return statistics.median(figure(first) / figure(second) for first, second in zip(one, other))
