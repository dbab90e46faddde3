"""The documents refer only to what exists: links, files, commands, settings, metrics and messages of the program."""
import json
import re
from pathlib import Path

import pytest

from server_process import run
from test_dependencies import targets

REPOSITORY = Path(__file__).parents[2]
DOCUMENTS = [
    REPOSITORY / "README.md", *sorted(REPOSITORY.glob("*/README.md")), *sorted(REPOSITORY.glob("deploy/*/README.md")),
    REPOSITORY / "deploy" / "CHANGELOG.md"]
FAILURES = REPOSITORY / "deploy" / "README.md"
# In the changelog, names may be those of earlier versions.
CURRENT = [document for document in DOCUMENTS if document.name != "CHANGELOG.md"]

every_document = pytest.mark.parametrize("document", DOCUMENTS, ids=lambda file: str(file.relative_to(REPOSITORY)))
every_current_document = pytest.mark.parametrize(
    "document", CURRENT, ids=lambda file: str(file.relative_to(REPOSITORY)))


def prose(document):
    """A document without its indented blocks."""
    return re.sub(r"^    .*$", "", document.read_text(encoding="utf-8"), flags=re.M)


def code(document):
    """What a document shows as code: spans in its prose, and the lines of its indented blocks."""
    text = document.read_text(encoding="utf-8")
    return re.findall(r"``? ?([^`]+?) ?``?", prose(document)) + re.findall(r"^    +(.*)$", text, re.M)


def anchors(document):
    """The anchors of a document's headings, as GitHub makes them."""
    found = []
    for heading in re.findall(r"^#+ (.*)$", prose(document), re.M):
        slug = re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-")
        found.append(f"{slug}-{found.count(slug)}" if slug in found else slug)
    return found


@every_document
def test_every_link_leads_to_a_file_and_to_a_heading_that_exist(document):
    missing = []
    for target in re.findall(r"\]\(([^)\s]+)\)", prose(document)):
        if re.match(r"[a-z]+:", target):
            continue
        path, _, anchor = target.partition("#")
        file = document.parent / path if path else document
        if not file.exists() or (anchor and anchor not in anchors(file)):
            missing.append(target)
    assert not missing


@every_current_document
def test_every_file_named_in_code_exists(document):
    names = {file.name for file in (REPOSITORY / "Sources").rglob("*")} | {file.name for file in document.parent.rglob("*")}
    missing = []
    for span in code(document):
        for path in re.findall(r"(?<![\w/<>.$*-])((?:[\w.+-]+/)*[\w+-]+\.(?:swift|py|c|h|md|yaml|jsonl))\b(?![/*])", span):
            places = [document.parent / path, REPOSITORY / path, REPOSITORY / "Sources" / path]
            known = any(place.exists() for place in places) or ("/" not in path and path in names)
            if not known and Path(path).name not in ("token-cache.yaml", "users.yaml"):
                missing.append(path)
    assert not missing


@pytest.mark.parametrize("folder", ["Sources", "Tests"])
def test_every_name_in_code_is_one_of_the_sources(folder):
    words = {word for top in ("Sources", "Tests", "deploy", "config")
             for file in (REPOSITORY / top).rglob("*") if file.suffix in (".swift", ".py", ".c", ".yaml", ".h", "")
             and file.is_file() for word in re.findall(r"\w+", file.read_text(encoding="utf-8", errors="replace"))}
    words |= {file.stem.removeprefix("test_") for file in (REPOSITORY / "Tests" / "Acceptance").glob("*.py")}
    spans = re.findall(r"``? ?([^`]+?) ?``?", prose(REPOSITORY / folder / "README.md"))
    names = [span for span in spans if re.fullmatch(r"[A-Za-z_]\w*(\.(?!py|swift|md)\w+)*(\([a-z:]*\))?", span)]
    assert len(names) > 20
    missing = [name for name in names if not set(re.findall(r"[A-Za-z_]\w*", name)) <= words]
    assert not missing


@pytest.fixture(name="commands", scope="module")
def known_commands():
    """The program's commands by name, each with its flags."""
    found = {}

    def add(command, path):
        flags = {
            ("--" if name["kind"] == "long" else "-") + name["name"]
            for argument in command.get("arguments", []) for name in argument.get("names") or []}
        found[" ".join(path)] = flags
        for subcommand in command.get("subcommands", []):
            add(subcommand, [*path, subcommand["commandName"]])
            if subcommand["commandName"] == command.get("defaultSubcommand"):
                flags |= found[" ".join([*path, subcommand["commandName"]])]

    add(json.loads(run("--experimental-dump-help").stdout)["command"], [])
    return found


