"""token-cache doctor: its findings, and that it shows no secret and changes nothing."""
import json
import os
import pty
import re
import shutil
import select
import socket
import struct
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest

from certificates import certificate_until, make_certificate
from contract import STORED
from http_client import exchange, post
from issuer import Issuer, Key
from ports import free_ports
from server_process import NO_FIXED_PORTS, Server, binary, clean_environment, run

NOWHERE = NO_FIXED_PORTS
AS_SOMEBODY = ["setpriv", "--reuid=65534", "--regid=65534", "--clear-groups"]
needs_root = pytest.mark.skipif(os.geteuid() != 0, reason="only root can run as somebody else")


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
    found = problems(report)
    assert len(found) == 1 and found[0][0] == topic and re.search(text, found[0][1]), found


def state_of(folder):
    """Everything below a folder that reading could change."""
    return {path: (path.lstat().st_mode, path.lstat().st_size, path.lstat().st_mtime_ns) for path in folder.rglob("*")}


@pytest.fixture(name="stopped")
def stopped_server(serve):
    """The folder of a server that stored a token and ended."""
    server = serve()
    assert exchange(server.address, post("canary4711", "canary4712")).body == STORED
    assert server.stop() == 0
    return server


def of(server, **options):
    """The report about a server, found through its settings file."""
    return examine("--config", str(server.folder / "token-cache.yaml"), **options)


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
    assert "1 token in " in said(report, "Store") and "schema 5" in said(report, "Store")
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
    assert said(report, "Listeners").count("the running server listens on 127.0.0.1:") == 2
    assert "1 token in " in said(report, "Store") and "the server has 1 key, number 1" in said(report, "Key ring")
    assert "the server's core dumps are off" in said(report, "Machine")
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


def test_versions_are_those_that_run(tmp_path):
    report = examine("--data-directory", str(tmp_path))
    versions = said(report, "Versions") + said(report, "Versions", "warning")
    assert f"token-cache {run('--version').stdout.strip()}" in versions
    assert "SQLite 3." in versions and "OpenSSL 3." in versions and f"Linux {os.uname().release}" in versions


# Problems

@pytest.mark.parametrize("text, found", [
    ("lisen: a\n", "line 1: there is no setting lisen"), ("log_level: loud\n", "line 1: log_level is \"loud\""),
    (": : [\n", "not valid YAML"), ("limits: {head: 1}\n", "limits.head"),
])
def test_a_broken_configuration_is_the_problem(tmp_path, text, found):
    file = tmp_path / "settings.yaml"
    file.write_text(text)
    report = examine("--config", str(file))
    only_problem(report, "Settings", re.escape(found))
    assert report["settings"] == []
    only_problem(examine("--config", str(tmp_path / "none")), "Settings", "there is no such file")


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
    (advice,) = [finding["advice"] for finding in report["findings"] if finding["state"] == "problem"]
    subprocess.run(advice.split(), check=True)
    assert problems(of(stopped)) == []


def test_a_taken_port_is_a_problem(stopped):
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        for variable, key in (("TOKEN_CACHE_LISTEN", "listen"), ("TOKEN_CACHE_ADMIN_LISTEN", "admin.listen")):
            report = of(stopped, environment={variable: f"127.0.0.1:{port}"})
            only_problem(report, "Listeners", fr"^{key}: 127.0.0.1:{port} is in use by another program, process {os.getpid()} \(")
    only_problem(of(stopped, environment={"TOKEN_CACHE_LISTEN": "192.0.2.1:80"}), "Listeners", "listening on 192.0.2.1:80 fails")


@needs_root
def test_root_is_told_which_process_has_a_port_though_the_servers_user_may_not_see_it(public_folder):
    os.chown(public_folder, 65534, 65534)
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        report = examine("--data-directory", str(public_folder / "data"), "--user", "nobody",
                         environment={"TOKEN_CACHE_LISTEN": f"127.0.0.1:{port}"})
    only_problem(report, "Listeners", fr"is in use by another program, process {os.getpid()} \(")
    assert advices(report)[0].startswith("stop it, or")


def test_a_running_server_that_is_elsewhere_has_to_be_restarted(serve):
    server = serve()
    port, = free_ports(1)
    report = of(server, environment={"TOKEN_CACHE_LISTEN": f"127.0.0.1:{port}"})
    assert f"the running server does not listen on 127.0.0.1:{port}" in said(report, "Listeners", "warning")


def test_an_address_of_another_machine_is_a_problem(tmp_path):
    # From a range that is for documents only (RFC 5737).
    report = examine("--data-directory", str(tmp_path / "data"), environment={"TOKEN_CACHE_LISTEN": "192.0.2.1:8080"})
    only_problem(report, "Listeners", "listening on 192.0.2.1:8080 fails")
    (advice,) = [finding["advice"] for finding in report["findings"] if finding["state"] == "problem"]
    assert advice == "set listen to an address that `ip address` shows"


def test_a_unix_socket_is_looked_at(stopped, tmp_path):
    def listening(path):
        return of(stopped, environment={"TOKEN_CACHE_LISTEN": f"unix:{path}"})

    path = tmp_path / "http.sock"
    assert "can be created" in said(listening(path), "Listeners")
    only_problem(listening(tmp_path / "none" / "http.sock"), "Listeners", "the folder of .* is missing")
    with socket.socket(socket.AF_UNIX) as other:
        other.bind(str(path))
        assert "is left over" in said(listening(path), "Listeners")
        other.listen()
        only_problem(listening(path), "Listeners", "in use by another program")
    path.unlink()
    path.write_text("")
    only_problem(listening(path), "Listeners", "is not a socket")


