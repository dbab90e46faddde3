"""Files of API keys of other users, files that a server may not read, and files on a disk that hangs."""
import contextlib
import json
import os
import signal
import subprocess
from pathlib import Path

import pytest

from access import api_request, bearer, bearer_settings, fetch, make_key
from administration import ADMINISTRATION, ask
from contract import NOT_FOUND, found
from http_client import HOST, Connection, exchange, lines
from issuer import Issuer
from server_process import NOBODY, SERVES, STOP_SECONDS, Server, binary, clean_environment, needs_root, run, until
from storage_shim import compile_library
from store_files import audit_events, command, make_audit_keys, verify_audit
from test_reload import reload

GROUP = 20001


def accepts(server, key):
    """Whether the server knows an API key, which may read the tokens that are not there."""
    status = exchange(server.address, api_request(key, "GET", "/v1/users/nobody/token")).status
    assert status in (200, 401)
    return status == 200


def change_keys(server, file, *arguments):
    """Runs `token-cache access keys` on the file of API keys of a server."""
    return command(server.data, "access", "keys", *arguments, environment={"TOKEN_CACHE_ACCESS_API_KEYS_FILE": str(file)})


class World:
    """A server that runs as somebody, and a file of API keys in a folder of root's."""

    def __init__(self, folder, mode, group):
        self.file = folder / "etc" / "api-keys"
        self.file.parent.mkdir()
        self.keys = {name: make_key(self.file, name) for name in ("anna", "ben")}
        os.chown(self.file, 0, group)
        self.file.chmod(mode)
        (folder / "var").mkdir()
        os.chown(folder / "var", NOBODY, NOBODY)
        settings = {"access": {"api": {"keys_file": str(self.file)}}}
        prefix = ["setpriv", f"--reuid={NOBODY}", f"--regid={NOBODY}", f"--groups={GROUP}"]
        self.server = Server(folder / "server", settings, prefix=prefix, data=folder / "var" / "data")

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.server.kill()

    def change(self, *arguments):
        """Runs `token-cache access keys` as root."""
        return change_keys(self.server, self.file, *arguments)


@needs_root
@pytest.mark.parametrize("mode, group", [(0o644, 0), (0o640, GROUP)], ids=["of everybody", "of a group"])
def test_a_changed_file_can_be_read_by_those_who_could_read_it_before(public_folder, mode, group):
    with World(public_folder, mode, group) as world:
        done = world.change("remove", "anna")
        assert done.returncode == 0, done
        status = world.file.stat()
        assert (status.st_uid, status.st_gid, status.st_mode & 0o777) == (0, group, mode)
        # Without a wait: the command has told the server.
        assert (accepts(world.server, world.keys["anna"]), accepts(world.server, world.keys["ben"])) == (False, True)
        added = world.change("add", "carla", "--scope", "tokens:read")
        assert accepts(world.server, added.stdout.strip()), added


@needs_root
def test_a_command_fails_if_the_server_cannot_read_what_it_has_changed(public_folder):
    with World(public_folder, 0o644, 0) as world:
        world.file.chmod(0o600)
        fault = "the file of API keys cannot be used, so the previous keys stay in use: "
        removed = world.change("remove", "anna")
        assert (removed.returncode, removed.stdout) == (1, ""), removed
        assert f"removed from the file, but the running server still accepts it: {fault}" in removed.stderr, removed
        assert accepts(world.server, world.keys["anna"])
        added = world.change("add", "carla", "--scope", "tokens:read")
        # The key is shown all the same: it is good once the server can read the file.
        assert added.returncode == 1 and added.stdout.startswith("tck_"), added
        assert f"added to the file, but the running server does not accept it yet: {fault}" in added.stderr, added
        world.file.chmod(0o644)
        assert world.change("remove", "ben").returncode == 0
        assert accepts(world.server, added.stdout.strip())
        assert not any(accepts(world.server, key) for key in world.keys.values())


# A disk that hangs

@pytest.fixture(name="hanging_library", scope="module")
def compiled_library(tmp_path_factory):
    """The library in shim/hanging_files.c."""
    return compile_library(tmp_path_factory.mktemp("hanging"), Path(__file__).parent / "shim" / "hanging_files.c")


class HangingFolder:
    """A folder whose calls can be made to hang, in processes with this environment."""

    def __init__(self, folder, library):
        folder = Path(os.path.realpath(folder))
        self.folder, self.switch = folder / "remote", folder / "hangs"
        self.folder.mkdir()
        self.environment = {"LD_PRELOAD": str(library), "HANGING_FOLDER": f"{self.folder}/", "HANGING_SWITCH": str(self.switch)}

    @contextlib.contextmanager
    def hang(self, call):
        """Lets a call take for ever, until the end of the block or until the file that this gives is removed."""
        switch = Path(f"{self.switch}.{call}")
        switch.touch()
        try:
            yield switch
        finally:
            switch.unlink(missing_ok=True)

    def hangs(self, call):
        """Whether a process is in such a call."""
        return Path(f"{self.switch}.{call}.reached").exists()


