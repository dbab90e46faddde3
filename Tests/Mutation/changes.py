"""The changes of one operator, constant, branch or statement, and how a source contains many of them at once.

A program that contains changes behaves as the original unless the variable ACTIVE_MUTANT in its environment has the number of
one: so it is compiled once, not once for each change. An operator is replaced by one of its own, whose name is the number in
arrows; everything else by calls of what `swift_support.py` declares.
"""
import re
from dataclasses import dataclass

from swift_support import OPERATORS, arrows
from swift_source import brackets, clauses, code, is_balanced

OPERATOR = re.compile(rf"(?<=\s)({'|'.join(map(re.escape, OPERATORS))})(?=\s)")
RANGE = re.compile(r"(?<=[\w)\]])(\.\.<|\.\.\.)(?=[\w(])")
LARGER_OR_SMALLER = re.compile(r"(?<![\w.])(min|max)\(")
NUMBER = re.compile(r"(?<![\w.$])(0x[0-9A-Fa-f_]+|[0-9][0-9_]*)(?!\w|\.\w)")
TRUTH = re.compile(r"(?<![\w.])(true|false)(?!\w)")
CONDITION = re.compile(r"(?<![\w#.}])(?<!\} )(if|guard|while) ")
STATEMENT = re.compile(
    r"(?!(?:let|var|return|throw|if|guard|for|while|switch|case|default|func|init|deinit|static|private|package|defer|do"
    r"|precondition|preconditionFailure|fatalError|assert|import|repeat|break|continue|self\.\w+ =|self\.init|super\.init)\b)"
    r"(?:(?:try|unsafe|_ =) )*[A-Za-z_][\w.!?]*(?:\[[^\]]*\])?(?:\(.*\)| [-+*/&|]?= \S.*)$")
UNFINISHED = re.compile(r"(?:[,(\[=?:&|+*/<-]|\b(?:return|in|else))$")


@dataclass(frozen=True)
class Change:
    """A part of a source, and what it becomes."""
    path: str
    line: int
    start: int
    end: int
    kind: str
    before: str
    after: str
    diff: str

    @property
    def is_function(self):
        """Whether the operator is a function, such as `min(`."""
        return self.before.endswith("(")

    def edits(self, number):
        """What makes a source contain the change under a number: for each edit, where it begins and ends, and the new text."""
        if self.kind == "operator":
            return [(self.start, self.end, f"Mutants.{self.before}{number}, " if self.is_function else arrows(number))]
        if self.kind == "constant":
            return [(self.start, self.end, f"Mutants.constant({number}, {self.before}, {self.after})")]
        if self.kind == "branch":
            return [(self.start, self.start, f"Mutants.negated({number}, "), (self.end, self.end, ")")]
        return [(self.start, self.start, f"if Mutants.isActive({number}) {{}} else {{ "), (self.end, self.end, " }")]


def changes(path, text):
    """All changes of a source that are worth a try; the compiler may refuse some."""
    masked = code(text)
    lines, innermost = masked.split("\n"), brackets(masked)
    starts = [0]
    for line in lines:
        starts.append(starts[-1] + len(line) + 1)

    def change(kind, start, end, after):
        first, last = text.rfind("\n", 0, start) + 1, text.index("\n", end)
        old, new = text[first:last], text[first:start] + after + text[end:last]
        diff = "\n".join([*(f"-{line}" for line in old.split("\n")), *(f"+{line}" for line in new.split("\n"))])
        return Change(path, masked.count("\n", 0, start) + 1, start, end, kind, text[start:end], after, diff)

    for found in OPERATOR.finditer(masked):
        if not masked[:found.start()].endswith("func "):
            yield change("operator", *found.span(), OPERATORS[found[1]][0])
    for found in RANGE.finditer(masked):
        yield change("operator", *found.span(), "..." if found[1] == "..<" else "..<")
    for found in LARGER_OR_SMALLER.finditer(masked):
        yield change("operator", *found.span(), "max(" if found[1] == "min" else "min(")
    for found in NUMBER.finditer(masked):
        yield change("constant", *found.span(), str(int(found[1].replace("_", ""), 0) + 1))
    for found in TRUTH.finditer(masked):
        yield change("constant", *found.span(), "false" if found[1] == "true" else "true")
    for found in CONDITION.finditer(masked):
        for start, end in clauses(masked, found.end(), "else" if found[1] == "guard" else "{"):
            if not re.match(r"(?:let|var|case|#)\b|#", masked[start:]):
                yield change("branch", start, end, f"!({text[start:end]})")
    for index, line in enumerate(lines):
        statement = line.strip()
        before = next((previous.rstrip() for previous in reversed(lines[:index]) if previous.strip()), "")
        after = lines[index + 1].lstrip() if index + 1 < len(lines) else ""
        if (innermost[index] == "{" and STATEMENT.match(statement) and is_balanced(statement)
                and (not UNFINISHED.search(before) or before.lstrip().startswith(("case ", "default:")))
                and not UNFINISHED.search(statement) and not re.match(r"[.&|+*/?:<>=-]", after)):
            start = starts[index] + line.index(statement)
            yield change("statement", start, start + len(statement), "")


def apply(text, numbered):
    """The source with all these changes in it, each with its number; as many lines as before."""
    # From the end on, so that places before stay where they are; what is put before a part comes after the change of that part.
    edits = sorted((edit for number, change in numbered for edit in change.edits(number)), reverse=True)
    for start, end, new in edits:
        text = text[:start] + new + text[end:]
    return text
