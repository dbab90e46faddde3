"""What operators do is in the server's log and in the audit log: the act, who it was, and what came of it, and no ids."""
import fcntl
import json
import os
import re
import signal

import pytest

from access import make_key
from administration import steer
from server_process import run, until
from test_audit_log import command

USER, TOKEN = "canary-user-4711", "canary-token-4711"
BY_COMMAND = re.compile(rf"requested by uid {os.getuid()}, process \d+ over control\.sock")


class World:
    """A server with an audit log and a file of API keys."""

    def __init__(self, serve, folder):
        self.data, self.audit, self.first_key = folder / "data", folder / "audit.ndjson", folder / "first.key"
        assert command("audit", "key", self.first_key, "--data-directory", self.data).returncode == 0
        self.keys = folder / "api-keys"
        make_key(self.keys, "backend")
        self.server = serve(
            {"access": {"api": {"keys_file": str(self.keys)}}, "audit": {"file": str(self.audit)}}, data=self.data)

    def events(self):
        return [json.loads(line) for line in self.audit.read_text().splitlines()]

    def run(self, *arguments, text=""):
        done = run(*arguments, "--config", str(self.server.folder / "token-cache.yaml"), "--data-directory", str(self.data),
                   input=text)
        assert done.returncode == 0, done
        return done.stdout

    def act(self, *arguments, text=""):
        """The lines of the log and the events of a command."""
        log, audit = len(self.server.log()), len(self.events())
        self.run(*arguments, text=text)
        new = [line for line in self.server.log()[log:].splitlines() if "requested by" in line]
        assert all(BY_COMMAND.search(line) and " notice: " in line for line in new), new
        return [line.rpartition(" over control.sock: ")[2] for line in new], self.events()[audit:]


@pytest.fixture
def world(serve, tmp_path):
    return World(serve, tmp_path / "world")


def check_event(event, action, outcome="ok", **more):
    assert event.items() >= {"action": action, "outcome": outcome, "actor": "operator", "uid": str(os.getuid()), **more}.items()


def test_each_act_of_a_command_is_a_line_in_both_logs(world, tmp_path):
    backup, export = tmp_path / "backup.db", tmp_path / "export.ndjson"
    for arguments, text, line, action, more in [
        (["put", USER], TOKEN, "tokens stored: 1", "store_token", {}),
        (["backup", str(backup)], "", rf"{backup}, tokens: 1, bytes: \d+", "back_up_store", {}),
        (["keyring", "add"], "", "key 2 added", "add_key", {"key": "2"}),
        (["access", "sessions", "add", USER], "", "sessions made: 1", "create_session", {}),
        (["access", "sessions", "remove", "--user", USER], "", "sessions ended: 1", "end_sessions", {}),
        (["import", str(export)], "", "tokens stored: 1", "store_token", {}),
        (["delete", USER], "", "tokens deleted: 1", "remove_token", {}),
        (["erase", USER], "", "one user", "erase_user", {"outcome": "ok"}),
    ]:
        if arguments[0] == "import":
            log, _ = world.act("export", str(export))
            assert log == ["tokens read: 1"]
            check_event(world.events()[-1], "export_tokens")
        log, events = world.act(*arguments, text=text)
        assert len(log) == 1 and re.fullmatch(line, log[0]), (arguments, log)
        assert len(events) == 1, (arguments, events)
        check_event(events[0], action, **more)
    log, events = world.act("keyring", "rotate")
    assert log == ["tokens encrypted again: 0 of 0, unreadable: 0", "key 1 retired"]
    assert [event["action"] for event in events] == ["rekey_store", "retire_key"]
    check_event(events[1], "retire_key", key="1")
    for arguments in (["stats"], ["list"], ["keyring", "list"], ["verify"]):
        assert world.act(*arguments) == ([], []), arguments
    done = run("keyring", "retire", "2", "--data-directory", str(world.data))
    assert done.returncode == 1
    assert re.search(BY_COMMAND.pattern + " failed: ", world.server.log())
    check_event(world.events()[-1], "retire_key", "failed", key="2")
    assert world.server.stop() == 0
    assert command("audit", "verify", world.audit, "--key", world.first_key).returncode == 0
    assert "canary" not in world.server.log() + world.audit.read_text()