def with_certificate(server, certificate, key):
    return of(server, environment={"TOKEN_CACHE_TLS_CERTIFICATE": str(certificate), "TOKEN_CACHE_TLS_PRIVATE_KEY": str(key)})


def test_certificates_are_looked_at(stopped, tmp_path):
    soon, key = make_certificate(tmp_path)
    assert "valid until" in said(with_certificate(stopped, soon, key), "Certificates", "warning")
    expired, dated_key = certificate_until(tmp_path, "20240101000000Z", "20250101000000Z")
    only_problem(with_certificate(stopped, expired, dated_key), "Certificates", "has expired on 2025-01-01")
    only_problem(with_certificate(stopped, expired, key), "Certificates", "private-key.pem does not belong to")
    only_problem(with_certificate(stopped, tmp_path / "none.pem", key), "Certificates", "cannot be read")
    good, dated_key = certificate_until(tmp_path, "20240101000000Z", "20900101000000Z")
    assert "valid until 2090-01-01" in said(with_certificate(stopped, good, dated_key), "Certificates")
    Path(dated_key).chmod(0o644)
    only_problem(with_certificate(stopped, good, dated_key), "Certificates", "private key .*0644")


def test_open_access_is_warned_of_where_other_machines_reach_it():
    warned = "access.mode is open, and other machines reach 0.0.0.0:0: whoever knows or guesses an id reads and overwrites its token"
    reached = examine(environment={"TOKEN_CACHE_LISTEN": "127.0.0.1:0,0.0.0.0:0,unix:/tmp/none/a"})
    assert said(reached, "Access", "warning") == warned
    local = examine(environment={"TOKEN_CACHE_LISTEN": "127.0.0.1:0,[::1]:0"})
    assert "only this machine reaches" in said(local, "Access") and said(local, "Access", "warning") == ""
    header = examine(environment={
        "TOKEN_CACHE_LISTEN": "0.0.0.0:0", "TOKEN_CACHE_ACCESS_MODE": "header",
        "TOKEN_CACHE_ACCESS_HEADER_NAME": "Remote-User", "TOKEN_CACHE_TRUSTED_PROXIES": "10.0.0.1"})
    assert said(header, "Access") == "access.mode is header" and said(header, "Access", "warning") == ""


def test_api_keys_are_looked_at(tmp_path):
    file = tmp_path / "api-keys"
    environment = {"TOKEN_CACHE_ACCESS_MODE": "session", "TOKEN_CACHE_ACCESS_API_KEYS_FILE": str(file)}
    only_problem(examine(environment=environment), "Access", f"{file} of access.api.keys_file does not exist")
    secrets = [run("access", "keys", "add", name, "--scope", scope, environment=environment).stdout.strip()
               for name, scope in [("reader", "tokens:read"), ("backend", "sessions")]]
    fine = examine(environment=environment)
    assert problems(fine) == [] and f"{file} has 2 API keys" in said(fine, "Access")
    assert said(fine, "Access", "warning") == "" and not any(secret in json.dumps(fine) for secret in secrets)
    run("access", "keys", "remove", "backend", environment=environment)
    file.write_text(file.read_text().replace("}", ',"expires":7}'))
    warned = said(examine(environment=environment), "Access", "warning")
    assert "API keys that have expired: reader" in warned and "no valid API key has the scope sessions" in warned
    file.chmod(0o666)
    only_problem(examine(environment=environment), "Access", "can be changed by other users")


def test_the_key_ring_has_to_be_there_and_the_right_one(stopped, serve):
    ring = stopped.data / "keys"
    own = ring.read_bytes()
    ring.unlink()
    only_problem(of(stopped), "Key ring", "is missing")
    ring.write_text("index 12\n")
    ring.chmod(0o600)
    only_problem(of(stopped), "Key ring", "line 1")
    other = serve()
    ring.write_bytes((other.data / "keys").read_bytes())
    only_problem(of(stopped), "Key ring", "not the one that the store was sealed with")
    ring.write_bytes(own)
    assert problems(of(stopped)) == []


def test_a_store_that_does_not_open_is_a_problem(stopped):
    only_problem(of(stopped, environment={"TOKEN_CACHE_SEALING_ENABLED": "off"}), "Store", "is sealed, and sealing is off")
    database = stopped.data / "tokens.db"
    database.write_bytes(b"no database, but long enough to be taken for one " * 100)
    only_problem(of(stopped), "Store", "not a usable database")


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


def test_a_key_ring_whose_folder_is_missing_is_told_of_as_the_start_does(tmp_path):
    ring = tmp_path / "none" / "keys"
    environment = {"TOKEN_CACHE_SEALING_KEY_RING": str(ring)}
    inside = {"TOKEN_CACHE_SEALING_KEY_RING": "./data/keys"}
    assert problems(examine("--data-directory", "data", environment=inside, folder=tmp_path)) == []
    text = f"the key ring {ring} cannot be made, as its folder does not exist"
    only_problem(examine("--data-directory", str(tmp_path / "data"), environment=environment), "Key ring", text)
    done = run("serve", "--listen", "127.0.0.1:0", "--data-directory", str(tmp_path / "data"), environment=environment)
    assert done.returncode == 1 and text in done.stderr, done.stderr


