"""token-cache doctor: its report on sound and on broken servers, and that it shows no secret and changes nothing.

What keeps a server from starting, it finds as well (test_start_failures); how it judges is tested in OperationsTests."""
import json
import os
import pty
import re
import socket
import subprocess
from pathlib import Path

import pytest

from certificates import certificate_until, make_certificate
from contract import STORED
from doctor import AS_SOMEBODY, NOWHERE, advices, examine, needs_root, of, only_problem, problems, said, state_of, with_settings
from http_client import exchange, post
from server_process import Server, binary, clean_environment, run
from store_files import command, printed


# Without problems

def test_an_empty_machine_has_no_problem_and_gets_no_file(tmp_path):
    report = examine("--data-directory", str(tmp_path / "data"))
    assert problems(report) == []
    assert "the first start creates it" in said(report, "Data folder")
    assert list(tmp_path.iterdir()) == []


def test_a_stopped_server_has_no_problem_and_stays_as_it_is(stopped):
    before = state_of(stopped.folder)
    report = of(stopped)
    assert problems(report) == [] and state_of(stopped.folder) == before
    assert "1 token in " in said(report, "Store") and "schema 6" in said(report, "Store")
    assert re.search(r"1 key, number 1, fingerprint [0-9a-f]{16}$", said(report, "Key ring"))
    assert "no server uses the data folder" in said(report, "Server")


def test_a_running_server_has_no_problem_and_is_asked(serve):
    server = serve({"admin": {"listen": "127.0.0.1:0"}})
    assert exchange(server.address, post("canary4711", "canary4712")).body == STORED
    addresses = {"TOKEN_CACHE_LISTEN": f"127.0.0.1:{server.address[1]}",
                 "TOKEN_CACHE_ADMIN_LISTEN": f"127.0.0.1:{server.administration[0][1]}"}
    report = of(server, environment=addresses)
    assert problems(report) == []
    assert f"process {server.process.pid} serves on http://127.0.0.1:{server.address[1]}" in said(report, "Server")
    assert "1 token in " in said(report, "Store") and "the server has 1 key, number 1" in said(report, "Key ring")
    printed = json.dumps(report)
    key = re.search(r"^index ([0-9a-f]{64})", (server.data / "keys").read_text(), re.M)[1]
    assert "canary" not in printed and key not in printed and key[:16] not in printed
    assert server.is_running()


def test_settings_are_shown_with_where_they_are_from(tmp_path):
    file = tmp_path / "settings.yaml"
    file.write_text("# none\nlog_level: debug\naccess_log: json\ndrain_timeout: 10s\n")
    report = examine("--config", str(file), "--data-directory", str(tmp_path / "data"),
                     environment={"TOKEN_CACHE_ACCESS_LOG": "combined"})
    values = {value["key"]: (value["value"], value["origin"]) for value in report["settings"]}
    assert values["log_level"] == ("debug", f"{file}, line 2")
    assert values["access_log"] == ("combined", "environment")
    assert values["data_directory"][1] == "command line"
    assert values["drain_timeout"] == ("10s", f"{file}, line 4") and values["loops"][1] == "default"
    # The text has those that differ from their defaults.
    text = run("doctor", "--config", str(file), environment=NOWHERE).stdout
    assert f"log_level: debug ({file}, line 2)\n" in text and "drain_timeout" not in text
    assert "settings have their defaults" in text
    shown = run("check-config", "--config", str(file), environment=NOWHERE).stdout
    assert [line.split(":")[0] for line in shown.splitlines()] == [value["key"] for value in report["settings"]]


# Problems

def test_a_server_that_cannot_be_asked_is_a_problem(serve):
    server = serve()
    (server.data / "control.sock").unlink()
    only_problem(of(server), "Server", f"process {server.process.pid} uses the data folder but does not answer")


def test_a_server_that_hangs_is_a_problem(serve):
    server = serve()
    with server.paused():
        report = examine("--data-directory", str(server.data))
    only_problem(report, "Server", f"process {server.process.pid} uses the data folder .* no answer came")


@needs_root
def test_somebody_else_is_told_to_ask_as_the_servers_user(serve):
    server = serve()
    report = examine("--data-directory", str(server.data), prefix=AS_SOMEBODY, folder="/",
                     environment={"TOKEN_CACHE_LISTEN": f"127.0.0.1:{server.address[1]}"})
    only_problem(report, "Start", f"the data directory {server.data} .*Permission denied")
    assert "nobody may not connect to control.sock" in said(report, "Server", "warning")


def test_what_the_running_server_warns_of_is_told(serve):
    server = serve({"https": {"mode": "off"}})
    assert said(of(server), "Server", "warning") == "https.mode is off: tokens are accepted and given over plain HTTP"


# The command