def test_who_reloads_and_who_stops_is_in_both_logs(world):
    world.run("reload")
    check_event(world.events()[-1], "reload")
    world.server.send_signal(signal.SIGHUP)
    until(lambda: "SIGHUP received: " in world.server.log() and world.events()[-1]["actor"] == "signal")
    assert world.events()[-1].items() >= {"action": "reload", "outcome": "ok", "signal": "SIGHUP"}.items()
    (world.server.folder / "token-cache.yaml").write_text("loops: many")
    assert steer(world.server, "/reload")[0] == 500
    check_event(world.events()[-1], "reload", "failed")
    assert world.server.stop() == 0
    assert world.events()[-1]["action"] == "close_log"
    assert world.events()[-2].items() >= {"action": "drain", "actor": "signal", "signal": "SIGTERM"}.items()
    assert "token-cache has stopped: SIGTERM received\n" in world.server.log()


def test_a_key_that_is_added_or_removed_is_in_both_logs(world):
    for arguments, action in ((["add", "ben", "--scope", "sessions"], "add"), (["remove", "ben"], "remove")):
        before = len(world.events())
        world.run("access", "keys", *arguments)
        # Without a wait: the command has told the server.
        done = {"add": "added", "remove": "removed"}[action]
        line = rf"notice: access keys {action} " + BY_COMMAND.pattern + f": ben {done}"
        assert re.search(line, world.server.log())
        until(lambda: len(world.events()) > before)
        [event] = world.events()[before:]
        assert event.items() >= {"action": f"{action}_api_key", "outcome": "ok", "actor": "operator", "key": "ben"}.items()


def test_a_key_that_is_added_right_before_the_stop_is_in_both_logs(world):
    # Not with the server's settings, so that the command does not tell the server.
    make_key(world.keys, "ben")
    assert world.server.stop() == 0
    assert ("add_api_key", "ben") in [(event["action"], event.get("key")) for event in world.events()]
    assert world.events()[-1]["action"] == "close_log"
    assert "notice: the API keys have changed: added ben; there are 2 now\n" in world.server.log()


# While no server runs: the command writes the log, or refuses before it changes anything

OF_THE_LOG = {"open_log", "close_log"}


class Folder:
    """A data folder without a server, with an audit log and a file of API keys."""

    def __init__(self, folder, **audit):
        folder.mkdir()
        self.data, self.audit, self.first_key = folder / "data", folder / "audit.ndjson", folder / "first.key"
        self.settings = folder / "token-cache.yaml"
        self.keys = folder / "api-keys"
        self.settings.write_text(json.dumps({
            "data_directory": str(self.data), "admin": {"listen": "127.0.0.1:0"},
            "access": {"api": {"keys_file": str(self.keys)}}, "audit": {"file": str(self.audit), **audit}}))
        self.run("audit", "key", self.first_key)

    def run(self, *arguments, text="", status=0):
        done = run(*map(str, arguments), "--config", str(self.settings), input=text)
        assert done.returncode == status, (arguments, done)
        return done

    def events(self):
        return [json.loads(line) for line in self.audit.read_text().splitlines()] if self.audit.exists() else []

    def act(self, *arguments, text="", status=0):
        """The events of a command, without those of the log itself."""
        before = len(self.events())
        self.run(*arguments, text=text, status=status)
        return [event for event in self.events()[before:] if event["action"] not in OF_THE_LOG]

    def verify(self):
        done = run("audit", "verify", str(self.audit), "--key", str(self.first_key))
        assert done.returncode == 0, done

    def contents(self):
        """What the files hold that a command could change; only the lock file may differ."""
        files = [*self.data.iterdir(), self.keys] if self.data.exists() else [self.keys]
        return {file.name: file.read_bytes() for file in files if file.exists() and file.name not in {"lock", "audit-key.head"}}


@pytest.fixture
def place(tmp_path):
    return Folder(tmp_path / "place")


def test_each_act_without_a_server_is_in_the_audit_log(place, tmp_path):
    backup, exported = tmp_path / "backup.db", tmp_path / "exported"
    for arguments, text, action, more in [
        (["put", USER], TOKEN, "store_token", {}),
        (["backup", backup], "", "back_up_store", {}),
        (["keyring", "add"], "", "add_key", {"key": "2"}),
        (["restore", backup], "", "restore_store", {}),
        (["access", "sessions", "add", USER], "", "create_session", {}),
        (["access", "sessions", "remove", "--user", USER], "", "end_sessions", {}),
        (["export", exported], "", "export_tokens", {}),
        (["import", exported, "--overwrite"], "", "store_token", {}),
        (["delete", USER], "", "remove_token", {}),
        (["erase", USER], "", "erase_user", {}),
        (["access", "keys", "add", "backend", "--scope", "sessions"], "", "add_api_key", {"key": "backend"}),
        (["access", "keys", "remove", "backend"], "", "remove_api_key", {"key": "backend"}),
    ]:
        events = place.act(*arguments, text=text)
        assert len(events) == 1, (arguments, events)
        check_event(events[0], action, **more)
    assert [event["action"] for event in place.act("keyring", "rotate")] == ["rekey_store", "retire_key"]
    [failed] = place.act("keyring", "retire", "2", status=1)
    check_event(failed, "retire_key", "failed", key="2")
    (tmp_path / "nothing.db").write_text("no backup")
    [failed] = place.act("restore", tmp_path / "nothing.db", status=1)
    check_event(failed, "restore_store", "failed")
    place.verify()
    assert "canary" not in place.audit.read_text()


