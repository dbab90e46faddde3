"""The report of token-cache doctor, as its tests read it."""
import json
import re

from server_process import NO_FIXED_PORTS, run

NOWHERE = NO_FIXED_PORTS


def examine(*flags, environment=None, prefix=(), **options):
    """The report as JSON; checks that the text says the same."""
    environment = {**NOWHERE, **(environment or {})}
    done = run("doctor", "--json", *flags, environment=environment, prefix=prefix, **options)
    assert done.stderr == "", done.stderr
    report = json.loads(done.stdout)
    states = [finding["state"] for finding in report["findings"]]
    assert (report["problems"], report["warnings"]) == (states.count("problem"), states.count("warning"))
    assert all(bool(finding["advice"]) == (finding["state"] != "ok") for finding in report["findings"])
    assert done.returncode == (1 if report["problems"] else 0)
    return report


def of(server, **options):
    """The report about a server, found through its settings file."""
    return examine("--config", str(server.folder / "token-cache.yaml"), **options)


def advices(report):
    """What to do about the findings that are problems."""
    return [finding["advice"] for finding in report["findings"] if finding["state"] == "problem"]


def problems(report):
    """The findings that are problems: topic and text."""
    return [(finding["topic"], finding["text"]) for finding in report["findings"] if finding["state"] == "problem"]


def said(report, topic, state="ok"):
    """The findings of a topic in this state."""
    return "\n".join(finding["text"] for finding in report["findings"]
                     if finding["topic"] == topic and finding["state"] == state)


def only_problem(report, topic, text):
    """Checks that there is one problem, of this topic and with this text."""
    found = problems(report)
    assert len(found) == 1 and found[0][0] == topic and re.search(text, found[0][1]), found


def state_of(folder):
    """Everything below a folder that reading could change."""
    return {path: (path.lstat().st_mode, path.lstat().st_size, path.lstat().st_mtime_ns) for path in folder.rglob("*")}