@pytest.fixture
def hanging(tmp_path, hanging_library):
    return HangingFolder(tmp_path, hanging_library)


class Remote:
    """A server whose file of API keys and audit log are in a folder that can be made to hang."""

    def __init__(self, serve, folder, hanging, required="on"):
        data, self.first_key = folder / "data", folder / "first.key"
        self.file, self.audit = hanging.folder / "api-keys", hanging.folder / "audit.ndjson"
        self.key = make_key(self.file, "anna")
        make_audit_keys(self.first_key, data)
        audit = {"file": str(self.audit), "required": required}
        self.settings = {**ADMINISTRATION, "access": {"api": {"keys_file": str(self.file)}}, "audit": audit, "loops": 1}
        self.server = serve(self.settings, data=data, environment=hanging.environment)
        self.control = self.server.data / "control.sock"

    def is_alive(self):
        return ask(self.server.administration[0], "GET", "/healthz")[0] == 200

    def change(self, *arguments):
        """Runs `token-cache access keys`, which must succeed, and returns what it prints."""
        done = change_keys(self.server, self.file, *arguments)
        assert done.returncode == 0, done
        return done.stdout.strip()


def test_a_file_of_keys_that_cannot_be_opened_leaves_the_administration_alive(serve, tmp_path, hanging):
    remote = Remote(serve, tmp_path, hanging)
    with hanging.hang("open"):
        # The command waits for the server only for a while.
        added = remote.change("add", "ben", "--scope", "tokens:read")
        until(lambda: hanging.hangs("open"))
        assert "access keys add requested by" in remote.server.log()
        assert remote.is_alive() and accepts(remote.server, remote.key)
        assert "the API keys have changed" not in remote.server.log()
    until(lambda: accepts(remote.server, added))


def test_a_file_that_hangs_holds_up_no_other_and_not_the_second_signal(serve, tmp_path, hanging):
    remote, local = hanging.folder / "api-keys", tmp_path / "jwks.json"
    make_key(remote, "app")
    issuer = Issuer()
    access = {**bearer_settings(local, issuer)["access"], "api": {"keys_file": str(remote)}}
    server = serve({"access": access, "drain_timeout": "3600s", "log_level": "debug"}, environment=hanging.environment)

    def knows_issuer():
        return exchange(server.address, fetch(bearer(issuer.token("anna")))).status == 200

    assert knows_issuer()
    with hanging.hang("open"):
        server.process.send_signal(signal.SIGHUP)
        until(lambda: hanging.hangs("open"))
        issuer.rotate()
        until(knows_issuer)
        server.send_signal()
        until(lambda: "SIGTERM received" in server.log())
        assert server.is_running()
        assert server.stop() == 1


@pytest.mark.parametrize("number", [signal.SIGHUP, signal.SIGTERM, signal.SIGINT])
def test_a_signal_during_a_start_ends_it_or_reloads_once_it_serves(tmp_path, hanging, number):
    keys, file, log = hanging.folder / "api-keys", tmp_path / "token-cache.yaml", tmp_path / "log"
    make_key(keys, "app")
    settings = {"listen": "127.0.0.1:0", "admin": {"listen": "off"}, "data_directory": str(tmp_path / "data"),
                "access": {"api": {"keys_file": str(keys)}}}
    file.write_text(json.dumps(settings))
    with hanging.hang("open") as switch, open(log, "wb") as output:
        process = subprocess.Popen(
            [binary(), "serve", "--config", file], env=clean_environment(hanging.environment), stderr=output)
        try:
            until(lambda: hanging.hangs("open"))
            file.write_text(json.dumps({**settings, "log_level": "debug"}))
            process.send_signal(number)
            if number == signal.SIGHUP:
                switch.unlink()
                until(lambda: "SIGHUP received: changed log_level from " in log.read_text() or process.poll() is not None)
                process.send_signal(signal.SIGTERM)
            assert process.wait(STOP_SECONDS) == 0, log.read_text()
            assert (SERVES.search(log.read_text()) is not None) == (number == signal.SIGHUP)
        finally:
            process.kill()
            process.wait()


def test_an_audit_log_that_cannot_be_written_leaves_the_administration_alive(serve, tmp_path, hanging):
    remote = Remote(serve, tmp_path, hanging)
    with hanging.hang("write"), Connection(remote.control) as reloader:
        reloader.send(lines("POST /reload HTTP/1.1", HOST))
        until(lambda: hanging.hangs("write"))
        assert remote.is_alive()
        remote.server.send_signal(signal.SIGTERM)
        assert "drain" not in remote.audit.read_text()
    assert remote.server.wait() == 0
    text = remote.audit.read_text()
    assert text.index('"reload"') < text.index('"drain"') < text.index('"close_log"')