@needs_root
@pytest.mark.parametrize("name", ["", "data"])
def test_a_disk_that_is_read_only_is_a_problem(tmp_path, name):
    folder = tmp_path / "disk"
    folder.mkdir()
    done = subprocess.run(["mount", "-t", "tmpfs", "-o", "ro,mode=0700", "none", folder], capture_output=True, check=False)
    if done.returncode:
        pytest.skip("nothing can be mounted here")
    try:
        report = examine("--data-directory", str(folder / name))
    finally:
        subprocess.run(["umount", folder], check=True)
    only_problem(report, "Data folder", "is on a file system that is read-only")


def test_a_path_too_long_for_the_control_socket_is_nobodys_server(tmp_path):
    data = tmp_path / ("long" * 30)
    data.mkdir(mode=0o700)
    report = examine("--data-directory", str(data))
    assert problems(report) == [] and "no server uses the data folder" in said(report, "Server")
    assert "more than 107 bytes" in said(report, "Data folder", "warning")


def test_a_folder_in_the_place_of_a_private_key_keeps_its_mode(stopped, tmp_path):
    certificate, _ = make_certificate(tmp_path)
    report = with_certificate(stopped, certificate, "/tmp")
    (advice,) = [finding["advice"] for finding in report["findings"] if finding["state"] == "problem"]
    assert "chmod" not in advice
    only_problem(of(stopped, environment={"TOKEN_CACHE_SEALING_KEY_RING": "/tmp"}), "Key ring", "is no regular file")


def test_a_log_that_a_crash_left_is_told_of(serve):
    server = serve()
    assert exchange(server.address, post("a", "b")).body == STORED
    server.kill()
    before = state_of(server.folder)
    report = of(server)
    assert problems(report) == [] and re.search(r"WAL of \d+ bytes", said(report, "Store"))
    assert state_of(server.folder) == before


def test_a_server_that_cannot_be_asked_is_a_problem(serve):
    server = serve()
    (server.data / "control.sock").unlink()
    only_problem(of(server), "Server", f"process {server.process.pid} uses the data folder but does not answer")


def test_a_server_that_hangs_is_a_problem(serve):
    server = serve()
    with server.paused():
        report = examine("--data-directory", str(server.data))
    only_problem(report, "Server", f"process {server.process.pid} uses the data folder .* no answer came")


def test_a_full_disk_is_a_problem(small_disk, tmp_path):
    server = Server(tmp_path / "server", data=small_disk / "data")
    try:
        report = of(server)
    finally:
        server.kill()
    only_problem(report, "Data folder", "MiB are free on the disk")


def test_few_descriptors_are_a_warning(tmp_path):
    report = examine("--data-directory", str(tmp_path / "data"), prefix=["prlimit", "--nofile=500:500"])
    assert "can have 500 files open" in said(report, "Machine", "warning")


@needs_root
def test_somebody_else_is_told_to_ask_as_the_servers_user(serve):
    server = serve()
    report = examine("--data-directory", str(server.data), prefix=AS_SOMEBODY, folder="/",
                     environment={"TOKEN_CACHE_LISTEN": f"127.0.0.1:{server.address[1]}"})
    assert problems(report) == []
    assert "this user may not access" in said(report, "Server", "warning")
    assert "by the running server or by another program" in said(report, "Listeners", "warning")


@needs_root
def test_a_unix_socket_of_somebody_else_is_not_taken_for_left_over(tmp_path):
    # Other users cannot enter pytest's folders.
    with tempfile.TemporaryDirectory() as folder, socket.socket(socket.AF_UNIX) as other:
        Path(folder).chmod(0o755)
        path = Path(folder) / "http.sock"
        other.bind(str(path))
        other.listen()
        path.chmod(0o600)
        report = examine("--data-directory", str(tmp_path / "data"), prefix=AS_SOMEBODY, folder="/",
                         environment={"TOKEN_CACHE_LISTEN": f"unix:{path}"})
    assert problems(report) == []
    assert f"this user may not connect to unix:{path}" in said(report, "Listeners", "warning")


@needs_root
def test_a_unix_socket_that_this_user_cannot_make_is_not_said_to_be_had(tmp_path):
    with tempfile.TemporaryDirectory() as folder:
        Path(folder).chmod(0o755)

        def warnings(address):
            return said(examine("--data-directory", str(tmp_path / "data"), prefix=AS_SOMEBODY, folder="/",
                                environment={"TOKEN_CACHE_LISTEN": address}), "Listeners", "warning")

        address = f"unix:{folder}/http.sock"
        assert f"this user may not create {address} in {folder}" in warnings(address)
        os.chown(folder, 65534, 65534)
        assert warnings(address) == ""
        assert f"this user may not give {address} to root" in warnings(f"{address}?owner=root")


def test_an_owner_of_a_unix_socket_has_to_exist(tmp_path):
    report = examine("--data-directory", str(tmp_path / "data"),
                     environment={"TOKEN_CACHE_LISTEN": f"unix:{tmp_path}/http.sock?owner=root:nobody-of-that-name"})
    only_problem(report, "Listeners", "there is no user or group nobody-of-that-name")


