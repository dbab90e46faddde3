"""What operators do is in the server's log and in the audit log: the act, who it was, and what came of it, and no ids."""
import json
import os
import re
import signal

import pytest

from access import make_key
from administration import steer
from http_client import exchange, post
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
        (["keys", "add"], "", "key 2 added", "add_key", {"key": "2"}),
        (["rekey"], "", "tokens encrypted again: 1 of 1, unreadable: 0", "rekey_store", {}),
        (["keys", "retire", "1"], "", "key 1 retired", "retire_key", {"key": "1"}),
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
    for arguments in (["stats"], ["list"], ["keys", "list"], ["verify"]):
        assert world.act(*arguments) == ([], []), arguments
    done = run("keys", "retire", "2", "--data-directory", str(world.data))
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
    assert steer(world.server, "/drain")[0] == 200
    assert world.server.wait() == 0
    world.server.was_ended = True
    assert [event["action"] for event in world.events()][-2:] == ["drain", "close_log"]
    check_event(world.events()[-2], "drain")
    assert re.search(f"token-cache has stopped: drain {BY_COMMAND.pattern}\n", world.server.log())


def test_a_signal_that_stops_the_server_is_in_both_logs(world):
    assert world.server.stop() == 0
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


def test_many_requests_of_one_command_are_few_lines(serve, tmp_path):
    server = serve()
    folder = tmp_path / "tokens"
    folder.mkdir()
    export = tmp_path / "export.ndjson"
    for number in range(1_500):
        assert exchange(server.address, post(f"id{number}", "hello")).status == 200
    done = run("export", str(export), "--data-directory", str(server.data))
    assert done.returncode == 0, done
    assert run("import", str(export), "--overwrite", "--data-directory", str(server.data)).returncode == 0
    assert server.stop() == 0
    for name, what in (("export", "tokens read"), ("import", "tokens stored")):
        counts = re.findall(rf"{name} {BY_COMMAND.pattern}: {what}: (\d+)", server.log())
        assert sum(map(int, counts)) == 1_500 and len(counts) <= 3, counts
