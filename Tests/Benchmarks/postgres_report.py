"""The figures of token-cache on PostgreSQL as text for people, and as a page."""

from pathlib import Path

import goals
import report
import results
from client import CONNECTIONS
from postgres_figures import Cost, Report, Runs, median, rate, ratio, thrift

PAGE = "results-postgres.md"
PLANNED_USERS = (100_000_000, 1_000_000_000)
# Assumptions: requests of a user a day, and by how much more there are in the busiest minutes.
READS_A_DAY, WRITES_A_DAY, PEAK = 3, 0.2, 4
DAY_SECONDS = 86_400
# Dead rows, and free space that is not used again at once.
SPARE = 1.2
PRIMARY_KEY = "token_pkey"
COSTS = ["CPU µs/request", "PostgreSQL", "client", "together"]


def cost_cells(run: Cost) -> list[str]:
    """Processor times; nothing for a program that took no part."""
    return [f"{value:.2f}" if value else "" for value in (run.server, run.database, run.client)] + [f"{run.total:.2f}"]


def against(runs: Runs, entrant: str, reference: str, name: str) -> tuple[str, str]:
    """By how much it is faster than the reference: by the clock, and by processor time; nothing for the reference itself."""
    if entrant == reference:
        return "", ""
    by_clock, by_cpu = (ratio(runs[entrant], runs[reference], figure) for figure in (rate, thrift))
    return f"{by_clock:.2f} x {name}", f"{by_cpu:.2f} x {name}"


def cells(title: str, runs: Runs) -> list[list[str]]:
    """A line for each program, compared with the last one."""
    reference = list(runs)[-1]
    lines = []
    for entrant, samples in runs.items():
        medians = median(samples)
        # The answers of nginx come from no database.
        by_clock, by_cpu = against(runs, entrant, reference, reference) if medians.database else ("", "")
        lines.append([
            title, entrant, f"{medians.requests_per_second:,.0f}", by_clock, *cost_cells(medians), by_cpu,
            f"{medians.stolen:.0%}"])
    return lines


def comparisons(found: Report, names: dict[str, str]) -> list[list[str]]:
    """The table of some rows."""
    titles = ["row", "program", "requests/s", "", *COSTS, "by CPU time", "stolen"]
    return [titles, *(line for name, title in names.items() for line in cells(title, found.rows[name]))]


def servers(found: Report) -> list[list[str]]:
    """The table of several servers on one database."""
    lines = [["row", "servers", "connections", "requests/s", "", *COSTS, "by CPU time"]]
    for name, title in {"servers_get": "GET", "servers_post": "POST"}.items():
        runs = found.rows[name]
        for count in reversed(runs):
            medians = median(runs[count])
            by_clock, by_cpu = against(runs, count, "1", "one")
            lines.append([
                title, count, f"{int(count) * found.connections}", f"{medians.requests_per_second:,.0f}", by_clock,
                *cost_cells(medians), by_cpu])
    return lines


def logs(found: Report) -> list[list[str]]:
    """The table of what writes log."""
    titles = ["writes of", "rows", "writes", "writes/commit", "bytes of records/write", "bytes of page images/write"]
    return [titles, *(
        [one.name, f"{one.rows:,}", f"{one.writes:,}", f"{one.writes / one.log.commits:,.1f}",
         f"{one.log.record_bytes / one.writes:,.0f}", f"{one.log.image_bytes / one.writes:,.0f}"] for one in found.logs)]


def sizes(found: Report) -> list[list[str]]:
    """The table of bytes on the disk."""
    parts = {"rows (heap)": found.sizes.heap, "long values (TOAST)": found.sizes.toast}
    parts |= {f"index {name}": size for name, size in found.sizes.indexes.items()}
    parts["together"] = sum(parts.values())
    return [["part of the table", "", "bytes/row"], *(
        [name, "", f"{size / found.sizes.rows:,.1f}"] for name, size in parts.items())]