@needs_root
def test_low_ports_need_a_right_that_the_unit_does_not_give(tmp_path):
    # If all users may use low ports, there is no finding.
    if int(Path("/proc/sys/net/ipv4/ip_unprivileged_port_start").read_text()) <= 7:
        pytest.skip("here everybody may have low ports")
    report = examine("--data-directory", str(tmp_path / "data"), prefix=AS_SOMEBODY, folder="/",
                     environment={"TOKEN_CACHE_LISTEN": "127.0.0.1:7"})
    (advice,) = [finding["advice"] for finding in report["findings"] if "listen on 127.0.0.1:7" in finding["text"]]
    assert "use the socket unit" in advice and "unit gives" not in advice


@needs_root
def test_a_folder_behind_a_closed_one_is_not_said_to_be_missing():
    with tempfile.TemporaryDirectory() as folder:
        data = Path(folder) / "private" / "token-cache"
        data.mkdir(parents=True)
        data.parent.chmod(0o700)
        Path(folder).chmod(0o755)
        report = examine("--data-directory", str(data), prefix=AS_SOMEBODY, folder="/")
    assert said(report, "Data folder", "warning") == f"this user may not access {data}"


def test_a_file_for_an_access_log_that_is_off_is_a_warning(tmp_path):
    def warnings(kind):
        environment = {"TOKEN_CACHE_ACCESS_LOG_FILE": str(tmp_path / "access.log"), "TOKEN_CACHE_ACCESS_LOG": kind}
        return said(examine("--data-directory", str(tmp_path / "data"), environment=environment), "Settings", "warning")

    assert "access_log is off: nothing is written there" in warnings("off")
    assert warnings("combined") == ""


@pytest.mark.parametrize("name", ("doctor", "check-config"))
def test_a_pipe_for_the_access_log_does_not_end_for_its_reader(tmp_path, name):
    pipe = tmp_path / "access.pipe"
    os.mkfifo(pipe)
    file = tmp_path / "token-cache.yaml"
    file.write_text(json.dumps({"access_log": "combined", "access_log_file": str(pipe), "data_directory": str(tmp_path / "data")}))
    reader = os.open(pipe, os.O_RDONLY | os.O_NONBLOCK)
    try:
        done = run(name, "--config", str(file), environment=NOWHERE)
        assert done.returncode == 0, done
        # The kernel tells of a hang-up as soon as the last writer has gone, and of none before the first has come.
        poll = select.poll()
        poll.register(reader, select.POLLIN)
        assert poll.poll(0) == []
    finally:
        os.close(reader)


@pytest.mark.parametrize("mode, state", [(os.O_RDWR, "ok"), (None, "warning")])
def test_a_pipe_for_the_access_log_that_nothing_reads_is_told_of(tmp_path, mode, state):
    pipe = tmp_path / "access.pipe"
    os.mkfifo(pipe)
    # Named through a link, unlike in the reader's list of open files.
    (tmp_path / "linked").symlink_to(tmp_path)
    settings = {"TOKEN_CACHE_ACCESS_LOG_FILE": str(tmp_path / "linked" / pipe.name), "TOKEN_CACHE_ACCESS_LOG": "json",
                "TOKEN_CACHE_DATA_DIRECTORY": str(tmp_path / "data")}
    reader = None if mode is None else os.open(pipe, mode)
    try:
        if os.geteuid() == 0:
            text = said(examine(environment=settings), "Access log", state)
            assert f"process {os.getpid()} reads it" in text if state == "ok" else "no process is seen to read" in text
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


# The server's user

def unit_folder(folder, settings, *lines):
    """A folder of units with one that starts a server with these settings."""
    units = folder / "units"
    units.mkdir()
    (units / "token-cache.service").write_text(
        f"[Service]\nExecStart=/usr/bin/token-cache serve \\\n  --config {settings}\n" + "".join(line + "\n" for line in lines))
    return {"SYSTEMD_UNIT_PATH": str(units)}


def with_settings(folder, data):
    file = folder / "token-cache.yaml"
    file.write_text(json.dumps({"data_directory": str(data), "listen": "127.0.0.1:0", "admin": {"listen": "off"}}))
    return file


@needs_root
@pytest.mark.parametrize("lines, by_drop_in", [(["User=nobody"], ""), (["User=root"], "[Service]\nUser=nobody\n")])
def test_the_user_of_the_unit_decides(public_folder, lines, by_drop_in):
    data = public_folder / "data"
    data.mkdir(mode=0o700)
    file = with_settings(public_folder, data)
    units = unit_folder(public_folder, file, *lines)
    if by_drop_in:
        (public_folder / "units" / "token-cache.service.d").mkdir()
        (public_folder / "units" / "token-cache.service.d" / "user.conf").write_text(by_drop_in)
    report = examine("--config", str(file), environment=units)
    assert "rights of nobody, the user of" in said(report, "User")
    only_problem(report, "Data folder", f"^the server's user nobody may not access {data}$")
    (advice,) = [finding["advice"] for finding in report["findings"] if finding["state"] == "problem"]
    subprocess.run(advice.split(), check=True)
    assert problems(examine("--config", str(file), environment=units)) == []
    # A unit for another data folder says nothing about this one.
    other = examine("--data-directory", str(public_folder), environment=units)
    assert "rights of root, the owner of" in said(other, "User")


