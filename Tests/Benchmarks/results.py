"""The page of results with SQLite: what token-cache promises, and all that was compared."""

import report
from benchmark import Report
from measurement import Result
from report import Goal

KIB, MIB = 1 << 10, 1 << 20
TITLES = [
    "row", "server", "requests/s", "p50 µs", "p99 µs", "CPU µs/request", "against (range)", "busy", "stolen",
    "resident MiB",
]
FIGURES = {"cpu_microseconds": "", "p99_microseconds": "p99 "}


def goals(found: Report) -> list[Goal]:
    """All promises, in the order of the tables."""
    # Of token-cache, which comes first in each row.
    ratios = {name: results[0].ratio for name, results in found.rows.items()}
    memory = found.memory
    few, many = found.starts
    idle = {one.is_tls: one for one in found.idle if one.peer == "token-cache"}
    busy = f"{memory.requests:,} GETs over {memory.connections:,} connections"
    nginx = "x nginx `return 200`"
    return [
        Goal("GET hit, CPU time", ratios["get"], 1.0, nginx),
        Goal("GET hit, all answers read from SQLite, CPU time", ratios["uncached"], 1.8, nginx),
        Goal("POST, durable, CPU time", ratios["post"], 2.0, nginx),
        Goal("POST, durable, CPU time beside Redis", ratios["redis"], 1.7, "x SET with `appendfsync always`"),
        Goal("GET hit at half of the saturating rate, p99", ratios["half"], 1.5, nginx),
        Goal("POST, durable, at 80 % of the saturating rate, p99", ratios["redis_paced"], 2.0, "x SET with `appendfsync always`"),
        Goal("TLS GET hit over kept connections, CPU time", ratios["tls"], 0.9, nginx),
        Goal("full TLS handshake and one GET, CPU time", ratios["handshake"], 0.97, nginx),
        Goal(f"each of {idle[False].connections:,} idle connections", idle[False].bytes / KIB, 2, "KiB"),
        Goal(f"each of {idle[True].connections:,} idle TLS connections", idle[True].bytes / KIB, 12, "KiB"),
        Goal(f"largest resident memory in {busy}", memory.peak_bytes / MIB, 64 + memory.cache_bytes / MIB, "MiB"),
        Goal(f"resident memory at rest, {few.tokens:,} tokens", few.resident_bytes / MIB, 25, "MiB"),
        Goal(f"exec to first answer, {few.tokens:,} tokens", few.milliseconds, 15, "ms"),
        Goal(f"exec to first answer, {many.tokens:,} tokens", many.milliseconds, 50, "ms"),
        Goal("two loops on two cores, requests by CPU time", 2 / ratios["loops"], 1.8, "x one on one", at_least=True),
        # Both without the cache: in the row "many", the few tokens would all come from the cache, and hardly any of the many.
        Goal(
            f"GET hit of {many.tokens:,} tokens, all answers read from SQLite, CPU time", ratios["many_uncached"], 1.5,
            f"x of {few.tokens:,}",
        ),
    ]


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
        f"{figures.resident_bytes / MIB:.1f}",
    ]


def remarks(found: Report) -> list[str]:
    """The figures that are not in the tables."""
    idle = (
        f"{one.peer} {one.bytes / KIB:,.1f} KiB ({one.connections:,}{' over TLS' if one.is_tls else ''})" for one in found.idle)
    memory = found.memory
    many = found.starts[-1].tokens
    return [
        "Ratios are medians of the pairs of runs, of processor time per request unless stated otherwise. "
        "wrk corrects latencies for requests that it did not send while it waited for a late answer.",
        "p99 at a part of the saturating rate: both servers get the same rate, that part of the lower of their two maxima, and a "
        "latency counts from the moment when its request was due.",
        "Two loops: each core runs a loop and a wrk, one core in one case and two in the other, so that the load on each "
        "core is the same; the time of wrk is not counted, as everywhere.",
        f"Resident memory of idle connections, each with one answer: {'; '.join(idle)}.",
        f"Memory: random GETs of {many:,} tokens fill the cache, which may take {memory.cache_bytes >> 20} MiB; "
        f"largest {memory.first_half_bytes / MIB:.1f} MiB in the first half, "
        f"{memory.second_half_bytes / MIB:.1f} MiB in the second.",
        f"The store of {many:,} tokens was made and sealed in {found.making_seconds:.0f} s; during its requests "
        f"{found.disk_bytes / MIB:,.0f} MiB were read from the disk.",
    ]


def as_page(found: Report) -> str:
    """The page that the benchmark prints and writes."""
    rows = [cells(result) for results in found.rows.values() for result in results]
    commands = [
        [one.name, "", f"{one.seconds:,.0f}", f"{one.cpu_seconds:,.0f}", f"{one.tokens / max(one.seconds, 0.1):,.0f}",
         f"{one.tokens / max(one.cpu_seconds, 0.1):,.0f}"] for one in found.operations]
    sections = {
        "Promises": report.promises(goals(found)), "Everything that was compared": report.table(TITLES, rows),
        f"Commands on {found.operations[0].tokens:,} tokens": report.table(
            ["command", "", "seconds", "CPU seconds", "tokens/s", "tokens/CPU second"], commands),
    }
    return report.page("Benchmark results", "", found.machine, found.method, sections, remarks(found))
