"""What operators do while no server runs is in the audit log too: the command writes it, or refuses before it changes anything."""
import fcntl
import json
import os
import shutil

import pytest

from server_process import run

USER = "canary-user-4711"
TOKEN = "canary-token-4711"
OF_THE_LOG = {"open_log", "close_log"}


class World:
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
def world(tmp_path):
    return World(tmp_path / "world")


def check_event(event, action, outcome="ok", **more):
    expected = {"action": action, "outcome": outcome, "actor": "operator", "uid": str(os.getuid()), **more}
    assert event.items() >= expected.items(), event


def test_each_act_without_a_server_is_in_the_audit_log(world, tmp_path):
    backup, exported = tmp_path / "backup.db", tmp_path / "exported"
    for arguments, text, action, more in [
        (["put", USER], TOKEN, "store_token", {}),
        (["backup", backup], "", "back_up_store", {}),
        (["keys", "add"], "", "add_key", {"key": "2"}),
        (["rekey"], "", "rekey_store", {}),
        (["restore", backup], "", "restore_store", {}),
        (["rekey"], "", "rekey_store", {}),
        (["keys", "retire", "1"], "", "retire_key", {"key": "1"}),
        (["access", "sessions", "add", USER], "", "create_session", {}),
        (["access", "sessions", "remove", "--user", USER], "", "end_sessions", {}),
        (["export", exported], "", "export_tokens", {}),
        (["import", exported, "--overwrite"], "", "store_token", {}),
        (["delete", USER], "", "remove_token", {}),
        (["erase", USER], "", "erase_user", {}),
        (["access", "keys", "add", "backend", "--scope", "sessions"], "", "add_api_key", {"key": "backend"}),
        (["access", "keys", "remove", "backend"], "", "remove_api_key", {"key": "backend"}),
    ]:
        events = world.act(*arguments, text=text)
        assert len(events) == 1, (arguments, events)
        check_event(events[0], action, **more)
    [failed] = world.act("keys", "retire", "2", status=1)
    check_event(failed, "retire_key", "failed", key="2")
    (tmp_path / "nothing.db").write_text("no backup")
    [failed] = world.act("restore", tmp_path / "nothing.db", status=1)
    check_event(failed, "restore_store", "failed")
    world.verify()
    assert "canary" not in world.audit.read_text()


def test_what_changes_nothing_does_not_open_the_audit_log(world):
    world.run("put", USER, TOKEN)
    before = world.audit.read_bytes()
    for arguments in (["stats"], ["list"], ["verify"], ["keys", "list"], ["get", USER], ["access", "keys", "list"]):
        world.run(*arguments)
    assert world.audit.read_bytes() == before


def test_reads_are_recorded_where_the_settings_say_so(tmp_path):
    world = World(tmp_path / "world", events="all")
    world.run("put", USER, TOKEN)
    for arguments, action in ((["get", USER], "read_token"), (["list"], "list_tokens")):
        [event] = world.act(*arguments)
        check_event(event, action)
    assert world.act("stats") == []


def test_a_copy_is_recorded_by_the_folder_that_the_settings_name(world, tmp_path):
    world.run("put", USER, TOKEN)
    other, link = tmp_path / "other", tmp_path / "link"
    # The folder may have another name, as with DynamicUser=, where /var/lib/token-cache is a link.
    link.symlink_to(world.data)
    for source, target in ((world.data, other), (link, tmp_path / "another")):
        [event] = world.act("copy", "--from", source, "--to", target)
        check_event(event, "copy_from_store")
    [event] = world.act("copy", "--from", other, "--to", world.data, status=1)
    check_event(event, "copy_to_store", "failed")
    for path in world.data.glob("tokens.db*"):
        path.unlink()
    [event] = world.act("copy", "--from", other, "--to", world.data)
    check_event(event, "copy_to_store")
    world.verify()


def test_a_change_of_keys_that_fails_is_recorded_as_such(world):
    world.run("access", "keys", "add", "anna", "--scope", "sessions")
    (event,) = world.act("access", "keys", "add", "anna", "--scope", "sessions", status=1)
    check_event(event, "add_api_key", "failed", key="anna")
    (event,) = world.act("access", "keys", "remove", "nobody", status=1)
    check_event(event, "remove_api_key", "failed", key="nobody")
    world.verify()


