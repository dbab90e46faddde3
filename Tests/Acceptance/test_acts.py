"""The server's log and the audit log have each act of an operator, with who it was and its outcome, and without ids.

Without a server, the command writes to the audit log, or refuses before it changes anything.
"""
import fcntl
import json
import os
import re
import signal

import pytest

from access import make_key
from administration import ADMINISTRATION, steer
from server_process import run, until
from store_files import audit_events, command, verify_audit

USER, TOKEN = "canary-user-4711", "canary-token-4711"
BY_COMMAND = re.compile(rf"requested by uid {os.getuid()}, process \d+ over control\.sock")
OF_THE_LOG = {"open_log", "close_log"}


class Place:
    """A data folder with an audit log and a file of API keys, and perhaps a server."""
    server = None

    def __init__(self, folder, **audit):
        folder.mkdir()
        self.data, self.audit, self.first_key = folder / "data", folder / "audit.ndjson", folder / "first.key"
        self.settings = folder / "token-cache.yaml"
        self.keys = folder / "api-keys"
        make_key(self.keys, "anna")
        self.settings.write_text(json.dumps({
            "data_directory": str(self.data), **ADMINISTRATION,
            "access": {"api": {"keys_file": str(self.keys)}}, "audit": {"file": str(self.audit), **audit}}))
        self.run("audit", "key", self.first_key)

    def start(self, serve):
        self.server = serve(json.loads(self.settings.read_text()), data=self.data)
        return self

    def run(self, *arguments, text="", status=0):
        done = run(*map(str, arguments), "--config", str(self.settings), input=text)
        assert done.returncode == status, (arguments, done)
        return done

    def events(self):
        return audit_events(self.audit) if self.audit.exists() else []

    def log(self):
        """The lines of the server's log about commands."""
        return [line for line in self.server.log().splitlines() if "requested by" in line] if self.server else []

    def act(self, *arguments, text="", status=0):
        """The lines of the server's log and the events of a command, without those of the log itself."""
        lines, events = len(self.log()), len(self.events())
        self.run(*arguments, text=text, status=status)
        return self.log()[lines:], [event for event in self.events()[events:] if event["action"] not in OF_THE_LOG]

    def verify(self):
        verify_audit(self.audit, key=self.first_key)

    def contents(self):
        """What the files hold that a command could change; only the lock file may differ."""
        files = [*self.data.iterdir(), self.keys] if self.data.exists() else [self.keys]
        return {file.name: file.read_bytes() for file in files if file.exists() and file.name not in {"lock", "audit-key.head"}}


@pytest.fixture
def place(tmp_path):
    return Place(tmp_path / "place")


@pytest.fixture
def served(place, serve):
    return place.start(serve)


def check_event(event, action, outcome="ok", **more):
    assert event.items() >= {"action": action, "outcome": outcome, "actor": "operator", "uid": str(os.getuid()), **more}.items()