def test_the_text_has_a_line_a_finding_and_what_to_do(stopped):
    stopped.data.chmod(0o755)
    done = run("doctor", "--config", str(stopped.folder / "token-cache.yaml"), environment=NOWHERE)
    assert done.returncode == 1 and done.stdout.endswith("warnings\n") and "\n1 problem, " in done.stdout
    assert f"  problem  others may enter {stopped.data} (mode 0755)\n           -> chmod 700" in done.stdout
    assert "\x1b" not in done.stdout


@pytest.mark.parametrize("environment, is_colored", [({}, True), ({"NO_COLOR": "1"}, False)])
def test_colors_are_for_terminals(tmp_path, environment, is_colored):
    terminal, other_end = pty.openpty()
    process = subprocess.Popen([binary(), "doctor", "--data-directory", str(tmp_path / "data")], stdout=other_end,
                               env=clean_environment({**NOWHERE, **environment}))
    os.close(other_end)
    printed = b""
    try:
        while chunk := os.read(terminal, 65536):
            printed += chunk
    except OSError:
        # The end of the terminal's output once the program has ended.
        pass
    os.close(terminal)
    assert process.wait(30) == 0 and b"Versions" in printed
    assert (b"\x1b[32m" in printed) == is_colored


# The data folder and the store

@pytest.mark.parametrize("name, mode, topic, text", [
    ("data", 0o755, "Data folder", "others may enter .*0755"), ("data/tokens.db", 0o640, "Data folder", "tokens.db .*0640"),
    ("data/keys", 0o644, "Key ring", "others may read .*keys .*0644"),
    ("token-cache.yaml", 0o666, "Settings", "others may write .*0666"),
])
def test_wrong_permissions_are_problems_as_long_as_they_are_wrong(stopped, name, mode, topic, text):
    path = stopped.folder / name
    path.chmod(mode)
    report = of(stopped)
    only_problem(report, topic, text)
    (advice,) = advices(report)
    subprocess.run(advice.split(), check=True)
    assert problems(of(stopped)) == []


def test_a_full_disk_is_a_problem(small_disk, tmp_path):
    server = Server(tmp_path / "server", data=small_disk / "data")
    try:
        report = of(server)
    finally:
        server.kill()
    only_problem(report, "Data folder", "MiB are free on the disk")


def test_an_empty_store_beside_a_key_ring_is_warned_of(stopped, serve):
    database = stopped.data / "tokens.db"
    for found in ("there is none, although its key ring .* is there", "tokens.db is an empty file without a WAL"):
        for file in stopped.data.glob("tokens.db*"):
            file.unlink()
        if "empty file" in found:
            database.touch(mode=0o600)
        report = of(stopped)
        assert problems(report) == [] and re.search(found, said(report, "Store", "warning")), report
        again = serve(data=stopped.data)
        text = f"made an empty store {database}, although its key ring {stopped.data / 'keys'} was there already"
        assert re.search(f"warning.*{text}", again.log()), again.log()
        assert again.stop() == 0
    again = serve(data=stopped.data)
    assert "made an empty store" not in again.log()


def test_a_log_that_a_crash_left_is_told_of(serve):
    server = serve()
    assert exchange(server.address, post("a", "b")).body == STORED
    server.kill()
    before = state_of(server.folder)
    report = of(server)
    assert problems(report) == [] and re.search(r"WAL of \d+ bytes", said(report, "Store"))
    assert state_of(server.folder) == before


# The user with whose rights it looks

def of_nobody(*paths):
    for path in paths:
        os.chown(path, 65534, 65534)


def warning(report, topic):
    """The only warning of a topic, with what to do about it."""
    found, = [finding for finding in report["findings"] if finding["topic"] == topic and finding["state"] == "warning"]
    return found["text"], found["advice"]


@needs_root
def test_root_is_told_to_look_as_the_owner_of_the_data_folder_or_through_the_unit(public_folder):
    data = public_folder / "data"
    data.mkdir(mode=0o700)
    of_nobody(data)
    text, advice = warning(examine("--data-directory", str(data)), "User")
    assert f"{data} is owned by nobody" in text and "rights of root" in text and "runuser -u nobody" in advice
    units = public_folder / "units"
    units.mkdir()
    (units / "token-cache-doctor.service").touch()
    report = examine("--data-directory", str(data), environment={"SYSTEMD_UNIT_PATH": str(units)})
    assert "systemctl start token-cache-doctor" in warning(report, "User")[1]
    assert "systemctl start token-cache-doctor" in said(report, "Service")
    # In the unit itself; and as the owner.
    inside = {"SYSTEMD_UNIT_PATH": str(units), "INVOCATION_ID": "0" * 32}
    report = examine("--data-directory", str(data), environment=inside, prefix=AS_SOMEBODY, folder="/")
    assert said(report, "Service") == said(report, "User", "warning") == "" and problems(report) == []