def test_the_lines_of_commands_and_of_servers_are_one_chain(world, serve, tmp_path):
    def served(*arguments, text=""):
        server = serve(json.loads(world.settings.read_text()), data=world.data)
        world.run(*arguments, text=text)
        assert server.stop() == 0

    world.run("access", "keys", "add", "backend", "--scope", "sessions")
    served("put", USER, text=TOKEN)
    world.run("delete", USER)
    served("access", "keys", "remove", "backend")
    world.run("backup", tmp_path / "backup.db")
    world.verify()
    assert [event["action"] for event in world.events() if event["actor"] == "operator"] == [
        "add_api_key", "store_token", "remove_token", "remove_api_key", "back_up_store"]


@pytest.mark.parametrize("fault, required", [("no key", "on"), ("foreign file", "off"), ("no folder", "on"), ("held", "on")])
def test_a_command_that_cannot_be_recorded_changes_nothing(tmp_path, fault, required):
    world = World(tmp_path / "world", required=required)
    backup = tmp_path / "backup.db"
    world.run("put", USER, TOKEN)
    world.run("backup", backup)
    world.run("access", "keys", "add", "anna", "--scope", "sessions")
    advice = {"no key": "token-cache audit key FILE", "foreign file": "name another file with audit.file",
              "no folder": "check the path", "held": "another process writes to"}[fault]
    if fault == "no key":
        (world.data / "audit-key").rename(tmp_path / "audit-key")
    elif fault == "foreign file":
        world.audit.write_text("something else\n")
    elif fault == "no folder":
        world.settings.write_text(world.settings.read_text().replace(str(world.audit), str(tmp_path / "none" / "audit.ndjson")))
    before = world.contents()
    with open(world.audit, encoding="utf-8") as log:
        if fault == "held":
            fcntl.flock(log, fcntl.LOCK_EX)
        for arguments in [
            ["put", "other", "x"], ["delete", USER], ["erase", USER], ["export", tmp_path / "exported"],
            ["import", tmp_path], ["backup", tmp_path / "another.db"], ["restore", backup], ["keys", "add"], ["rekey"],
            ["keys", "retire", "1"], ["access", "sessions", "add", USER], ["copy", "--from", world.data, "--to", tmp_path / "copy"],
            ["access", "keys", "remove", "anna"], ["access", "keys", "add", "backend", "--scope", "sessions"],
        ]:
            done = world.run(*arguments, status=1)
            assert "nothing was done: the audit log cannot be opened" in done.stderr and advice in done.stderr, (arguments, done)
            assert done.stdout == ""
        # The failed backup is the only thing that is noted: the metric of the last backup tells of it.
        changed = {name for name, text in world.contents().items() if before.get(name) != text}
        assert changed <= {"last-backup"}
        assert not (tmp_path / "another.db").exists()
        assert "1 token" in world.run("verify").stdout


def test_a_command_without_the_settings_says_that_it_is_not_recorded(world):
    world.run("put", USER, TOKEN)
    before = world.audit.read_bytes()
    done = run("delete", USER, "--data-directory", str(world.data))
    assert done.returncode == 0 and "give commands the server's settings with --config" in done.stderr
    assert f"this is recorded nowhere: audit.file is not set, although {world.data}/audit-key shows that" in done.stderr
    assert world.audit.read_bytes() == before


def test_a_file_of_keys_stays_as_it_is_without_a_data_folder(world):
    shutil.rmtree(world.data)
    done = world.run("access", "keys", "add", "anna", "--scope", "sessions", status=1)
    assert "which does not exist; name the server's" in done.stderr and "or start the server once, which makes it" in done.stderr
    assert done.stdout == "" and not world.keys.exists() and not world.data.exists()


def test_a_file_of_keys_stays_as_it_is_while_another_command_uses_the_folder(world):
    world.run("put", USER, TOKEN)
    with open(world.data / "lock", encoding="utf-8") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        done = world.run("access", "keys", "add", "anna", "--scope", "sessions", status=1)
    assert "which is not a running server; try again when it has ended" in done.stderr
    assert done.stdout == "" and not world.keys.exists()
