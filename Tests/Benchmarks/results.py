"""Writes the figures as a page and a chart."""

from pathlib import Path

import chart
import goals
import report
from benchmark import Report

PAGE, CHART = "results.md", "results.svg"


def write(found: Report, folder: Path) -> None:
    """Replaces the results of an earlier run."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / CHART).write_text(chart.as_svg(found))
    (folder / PAGE).write_text(as_markdown(found))


def as_markdown(found: Report) -> str:
    """The page."""
    machine = "\n".join(f"- {name}: {value}" for name, value in found.machine.items())
    promises = table(report.GOAL_TITLES, [report.goal_cells(goal) for goal in goals.goals(found)])
    titles, *rows = report.rows(found)
    notes = "\n".join(f"- {remark}" for remark in report.remarks(found))
    return f"""# Benchmark results

Written by `Tests/Benchmarks/run`, which measures and replaces all of this.

{machine}

{found.method.replace(chr(10), " ")}.

## Promises

{promises}

![Processor time per request of token-cache and its peers]({CHART})

## Everything that was compared

{table(titles, rows)}

{notes}
"""


def table(titles: list[str], rows: list[list[str]]) -> str:
    """A table in Markdown: words to the left, numbers to the right."""
    marks = ["---" if column < 2 else "---:" for column in range(len(titles))]
    return "\n".join(f"| {' | '.join(row)} |" for row in (titles, marks, *rows))