@pytest.mark.parametrize("is_running", [True, False])
def test_each_act_of_a_command_is_a_line_in_the_logs(place, serve, tmp_path, is_running):
    backup, exported = tmp_path / "backup.db", tmp_path / "exported"
    if is_running:
        place.start(serve)
    for arguments, text, line, action, more in [
        (["put", USER], TOKEN, "tokens stored: 1", "store_token", {}),
        (["backup", backup], "", rf"{backup}, tokens: 1, bytes: \d+", "back_up_store", {}),
        (["keyring", "add"], "", "key 2 added", "add_key", {"key": "2"}),
        (["restore", backup], "", None, "restore_store", {}),
        (["access", "sessions", "add", USER], "", "sessions made: 1", "create_session", {}),
        (["access", "sessions", "remove", "--user", USER], "", "sessions ended: 1", "end_sessions", {}),
        (["export", exported], "", "begun", "export_tokens", {}),
        (["import", exported, "--overwrite"], "", "begun", "store_token", {}),
        (["delete", USER], "", "tokens deleted: 1", "remove_token", {}),
        (["erase", USER], "", "one user", "erase_user", {}),
        (["access", "keys", "add", "ben", "--scope", "sessions"], "", "ben added", "add_api_key", {"key": "ben"}),
        (["access", "keys", "remove", "ben"], "", "ben removed", "remove_api_key", {"key": "ben"}),
    ]:
        # No server may use the store that a restore replaces.
        if is_running and line is None:
            continue
        before = len(place.events())
        lines, _ = place.act(*arguments, text=text)
        # If a file of keys has changed, the server records the change itself, a moment later.
        is_of_file = is_running and "api_key" in action
        events = until(lambda: [event for event in place.events()[before:] if event["action"] not in OF_THE_LOG])
        assert len(events) == 1, (arguments, events)
        check_event({"uid": str(os.getuid()), **events[0]} if is_of_file else events[0], action, **more)
        assert len(lines) == is_running
        for told in lines:
            assert BY_COMMAND.search(told) and " notice: " in told, told
            assert re.fullmatch(line, told.rpartition(" over control.sock: ")[2]), (arguments, told)
    _, events = place.act("keyring", "rotate")
    assert [event["action"] for event in events] == ["rekey_store", "retire_key"]
    check_event(events[1], "retire_key", key="1")
    for arguments in (["stats"], ["list"], ["keyring", "list"], ["verify"], ["access", "keys", "list"]):
        before = place.audit.read_bytes()
        assert place.act(*arguments)[0] == [] and place.audit.read_bytes() == before, arguments
    lines, [failed] = place.act("keyring", "retire", "2", status=1)
    check_event(failed, "retire_key", "failed", key="2")
    assert not is_running or " failed: " in lines[0]
    if is_running:
        assert place.server.stop() == 0
        assert "canary" not in place.server.log()
    (tmp_path / "nothing.db").write_text("no backup")
    _, [failed] = place.act("restore", tmp_path / "nothing.db", status=1)
    check_event(failed, "restore_store", "failed")
    place.verify()
    assert "canary" not in place.audit.read_text()


def test_who_reloads_and_who_stops_is_in_both_logs(served):
    served.run("reload")
    check_event(served.events()[-1], "reload")
    served.server.send_signal(signal.SIGHUP)
    until(lambda: "SIGHUP received: " in served.server.log() and served.events()[-1]["actor"] == "signal")
    assert served.events()[-1].items() >= {"action": "reload", "outcome": "ok", "signal": "SIGHUP"}.items()
    (served.server.folder / "token-cache.yaml").write_text("log_level: many")
    assert steer(served.server, "/reload")[0] == 500
    check_event(served.events()[-1], "reload", "failed")
    # This command does not have the server's settings and so does not notify the server, which looks once more before it ends.
    make_key(served.keys, "ben")
    assert served.server.stop() == 0
    *_, stopped, added, closed = served.events()
    assert stopped.items() >= {"action": "drain", "actor": "signal", "signal": "SIGTERM"}.items()
    assert (added["action"], added["key"], closed["action"]) == ("add_api_key", "ben", "close_log")
    assert "notice: the API keys have changed: added ben; there are 2 now\n" in served.server.log()
    assert "token-cache has stopped: SIGTERM received\n" in served.server.log()


def test_a_copy_is_recorded_by_the_folder_that_the_settings_name(place, tmp_path):
    place.run("put", USER, TOKEN)
    other, link = tmp_path / "other", tmp_path / "link"
    # The folder may have another name, as with DynamicUser=, where /var/lib/token-cache is a link.
    link.symlink_to(place.data)
    for source, target in ((place.data, other), (link, tmp_path / "another")):
        _, [event] = place.act("copy", "--from", source, "--to", target)
        check_event(event, "copy_from_store")
    _, [event] = place.act("copy", "--from", other, "--to", place.data, status=1)
    check_event(event, "copy_to_store", "failed")
    for path in place.data.glob("tokens.db*"):
        path.unlink()
    _, [event] = place.act("copy", "--from", other, "--to", place.data)
    check_event(event, "copy_to_store")
    place.verify()


