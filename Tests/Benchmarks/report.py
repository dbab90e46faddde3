"""The figures as text for people and as JSON for programs."""

import dataclasses
import json

import goals
from benchmark import Report
from goals import Goal
from measurement import Result

TITLES = [
    "row", "server", "requests/s", "p50 µs", "p99 µs", "CPU µs/request", "against (range)", "busy", "stolen",
    "resident MiB",
]
GOAL_TITLES = ["promise", "", "measured", "allowed", "unit"]
FIGURES = {"cpu_microseconds": "", "p99_microseconds": "p99 "}


def cells(result: Result) -> list[str]:
    """One line of the table."""
    figures = result.medians
    spread = f"({min(result.ratios):.2f} - {max(result.ratios):.2f})"
    against = f"{FIGURES[result.figure]}{result.ratio:.2f} x {result.reference} {spread}"
    return [
        result.workload,
        result.peer,
        f"{figures.requests_per_second:,.0f}",
        f"{figures.p50_microseconds:,.0f}",
        f"{figures.p99_microseconds:,.0f}",
        f"{figures.cpu_microseconds:.2f}",
        "" if result.peer == result.reference else against,
        f"{figures.busy:.0%}",
        f"{figures.stolen:.0%}",
        f"{figures.resident_bytes / (1 << 20):.1f}",
    ]


def goal_cells(goal: Goal) -> list[str]:
    """One line of the table of goals."""
    bound = "at least" if goal.at_least else "at most"
    met = "met" if goal.is_met else "NOT MET"
    return [goal.what, met, f"{goal.measured:.2f}", f"{bound} {goal.allowed:.2f}", goal.unit]


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


def rows(report: Report) -> list[list[str]]:
    """The table of all comparisons."""
    return [TITLES, *(cells(result) for results in report.rows.values() for result in results)]


def remarks(report: Report) -> list[str]:
    """The figures that are not in the tables."""
    idle = (
        f"{one.peer} {one.bytes / (1 << 10):,.1f} KiB ({one.connections:,}{' over TLS' if one.is_tls else ''})"
        for one in report.idle
    )
    memory = report.memory
    many = report.starts[-1].tokens
    return [
        "Ratios are medians of the pairs of runs, of processor time per request unless stated otherwise. "
        "wrk corrects latencies for requests that it did not send while it waited for a late answer.",
        "p99 at half of the saturating rate: both servers get the same rate, half of the lower of their two maxima. "
        "wrk's timers count milliseconds, so requests due within one are sent together.",
        "Two loops: each core runs a loop and a wrk, one core in one case and two in the other, so that the load on each "
        "core is the same; the time of wrk is not counted, as everywhere.",
        f"Resident memory of idle connections, each with one answer: {'; '.join(idle)}.",
        f"Memory: random GETs of {many:,} tokens fill the cache, which may take {memory.cache_bytes >> 20} MiB; "
        f"largest {memory.first_half_bytes / (1 << 20):.1f} MiB in the first half, "
        f"{memory.second_half_bytes / (1 << 20):.1f} MiB in the second.",
        f"The store of {many:,} tokens was made and sealed in {report.making_seconds:.0f} s; during its requests "
        f"{report.disk_bytes / (1 << 20):,.0f} MiB were read from the disk.",
    ]


def as_text(report: Report) -> str:
    """The report that the benchmark prints."""
    promises = table([GOAL_TITLES, *(goal_cells(goal) for goal in goals.goals(report))])
    notes = "\n".join(remarks(report))
    return f"{head(report.machine)}\n\n{report.method}\n\n{table(rows(report))}\n\n{promises}\n\n{notes}"


def as_json(report: object) -> str:
    """The figures of a dataclass, with their units in the names."""
    return json.dumps(dataclasses.asdict(report), indent=2) + "\n"