def test_an_audit_log_whose_upkeep_hangs_holds_up_no_reload(serve, tmp_path, hanging):
    """Also without requests whose events wait for the disk."""
    remote = Remote(serve, tmp_path, hanging)
    with hanging.hang("write"):
        # The log is continued in a new file.
        remote.audit.unlink()
        until(lambda: hanging.hangs("write"))
        for count, now in enumerate(("off", "on"), 1):
            log = reload(remote.server, audit={**remote.settings["audit"], "required": now})
            assert "the disk of the audit log does not respond" in log
            # A line of its own, after that one.
            until(lambda: remote.server.log().count("changed audit.required from ") == count)  # noqa: B023
    assert remote.server.stop() == 0
    actions = [event["action"] for event in audit_events(remote.audit) if event["action"] != "resume_log"]
    assert actions == ["continue_log", "reload", "reload", "drain", "close_log"]


@pytest.mark.parametrize("kind", ["audit", "access_log"])
def test_a_renamed_log_that_cannot_be_continued_when_its_disk_answers_again_is_told(serve, tmp_path, hanging, kind):
    log = hanging.folder / "log"
    make_audit_keys(tmp_path / "first.key", tmp_path / "data")
    settings = {"audit": {"file": str(log)}} if kind == "audit" else {"access_log": f"json {log}"}
    server = serve(settings, data=tmp_path / "data", environment=hanging.environment)
    with hanging.hang("open"):
        log.rename(hanging.folder / "log.1")
        server.process.send_signal(signal.SIGHUP)
        until(lambda: hanging.hangs("open"))
        if kind == "audit":
            # The reload does not wait any longer.
            until(lambda: "the disk of the audit log does not respond" in server.log())
        log.mkdir()
    until(lambda: any(
        "error: SIGHUP received" in line and str(log) in line and " cannot be " in line for line in server.log().splitlines()))


def test_an_audit_log_that_cannot_be_written_holds_up_no_change_of_keys(serve, tmp_path, hanging):
    remote = Remote(serve, tmp_path, hanging, required="off")
    server = remote.server
    with hanging.hang("write"):
        key = remote.change("add", "ben", "--scope", "tokens:read")
        until(lambda: hanging.hangs("write"))
        assert accepts(server, key)
        remote.change("remove", "ben")
        # Without a wait: the command has told the server.
        assert not accepts(server, key)
        reload(server, audit={**remote.settings["audit"], "required": "on"})
        # Its line may come after one about the disk.
        until(lambda: "changed audit.required from off to on" in server.log())
    assert server.stop() == 0
    changes = [event for event in audit_events(remote.audit) if event["action"].endswith(("_api_key", "reload"))]
    assert [event["action"] for event in changes] == ["add_api_key", "remove_api_key", "reload"]


@pytest.mark.parametrize("required", ["on", "off"])
def test_an_audit_log_that_cannot_be_written_holds_up_only_what_it_records(serve, tmp_path, hanging, required):
    remote = Remote(serve, tmp_path, hanging, required)
    server, unrecorded = remote.server, 503 if required == "on" else 200

    def put(user):
        return api_request(remote.key, "PUT", f"/v1/users/{user}/token", {"token_info": user}, "If-None-Match: *")

    with hanging.hang("write") as switch, Connection(server.address) as writer:
        writer.send(put("anna"))
        until(lambda: hanging.hangs("write"))
        # The only loop goes on with what is not recorded, and with a token that is already stored.
        assert accepts(server, remote.key)
        until(lambda: server.get("anna") == found("anna"))
        with Connection(remote.control) as reloader:
            reloader.send(lines("POST /reload HTTP/1.1", HOST))
            # The answer waits for the disk only for a while.
            assert writer.receive().status == unrecorded
            assert "the audit log cannot be written: the disk of" in server.log()
            assert exchange(server.address, put("ben")).status == unrecorded
            assert server.get("ben") == (NOT_FOUND if required == "on" else found("ben"))
            assert remote.is_alive() and accepts(server, remote.key)
            switch.unlink()
            assert reloader.receive().status == 200
    until(lambda: "the audit log is written again; 0 events are not in it" in server.log())
    assert exchange(server.address, put("carl")).status == 200
    assert server.stop() == 0
    recorded = [event["action"] for event in audit_events(remote.audit) if event["actor"] == "api_key"]
    assert recorded == ["store_token"] * (2 if required == "on" else 3)
    verify_audit(remote.audit, key=remote.first_key)


def test_a_start_that_is_refused_over_its_keys_leaves_no_store_behind(tmp_path):
    settings = {"access": {"api": {"keys_file": str(tmp_path / "missing")}}, "listen": "127.0.0.1:0"}
    (tmp_path / "x.yaml").write_text(json.dumps(settings))
    done = run("serve", "--config", str(tmp_path / "x.yaml"), "--data-directory", str(tmp_path / "data"))
    assert done.returncode == 1 and str(tmp_path / "missing") in done.stderr
    assert "key ring" not in done.stderr and list(tmp_path.glob("data/*")) == []
