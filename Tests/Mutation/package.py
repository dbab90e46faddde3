"""A copy of the package whose sources contain many changes, one of which can be made active in a process, and its build."""
import json
import random
import re
import subprocess
import sys
from dataclasses import asdict
from pathlib import Path

from changes import Change, apply, changes
from swift_support import support

ROOT = Path(__file__).resolve().parents[2]
SCRATCH = ROOT / ".build-mutation"
COPY = SCRATCH / "package"
BUILD = SCRATCH / "build"
CHOSEN = SCRATCH / "chosen.json"
MODULES = ["HTTP", "TokenStore", "TokenService", "SQLiteStore"]
ERROR = re.compile(r"^(/\S+\.swift):(\d+):\d+: error: (.*)", re.M)
# So that as many changes remain as were asked for: the compiler refuses some.
RESERVE = 1.3


def write(path, content):
    """Writes a file of the copy; leaves one that is the same alone, so that it is not compiled again."""
    if not path.exists() or path.read_bytes() != content:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content)


def copy_package(*folders):
    """Makes the copy like the project, or only some of its folders."""
    listed = subprocess.run(
        ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard", "--", *folders],
        cwd=ROOT, stdout=subprocess.PIPE, text=True, check=True).stdout
    names = {name for name in listed.split("\0") if (ROOT / name).is_file()}
    for name in names:
        content = (ROOT / name).read_bytes()
        if name == "Package.swift":
            # A change may leave a constant condition behind, or a variable that is never written.
            content = content.replace(b"    .treatAllWarnings(as: .error),\n", b"", 1)
        write(COPY / name, content)
        (COPY / name).chmod((ROOT / name).stat().st_mode)
    for folder in folders or ["Sources", "Tests"]:
        for file in (COPY / folder).rglob("*.swift"):
            if str(file.relative_to(COPY)) not in names and file.name != "Mutants.swift":
                file.unlink()


def sources(module):
    return sorted((ROOT / "Sources" / module).rglob("*.swift"))


def choose(seed, count):
    """Chooses changes by chance, as many in each module as its share of the lines, with a reserve; at most one for a line."""
    lines = {module: sum(len(file.read_bytes().splitlines()) for file in sources(module)) for module in MODULES}
    chosen = {}
    for module in MODULES:
        found = [change for file in sources(module)
                 for change in changes(str(file.relative_to(ROOT)), file.read_text(encoding="utf-8"))]
        random.Random(f"{seed} {module}").shuffle(found)
        by_line = {}
        for change in found:
            by_line.setdefault((change.path, change.line), change)
        share = round(count * lines[module] / sum(lines.values()))
        first = 1 + len(chosen)
        chosen |= {first + index: change for index, change in enumerate(list(by_line.values())[:round(share * RESERVE)])}
    return chosen


def write_sources(chosen):
    """Writes all chosen changes into the copy."""
    for module in MODULES:
        own = {number: change for number, change in chosen.items() if change.path.startswith(f"Sources/{module}/")}
        for file in sources(module):
            path = str(file.relative_to(ROOT))
            numbered = [(number, change) for number, change in own.items() if change.path == path]
            write(COPY / path, apply(file.read_text(encoding="utf-8"), numbered).encode())
        operators = [(number, change.before, change.after) for number, change in own.items()
                     if change.kind == "operator" and not change.is_function]
        write(COPY / "Sources" / module / "Mutants.swift", support(operators).encode())


def build(*arguments):
    """Builds the copy; returns what was printed if that failed."""
    done = subprocess.run(
        ["nice", "-n", "10", "swift", "build", "--scratch-path", str(BUILD), *arguments],
        cwd=COPY, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, errors="replace")
    return done.stdout if done.returncode else None


def refused(output, chosen):
    """The numbers of the changes that the compiler's errors are about: the nearest ones, as it may report another line."""
    found = set()
    for path, line, _ in ERROR.findall(output):
        distances = {
            number: abs(change.line - int(line)) for number, change in chosen.items() if COPY / change.path == Path(path)}
        if Path(path).name == "Mutants.swift":
            sys.exit(f"Tests/Mutation/run: what it generates does not compile:\n{output}")
        found |= {number for number, distance in distances.items() if distance == min(distances.values())}
    return found


def build_changes(chosen):
    """Builds, and leaves out what the compiler refuses, until it refuses no more; returns what remains."""
    for arguments in [["--target", module] for module in MODULES] + [["--build-tests"]]:
        write_sources(chosen)
        while output := build(*arguments):
            numbers = refused(output, chosen)
            if not numbers:
                sys.exit(f"Tests/Mutation/run: cannot build, for a reason that no change has given:\n{output[-8_000:]}")
            print(f"the compiler refuses {len(numbers)} changes: {sorted(numbers)}", flush=True)
            chosen = {number: change for number, change in chosen.items() if number not in numbers}
            write_sources(chosen)
    return chosen


def prepare(seed, count):
    """Chooses changes and builds them."""
    copy_package()
    chosen = build_changes(choose(seed, count))
    numbers = list(chosen)
    # Any first part of a run then says something about all modules.
    random.Random(seed).shuffle(numbers)
    CHOSEN.write_text(json.dumps(
        {"seed": seed, "count": count, "changes": {number: asdict(chosen[number]) for number in numbers[:count]}}, indent=1))


def prepared():
    """The seed, and the changes that an earlier run has built, by their numbers; nothing if there are none."""
    if not CHOSEN.exists():
        return None, {}
    text = json.loads(CHOSEN.read_text())
    return text["seed"], {int(number): Change(**change) for number, change in text["changes"].items()}


def update_tests():
    """Copies the tests as they are now, and builds them; the sources stay as they were."""
    copy_package("Tests")
    if output := build("--build-tests"):
        sys.exit("Tests/Mutation/run: cannot build the tests; if they need sources that have changed, begin with --new:\n"
                 + output[-8_000:])
