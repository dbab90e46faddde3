"""The systemd units are valid and strict, and let the server do what it needs to."""
import configparser
import json
import os
import shutil
import socket
import subprocess
import sys
from pathlib import Path

import pytest

from certificates import make_certificate
from contract import STORED, found
from http_client import exchange, get, post
from server_process import binary, run, until
from service_manager import Messages, Service
from store_files import printed

DEPLOY = Path(__file__).parents[2] / "deploy"
UNITS = DEPLOY / "systemd"
LAUNCHER = Path(__file__).parent / "seccomp_launcher.py"

pytestmark = pytest.mark.skipif(not shutil.which("systemd-analyze"), reason="there is no systemd-analyze")


class Unit(configparser.RawConfigParser):
    """A unit file; a repeated key has all its values, one per line."""

    class Values(dict):
        def __setitem__(self, key, value):
            if key in self and isinstance(value, list):
                self[key].extend(value)
            else:
                super().__setitem__(key, value)

    def __init__(self, path):
        super().__init__(dict_type=self.Values, strict=False, delimiters="=", comment_prefixes="#")
        self.optionxform = str
        self.read(path)


@pytest.fixture(name="service")
def service_unit():
    return Unit(UNITS / "token-cache.service")["Service"]


def test_the_units_are_right(tmp_path):
    for unit in UNITS.glob("token-cache*"):
        text = unit.read_text().replace("/usr/bin/token-cache", binary())
        (tmp_path / unit.name).write_text(text)
    done = subprocess.run(
        ["systemd-analyze", "verify", "--man=no", *map(str, tmp_path.iterdir())],
        capture_output=True, text=True, timeout=30, check=False)
    complaints = [line for line in done.stderr.splitlines() if "token-cache" in line]
    assert (done.returncode, complaints) == (0, []), done.stderr


def test_an_enabled_socket_starts_with_the_machine_and_with_the_service(tmp_path):
    """The documents stop both, and start the service."""
    units = tmp_path / "etc/systemd/system"
    shutil.copytree(UNITS, units)
    subprocess.run(["systemctl", f"--root={tmp_path}", "enable", "token-cache.socket"], capture_output=True, timeout=30, check=True)
    assert {link.parent.name for link in units.glob("*.wants/*")} == {"sockets.target.wants", "token-cache.service.wants"}


@pytest.mark.parametrize("unit", ("token-cache.service", "token-cache-backup.service", "token-cache-doctor.service"))
def test_the_service_is_exposed_little(unit):
    done = subprocess.run(
        ["systemd-analyze", "security", "--offline=true", "--no-pager", "--threshold=20",
         str(UNITS / unit)], capture_output=True, text=True, timeout=30, check=False)
    assert done.returncode == 0, done.stdout


@pytest.mark.parametrize("after", ("", 'cp "$BACKUP_FILE" "$COPIES"'), ids=("alone", "with a command"))
def test_the_command_of_the_backup_works_as_systemd_runs_it(serve, tmp_path, after):
    server = serve()
    assert server.post("me", "x") == STORED
    backup = Unit(UNITS / "token-cache-backup.service")["Service"]
    variables = dict(value.split("=", 1) for value in backup["Environment"].splitlines())
    variables["BACKUP_AFTER"] = after
    # systemd replaces ${NAME} by the value as one argument, whatever is in it (systemd.service(5), "Command lines").
    command = [variables[word[2:-1]] if word.startswith("${") else word for word in backup["ExecStart"].split()]
    command[command.index("--config") + 1] = str(server.folder / "token-cache.yaml")
    folder, copies = tmp_path / "backups", tmp_path / "copies"
    folder.mkdir()
    copies.mkdir()
    command[command.index("--into") + 1] = str(folder)
    done = run(*command[1:], environment={"COPIES": str(copies)})
    assert (done.returncode, done.stderr) == (0, "")
    names = sorted(os.listdir(folder))
    assert len(names) == 1 and sorted(os.listdir(copies)) == (names if after else [])


def groups():
    """systemd's groups of system calls, each with its members."""
    text = subprocess.run(
        ["systemd-analyze", "syscall-filter", "--no-pager"], capture_output=True, text=True, check=True).stdout
    result = {}
    for line in text.splitlines():
        if line.startswith("@"):
            result[line.strip()] = members = []
        elif line.startswith("    ") and not line.strip().startswith("#"):
            members.append(line.strip())
    return result


def calls(names, known):
    """The system calls for names of calls and groups."""
    return {call for name in names for call in (calls(known[name], known) if name in known else [name])}


