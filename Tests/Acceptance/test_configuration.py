"""Settings files and command lines: what they do to a server, and how mistakes in them are told of."""
import json
import os
import re

import pytest

from administration import status
from contract import INVALID_INPUT, STORED, check_http_error, found, fresh_id
from http_client import exchange, get, lines, post_of
from server_process import NO_ADMINISTRATION, run


@pytest.fixture
def configuration(tmp_path):
    """Writes a configuration file."""

    def write(text):
        file = tmp_path / "settings.yaml"
        file.write_text(text)
        return file

    return write


def test_what_check_config_prints_is_a_configuration_file(configuration):
    flags = ["--listen", "127.0.0.1:81", "--listen", "[::1]:82", "--data-directory", "/tmp/a b"]
    printed = run("check-config", *flags).stdout
    assert run("check-config", "--config", str(configuration(printed))).stdout == printed


# Effects of settings on a running server

def test_other_paths_may_be_served(serve):
    server = serve({"paths": ["/a/b", "/c"]})
    for path in ("/a/b", "/c"):
        assert server.post(fresh_id(), "abc", path=path) == STORED
    for path in ("/token", "/token.php", "/a"):
        check_http_error(exchange(server.address, get("a", path=path)), 404)


def test_json_bodies_are_read_when_that_is_set(serve, plain):
    server, unique_id = serve({"json_bodies": "on"}), fresh_id()
    body = json.dumps({"unique_id": unique_id, "token_info": {"a": "ä"}}).encode()
    request = post_of(body, "Content-Type: application/json; charset=utf-8")
    assert exchange(server.address, request).body == STORED
    assert server.get(unique_id) == found('{"a": "\\u00e4"}')
    assert exchange(plain.address, request).body == INVALID_INPUT


def test_all_mistakes_are_told_of_at_once(configuration):
    file = configuration("lisen: a\nlog_level: many\nlimits:\n  body: huge\n  bdy: 1\naccess_log: loud")
    expected = [f"{file}, line 1: there is no setting lisen",
                f"{file}, line 5: there is no setting limits.bdy", "environment: there is no setting TOKEN_CACHE_LOP",
                f'{file}, line 2: log_level is "many"', f'{file}, line 6: access_log is "loud"',
                f'{file}, line 4: limits.body is "huge"']
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


def test_settings_of_version_1_0_that_are_gone_start_a_server_and_are_warned_of(serve):
    """FormerSettingsTests have the whole file of 1.0.0."""
    former = {"admin": {"listen": "127.0.0.1:0", "hosts": ["tokens.example"]}, "sealing": {"enabled": "on"},
              "store": {"queue": {"max_wait": "10s"}}, "limits": {"request_line": "8 KiB"}, "timeouts": {"head": "10s"}}
    environment = {"TOKEN_CACHE_LOOPS": "2"}
    server = serve(former, environment=environment)
    names = ["admin.hosts", "sealing.enabled", "store.queue.max_wait", "limits.request_line", "timeouts.head", "TOKEN_CACHE_LOOPS"]
    file = str(server.folder / "token-cache.yaml")
    printed = run("check-config", "--config", file, environment=environment)
    assert printed.returncode == 0 and "admin.listen: [\"127.0.0.1:0?host=tokens.example\"]" in printed.stdout
    warned = [warning["text"] for warning in status(server)["warnings"]]
    for texts in (server.log().splitlines(), printed.stderr.splitlines(), warned):
        told = [text for text in texts if "is no setting any more" in text]
        assert len(told) == len(names) and all(any(f" {name} is no" in text for text in told) for name in names), told
    assert exchange(server.administration[0], lines("GET /readyz HTTP/1.1", "Host: tokens.example")).status == 200


# The command line

@pytest.fixture
def forgotten(public_folder):
    """Runs a command without --config as if the package and its settings file were installed, in a mount namespace of its own."""
    folder = public_folder / "here"
    folder.mkdir()
    if os.geteuid() != 0:
        pytest.skip("only root can mount")

    def go(*arguments):
        script = ("cp -L /etc/passwd /etc/group /etc/ld.so.cache $0; mount -t tmpfs none /etc || exit 99; cp $0/* /etc;"
                  " mkdir /etc/token-cache; touch /etc/token-cache/token-cache.yaml; exec \"$@\"")
        done = run(*arguments, prefix=["unshare", "-m", "sh", "-c", script, public_folder],
                   environment=NO_ADMINISTRATION, folder=folder)
        if done.returncode == 99 or "unshare failed" in done.stderr:
            pytest.skip("nothing can be mounted here")
        return done
    return go


def test_a_settings_file_that_was_forgotten_is_named(forgotten, public_folder):
    named = "no settings file was named; for that of the installed server, add --config /etc/token-cache/token-cache.yaml\n"
    for command in (["stats"], ["reload"], ["health"]):
        done = forgotten(*command)
        assert done.returncode == 1 and done.stderr.endswith(named), done
    report = json.loads(forgotten("doctor", "--json").stdout)["findings"]
    (warned,) = [finding for finding in report if finding["topic"] == "Settings" and finding["state"] == "warning"]
    assert f"the data folder {public_folder}/here/data of the defaults does not exist, but /etc/token-cache/" in warned["text"]
    for command in (["stats", "--data-directory", "elsewhere"], ["stats", "--config", "/etc/token-cache/token-cache.yaml"]):
        done = forgotten(*command)
        assert done.returncode == 1 and named not in done.stderr and "there is no store" in done.stderr, done


@pytest.mark.parametrize("arguments, message", [
    (["serve", "--bogus"], "--bogus.*Usage: token-cache serve"),
    (["help", "srve"], "there is no command srve; did you mean serve. token-cache --help shows all"),
    (["start"], "there is no command start; did you mean serve. token-cache --help shows all"),
    (["something-else"], "there is no command something-else; token-cache --help shows all"),
    (["access", "keys", "lst"], "no command access keys lst; did you mean access keys list. token-cache access keys --help shows all"),
    (["backup", "restore"], "there is no command backup restore; token-cache --help shows all. For a file of that name, write ./restore."),
])
def test_a_mistaken_command_line_gets_what_was_meant(tmp_path, arguments, message):
    done = run(*arguments, folder=tmp_path)
    # EX_USAGE of sysexits.h, which swift-argument-parser gives for these.
    assert (done.returncode, done.stdout) == (64, "") and re.search(message, done.stderr, re.S), done.stderr
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("arguments", [["--help"], ["help"], ["help", "serve"], ["serve", "--help"], ["keyring", "--help"], ["--version"]])
def test_what_is_asked_for_is_printed(tmp_path, arguments):
    done = run(*arguments, folder=tmp_path)
    assert (done.returncode, done.stderr) == (0, "") and re.match("OVERVIEW: .*USAGE: token-cache|[1-9]", done.stdout, re.S), done