@pytest.mark.parametrize("lines, setting, path, reason", [
    (["ProtectHome=yes"], "admin.keys_file", "/home/anna/keys", "read /home/anna/keys (ProtectHome=yes)"),
    (["ProtectSystem=strict"], "audit.file", "/srv/audit.ndjson", "write /srv/audit.ndjson (ProtectSystem=strict)"),
    (["ProtectSystem=strict", "ReadWritePaths=/srv"], "audit.file", "/srv/audit.ndjson", None),
    (["ProtectSystem=strict", "ReadWritePaths=/srv", "ReadOnlyPaths=-/srv/logs"], "audit.file", "/srv/logs/a",
     "write /srv/logs/a (ReadOnlyPaths=-/srv/logs)"),
    (["ProtectSystem=strict", "LogsDirectory=token-cache"], "audit.file", "/var/log/token-cache/audit.ndjson", None),
    (["ProtectSystem=full"], "admin.keys_file", "/etc/token-cache/admin-keys", None),
    (["PrivateTmp=yes"], "admin.keys_file", "/tmp/keys", "read /tmp/keys (PrivateTmp=yes)"),
    (["ProtectSystem=strict"], "audit.file", "/home/anna/audit.ndjson", None),
    (["DynamicUser=yes", "ProtectHome=no"], "audit.file", "/home/anna/audit.ndjson", "write /home/anna/audit.ndjson (DynamicUser=yes)"),
    # Nothing gives access below an inaccessible path.
    (["ProtectHome=yes", "ReadWritePaths=/home/anna"], "audit.file", "/home/anna/audit", "write /home/anna/audit (ProtectHome=yes)"),
    (["InaccessiblePaths=-/srv", "BindPaths=/x:/srv/keys"], "admin.keys_file", "/srv/keys/admin",
     "read /srv/keys/admin (InaccessiblePaths=-/srv)"),
    (["ProtectHome=tmpfs"], "admin.keys_file", "/home/anna/keys", "read /home/anna/keys (ProtectHome=tmpfs)"),
    (["ProtectHome=tmpfs", "BindPaths=/home/anna"], "audit.file", "/home/anna/audit", None),
    (["TemporaryFileSystem=/srv", "BindPaths=/x:/srv/keys"], "admin.keys_file", "/srv/keys/admin", None),
    (["InaccessiblePaths=/srv", "RootDirectory=/chroot"], "admin.keys_file", "/srv/keys", None),
    (["ProtectSystem=strict", "ReadWritePaths=%S/audit"], "audit.file", "/var/lib/audit/log", None),
    (["DynamicUser=yes"], "audit.file", "/srv/audit.ndjson", "write /srv/audit.ndjson (DynamicUser=yes)"),
])
def test_a_path_that_the_unit_keeps_from_the_service_is_a_problem(tmp_path, lines, setting, path, reason):
    file = tmp_path / "token-cache.yaml"
    section, key = setting.split(".")
    file.write_text(json.dumps({"data_directory": "/var/lib/token-cache-test", "listen": "127.0.0.1:0",
                                "admin": {"listen": "off"}, section: {key: path, **({"listen": "off"} if section == "admin" else {})}}))
    shown = "ReadWritePaths=/var/lib/token-cache-test", f"BindReadOnlyPaths={tmp_path}"
    units = unit_folder(tmp_path, file, f"User={os.getuid()}", *shown, *lines)
    found = [one for one in examine("--config", str(file), environment=units)["findings"] if one["topic"] == "Service"]
    assert [one["state"] for one in found] == ["problem" if reason else "ok"], found
    assert not reason or f"does not let the server {reason}, which is {setting}" in found[0]["text"], found
    assert not reason or "systemctl edit" in found[0]["advice"]
    remedies = {"ProtectHome=yes": "systemctl edit: ProtectHome=no, or ProtectHome=tmpfs with BindPaths=",
                "InaccessiblePaths=-/srv": "systemctl edit: take -/srv out of InaccessiblePaths="}
    assert not reason or remedies.get(reason.partition("(")[2][:-1], "systemctl edit") in found[0]["advice"], found


def test_the_output_of_the_doctor_is_not_taken_for_that_of_the_service(tmp_path):
    file = tmp_path / "token-cache.yaml"
    file.write_text(json.dumps({"data_directory": "/var/lib/token-cache-test", "listen": "127.0.0.1:0", "admin": {"listen": "off"},
                                "access_log": "json", "access_log_file": "/dev/stdout"}))
    units = unit_folder(tmp_path, file, f"User={os.getuid()}", f"ReadOnlyPaths={tmp_path}")
    with open(tmp_path / "report", "w+", encoding="utf-8") as output:
        subprocess.run([binary(), "doctor", "--json", "--config", str(file)], env=clean_environment({**NOWHERE, **units}),
                       stdout=output, timeout=60, check=False)
        output.seek(0)
        findings = json.load(output)["findings"]
    assert [one["state"] for one in findings if one["topic"] == "Service"] == ["ok"], findings


@needs_root
def test_a_user_of_the_unit_who_does_not_exist_is_told_of(public_folder):
    file = with_settings(public_folder, public_folder / "data")
    units = unit_folder(public_folder, file, "User=nobody-of-that-name")
    done = run("doctor", "--config", str(file), environment={**NOWHERE, **units})
    assert done.returncode == 1 and "there is no user nobody-of-that-name, as which" in done.stderr
    done = run("doctor", "--config", str(file), "--user", "nor-this-one", environment={**NOWHERE, **units})
    assert done.returncode == 1 and "there is no user nor-this-one" in done.stderr
    report = examine("--config", str(file), "--user", "nobody", environment=units)
    only_problem(report, "Data folder", "the server's user nobody may not create")