def test_the_lines_of_commands_and_of_servers_are_one_chain(place, serve, tmp_path):
    for is_running, arguments, text in ((True, ["put", USER], TOKEN), (False, ["delete", USER], ""), (
            True, ["access", "keys", "remove", "anna"], ""), (False, ["backup", tmp_path / "backup.db"], "")):
        if is_running:
            place.start(serve)
        place.run(*arguments, text=text)
        if is_running:
            assert place.server.stop() == 0
    place.verify()
    assert [event["action"] for event in place.events() if event["actor"] == "operator"] == [
        "store_token", "remove_token", "remove_api_key", "back_up_store"]


@pytest.mark.parametrize("fault, required", [("no key", "on"), ("foreign file", "off"), ("no folder", "on"), ("held", "on")])
def test_a_command_that_cannot_be_recorded_changes_nothing(tmp_path, fault, required):
    place = Place(tmp_path / "place", required=required)
    backup = tmp_path / "backup.db"
    place.run("put", USER, TOKEN)
    place.run("backup", backup)
    advice = {"no key": "token-cache audit key FILE", "foreign file": "name another file with audit.file",
              "no folder": "check the path", "held": "another process writes to"}[fault]
    if fault == "no key":
        (place.data / "audit-key").rename(tmp_path / "audit-key")
    elif fault == "foreign file":
        place.audit.write_text("something else\n")
    elif fault == "no folder":
        place.settings.write_text(place.settings.read_text().replace(str(place.audit), str(tmp_path / "none" / "audit.ndjson")))
    before = place.contents()
    with open(place.audit, encoding="utf-8") as log:
        if fault == "held":
            fcntl.flock(log, fcntl.LOCK_EX)
        commands = [
            ["put", "other", "x"], ["access", "keys", "remove", "anna"], ["delete", USER], ["erase", USER],
            ["export", tmp_path / "exported"], ["import", tmp_path], ["backup", tmp_path / "another.db"], ["restore", backup],
            ["keyring", "add"], ["keyring", "rotate"], ["keyring", "retire", "1"], ["access", "sessions", "add", USER],
            ["copy", "--from", place.data, "--to", tmp_path / "copy"], ["access", "keys", "add", "backend", "--scope", "sessions"]]
        # Commands open the log in two places; the first two are one for each.
        for arguments in commands if fault == "no key" else commands[:2]:
            done = place.run(*arguments, status=1)
            assert "nothing was done: the audit log cannot be opened" in done.stderr and advice in done.stderr, (arguments, done)
            assert done.stdout == ""
        # Only the failed backup is noted, for the metric of the last backup.
        changed = {name for name, text in place.contents().items() if before.get(name) != text}
        assert changed <= {"last-backup"}
        assert not (tmp_path / "another.db").exists()
        assert "1 token" in place.run("verify").stdout


def test_a_command_without_the_settings_says_that_it_is_not_recorded(place):
    place.run("put", USER, TOKEN)
    before = place.audit.read_bytes()
    done = command(place.data, "delete", USER)
    assert done.returncode == 0 and "give commands the server's settings with --config" in done.stderr
    assert f"this is recorded nowhere: audit.file is not set, although {place.data}/audit-key shows that" in done.stderr
    assert place.audit.read_bytes() == before


def test_a_file_of_keys_stays_as_it_is_while_another_command_uses_the_folder(place):
    place.run("put", USER, TOKEN)
    with open(place.data / "lock", encoding="utf-8") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        done = place.run("access", "keys", "remove", "anna", status=1)
    assert "which is not a running server; try again when it has ended" in done.stderr
    assert done.stdout == "" and "anna" in place.keys.read_text()
