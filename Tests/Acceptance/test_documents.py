"""The documents refer only to what exists: links, files, commands, settings and messages of the program."""
import json
import re
from pathlib import Path

import pytest

from server_process import run

REPOSITORY = Path(__file__).parents[2]
DOCUMENTS = [
    *(REPOSITORY / name for name in ("README.md", "config/README.md", "Sources/README.md", "Tests/README.md")),
    # In the changelog, names may be those of earlier versions.
    *sorted(file for file in (REPOSITORY / "deploy").rglob("*.md") if file.name != "CHANGELOG.md")]
FAILURES = REPOSITORY / "deploy" / "failures.md"

every_document = pytest.mark.parametrize("document", DOCUMENTS, ids=lambda file: str(file.relative_to(REPOSITORY)))


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


@every_document
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


@every_document
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


@pytest.fixture(name="known", scope="module")
def known_settings():
    """The program's settings."""
    return {line.split(": ")[0] for line in run("check-config").stdout.splitlines()}


def setting(known):
    """A pattern for what looks like a setting with a section."""
    return rf"((?:{'|'.join({key.split('.')[0] for key in known if '.' in key})})\.(?!jsonl|ndjson)[a-z_.]+)"


@every_document
def test_every_setting_is_one_of_the_program(document, known):
    named = {match for span in code(document) for match in re.findall(rf"^{setting(known)}(?:$|:| )", span)}
    # A group of settings may be named as well.
    groups = {key.rpartition(".")[0] for key in known}
    assert named <= known | groups
    variables = set(re.findall(r"\bTOKEN_CACHE_[A-Z_]+", document.read_text(encoding="utf-8")))
    written = {"TOKEN_CACHE_" + key.upper().replace(".", "_") for key in known}
    assert variables <= written | {
        "TOKEN_CACHE_BINARY", "TOKEN_CACHE_POSTGRES_BINARY", "TOKEN_CACHE_REFRESH_BINARY"}


def test_every_setting_in_help_is_one_of_the_program(known):
    named = re.findall(rf"(?<![\w./-]){setting(known)}", run("--experimental-dump-help").stdout)
    assert named and {name.rstrip(".") for name in named} <= known


@pytest.mark.parametrize("name, place", [
    ("config/openapi.yaml", r"^  version: (.*)$"), ("deploy/CHANGELOG.md", r"^## \[(.*?)\]"),
    ("Sources/TokenCacheClient/TokenCacheClient.docc/FirstUse.md", r'^\.package\(.*from: "(.*)"')])
def test_a_document_with_the_version_has_that_of_the_program(name, place):
    document = (REPOSITORY / name).read_text(encoding="utf-8")
    assert re.search(place, document, re.M)[1] == run("--version").stdout.strip()


def test_the_messages_in_the_tables_of_failures_are_those_of_the_program():
    """`...` stands for what differs from case to case."""
    table = FAILURES.read_text(encoding="utf-8").partition("## What the log says")[2].partition("\n## ")[0]
    quoted = [text for cell in re.findall(r"^\| (`[^|]+`) \|", table, re.M) for text in re.findall("`([^`]+)`", cell)]
    assert len(quoted) > 8
    source = "\n".join(file.read_text(encoding="utf-8") for file in (REPOSITORY / "Sources").rglob("*.swift"))
    # Line breaks inside literals are no part of them.
    source = re.sub(r'"\s*\n\s*\+ "', "", re.sub(r"\\\n\s*", "", source))
    assert [text for text in quoted if not all(part.strip() in source for part in text.split("..."))] == []