@needs_root
def test_systemd_makes_and_hands_over_the_folders_of_the_unit(public_folder):
    """In a namespace of mounts of its own, with an empty /var/lib."""
    file = with_settings(public_folder, "/var/lib/token-cache-test")
    units = unit_folder(public_folder, file, "DynamicUser=yes", "User=token-cache-test", "StateDirectory=token-cache-test",
                        # The service has a /tmp of its own.
                        f"BindReadOnlyPaths={public_folder}")

    def report(preparation):
        script = f"mount -t tmpfs none /var/lib || exit 99; {preparation}; exec " + " ".join(
            [binary(), "doctor", "--json", "--config", str(file)])
        done = subprocess.run(["unshare", "-m", "sh", "-ec", script], env=clean_environment({**NOWHERE, **units}),
                              capture_output=True, text=True, timeout=60)
        if done.returncode == 99 or "unshare failed" in done.stderr:
            pytest.skip("nothing can be mounted here")
        assert done.stderr == "", done.stderr
        return json.loads(done.stdout)

    # What is not there yet is not held against it by check-config either.
    script = "mount -t tmpfs none /var/lib || exit 99; exec " + " ".join([binary(), "check-config", "--config", str(file)])
    done = subprocess.run(["unshare", "-m", "sh", "-ec", script], env=clean_environment(units), capture_output=True, text=True,
                          timeout=60, check=False)
    assert (done.returncode, done.stderr) in ((0, ""), (99, "")) or "unshare failed" in done.stderr, done
    missing = report("true")
    assert problems(missing) == [] and "systemd creates it for the service" in said(missing, "Data folder")
    private = "mkdir -m 700 /var/lib/private /var/lib/private/token-cache-test; ln -s private/token-cache-test /var/lib"
    roots = report(private)
    assert problems(roots) == []
    assert "owned by root; systemd gives it to token-cache-test" in said(roots, "Data folder", "warning")
    # Its own folder is behind one that only root may enter.
    own = private + "; chown 62000:62000 /var/lib/private/token-cache-test"
    reached = report(own)
    assert problems(reached) == [] and "the first start creates it" in said(reached, "Store")
    with_database = report(own + "; install -m 600 /dev/null /var/lib/private/token-cache-test/tokens.db")
    only_problem(with_database, "Data folder", "the server's user token-cache-test may not read and write .*/tokens.db")
    # chown has no such user while the service is stopped.
    (advice,) = advices(with_database)
    assert advice.startswith("chown --reference=/var/lib/token-cache-test/ /var/lib/token-cache-test/tokens.db"), advice


@needs_root
@pytest.mark.parametrize("command", ("doctor", "check-config"))
@pytest.mark.parametrize("missing", ("nothing", "proc"))
def test_a_chroot_in_which_nobody_else_can_look_is_told_of_calmly(public_folder, command, missing):
    """Its root folder is no mount point; that needs a namespace of mounts of its own."""
    file = with_settings(public_folder, "/var/lib/token-cache-test")
    units = unit_folder(public_folder, file, "DynamicUser=yes", "User=token-cache-test", "StateDirectory=token-cache-test",
                        f"BindReadOnlyPaths={public_folder}")
    root = public_folder / "root"
    (root / "machine").mkdir(parents=True)
    script = ("mount -t tmpfs none /var/lib || exit 99; mkdir -m 700 /var/lib/private /var/lib/private/token-cache-test;"
              " ln -s private/token-cache-test /var/lib; mount --rbind / $0/machine;"
              " for name in $(ls / | grep -v $1); do ln -s machine/$name $0; done; shift; exec chroot $0 \"$@\"")
    arguments = [binary(), command, *(["--json"] if command == "doctor" else []), "--config", str(file)]
    done = subprocess.run(["unshare", "-m", "sh", "-ec", script, root, missing, *arguments], capture_output=True, text=True, timeout=60,
                          env=clean_environment({**NOWHERE, **units}), check=False)
    if done.returncode == 99 or "unshare failed" in done.stderr:
        pytest.skip("nothing can be mounted here")
    if missing == "proc":
        assert done.returncode == 1 and done.stderr == (
            "token-cache: /proc is not mounted here, as in some chroots; mount it first: mount -t proc proc /proc\n"), done
        return
    assert done.returncode == 0, done
    reason = "as in this chroot the folders that systemd keeps for token-cache-test cannot be opened"
    if command == "doctor":
        (finding,) = [finding for finding in json.loads(done.stdout)["findings"] if finding["topic"] == "User"]
        assert finding["state"] == "ok" and reason in finding["text"] and done.stderr == "", done
    else:
        assert reason in done.stderr and "mount:" not in done.stderr and "data_directory: " in done.stdout, done


