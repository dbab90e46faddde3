"""The sources keep the shape that Sources/README.md describes: no circles, one place that chooses a store."""
import re
from collections import defaultdict
from pathlib import Path

import pytest

import unsafe_places

SOURCES = Path(__file__).parents[2] / "Sources"
MODULES = sorted(folder for folder in SOURCES.iterdir() if any(folder.rglob("*.swift")))
IMPORT = re.compile(r"^(?:package |internal |public |private |fileprivate )?import (\w+)", re.M)
DECLARATION = re.compile(
    r"^(?:@\S+ )*(?:package |public |internal |private |fileprivate |final |indirect )*"
    r"(?:struct|class|enum|protocol|actor|typealias)\s+(\w+)", re.M)
STORES = "SQLiteStore", "PostgresStore"
# How many unsafe expressions each module may have; `unsafe_places.py` lists them. Lower a number when there are fewer.
UNSAFE = {
    "Audit": 9, "Cryptography": 41, "EventLoop": 209, "HTTP": 30, "JSON": 0, "JWT": 26, "Metrics": 0, "Operations": 18,
    "PostgresStore": 124, "SQLiteStore": 199, "Server": 20, "Settings": 34, "System": 127, "TokenCacheClient": 16,
    "TokenPHPFiles": 18, "TokenService": 10, "TokenStore": 62, "token-cache": 2,
}
# The modules that parse what clients send, and their files whose arithmetic may wrap around: those compute hashes and digits.
OF_STRANGERS = {"HTTP": ["RequestID.swift"], "JSON": [], "JWT": [], "TokenService": []}


def code(file):
    """A file's text without comments and the words of its string literals; what is interpolated in them stays."""
    text = re.sub(r"//[^\n]*", "", file.read_text(encoding="utf-8"))
    text = re.sub(r'"""(.*?)"""', lambda found: " ".join(re.findall(r"\\\(([^\n]*?)\)", found[1])), text, flags=re.S)
    return re.sub(r'"(?:\\.|[^"\\\n])*"', lambda found: " ".join(re.findall(r"\\\((.*?)\)", found[0])), text)


def circle(uses):
    """One circle in a graph that is given as a set of successors for each node, as a list of nodes; empty if there is none."""
    done, path = set(), []

    def visit(node):
        if node in path:
            return path[path.index(node):] + [node]
        if node in done:
            return []
        path.append(node)
        for successor in sorted(uses.get(node, ())):
            if found := visit(successor):
                return found
        path.pop()
        done.add(node)
        return []

    for node in sorted(uses):
        if found := visit(node):
            return found
    return []


def test_no_two_modules_need_each_other():
    names = {module.name for module in MODULES}
    uses = {
        module.name: {
            imported for file in module.rglob("*.swift") for imported in IMPORT.findall(file.read_text(encoding="utf-8"))
        } & names - {module.name}
        for module in MODULES
    }
    assert sum(map(len, uses.values())) > 20
    assert circle(uses) == []


@pytest.mark.parametrize("module", MODULES, ids=lambda module: module.name)
def test_no_two_folders_of_a_module_need_each_other(module):
    """By the names of types, which Swift lets every file of a module use: the compiler does not look at folders.

    A folder within another one belongs to that.
    """
    def folder(file):
        return (*file.relative_to(module).parts[:-1], ".")[0]

    texts = {file: code(file) for file in module.rglob("*.swift")}
    owners = {name: folder(file) for file, text in texts.items() for name in DECLARATION.findall(text)}
    uses = defaultdict(set)
    for file, text in texts.items():
        for name in set(re.findall(r"\b[A-Z]\w+\b", text)):
            owner = owners.get(name, folder(file))
            if owner != folder(file):
                uses[folder(file)].add(owner)
    assert circle(uses) == []


def test_only_the_place_that_chooses_a_store_knows_one():
    for store in STORES:
        importers = [
            str(file.relative_to(SOURCES)) for file in sorted(SOURCES.rglob("*.swift"))
            if store in IMPORT.findall(file.read_text(encoding="utf-8"))
        ]
        assert importers == ["Operations/StoreSelection.swift"]


def test_the_lower_modules_know_nothing_of_one_another():
    """What the event loop, HTTP and the stores share lies in System and Metrics, below them."""
    lower = {"EventLoop": {"HTTP", "TokenStore", *STORES}, "HTTP": {"EventLoop", "TokenStore", *STORES},
             "TokenStore": {"EventLoop", "HTTP", *STORES}}
    lower |= {store: {"EventLoop", "HTTP", *STORES} - {store} for store in STORES}
    for module, strangers in lower.items():
        for file in sorted((SOURCES / module).rglob("*.swift")):
            assert not strangers & set(IMPORT.findall(file.read_text(encoding="utf-8"))), file


@pytest.mark.parametrize("module", MODULES, ids=lambda module: module.name)
def test_unsafe_places_do_not_become_more(module):
    """A module that parses what strangers send must have as many as are written down, so that their number only falls."""
    count, most = unsafe_places.count(module), UNSAFE[module.name]
    listing = f"python3 Tests/Acceptance/unsafe_places.py {module.name} lists them"
    assert count <= most, f"{module.name} has {count} unsafe expressions, and may have {most}; {listing}"
    assert count == most or module.name not in OF_STRANGERS, f"{module.name} has only {count} left: lower its number in UNSAFE"


@pytest.mark.parametrize("module", MODULES, ids=lambda module: module.name)
def test_each_unsafe_place_has_its_reason(module):
    for file in module.rglob("*.swift"):
        for place in unsafe_places.places(file):
            assert place.reasons, f"{file.relative_to(SOURCES)}, line {place.lines[0]}: {place.declaration} needs a comment"


def test_what_strangers_send_is_parsed_with_checked_arithmetic():
    found = {name: unsafe_places.unchecked_arithmetic(SOURCES / name) for name in OF_STRANGERS}
    assert found == OF_STRANGERS


def test_waits_end_by_the_monotonic_clock():
    """Those of Dispatch's semaphores end by the wall clock, which somebody may set."""
    on_wall_clock = re.compile(r"\b(?:DispatchSemaphore|DispatchGroup|wallDeadline|wallTimeout|pthread_cond_timedwait|sem_timedwait)\b")
    assert [str(file) for file in SOURCES.rglob("*.swift") if on_wall_clock.search(code(file))] == []
