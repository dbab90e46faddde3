"""token-cache doctor: its report on sound and on broken servers, and that it shows no secret and changes nothing."""
import json
import os
import pty
import re
import subprocess

import pytest

from contract import STORED
from doctor import AS_SOMEBODY, NOWHERE, advices, examine, needs_root, of, only_problem, problems, said, state_of
from http_client import exchange, post
from server_process import binary, clean_environment, run


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
    only_problem(report, "Data folder", f"the user nobody may not access {server.data}$")
    assert "run token-cache doctor as the server's user; if that is nobody, " in advices(report)[0]
    assert "nobody may not connect to control.sock" in said(report, "Server", "warning")
    assert "by the running server or by another program" in said(report, "Listeners", "warning")


def test_few_descriptors_are_a_warning(tmp_path):
    report = examine("--data-directory", str(tmp_path / "data"), prefix=["prlimit", "--nofile=500:500"])
    assert "can have 500 files open" in said(report, "Machine", "warning")


# The command

def test_the_text_has_a_line_a_finding_and_what_to_do(stopped):
    stopped.data.chmod(0o755)
    done = run("doctor", "--config", str(stopped.folder / "token-cache.yaml"), environment=NOWHERE)
    assert done.returncode == 1 and done.stdout.endswith("warnings\n") and "\n1 problem, " in done.stdout
    assert f"  problem  others may enter {stopped.data} (mode 0755)\n           -> chmod 700" in done.stdout
    assert "\x1b" not in done.stdout


def test_what_needs_no_action_is_for_those_who_ask(tmp_path):
    def printed(*flags):
        return run("doctor", "--data-directory", str(tmp_path / "data"), *flags, environment=NOWHERE).stdout

    details = [finding["detail"] for finding in examine("--data-directory", str(tmp_path / "data"))["findings"] if "detail" in finding]
    assert all(detail not in printed() and detail in printed("--verbose") for detail in details)
    assert printed().endswith("\n0 problems, 0 warnings\n")


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