@needs_root
def test_files_of_another_user_in_the_data_folder_are_a_warning(public_folder):
    data = public_folder / "data"
    assert run("put", "me", "hello", "--data-directory", str(data)).returncode == 0
    of_nobody(*data.iterdir())
    text, advice = warning(examine("--data-directory", str(data)), "Data folder")
    assert f"{data} is owned by root, and lock in it by nobody" in text
    assert f"chown -R nobody {data}" in advice and f"chown -R root {data}" in advice
    of_nobody(data)
    report = examine("--data-directory", str(data), prefix=AS_SOMEBODY, folder="/")
    assert said(report, "Data folder", "warning") == ""


# What a start needs

def test_each_file_that_a_start_cannot_use_is_a_problem(tmp_path):
    good, key = make_certificate(tmp_path)
    other, _ = certificate_until(tmp_path, "20240101000000Z", "20900101000000Z")
    keys = tmp_path / "api-keys"

    def found(**settings):
        return problems(examine(environment={f"TOKEN_CACHE_{name}": str(value) for name, value in settings.items()}))

    assert found(TLS_CERTIFICATE=good, TLS_PRIVATE_KEY=key) == []
    assert "does not belong to" in found(TLS_CERTIFICATE=other, TLS_PRIVATE_KEY=key)[0][1]
    both = found(TLS_CERTIFICATE=tmp_path / "none.pem", TLS_PRIVATE_KEY=key, ACCESS_MODE="session", ACCESS_API_KEYS_FILE=keys)
    assert [topic for topic, _ in both] == ["Start"] * 2
    assert "none.pem" in both[0][1] and str(keys) in both[1][1]
    Path(key).chmod(0o644)
    assert "private key" in found(TLS_CERTIFICATE=good, TLS_PRIVATE_KEY=key)[0][1]
    assert "is no regular file" in found(SEALING_KEY_RING="/tmp")[0][1]


def test_a_port_of_another_program_is_a_problem(stopped):
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        for variable, key in (("TOKEN_CACHE_LISTEN", "listen"), ("TOKEN_CACHE_ADMIN_LISTEN", "admin.listen")):
            report = of(stopped, environment={variable: f"127.0.0.1:{port}"})
            only_problem(report, "Start", fr"^{key}: 127.0.0.1:{port} is in use by another program")


@needs_root
def test_what_this_user_may_not_read_is_a_problem_with_its_path(public_folder):
    closed, data = public_folder / "closed", public_folder / "data"
    closed.mkdir(mode=0o700)
    data.mkdir(mode=0o700)
    of_nobody(data)
    pair = str(closed / "pair.pem")
    file = with_settings(public_folder, data, tls={"certificate": pair, "private_key": pair})
    report = examine("--config", str(file), prefix=AS_SOMEBODY, folder="/")
    only_problem(report, "Start", f"{pair}.*Permission denied")


@pytest.mark.parametrize("mode, state", [(os.O_RDWR, "ok"), (None, "refused")])
def test_a_pipe_for_the_access_log_needs_a_reader(tmp_path, mode, state):
    pipe = tmp_path / "access.pipe"
    os.mkfifo(pipe)
    # Named through a link, unlike in the reader's list of open files.
    (tmp_path / "linked").symlink_to(tmp_path)
    settings = {"TOKEN_CACHE_ACCESS_LOG_FILE": str(tmp_path / "linked" / pipe.name), "TOKEN_CACHE_ACCESS_LOG": "json",
                "TOKEN_CACHE_DATA_DIRECTORY": str(tmp_path / "data")}
    reader = None if mode is None else os.open(pipe, mode)
    try:
        served = subprocess.Popen([binary(), "serve"], env=clean_environment({**NOWHERE, **settings}), stderr=subprocess.PIPE, text=True)
        try:
            line = next(line for line in served.stderr if "serves on" in line or line.startswith("token-cache: "))
            assert ("serves on" in line) == (state == "ok"), line
        finally:
            served.terminate()
            served.communicate(timeout=60)
    finally:
        if reader is not None:
            os.close(reader)


# Backups

@pytest.fixture(name="server")
def server_with_a_token(serve):
    server = serve()
    assert exchange(server.address, post("me", "hello")).body == STORED
    return server


def advice(report):
    return "\n".join(finding["advice"] for finding in report["findings"] if finding["topic"] == "Store")


def test_a_backup_that_failed_is_a_warning_with_its_time_running_or_not(server):
    done = command(server.data, "backup", str(server.folder / "backup.db"), "--after", "false")
    assert done.returncode == 1
    for is_running in (True, False):
        if not is_running:
            assert server.stop() == 0
        report = of(server)
        assert "the last backup failed at 20" in said(report, "Store", "warning")
        assert "none has succeeded" in said(report, "Store", "warning")
        assert "journalctl -u token-cache-backup" in advice(report)


def test_a_backup_that_succeeded_is_told_of(server):
    printed(server.data, "backup", str(server.folder / "backup.db"))
    for is_running in (True, False):
        if not is_running:
            assert server.stop() == 0
        report = of(server)
        assert said(report, "Store", "warning") == ""
        assert "the last backup succeeded at 20" in said(report, "Store")