@needs_root
def test_a_file_that_is_certificate_and_key_is_reported_once(public_folder):
    pair = public_folder / "pair.pem"
    pair.write_text("not looked at")
    pair.chmod(0o600)
    file = public_folder / "token-cache.yaml"
    file.write_text(json.dumps({"data_directory": str(public_folder / "data"), "listen": "127.0.0.1:0", "admin": {"listen": "off"},
                                "tls": {"certificate": str(pair), "private_key": str(pair)}}))
    os.chown(public_folder, 65534, 65534)
    only_problem(examine("--config", str(file), "--user", "nobody"), "Certificates", f"may not read {pair}$")
    units = unit_folder(public_folder, file, "User=root", f"InaccessiblePaths={pair}")
    found = problems(examine("--config", str(file), environment=units))
    assert [text for topic, text in found if topic == "Service"] == [
        f"{units['SYSTEMD_UNIT_PATH']}/token-cache.service does not let the server read {pair} (InaccessiblePaths={pair}), which is "
        "tls.certificate and tls.private_key"]


@needs_root
def test_credentials_of_a_service_that_does_not_run_are_not_held_against_it(public_folder):
    """A unit with LoadCredential=tls.pem:..., whose file systemd makes at the start (systemd.exec(5))."""
    pair = "/run/credentials/token-cache-absent.service/tls.pem"
    file = public_folder / "token-cache.yaml"
    file.write_text(json.dumps({"data_directory": str(public_folder / "data"), "listen": "127.0.0.1:0", "admin": {"listen": "off"},
                                "tls": {"certificate": pair, "private_key": pair}}))
    os.chown(public_folder, 65534, 65534)
    units = unit_folder(public_folder, file, "User=nobody", "LoadCredential=tls.pem:/etc/ssl/private/tokens.pem")
    done = run("check-config", "--config", str(file), environment={**NOWHERE, **units})
    assert done.returncode == 0 and "data_directory: " in done.stdout, done
    assert done.stderr == f"token-cache: {pair} is a credential, which is there only while the service runs; it was not checked\n"
    ring = pair.replace("tls.pem", "token-cache.keys")
    done = run("check-config", "--config", str(file), environment={**NOWHERE, **units, "TOKEN_CACHE_SEALING_KEY_RING": ring})
    assert done.returncode == 0 and [line.split()[1] for line in done.stderr.splitlines()] == [pair, ring], done
    report = examine("--config", str(file), environment=units)
    assert problems(report) == [] and f"{pair} is a credential" in said(report, "Certificates", "warning")
    # Nobody makes that file for a service without credentials.
    (public_folder / "units" / "token-cache.service").unlink()
    (public_folder / "units").rmdir()
    units = unit_folder(public_folder, file, "User=nobody")
    done = run("check-config", "--config", str(file), environment={**NOWHERE, **units})
    assert done.returncode == 1 and pair in done.stderr and "No such file" in done.stderr, done


@needs_root
def test_a_port_that_systemd_opens_for_the_service_needs_no_right(public_folder):
    if int(Path("/proc/sys/net/ipv4/ip_unprivileged_port_start").read_text()) <= 7:
        pytest.skip("here everybody may have low ports")
    data = public_folder / "data"
    file = with_settings(public_folder, data)
    os.chown(public_folder, 65534, 65534)
    units = unit_folder(public_folder, file, "User=nobody")
    low = {**units, "TOKEN_CACHE_LISTEN": "127.0.0.1:7"}
    only_problem(examine("--config", str(file), environment=low), "Listeners", "nobody may not listen on 127.0.0.1:7")
    (public_folder / "units" / "token-cache.socket").write_text("[Socket]\nListenStream=127.0.0.1:7\n")
    (public_folder / "units" / "sockets.target.wants").mkdir()
    (public_folder / "units" / "sockets.target.wants" / "token-cache.socket").symlink_to("../token-cache.socket")
    report = examine("--config", str(file), environment=low)
    assert problems(report) == [] and "systemd listens on port 7 for" in said(report, "Listeners")
    unit = public_folder / "units" / "token-cache.service"
    shutil.rmtree(public_folder / "units" / "sockets.target.wants")
    unit.write_text(unit.read_text() + "AmbientCapabilities=CAP_NET_BIND_SERVICE\n")
    report = examine("--config", str(file), environment=low)
    assert problems(report) == [] and "lets the server listen on 127.0.0.1:7" in said(report, "Listeners")


@needs_root
def test_the_user_of_a_running_server_decides(public_folder):
    os.chown(public_folder, 65534, 65534)
    server = Server(public_folder / "server", prefix=AS_SOMEBODY, data=public_folder / "data")
    try:
        os.chown(server.data / "tokens.db", 0, 0)
        elsewhere = {"TOKEN_CACHE_LISTEN": f"127.0.0.1:{server.address[1]}"}
        report = of(server, environment=elsewhere)
        assert f"the user of the running server, process {server.process.pid}" in said(report, "User")
        only_problem(report, "Data folder", "may not read and write .*/tokens.db")
        assert advices(report)[0] == f"chown nobody {server.data}/tokens.db"
        # It is its own now, but that is not enough.
        os.chown(server.data / "tokens.db", 65534, 65534)
        (server.data / "tokens.db").chmod(0)
        report = of(server, environment=elsewhere)
        assert advices(report)[0] == f"chmod u+rw {server.data}/tokens.db"
    finally:
        server.kill()