def system_call_filter(service):
    """The system calls that the unit allows."""
    known, allowed = groups(), set()
    for line in service["SystemCallFilter"].splitlines():
        names = calls(line.lstrip("~").split(), known)
        allowed = allowed - names if line.startswith("~") else allowed | names
    # Every filter includes @default (systemd.exec(5), SystemCallFilter=).
    return allowed | calls(["@default"], known)


# Calls that are made but need not succeed: the runtime's for thread priorities and, for root, SQLite's for owners.
REFUSED = ["setpriority", "chown", "fchown"]


def sandbox(service, folder, without=()):
    """The command prefix that runs the server under the unit's filter."""
    pytest.importorskip("seccomp", reason="there is no python3-seccomp")
    allowed = system_call_filter(service) - set(without)
    assert service["SystemCallErrorNumber"] == "EPERM" and not allowed & set(REFUSED)
    file = folder / "calls"
    file.write_text(json.dumps({"allowed": sorted(allowed), "refused": REFUSED}))
    return (sys.executable, str(LAUNCHER), str(file))


def test_under_the_system_call_filter_everything_works(service, tmp_path):
    certificate, key = make_certificate(tmp_path)
    settings = tmp_path / "settings.yaml"
    settings.write_text(json.dumps({
        "listen": ["127.0.0.1:0", "https://127.0.0.1:0", "localhost:0", f"unix:{tmp_path}/http.sock"],
        "tls": {"certificate": certificate, "private_key": key}, "access_log": "json",
        "retention": {"after_written": "1h"},
    }))
    with socket.create_server(("127.0.0.1", 0)) as listener, Messages(f"@token-cache-units-{os.getpid()}") as messages:
        variables = {"NOTIFY_SOCKET": messages.address, "WATCHDOG_USEC": "200000", "WATCHDOG_PID": "SERVER"}
        with Service(
            tmp_path / "service", "--config", str(settings), sockets=[listener], variables=variables,
            prefix=sandbox(service, tmp_path),
        ) as server:
            server.wait_until_serving()
            address = listener.getsockname()
            assert exchange(address, post("me", "x")).body == STORED
            assert exchange(address, get("me")).body == found("x")
            for command in ["stats"], ["verify"], ["backup", str(tmp_path / "backup.db")], ["keyring", "rotate"]:
                printed(server.folder / "data", *command)
            start = len(messages.all())
            server.process.send_signal(1)
            messages.wait("RELOADING", start=start)
            until(lambda: "certificates reloaded" in server.log())
            assert exchange(address, get("me")).body == found("x")
            until(lambda: len(messages.signs()) > 2)
            assert server.stop() == 0, server.log()


def test_a_call_that_the_filter_lacks_ends_the_server(service, tmp_path):
    prefix = sandbox(service, tmp_path, without=["epoll_create1"])
    with Service(tmp_path / "service", "--listen", "127.0.0.1:0", prefix=prefix) as server:
        assert server.process.wait(30) == -31, "SIGSYS: the filter is in force"


def test_logrotate_has_the_server_open_its_log_anew(serve, tmp_path):
    """As without systemd, where the command asks the server."""
    if not shutil.which("logrotate", path="/usr/sbin:/usr/bin"):
        pytest.skip("there is no logrotate")
    rules = (DEPLOY / "logrotate" / "token-cache").read_text()
    assert "/var/log/token-cache/*.log" in rules and "--signal=HUP" in rules and "token-cache.service" in rules
    logs = tmp_path / "logs"
    logs.mkdir()
    server = serve({"access_log": f"json {logs}/access.log"})
    for written, here in (("/var/log/token-cache", str(logs)), ("su root root", ""), ("[ -d /run/systemd/system ]", "false"),
                          ("token-cache reload --config /etc/token-cache", f"{binary()} reload --config {server.folder}")):
        assert written in rules
        rules = rules.replace(written, here)
    file = tmp_path / "rules"
    file.write_text(rules)
    file.chmod(0o644)
    for names in ({"access.log", "access.log.1"}, {"access.log", "access.log.1", "access.log.2.gz"}):
        server.get("a")
        until(lambda: (logs / "access.log").exists() and (logs / "access.log").read_text())
        done = subprocess.run(
            ["/usr/sbin/logrotate", "--force", "--state", str(tmp_path / "state"), str(file)],
            capture_output=True, text=True, timeout=30, check=False)
        assert (done.returncode, done.stderr) == (0, ""), done
        assert {path.name for path in logs.iterdir()} == names