def plans(found: Report) -> list[list[str]]:
    """What the figures mean for many users; deploy/postgresql/README.md rounds it."""
    lines = []
    get, post = (median(next(iter(found.rows[name].values()))) for name in ("many_get", "many_post"))
    log = found.logs[-1]
    log_bytes = (log.log.record_bytes + log.log.image_bytes) / log.writes
    row_bytes = (found.sizes.heap + found.sizes.toast + sum(found.sizes.indexes.values())) / found.sizes.rows
    for users in PLANNED_USERS:
        reads, writes = (users * a_day * PEAK / DAY_SECONDS for a_day in (READS_A_DAY, WRITES_A_DAY))
        values = [
            f"{reads:,.0f}", f"{writes:,.0f}", f"{users * row_bytes * SPARE / 1e9:,.0f}",
            f"{users * found.sizes.indexes[PRIMARY_KEY] / found.sizes.rows / 1e9:,.0f}",
            f"{(reads * get.database + writes * post.database) / 1e6:.1f}",
            f"{(reads * get.server + writes * post.server) / 1e6:.1f}",
            f"{users * WRITES_A_DAY * log_bytes / 1e9:,.0f}", f"{writes * log_bytes / 1e6:,.0f}",
        ]
        lines.append([f"{users:,} users", *values])
    names = [
        "figure", "GET/s at the peak", "POST/s at the peak", "GB on each copy's disk", "GB of primary key",
        "cores of PostgreSQL at the peak", "cores of token-cache at the peak", "GB of WAL a day", "MB/s of WAL at the peak",
    ]
    ways = [
        "from", f"users x {READS_A_DAY} a day x {PEAK}", f"users x {WRITES_A_DAY} a day x {PEAK}",
        f"users x bytes/row x {SPARE}", "users x bytes/row of the index", "rates x CPU µs of PostgreSQL, many rows",
        "rates x CPU µs of token-cache, without TLS", "writes a day x bytes of WAL/write, many rows",
        "POST/s at the peak x bytes of WAL/write",
    ]
    return [list(line) for line in zip(names, ways, *lines)]


TABLES = {
    "Beside pgbench": lambda found: comparisons(found, {"get": "GET", "post": "POST"}),
    "Several servers on one database": servers,
    "Many rows": lambda found: comparisons(found, {"many_get": "GET", "many_post": "POST"}),
    "The write-ahead log": logs,
    "Bytes on the disk": sizes,
    "What this means for many users": plans,
}


def remarks(found: Report) -> list[str]:
    """What the tables do not say."""
    return [
        "Rates depend on how the programs share the cores, so processor time is the second measure: that of token-cache "
        "or nginx, of all processes of PostgreSQL, and of wrk or pgbench. Ratios to another program are medians of those "
        "of pairs of runs: of the rates, and of the requests by processor time of all programs together.",
        "pgbench sends the statements that token-cache sends for single requests, as PostgreSQL shows them, each as a "
        "transaction. For requests of one turn, token-cache sends the same as one statement with several rows.",
        "The rows of pgbench are in a table of the same form, with keys of 19 bytes instead of 32, as its variables are "
        "numbers; each of its clients writes rows of its own, so none waits for another. Both are in its favour, and what "
        "its clients spend on connecting does not count.",
        "Before each run of POSTs there is a checkpoint, after which the first change of a page logs all of it. Times of "
        "writing change with each write, as in reality.",
        f"Several servers have the same {CONNECTIONS} connections of clients in equal shares, on the same cores.",
        "nginx answers with `return 200` and the body of token-cache's answer; only its own processor time is compared.",
        f"Filling the table of {found.sizes.rows:,} rows took {found.loading_seconds:.0f} s. Its rows came in random order "
        "of their keys, as users do.",
    ]


def settings(found: Report) -> str:
    """PostgreSQL's settings."""
    own = ", ".join(f"{name} = {value}" for name, value in found.settings.items())
    rest = "all others are its defaults, so fsync, full_page_writes and synchronous_commit are on"
    return f"PostgreSQL's settings: {own}; {rest}"


def as_text(found: Report) -> str:
    """The report that the benchmark prints."""
    tables = "\n\n".join(f"{title}\n\n{report.table(table(found))}" for title, table in TABLES.items())
    promises = report.table([report.GOAL_TITLES, *map(report.goal_cells, goals.postgres_goals(found))])
    return "\n\n".join([
        report.head(found.machine), found.method, settings(found), promises, tables, "\n".join(remarks(found))])


def write(found: Report, folder: Path) -> None:
    """Replaces the results of an earlier run."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / PAGE).write_text(as_markdown(found))


def as_markdown(found: Report) -> str:
    """The page."""
    machine = "\n".join(f"- {name}: {value}" for name, value in found.machine.items())
    promises = results.table(report.GOAL_TITLES, [report.goal_cells(goal) for goal in goals.postgres_goals(found)])
    tables = "\n\n".join(
        f"## {title}\n\n{results.table(rows[0], rows[1:])}"
        for title, rows in ((title, table(found)) for title, table in TABLES.items()))
    notes = "\n".join(f"- {remark}" for remark in remarks(found))
    statements = "\n".join(f"    {statement}" for statement in found.statements)
    return f"""# Benchmark results on PostgreSQL

Written by `Tests/Benchmarks/run --postgres`, which measures and replaces all of this.

{machine}

{found.method.replace(chr(10), " ")}. {settings(found)}.

## Promises

{promises}

{tables}

## Remarks

{notes}

The statements:

{statements}
"""
