"""Settings come from flags, the environment, the file and the defaults, in this order; mistakes are reported with their place."""
import json
import os
import re

import pytest

from contract import INVALID_INPUT, STORED, check_http_error, found, fresh_id
from http_client import exchange, get, lines, post
from server_process import run


def settings(*flags, environment=None, file=None):
    """The settings in effect, as check-config prints them; they name files that need not exist."""
    arguments = ["--config", str(file)] if file else []
    done = run("check-config", "--syntax-only", *arguments, *flags, environment=environment)
    assert (done.returncode, done.stderr) == (0, ""), done
    return dict(line.split(": ", 1) for line in done.stdout.splitlines())


def mistake(command, *flags, environment=None, file=None):
    """The error message about settings that are not allowed."""
    arguments = ["--config", str(file)] if file else []
    done = run(command, *arguments, *flags, environment=environment)
    assert (done.returncode, done.stdout) == (1, ""), done
    assert done.stderr.startswith("token-cache: ")
    return done.stderr


@pytest.fixture
def configuration(tmp_path):
    """Writes a configuration file."""

    def write(text):
        file = tmp_path / "settings.yaml"
        file.write_bytes(text if isinstance(text, bytes) else text.encode())
        return file

    return write


def test_what_check_config_prints_is_a_configuration_file(configuration):
    flags = ["--listen", "127.0.0.1:81", "--listen", "[::1]:82", "--data-directory", "/tmp/a b"]
    printed = run("check-config", *flags).stdout
    assert run("check-config", "--config", str(configuration(printed))).stdout == printed


def test_serve_does_not_start_with_a_mistake(configuration, tmp_path):
    file = configuration("loops: many")
    data = tmp_path / "data"
    message = mistake("serve", "--listen", "127.0.0.1:0", "--data-directory", str(data), file=file)
    assert 'loops is "many"' in message
    assert not data.exists()


@pytest.mark.parametrize("name, reason", [
    ("none.yaml", "there is no such file"), (".", "it is a folder"), ("pipe", "it is no regular file"),
], ids=["missing", "folder", "pipe"])
def test_a_file_that_cannot_be_read_is_named(tmp_path, name, reason):
    file = tmp_path / name
    os.mkfifo(tmp_path / "pipe")
    message = mistake("serve", file=file)
    assert f"{file} cannot be read: {reason}" in message


# The environment


def test_flags_come_before_the_environment_and_that_before_the_file(configuration):
    file = configuration("log_level: debug\ndata_directory: /file\nlisten: 127.0.0.1:81\nloops: 5")
    environment = {"TOKEN_CACHE_DATA_DIRECTORY": "/environment", "TOKEN_CACHE_LISTEN": "127.0.0.1:82"}
    found = settings("--listen", "127.0.0.1:83", environment=environment, file=file)
    assert found["listen"] == "[127.0.0.1:83]"
    assert found["data_directory"] == "/environment"
    assert (found["log_level"], found["loops"]) == ("debug", "5")
    assert found["limits.body"] == "1 MiB"


# Effects of settings on a running server

def test_other_paths_may_be_served(serve):
    server = serve({"paths": ["/a/b", "/c"]})
    for path in ("/a/b", "/c"):
        assert exchange(server.address, post(fresh_id(), "abc", path=path)).body == STORED
    for path in ("/token", "/token.php", "/a"):
        check_http_error(exchange(server.address, get("a", path=path)), 404)


def test_json_bodies_are_read_when_that_is_set(serve, plain):
    server, unique_id = serve({"json_bodies": "on"}), fresh_id()
    body = json.dumps({"unique_id": unique_id, "token_info": {"a": "ä"}}).encode()
    request = lines("POST /token HTTP/1.1", "Host: localhost", "Content-Type: application/json; charset=utf-8",
                    f"Content-Length: {len(body)}", body=body)
    assert exchange(server.address, request).body == STORED
    assert exchange(server.address, get(unique_id)).body == found('{"a": "\\u00e4"}')
    assert exchange(plain.address, request).body == INVALID_INPUT


@pytest.mark.parametrize("loops", ["auto", 1, 3])
def test_any_number_of_loops_serves(serve, loops):
    server = serve({"loops": loops})
    for _ in range(5):
        assert exchange(server.address, post(fresh_id(), "abc")).body == STORED
    assert re.search(r", ([0-9]+) loops?$", server.log(), re.MULTILINE)
    assert loops == "auto" or re.search(rf", {loops} loops?$", server.log(), re.MULTILINE)


def test_a_flag_wins_in_a_running_server(serve):
    server = serve({"listen": "127.0.0.1:1", "log_level": "error"}, "--listen", "127.0.0.1:0", "--log-level", "info",
                   environment={"TOKEN_CACHE_LISTEN": "127.0.0.1:2"})
    assert exchange(server.address, post(fresh_id(), "abc")).body == STORED


def test_all_mistakes_are_told_of_at_once(configuration):
    file = configuration("lisen: a\nloops: many\nlimits:\n  body: {}\n  bdy: 1\naccess_log: loud")
    expected = [f"{file}, line 1: there is no setting lisen", f"{file}, line 4: limits.body is an empty section",
                f"{file}, line 5: there is no setting limits.bdy", "environment: there is no setting TOKEN_CACHE_LOP",
                f'{file}, line 2: loops is "many"', f'{file}, line 6: access_log is "loud"']
    environment = {"TOKEN_CACHE_LOP": "1"}
    for command in ("check-config", "serve"):
        done = run(command, "--config", str(file), environment=environment)
        assert done.returncode == 1 and done.stdout == ""
        lines = done.stderr.splitlines()
        assert len(lines) == len(expected) and all(
            line.startswith(f"token-cache: {start}") for line, start in zip(lines, expected)), done.stderr
    report = json.loads(run("doctor", "--json", "--config", str(file), environment=environment).stdout)
    found = [finding["text"] for finding in report["findings"] if finding["state"] == "problem"]
    assert len(found) == len(expected) and all(text.startswith(start) for text, start in zip(found, expected)), found
