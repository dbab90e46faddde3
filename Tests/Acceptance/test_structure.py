"""What the compiler does not look at in the sources: what modules import, circles of folders, and the number of unsafe places."""
import re
from collections import defaultdict
from graphlib import TopologicalSorter
from pathlib import Path

import pytest

SOURCES = Path(__file__).parents[2] / "Sources"
MODULES = sorted(folder for folder in SOURCES.iterdir() if any(folder.rglob("*.swift")))
# How many unsafe expressions each module may have. Lower a number when there are fewer.
UNSAFE = {
    "Audit": 5, "Cryptography": 40, "EventLoop": 196, "HTTP": 28, "JSON": 0, "JWT": 21, "Metrics": 0, "Operations": 8,
    "PostgresStore": 95, "SQLiteStore": 234, "Server": 13, "Settings": 47, "System": 104, "TokenCacheClient": 12, "TokenRefresh": 30,
    "TokenPHPFiles": 18, "TokenService": 9, "TokenStore": 54, "token-cache": 2,
}
# The modules that parse what clients send, and their files whose arithmetic may wrap around: those compute hashes and digits.
OF_STRANGERS = {"HTTP": ["RequestID.swift"], "JSON": [], "JWT": [], "TokenService": []}


def code(file):
    """A file's text without comments and the words of its string literals."""
    text = re.sub(r'"(?:\\.|[^"\\\n])*"', '""', file.read_text(encoding="utf-8"))
    return re.sub(r"//[^\n]*", "", text)


def importers(*names):
    """The files with one of the imports, below Sources."""
    wanted = re.compile(rf"^(?:\w+ )?import (?:\w+ (?=\w+\.))?(?:{'|'.join(names)})\b", re.M)
    return [str(file.relative_to(SOURCES)) for file in sorted(SOURCES.rglob("*.swift")) if wanted.search(code(file))]


def test_only_the_place_that_chooses_a_store_knows_one():
    assert importers("SQLiteStore") == importers("PostgresStore") == importers("TokenRefresh") == ["Operations/StoreSelection.swift"]


def test_only_the_library_of_apps_needs_foundation_and_it_needs_nothing_else():
    """FoundationEssentials has no ICU, whose tables are larger than the rest of the program."""
    assert {Path(file).parts[0] for file in importers("Foundation", "FoundationNetworking")} == {"TokenCacheClient"}
    for file in (SOURCES / "TokenCacheClient").rglob("*.swift"):
        assert set(re.findall(r"^import (\w+)", code(file), re.M)) <= {"Foundation", "FoundationNetworking", "Observation", "Security"}, file


@pytest.mark.parametrize("module", MODULES, ids=lambda module: module.name)
def test_the_folders_of_a_module_need_each_other_in_one_direction(module):
    """By the names of types, which Swift lets every file of a module use; files beside the folders may use all of them."""
    texts = {file: code(file) for file in module.rglob("*.swift")}
    folders = {file: file.relative_to(module).parts[0] for file in texts if file.parent != module}
    owners = {
        name: folder for file, folder in folders.items()
        for name in re.findall(r"^(?:@?[\w()]+ )*(?:struct|class|enum|protocol|actor|typealias) (\w+)", texts[file], re.M)}
    uses = defaultdict(set)
    for file, folder in folders.items():
        uses[folder] |= {owners[name] for name in re.findall(r"\b[A-Z]\w+", texts[file]) if owners.get(name, folder) != folder}
    # Raises an error that names the circle.
    TopologicalSorter(uses).prepare()


@pytest.mark.parametrize("module", MODULES, ids=lambda module: module.name)
def test_unsafe_places_do_not_become_more(module):
    """A module that parses what strangers send must have as many as are written down, so that their number only falls."""
    count = sum(len(re.findall(r"\bunsafe\b|@unchecked\b", code(file))) for file in module.rglob("*.swift"))
    most = UNSAFE[module.name]
    assert count <= most, f"{module.name} has {count} unsafe expressions, and may have {most}"
    assert count == most or module.name not in OF_STRANGERS, f"{module.name} has only {count} left: lower its number in UNSAFE"


def test_what_strangers_send_is_parsed_with_checked_arithmetic():
    unchecked = re.compile(r"&[-+*]|&<<|&>>")
    for module, files in OF_STRANGERS.items():
        assert [file.name for file in (SOURCES / module).rglob("*.swift") if unchecked.search(code(file))] == files


def test_waits_end_by_the_monotonic_clock():
    """Those of Dispatch's semaphores with a timeout end by the wall clock, which somebody may set."""
    on_wall_clock = re.compile(r"\bwait\(timeout:|\b(?:DispatchGroup|wallDeadline|wallTimeout|pthread_cond_timedwait|sem_timedwait)\b")
    assert [str(file) for file in SOURCES.rglob("*.swift") if on_wall_clock.search(code(file))] == []
