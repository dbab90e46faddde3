#!/usr/bin/env python3
"""Lists the places where the sources leave Swift's memory safety, with the comments that give the reason.

    python3 Tests/Acceptance/unsafe_places.py               # all modules
    python3 Tests/Acceptance/unsafe_places.py HTTP JSON     # these

The compiler asks for the word `unsafe` in each expression that uses a pointer, a C function with one, or a declaration that
is unsafe (strict memory safety), so the list is complete. A place is a declaration with such expressions.
"""
import re
import sys
from dataclasses import dataclass, field
from pathlib import Path

SOURCES = Path(__file__).resolve().parents[2] / "Sources"
UNSAFE = re.compile(r"\bunsafe\b|@unchecked\b")
UNCHECKED = re.compile(r"&[-+*]|&<<|&>>")
DECLARATION = re.compile(
    r"^\s*(?:@\S+\s+)*(?:(?:package|public|internal|private|fileprivate|static|final|override|mutating|consuming|borrowing|"
    r"convenience|nonisolated|indirect|lazy|weak)(?:\([a-z]+\))?\s+)*"
    r"(?:func|init|deinit|subscript|var|let|struct|class|enum|actor|extension|protocol|typealias)\b[^{]*")


@dataclass
class Place:
    """A declaration with unsafe expressions."""
    declaration: str
    lines: list = field(default_factory=list)
    count: int = 0
    reasons: list = field(default_factory=list)


def code(line):
    """A line without its comment and the words of its string literals."""
    line = re.sub(r'"(?:\\.|[^"\\])*"', '""', line)
    return line.partition("//")[0]


def indentation(line):
    return len(line) - len(line.lstrip())


def comment_above(lines, index):
    """The comment that ends right above a line, or above its attributes."""
    words = []
    index -= 1
    while index >= 0 and (lines[index].lstrip().startswith("//") or lines[index].lstrip().startswith("@")):
        if lines[index].lstrip().startswith("//"):
            words.insert(0, lines[index].strip().lstrip("/").strip())
        index -= 1
    text = " ".join(words)
    # Its parameters and what it returns are no reasons.
    return re.split(r" - (?:Parameter|Returns|Throws)", text)[0].strip()


def enclosing(lines, index):
    """The lines of the declarations around a line, from the inside out; the line's own first if it is a declaration."""
    depth = indentation(lines[index]) + 1
    for number in range(index, -1, -1):
        line = lines[number]
        if line.strip() and indentation(line) < depth and DECLARATION.match(code(line)):
            # A variable of a function is a part of that.
            is_local = re.match(r"\s*(?:let|var)\b", line) and indentation(line) > 4
            if not is_local:
                yield number
                depth = indentation(line)


def places(file):
    """The places of a file, in their order."""
    lines = file.read_text(encoding="utf-8").splitlines()
    found = {}
    for index, line in enumerate(lines):
        count = len(UNSAFE.findall(code(line)))
        if not count:
            continue
        around = list(enclosing(lines, index))
        start = around[0] if around else index
        place = found.setdefault(start, Place(" ".join(code(lines[start]).split(" {")[0].split())))
        place.lines.append(index + 1)
        place.count += count
        reasons = [comment_above(lines, index)] if index != start else []
        reasons += [comment_above(lines, number) for number in around]
        # The nearest one that there is.
        reason = next((text for text in reasons if text), "")
        if reason and reason not in place.reasons:
            place.reasons.append(reason)
    return list(found.values())


def modules():
    return sorted(folder for folder in SOURCES.iterdir() if any(folder.rglob("*.swift")))


def count(module):
    """How many unsafe expressions and declarations a module has."""
    return sum(place.count for file in module.rglob("*.swift") for place in places(file))


def unchecked_arithmetic(module):
    """The files of a module whose arithmetic wraps around instead of ending the process at an overflow."""
    return [
        file.name for file in sorted(module.rglob("*.swift"))
        if any(UNCHECKED.search(code(line)) for line in file.read_text(encoding="utf-8").splitlines())]


def main(names):
    for module in modules():
        if names and module.name not in names:
            continue
        print(f"{module.name}: {count(module)}")
        for file in sorted(module.rglob("*.swift")):
            for index, place in enumerate(places(file)):
                if index == 0:
                    print(f"  {file.relative_to(module)}")
                print(f"    {', '.join(map(str, place.lines))}: {place.declaration}")
                for reason in place.reasons or ["no reason is given"]:
                    print(f"      {reason}")


if __name__ == "__main__":
    main(sys.argv[1:])
