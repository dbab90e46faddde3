"""Pages in Markdown, which can also be read in a terminal, and promises, which are met or not."""

import dataclasses

Rows = list[list[str]]


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


def table(titles: list[str], rows: Rows) -> str:
    """Aligned columns: words to the left, numbers to the right."""
    widths = [max(3, *map(len, column)) for column in zip(titles, *rows)]
    marks = ["-" * width if place < 2 else "-" * (width - 1) + ":" for place, width in enumerate(widths)]

    def line(cells: list[str]) -> str:
        aligned = (
            cell.ljust(width) if place < 2 else cell.rjust(width) for place, (cell, width) in enumerate(zip(cells, widths)))
        return f"| {' | '.join(aligned)} |"

    return "\n".join(map(line, [titles, marks, *rows]))


def promises(goals: list[Goal]) -> str:
    """A table with a line for each promise."""
    return table(["promise", "", "measured", "allowed", "unit"], [
        [goal.what, "met" if goal.is_met else "NOT MET", f"{goal.measured:.2f}",
         f"{'at least' if goal.at_least else 'at most'} {goal.allowed:.2f}", goal.unit]
        for goal in goals])


def described(machine: dict[str, str]) -> str:
    """The machine, a line for each property."""
    return "\n".join(f"- {name}: {value}" for name, value in machine.items())


def page(title: str, option: str, machine: dict[str, str], method: str, sections: dict[str, str], remarks: list[str]) -> str:
    """The page of a measurement, with its tables by their titles, and remarks."""
    tables = "\n\n".join(f"## {name}\n\n{text}" for name, text in sections.items())
    notes = "\n".join(f"- {remark}" for remark in remarks)
    return (
        f"# {title}\n\nWritten by `Tests/Benchmarks/run{option}`, which measures and replaces all of this.\n\n"
        f"{described(machine)}\n\n{method}.\n\n{tables}\n\n{notes}\n")
