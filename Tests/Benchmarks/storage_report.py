"""The figures of the storage benchmark as text."""

import goals
import report
from client import CONNECTIONS
from measurement import Figures
from storage import CheckpointResult, GroupResult, StorageReport

GROUP_TITLES = [
    "server", "sync delay", "connections", "requests/s", "of two groups", "p50 ms", "p99 ms", "requests/commit", "ms/sync", "CPU µs/request",
    "stolen",
]
CHECKPOINT_TITLES = ["load", "", "requests/s", "p50 ms", "p99 ms", "max ms", "database syncs/s", "largest WAL MiB"]


def milliseconds(microseconds: float) -> str:
    """The number with its significant digits."""
    return f"{microseconds / 1e3:,.2f}"


def group_cells(result: GroupResult) -> list[str]:
    """One line of the first table."""
    figures = result.medians
    delay = result.delay_milliseconds / 1e3
    share = f"{figures.requests_per_second / (result.connections / (1.5 * delay)):.2f}" if delay else ""
    return [
        result.server,
        f"{result.delay_milliseconds} ms",
        f"{result.connections}",
        f"{figures.requests_per_second:,.0f}",
        share,
        milliseconds(figures.p50_microseconds),
        milliseconds(figures.p99_microseconds),
        f"{result.requests_per_commit:,.1f}",
        f"{result.sync_milliseconds:.2f}",
        f"{figures.cpu_microseconds:.2f}",
        f"{figures.stolen:.0%}",
    ]


def promises(found: StorageReport) -> str:
    """The table of the goals on slow disks."""
    return report.table([report.GOAL_TITLES, *map(report.goal_cells, goals.storage_goals(found))])


def checkpoint_rows(result: CheckpointResult) -> list[list[str]]:
    """A line for POST and one for GET."""
    load = f"{result.pause_milliseconds} ms between requests" if result.pause_milliseconds else "full load"
    store = f"{load}, {mebibytes(result.database_bytes)}"

    def cells(name: str, figures: Figures) -> list[str]:
        return [
            name,
            f"{figures.requests_per_second:,.0f}",
            milliseconds(figures.p50_microseconds),
            milliseconds(figures.p99_microseconds),
            milliseconds(figures.max_microseconds),
        ]

    log = [f"{result.database_syncs_per_second:.1f}", f"{result.largest_log_bytes / (1 << 20):.1f}"]
    return [[store, *cells("POST", result.post), *log], ["", *cells("GET", result.get), "", ""]]


def mebibytes(count: int) -> str:
    """A size."""
    return f"{count / (1 << 20):,.0f} MiB"


def as_text(found: StorageReport) -> str:
    """The report that the benchmark prints."""
    plan = found.plan
    groups = report.table([GROUP_TITLES, *(group_cells(result) for result in found.groups)])
    rows = [row for result in found.checkpoints for row in checkpoint_rows(result)]
    return (
        f"{report.head(found.machine)}\n\n{found.method}\n\n"
        f"POST with delayed syncs; of two groups: requests/s by connections / (1.5 x delay) (medians of {plan.rounds} x {plan.seconds} s)\n\n{groups}\n\n"
        "Of token-cache: 0.9 x connections / (1.5 x sync) or 0.9 x what its CPU time per request allows; a sync is the delay "
        f"and the disk's\nown time, as measured with one connection\n\n{promises(found)}\n\n"
        f"POST and GET at the same time, {CONNECTIONS} connections each; the WAL is checkpointed "
        "at 16 MiB, or at\n32 MiB when readers or the disk hold that up "
        f"(medians of {plan.checkpoint_rounds} x {plan.checkpoint_seconds} s, and the largest max and WAL)\n\n"
        f"{report.table([CHECKPOINT_TITLES, *rows])}"
    )
