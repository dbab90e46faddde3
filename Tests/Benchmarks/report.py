"""The figures as text for people and as JSON for programs."""

import dataclasses
import json
import statistics

from measurement import Result

TITLES = [
    "", "", "requests/s", "p50 µs", "p99 µs", "CPU µs/request", "x reference (range)", "busy", "stolen", "resident MiB",
]


@dataclasses.dataclass(frozen=True)
class Report:
    """All that one run of the benchmark found out."""

    machine: dict[str, str]
    method: str
    results: list[Result]
    idle_connections: int
    idle_connection_bytes: float
    idle_tls_bytes: dict[str, float]
    starts: int
    start_milliseconds: float


def cells(result: Result) -> list[str]:
    """One line of the table."""
    figures = result.medians
    spread = f"({min(result.ratios):.2f} - {max(result.ratios):.2f})"
    return [
        result.workload,
        result.peer,
        f"{figures.requests_per_second:,.0f}",
        f"{figures.p50_microseconds:,.0f}",
        f"{figures.p99_microseconds:,.0f}",
        f"{figures.cpu_microseconds:.2f}",
        f"{statistics.median(result.ratios):.2f} {spread}",
        f"{figures.busy:.0%}",
        f"{figures.stolen:.0%}",
        f"{figures.resident_bytes / (1 << 20):.1f}",
    ]


def table(rows: list[list[str]]) -> str:
    """Aligned columns: words to the left, numbers to the right."""
    widths = [max(len(row[column]) for row in rows) for column in range(len(rows[0]))]
    lines = []
    for row in rows:
        words = [cell.ljust(width) for cell, width in zip(row[:2], widths)]
        numbers = [cell.rjust(width) for cell, width in zip(row[2:], widths[2:])]
        lines.append("  ".join(words + numbers).rstrip())
    return "\n".join(lines)


def head(machine: dict[str, str]) -> str:
    """The machine, a line each."""
    width = max(len(name) for name in machine)
    return "\n".join(f"{name.ljust(width)}  {value}" for name, value in machine.items())


def as_text(report: Report) -> str:
    """What the benchmark prints."""
    figures = table([TITLES, *(cells(result) for result in report.results)])
    idle_tls = ", ".join(f"{name} {size:,.0f}" for name, size in report.idle_tls_bytes.items())
    return (
        f"{head(report.machine)}\n\n{report.method}\n\n{figures}\n\n"
        f"idle keep-alive connection: {report.idle_connection_bytes:,.0f} bytes resident"
        f" ({report.idle_connections:,} connections, one answer each)\n"
        f"idle TLS connection: {idle_tls} bytes resident\n"
        f"exec to first answer: {report.start_milliseconds:.1f} ms (median of {report.starts} starts)"
    )


def as_json(report: object) -> str:
    """The figures of a dataclass, with their units in the names."""
    return json.dumps(dataclasses.asdict(report), indent=2) + "\n"