def test_what_changes_nothing_does_not_open_the_audit_log(place):
    place.run("put", USER, TOKEN)
    before = place.audit.read_bytes()
    for arguments in (["stats"], ["list"], ["verify"], ["keyring", "list"], ["get", USER], ["access", "keys", "list"]):
        place.run(*arguments)
    assert place.audit.read_bytes() == before


def test_a_copy_is_recorded_by_the_folder_that_the_settings_name(place, tmp_path):
    place.run("put", USER, TOKEN)
    other, link = tmp_path / "other", tmp_path / "link"
    # The folder may have another name, as with DynamicUser=, where /var/lib/token-cache is a link.
    link.symlink_to(place.data)
    for source, target in ((place.data, other), (link, tmp_path / "another")):
        [event] = place.act("copy", "--from", source, "--to", target)
        check_event(event, "copy_from_store")
    [event] = place.act("copy", "--from", other, "--to", place.data, status=1)
    check_event(event, "copy_to_store", "failed")
    for path in place.data.glob("tokens.db*"):
        path.unlink()
    [event] = place.act("copy", "--from", other, "--to", place.data)
    check_event(event, "copy_to_store")
    place.verify()


def test_the_lines_of_commands_and_of_servers_are_one_chain(place, serve, tmp_path):
    def served(*arguments, text=""):
        server = serve(json.loads(place.settings.read_text()), data=place.data)
        place.run(*arguments, text=text)
        assert server.stop() == 0

    place.run("access", "keys", "add", "backend", "--scope", "sessions")
    served("put", USER, text=TOKEN)
    place.run("delete", USER)
    served("access", "keys", "remove", "backend")
    place.run("backup", tmp_path / "backup.db")
    place.verify()
    assert [event["action"] for event in place.events() if event["actor"] == "operator"] == [
        "add_api_key", "store_token", "remove_token", "remove_api_key", "back_up_store"]


@pytest.mark.parametrize("fault, required", [("no key", "on"), ("foreign file", "off"), ("no folder", "on"), ("held", "on")])
def test_a_command_that_cannot_be_recorded_changes_nothing(tmp_path, fault, required):
    place = Folder(tmp_path / "place", required=required)
    backup = tmp_path / "backup.db"
    place.run("put", USER, TOKEN)
    place.run("backup", backup)
    place.run("access", "keys", "add", "anna", "--scope", "sessions")
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
        for arguments in [
            ["put", "other", "x"], ["delete", USER], ["erase", USER], ["export", tmp_path / "exported"],
            ["import", tmp_path], ["backup", tmp_path / "another.db"], ["restore", backup], ["keyring", "add"],
            ["keyring", "rotate"], ["keyring", "retire", "1"], ["access", "sessions", "add", USER], ["copy", "--from", place.data, "--to", tmp_path / "copy"],
            ["access", "keys", "remove", "anna"], ["access", "keys", "add", "backend", "--scope", "sessions"],
        ]:
            done = place.run(*arguments, status=1)
            assert "nothing was done: the audit log cannot be opened" in done.stderr and advice in done.stderr, (arguments, done)
            assert done.stdout == ""
        # The failed backup is the only thing that is noted: the metric of the last backup tells of it.
        changed = {name for name, text in place.contents().items() if before.get(name) != text}
        assert changed <= {"last-backup"}
        assert not (tmp_path / "another.db").exists()
        assert "1 token" in place.run("verify").stdout


def test_a_command_without_the_settings_says_that_it_is_not_recorded(place):
    place.run("put", USER, TOKEN)
    before = place.audit.read_bytes()
    done = run("delete", USER, "--data-directory", str(place.data))
    assert done.returncode == 0 and "give commands the server's settings with --config" in done.stderr
    assert f"this is recorded nowhere: audit.file is not set, although {place.data}/audit-key shows that" in done.stderr
    assert place.audit.read_bytes() == before


def test_a_file_of_keys_stays_as_it_is_while_another_command_uses_the_folder(place):
    place.run("put", USER, TOKEN)
    with open(place.data / "lock", encoding="utf-8") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        done = place.run("access", "keys", "add", "anna", "--scope", "sessions", status=1)
    assert "which is not a running server; try again when it has ended" in done.stderr
    assert done.stdout == "" and not place.keys.exists()