@every_current_document
def test_every_command_is_one_of_the_program_and_has_these_flags(document, commands):
    unknown = []
    for span in code(document):
        for line in re.findall(r"(?:^|[$&;] |-- )token-cache ((?:[a-z][a-z-]*)(?: [^#|&;]*)?)", span):
            words = line.split()
            name = next((name for count in (3, 2) if (name := " ".join(words[:count])) in commands), words[0])
            flags = {word.partition("=")[0] for word in words if word.startswith("-") and len(word) > 1}
            if name not in commands or flags - commands[name]:
                unknown.append(line)
    assert not unknown


@every_current_document
def test_every_setting_is_one_of_the_program(document):
    known = {line.split(": ")[0] for line in run("check-config").stdout.splitlines()}
    sections = {key.split(".")[0] for key in known if "." in key}
    named = {
        match for span in code(document)
        for match in re.findall(rf"^((?:{'|'.join(sections)})\.(?!jsonl)[a-z_.]+)(?:$|:| )", span)}
    # A group of settings may be named as well.
    groups = {key.rpartition(".")[0] for key in known}
    assert named <= known | groups
    variables = set(re.findall(r"\bTOKEN_CACHE_[A-Z_]+", document.read_text(encoding="utf-8")))
    written = {"TOKEN_CACHE_" + key.upper().replace(".", "_") for key in known}
    assert variables <= written | {
        "TOKEN_CACHE_BINARY", "TOKEN_CACHE_POSTGRES_BINARY", "TOKEN_CACHE_LIMITS_BODIES"}


def test_the_table_of_modules_shows_what_each_imports():
    rows = re.findall(r"^\| (\[`.*?) \| .*? \| (.*?) ?\| .*? ?\|$", (REPOSITORY / "Sources" / "README.md").read_text(), re.M)
    shown = {name: set(re.findall(r"`([^`]+)`", imports)) for names, imports in rows
             for name in re.findall(r"`([^`]+)`", names)}
    own = {name: target for name, target in targets().items() if not target.get("path") and target["type"] != "test"}
    assert shown == {
        name: {named[0] for dependency in target["dependencies"] for kind, named in dependency.items() if kind != "product"}
        for name, target in own.items()}
    modules = list(shown)
    for name, imports in shown.items():
        assert all(modules.index(imported) < modules.index(name) for imported in imports), name


def test_the_table_of_acceptance_tests_is_complete():
    text = (REPOSITORY / "Tests" / "README.md").read_text(encoding="utf-8")
    files = (REPOSITORY / "Tests" / "Acceptance").glob("test_*.py")
    assert [file.name for file in files if f"`{file.stem.removeprefix('test_')}`" not in text] == []


def literals():
    """The texts of the program's string literals, with line breaks inside them removed."""
    text = "\n".join(
        file.read_text(encoding="utf-8") for file in sorted((REPOSITORY / "Sources").rglob("*.swift")))
    return re.sub(r'"\s*\n\s*\+ "', "", re.sub(r"\\\n\s*", "", text))


def test_the_messages_in_the_table_of_failures_are_those_of_the_program():
    """`...` stands for what differs from case to case."""
    table = FAILURES.read_text(encoding="utf-8").partition("## When something fails")[2].partition("\n### ")[0]
    quoted = re.findall(r"^\| `([^`]+)` \|", table, re.M)
    assert len(quoted) > 15
    source = literals()
    assert [text for text in quoted if not all(part.strip() in source for part in text.split("..."))] == []


@every_current_document
def test_every_metric_is_one_of_the_program(document):
    source = literals()
    named = set(re.findall(r"`(token_cache_[a-z_]+)`", document.read_text(encoding="utf-8")))
    assert {name for name in named if f'"{name}"' not in source} == set()


def test_the_changelog_begins_with_what_is_unreleased_and_names_the_programs_version():
    text = (REPOSITORY / "deploy" / "CHANGELOG.md").read_text(encoding="utf-8")
    versions = re.findall(r"^## \[([^\]]+)\](?: - (\d{4}-\d\d-\d\d))?$", text, re.M)
    assert versions[0] == ("Unreleased", "")
    assert versions[1][0] == run("--version").stdout.strip()
    numbers = [tuple(map(int, version.split("."))) for version, _ in versions[1:]]
    assert numbers == sorted(numbers, reverse=True)
    dates = [date for _, date in versions[1:]]
    assert dates == sorted(dates, reverse=True) and all(dates)
    kinds = re.findall(r"^### (.*)$", text, re.M)
    assert set(kinds) <= {"Added", "Changed", "Deprecated", "Removed", "Fixed", "Security"}
