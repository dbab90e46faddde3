"""Writes the figures as a page and a chart."""
from pathlib import Path
from xml.sax.saxutils import escape

import goals
import report
from benchmark import Report
from measurement import Result

PAGE, CHART = "results.md", "results.svg"


def write(found: Report, folder: Path) -> None:
    """Replaces the results of an earlier run."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / CHART).write_text(as_svg(found))
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


WIDTH, BAR, GAP, NAMES, VALUES = 720, 18, 8, 175, 80
TITLES = {"get": "GET", "post": "POST: token-cache syncs to the disk first"}
OWN = "token-cache"
PEERS = {OWN: OWN, "php-fpm": "php-fpm + nginx", "nginx": "nginx return 200"}
STYLE = """
  text { font: 13px system-ui, sans-serif; fill: #1f2328 }
  .title { font-weight: 600 }
  .machine { font-size: 11px; fill: #59636e }
  .own { fill: #d9480f }
  .peer { fill: #8c959f }
  @media (prefers-color-scheme: dark) {
    text { fill: #e6edf3 }
    .machine { fill: #9198a1 }
    .own { fill: #ff7b39 }
    .peer { fill: #656c76 }
  }
"""


def as_svg(report: Report) -> str:
    """Bars for GET and POST on one scale, the cheapest peer on top."""
    groups = {title: sorted(report.rows[name], key=cost) for name, title in TITLES.items()}
    scale = (WIDTH - NAMES - VALUES) / max(cost(results[-1]) for results in groups.values())
    lines, y = [], 20
    lines.append(text(0, y, "Processor time per request in µs, on one core: shorter is better", "title"))
    for title, results in groups.items():
        y += 34
        lines.append(text(0, y, title, "title"))
        y += GAP
        for result in results:
            lines += bar(result, y, scale)
            y += BAR + GAP
    y += 18
    lines.append(text(0, y, f"{report.machine['machine']}; {report.machine['date']}", "machine"))
    height = y + 10
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {height}" width="{WIDTH}" height="{height}" '
        f'role="img">\n<title>Processor time a request</title>\n<style>{STYLE}</style>\n'
        + "\n".join(lines) + "\n</svg>\n"
    )


def cost(result: Result) -> float:
    """The values in the chart."""
    return result.medians.cpu_microseconds


def bar(result: Result, y: float, scale: float) -> list[str]:
    """A peer's name, bar and figure."""
    kind, length = "own" if result.peer == OWN else "peer", max(1, cost(result) * scale)
    middle = y + BAR - 5
    return [
        text(NAMES - 8, middle, PEERS[result.peer], anchor="end"),
        f'<rect class="{kind}" x="{NAMES}" y="{y}" width="{length:.1f}" height="{BAR}" rx="2"/>',
        text(NAMES + length + 6, middle, f"{cost(result):.1f} µs"),
    ]


def text(x: float, y: float, words: str, kind: str = "", anchor: str = "start") -> str:
    """A line of text."""
    style = f' class="{kind}"' if kind else ""
    return f'<text x="{x:.1f}" y="{y}" text-anchor="{anchor}"{style}>{escape(words)}</text>'
