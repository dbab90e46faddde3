"""The promises of token-cache, and whether they are met."""

import dataclasses

import postgres_figures
from benchmark import Report
from postgres_figures import rate, ratio, thrift

KIB, MIB = 1 << 10, 1 << 20


@dataclasses.dataclass(frozen=True)
class Goal:
    """One promise."""

    what: str
    measured: float
    allowed: float
    unit: str
    at_least: bool = False
    """Whether a larger figure is better."""

    @property
    def is_met(self) -> bool:
        """Compares the measured figure, not the rounded one."""
        return self.measured >= self.allowed if self.at_least else self.measured <= self.allowed


def goals(report: Report) -> list[Goal]:
    """All promises, in the order of the tables."""
    # The figure of token-cache, which is first in each row.
    ratios = {name: results[0].ratio for name, results in report.rows.items()}
    memory = report.memory
    few, many = report.starts
    idle = {one.is_tls: one for one in report.idle if one.peer == "token-cache"}
    busy = f"{memory.requests:,} GETs over {memory.connections:,} connections"
    nginx = "x nginx `return 200`"
    return [
        Goal("GET hit, CPU time", ratios["get"], 1.0, nginx),
        Goal("GET hit, all answers read from SQLite, CPU time", ratios["uncached"], 1.8, nginx),
        Goal("POST, durable, CPU time", ratios["post"], 2.0, nginx),
        Goal("POST, durable, CPU time beside Redis", ratios["redis"], 1.7, "x SET with `appendfsync always`"),
        Goal("GET hit at half of the saturating rate, p99", ratios["half"], 1.5, nginx),
        Goal("TLS GET hit over kept connections, CPU time", ratios["tls"], 1.0, nginx),
        Goal("full TLS handshake and one GET, CPU time", ratios["handshake"], 1.0, nginx),
        Goal(f"each of {idle[False].connections:,} idle connections", idle[False].bytes / KIB, 2, "KiB"),
        Goal(f"each of {idle[True].connections:,} idle TLS connections", idle[True].bytes / KIB, 12, "KiB"),
        Goal(f"largest resident memory in {busy}", memory.peak_bytes / MIB, 64 + memory.cache_bytes / MIB, "MiB"),
        Goal("the same, second half of the requests", memory.growth, 1.05, "x first half"),
        Goal(f"exec to first answer, {few.tokens:,} tokens", few.milliseconds, 20, "ms"),
        Goal(f"exec to first answer, {many.tokens:,} tokens", many.milliseconds, 50, "ms"),
        Goal("two loops on two cores, requests by CPU time", 2 / ratios["loops"], 1.8, "x one on one", at_least=True),
        # Both without the cache: in the row "many", the few tokens would all come from the cache, and hardly any of the many.
        Goal(
            f"GET hit of {many.tokens:,} tokens, all answers read from SQLite, CPU time", ratios["many_uncached"], 1.5,
            f"x of {few.tokens:,}",
        ),
    ]


def postgres_goals(report: postgres_figures.Report) -> list[Goal]:
    """What is promised of the store on PostgreSQL."""
    reads, writes = report.rows["get"], report.rows["post"]

    def faster(name: str, runs: postgres_figures.Runs, allowed: float) -> list[Goal]:
        by_clock, by_cpu = (
            ratio(runs["token-cache"], runs["pgbench"], figure) for figure in (rate, thrift))
        return [
            Goal(f"{name}, requests/s", by_clock, allowed, "x pgbench", at_least=True),
            Goal(f"{name}, requests by CPU time of all programs", by_cpu, allowed, "x pgbench", at_least=True),
        ]

    server = ratio(reads["token-cache"], reads["nginx"], lambda run: run.server)
    return [
        *faster("GET", reads, 1.5),
        *faster("POST", writes, 2.0),
        Goal("GET, CPU time of token-cache", server, 3.0, "x nginx `return 200`"),
    ]