@needs_root
def test_the_user_of_a_process_that_cannot_have_locked_the_folder_does_not_decide(public_folder):
    data = public_folder / "data"
    data.mkdir(mode=0o700)
    (data / "lock").touch(mode=0o600)
    for path in data, data / "lock":
        os.chown(path, 65534, 65534)
    with open(data / "lock", "r+b") as lock:
        script = f"import fcntl; fcntl.flock({lock.fileno()}, fcntl.LOCK_EX); print('locked', flush=True); input()"
        # "serve" is there as if it were a server's command line.
        stranger = subprocess.Popen([sys.executable, "-c", script, "serve"], user=1, group=1, extra_groups=[], cwd="/",
                                    pass_fds=[lock.fileno()], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    with stranger:
        assert stranger.stdout.readline() == "locked\n"
        report = examine("--data-directory", str(data))
        stranger.stdin.close()
    assert f"rights of nobody, the owner of {data}" in said(report, "User")


@needs_root
def test_root_who_may_not_look_into_the_data_folder_is_told_to_name_the_user(public_folder):
    closed = public_folder / "closed"
    (closed / "data").mkdir(parents=True)
    closed.chmod(0o700)
    os.chown(closed, 65534, 65534)
    # As on a network file system that takes root for nobody.
    report = examine("--data-directory", str(closed / "data"), folder="/",
                     prefix=["setpriv", "--bounding-set=-dac_override,-dac_read_search"])
    (finding,) = [finding for finding in report["findings"] if finding["topic"] == "User"]
    assert "a user that root may not find out" in finding["text"] and "--user" in finding["advice"]


@needs_root
def test_the_process_with_the_rights_of_the_servers_user_gets_nothing_of_roots(public_folder):
    data = public_folder / "data"
    data.mkdir(mode=0o700)
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(str(data / "control.sock"))
        listener.listen()
        listener.settimeout(30)
        for path in data, data / "control.sock":
            os.chown(path, 65534, 65534)
        secrets = {"PGPASSWORD": "canary", "AWS_SECRET_ACCESS_KEY": "canary"}
        doctor = subprocess.Popen(
            [binary(), "doctor", "--json", "--data-directory", str(data)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, cwd="/",
            env=clean_environment({**NOWHERE, **secrets, "PGHOST": "/nowhere", "LC_ALL": "C.UTF-8"}))
        try:
            # It waits for the answer of what it takes for the server.
            connection, _ = listener.accept()
            with connection:
                credentials = connection.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, struct.calcsize("3i"))
                process, user, _ = struct.unpack("3i", credentials)
                variables = Path(f"/proc/{process}/environ").read_text().split("\0")
                assert user == 65534 and process != doctor.pid
                assert os.getsid(process) == process and os.readlink(f"/proc/{process}/fd/0") == "/dev/null"
            listener.close()
            assert json.loads(doctor.communicate(timeout=60)[0])["findings"]
        finally:
            doctor.kill()
            doctor.wait()
    names = {variable.split("=")[0] for variable in variables}
    assert {"PATH", "LC_ALL", "PGHOST", "TOKEN_CACHE_LISTEN"} <= names
    assert not names & {*secrets, "HOME"}


def test_what_needs_no_action_is_for_those_who_ask(tmp_path):
    def printed(*flags):
        return run("doctor", "--data-directory", str(tmp_path / "data"), *flags, environment=NOWHERE).stdout

    details = [finding["detail"] for finding in examine("--data-directory", str(tmp_path / "data"))["findings"] if "detail" in finding]
    assert all(detail not in printed() and detail in printed("--verbose") for detail in details)
    assert printed().endswith("\n0 problems, 0 warnings\n")


# The command

def test_the_text_has_a_line_a_finding_and_what_to_do(stopped):
    stopped.data.chmod(0o755)
    done = run("doctor", "--config", str(stopped.folder / "token-cache.yaml"), environment=NOWHERE)
    assert done.returncode == 1 and done.stdout.endswith("warnings\n") and "\n1 problem, " in done.stdout
    assert f"  problem  others may enter {stopped.data} (mode 0755)\n           -> chmod 700" in done.stdout
    assert "\x1b" not in done.stdout


def test_wrong_usage_has_a_status_of_its_own():
    assert run("doctor", "--nothing").returncode == 64


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


# Keys of JWTs

def test_the_keys_of_jwts_are_read(tmp_path):
    issuer = Issuer()
    path = issuer.publish(tmp_path / "jwks.json")
    file = tmp_path / "token-cache.yaml"
    file.write_text(f"data_directory: {tmp_path / 'data'}\naccess:\n  mode: bearer\n  bearer:\n    issuer: {issuer.url}\n"
                    f"    audience: token-cache\n    keys_file: {path}\n")

    def examined(*keys):
        if keys:
            Path(path).write_text(json.dumps({"keys": keys}), encoding="utf-8")
        return examine("--config", str(file))

    assert said(examined(), "JWT keys") == f"{path} has 1 key"
    weak, key = Key("RS256", "weak", bits=1024).jwk(), issuer.keys[0].jwk()
    report = examined(key, weak, Key("ES384", "other").jwk(use="enc"))
    assert "1024 bits" in said(report, "JWT keys", "warning") and "use is not sig" in said(report, "JWT keys")
    assert problems(report) == []
    only_problem(examined(weak), "JWT keys", "no usable key")
    only_problem(examined(issuer.keys[0].jwk(d="AA")), "JWT keys", "private part of key 1")
    examined(key)
    Path(path).chmod(0o666)
    only_problem(examined(), "JWT keys", "others may write")
    Path(path).unlink()
    only_problem(examined(), "JWT keys", "cannot be read")
