"""Settings come from flags, the environment, the file and the defaults, in this order; mistakes are reported with their place."""
import json
import os
import re

import pytest

from contract import STORED, check_http_error, fresh_id
from http_client import exchange, get, post
from server_process import run

DEFAULTS = {
    "listen": "[127.0.0.1:8080]", "admin.listen": "[127.0.0.1:9090]", "admin.hosts": "[]", "data_directory": "./data", "loops": "auto", "paths": "[/token, /token.php]",
    "json_bodies": "off", "drain_timeout": "10s", "log_level": "info", "access_log": "off",
    "limits.request_line": "8 KiB", "limits.head": "16 KiB", "limits.fields": "100", "limits.body": "1 MiB",
    "limits.connections": "10000", "timeouts.head": "10s", "timeouts.body": "30s", "timeouts.idle": "75s",
}


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


def test_without_anything_the_defaults_are_in_effect():
    assert DEFAULTS.items() <= settings().items()


@pytest.mark.parametrize("text", ["", "# a comment\n", "---\n", "\n\n"], ids=["empty", "comment", "start", "lines"])
def test_a_file_without_keys_changes_nothing(configuration, text):
    assert settings(file=configuration(text)) == settings()


# Lines of a file, and the settings that they give
VALUES = {
    "plain number": ("limits:\n  fields: 50", "limits.fields", "50"),
    "quoted number": ('limits:\n  fields: "50"', "limits.fields", "50"),
    "bytes": ("limits:\n  body: 4096", "limits.body", "4 KiB"),
    "KiB": ("limits:\n  body: 64 KiB", "limits.body", "64 KiB"),
    "MiB without a blank": ("limits:\n  body: 2MiB", "limits.body", "2 MiB"),
    "seconds": ("timeouts:\n  head: 5", "timeouts.head", "5s"),
    "milliseconds": ("timeouts:\n  head: 250ms", "timeouts.head", "250ms"),
    "minutes": ("timeouts:\n  idle: 2m", "timeouts.idle", "120s"),
    "hours": ("timeouts:\n  idle: 1h", "timeouts.idle", "3600s"),
    "no time at all": ("drain_timeout: 0", "drain_timeout", "0s"),
    "one listener": ("listen: 127.0.0.1:81", "listen", "[127.0.0.1:81]"),
    "listeners": ('listen:\n  - 127.0.0.1:81\n  - "http://127.0.0.1:82"', "listen", "[127.0.0.1:81, 127.0.0.1:82]"),
    "loops": ("loops: 3", "loops", "3"),
    "paths": ("paths: [/a, /b]", "paths", "[/a, /b]"),
    "on": ("json_bodies: on", "json_bodies", "on"),
    "true": ("json_bodies: true", "json_bodies", "on"),
    "off": ("access_log: off", "access_log", "off"),
    "a format": ("access_log: combined", "access_log", "combined"),
    "a level": ("log_level: debug", "log_level", "debug"),
    "no administration": ("admin:\n  listen: off", "admin.listen", "off"),
    "an empty list for no administration": ("admin:\n  listen: []", "admin.listen", "off"),
    "one address of the administration": ("admin:\n  listen: 0.0.0.0:83", "admin.listen", "[0.0.0.0:83]"),
    "a folder with a blank": ("data_directory: /tmp/a b", "data_directory", "/tmp/a b"),
}


@pytest.mark.parametrize("text, key, value", VALUES.values(), ids=VALUES)
def test_a_value_of_the_file_is_in_effect(configuration, text, key, value):
    assert settings(file=configuration(text))[key] == value


def test_what_check_config_prints_is_a_configuration_file(configuration):
    flags = ["--listen", "127.0.0.1:81", "--listen", "[::1]:82", "--data-directory", "/tmp/a b"]
    printed = run("check-config", *flags).stdout
    assert run("check-config", "--config", str(configuration(printed))).stdout == printed


# Lines of a file, and a part of the error message; FILE is the name of the file
MISTAKES = {
    "unknown key": ("loops: 1\nlop_level: info", ["FILE, line 2", "no setting lop_level", "did you mean log_level?"]),
    "unknown key in a section": (
        "limits:\n  # more\n  bodi: 1 KiB", ["FILE, line 3", "no setting limits.bodi", "did you mean limits.body?"]),
    "unknown section": (
        "limit:\n  body: 1 KiB", ["FILE, line 2", "no setting limit.body", "did you mean limits.body?"]),
    "key like no other": (
        "entirely_different: 1", ["FILE, line 1", "no setting entirely_different", "check-config without it"]),
    "key in capitals": ("LOOPS: 1", ["FILE, line 1", "no setting LOOPS"]),
    "section below a value": ("loops:\n  number: 1", ["FILE, line 2", "no setting loops.number"]),
    "value instead of a section": ("limits: 5", ["FILE, line 1", "limits"]),
    "word instead of a number": ("\nloops: many", ["FILE, line 2", 'loops is "many"', "allowed is", "auto", "256"]),
    "fraction": ("loops: 1.5", ["FILE, line 1", 'loops is "1.5"', "allowed is"]),
    "list instead of a number": (
        "limits:\n  fields: [20, 30]", ["FILE, line 2", "limits.fields is", "20", "allowed is"]),
    "number too small": ("limits:\n  fields: 9", ["FILE, line 2", 'limits.fields is "9"', "from 10 to 10000"]),
    "number too large": ("limits:\n  fields: 10001", ["FILE, line 2", 'limits.fields is "10001"', "from 10 to 10000"]),
    "number beyond 64 bits": ("limits:\n  connections: 99999999999999999999", ["FILE, line 2", "limits.connections"]),
    "negative number": ("limits:\n  connections: -1", ["FILE, line 2", 'limits.connections is "-1"', "allowed is"]),
    "size too small": ("limits:\n  body: 1023", ["FILE, line 2", 'limits.body is "1023"', "from 1 KiB to 64 MiB"]),
    "size too large": ("limits:\n  body: 65 MiB", ["FILE, line 2", 'limits.body is "65 MiB"', "from 1 KiB to 64 MiB"]),
    "size of another unit": ("limits:\n  body: 1 MB", ["FILE, line 2", 'limits.body is "1 MB"', "KiB, MiB or GiB"]),
    "time too long": ("drain_timeout: 3601s", ["FILE, line 1", 'drain_timeout is "3601s"', "from 0s to 3600s"]),
    "time too short": ("timeouts:\n  head: 99ms", ["FILE, line 2", 'timeouts.head is "99ms"', "from 100ms"]),
    "time of another unit": ("drain_timeout: 1 week", ["FILE, line 1", 'drain_timeout is "1 week"', "such as 500ms"]),
    "negative time": ("drain_timeout: -1s", ["FILE, line 1", 'drain_timeout is "-1s"', "allowed is"]),
    "unknown level": ("log_level: verbose", ["FILE, line 1", 'log_level is "verbose"', "trace, debug, info"]),
    "unknown format": ("access_log: nice", ["FILE, line 1", 'access_log is "nice"', "off, combined, json"]),
    "neither on nor off": ("json_bodies: maybe", ["FILE, line 1", 'json_bodies is "maybe"', "on, off"]),
    "no port": ("listen: 127.0.0.1", ["FILE, line 1", 'listen is "127.0.0.1"', "127.0.0.1:8080"]),
    "no address": ('listen: ":8080"', ["FILE, line 1", 'listen is ":8080"', "127.0.0.1:8080"]),
    "port too large": ("listen: 127.0.0.1:65536", ["FILE, line 1", 'listen is "127.0.0.1:65536"', "from 0 to 65535"]),
    "IPv6 without brackets": ('listen: "::1:8080"', ["FILE, line 1", 'listen is "::1:8080"', "[::1]:8080"]),
    "unknown scheme": ("listen: gopher://127.0.0.1:80", ["FILE, line 1", "gopher://127.0.0.1:80", "127.0.0.1:8080"]),
    "one of several listeners": (
        "listen:\n  - 127.0.0.1:81\n  - nowhere", ["FILE, line 1", "nowhere", "127.0.0.1:8080"]),
    "relative Unix socket": ("listen: unix:rel.sock", ["FILE, line 1", "unix:rel.sock", "by its absolute path"]),
    "long Unix socket": (f"listen: unix:/{'a' * 107}", ["FILE, line 1", "at most 107 bytes"]),
    "no listeners": ("listen: []", ["FILE, line 1", "listen", "127.0.0.1:8080"]),
    "the same listener twice": ("listen: [127.0.0.1:81, 127.0.0.1:81]", ["127.0.0.1:81 twice"]),
    "administration over TLS": ("admin:\n  listen: https://127.0.0.1:81", ["FILE, line 2", "admin.listen is", "or off"]),
    "a host of the administration with a port": ("admin:\n  hosts: [a.example:9090]", ["FILE, line 2", "admin.hosts is", "without a port"]),
    "administration on a Unix socket": ("admin:\n  listen: unix:/a", ["FILE, line 2", "admin.listen is", "or off"]),
    "path without a slash": ("paths: [token]", ["FILE, line 1", 'paths is "token"', "begin with /"]),
    "path with a query": ("paths: [/token?a]", ["FILE, line 1", 'paths is "/token?a"', "begin with /"]),
    "empty value": ("data_directory:", ["FILE, line 1", 'data_directory is ""', "a folder"]),
    "empty number": ("loops:", ["FILE, line 1", "loops is", "allowed is"]),
    "head below the request line": (
        "limits:\n  head: 1 KiB\n  request_line: 2 KiB", ["limits.head is 1 KiB", "limits.request_line with 2 KiB"]),
    "repeated key": ("loops: 1\nloops: 2", ["FILE", "loops", "duplicate"]),
    "alias": ("log_level: debug\nloops: *a", ["FILE, line 2", "loops is an alias", "allowed is"]),
    "anchor": ("loops: &a 2", ["FILE, line 1", "loops is a value with an anchor", "allowed is"]),
    "list in a list": ("paths: [[/a]]", ["FILE, line 1", "paths is a list with a list in it", "begin with /"]),
    "second document": ("loops: 1\n---\nloops: 2", ["FILE", "line 2", "a second document begins"]),
    "deep nesting": ("loops: " + "[" * 100000, ["FILE", "line 1", "too deep"]),
    "large file": ("#" * (1 << 20) + "#", ["FILE cannot be read", "larger than 1 MiB"]),
    "no YAML": ("loops: [1", ["FILE", "not valid YAML", "line 1"]),
    "tab": ("limits:\n\tbody: 1 KiB", ["FILE", "not valid YAML", "line 2"]),
    "only a word": ("token-cache", ["FILE", "no keys"]),
    "a list": ("- loops", ["FILE", "no keys"]),
    "no UTF-8": (b"loops: \xff", ["FILE", "not UTF-8"]),
}


@pytest.mark.parametrize("text, fragments", MISTAKES.values(), ids=MISTAKES)
def test_a_mistake_in_the_file_is_named_with_its_place(configuration, text, fragments):
    file = configuration(text)
    message = mistake("check-config", file=file)
    for fragment in fragments:
        assert fragment.replace("FILE", str(file)) in message


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


@pytest.mark.parametrize("flags, fragments", [
    (["--listen", "nowhere"], ['--listen is "nowhere"', "127.0.0.1:8080"]),
    (["--log-level", "verbose"], ['--log-level is "verbose"', "trace, debug, info"]),
    (["--data-directory", ""], ['--data-directory is ""', "a folder"]),
], ids=["listen", "log-level", "data-directory"])
def test_a_mistaken_flag_is_named(flags, fragments):
    message = mistake("serve", *flags)
    assert all(fragment in message for fragment in ["command line", *fragments]), message


# The environment

def test_each_setting_has_a_variable():
    values = {
        "listen": "[127.0.0.1:81, 127.0.0.1:82]", "data_directory": "/tmp/a", "loops": "3", "paths": "[/a, /b]",
        "json_bodies": "on", "drain_timeout": "3s", "log_level": "error", "log_format": "json", "access_log": "json", "request_ids": "off",
        "access_log_file": "/access.log", "access_log_sample": "1/100", "audit.file": "/audit.ndjson", "audit.key_file": "/audit-key",
        "audit.events": "all", "audit.required": "off",
        "limits.request_line": "1 KiB", "limits.head": "2 KiB", "limits.fields": "11", "limits.body": "3 KiB",
        "limits.connections": "12", "timeouts.head": "4s", "timeouts.body": "5s", "timeouts.idle": "6s",
        "timeouts.send": "7s", "timeouts.handshake": "9s", "tls.certificate": "[/c.pem, /d.pem]",
        "tls.private_key": "[/k.pem, /l.pem]", "tls.client_ca": "/ca.pem", "limits.buffers": "3 MiB",
        "sealing.enabled": "off", "sealing.key_ring": "/keys", "store.max_tokens": "1000000",
        "store.max_bytes": "2 GiB", "store.preload": "off", "store.accept_damaged_wal": "on",
        "store.queue.max_bytes": "7 MiB", "store.queue.max_wait": "7s",
        "cache.max_bytes": "5 MiB", "retention.after_written": "90d", "retention.after_expired": "7d",
        "access.mode": "bearer", "access.session.max_age": "7d", "access.session.idle_timeout": "1d",
        "access.session.per_user": "5", "access.api.keys_file": "/api.keys", "access.bearer.issuer": "https://a.example",
        "access.bearer.audience": "[a, b]", "access.bearer.keys_file": "/jwks.json",
        "access.bearer.algorithms": "[ES256, EdDSA]", "access.bearer.types": "[JWT]",
        "access.bearer.user_claim": "uid", "access.bearer.leeway": "3s", "access.bearer.in_unique_id": "on",
        "access.header.name": "Remote-User", "access.certificate.name": "subject_cn", "access.failures": "5/s",
        "https.mode": "proxy", "https.public_host": "a.example:8443",
        "admin.listen": "[127.0.0.1:83, 127.0.0.1:84]", "admin.hosts": "[a.example, b]",
        "https.hsts_max_age": "8s", "trusted_proxies": "[10.0.0.0/8, fd00::/8, unix]",
    }
    defaults = settings()
    assert {**values, **OF_A_DATABASE}.keys() == defaults.keys(), "a new setting belongs here too"
    assert settings(environment=variables(values)) == defaults | values


# Contradicted by the settings of SQLite.
OF_A_DATABASE = {
    "store.url": '"postgresql://token_cache@db1,db2/tokens?sslmode=verify-full"', "store.connections": "3",
    "store.timeout": "8s", "store.durability": "local", "store.queue.max_requests": "13",
}


def test_each_setting_of_a_database_has_a_variable(postgres_binary):
    done = run("check-config", "--syntax-only", environment=variables(OF_A_DATABASE), program=postgres_binary)
    assert (done.returncode, done.stderr) == (0, ""), done
    assert OF_A_DATABASE.items() <= dict(line.split(": ", 1) for line in done.stdout.splitlines()).items()


@pytest.mark.parametrize("key", OF_A_DATABASE)
def test_a_mistaken_setting_of_a_database_is_named_by_any_program(key):
    message = mistake("check-config", environment=variables(OF_A_DATABASE | {key: "no-value"}))
    assert f"environment: {next(iter(variables({key: ''})))} " in message


def variables(values):
    """The environment that gives settings the values that check-config prints."""
    return {
        "TOKEN_CACHE_" + re.sub(r"\W", "_", key).upper(): value.strip('[]"').replace(", ", ",")
        for key, value in values.items()
    }


@pytest.mark.parametrize("name, value, fragments", [
    ("TOKEN_CACHE_LOOPS", "many", ['TOKEN_CACHE_LOOPS is "many"', "allowed is"]),
    ("TOKEN_CACHE_LIMITS_BODY", "1", ['TOKEN_CACHE_LIMITS_BODY is "1"', "from 1 KiB to 64 MiB"]),
    ("TOKEN_CACHE_LISTEN", "", ['TOKEN_CACHE_LISTEN is ""', "127.0.0.1:8080"]),
    ("TOKEN_CACHE_LISTEN", "127.0.0.1:81,nowhere", ["TOKEN_CACHE_LISTEN is", "nowhere"]),
    ("TOKEN_CACHE_LOOP", "1", ["no setting TOKEN_CACHE_LOOP", "did you mean TOKEN_CACHE_LOOPS?"]),
    ("TOKEN_CACHE_LIMIT_BODY", "1", ["no setting TOKEN_CACHE_LIMIT_BODY", "TOKEN_CACHE_LIMITS_BODY?"]),
    ("TOKEN_CACHE_NOTHING_LIKE_IT_AT_ALL", "1", ["no setting TOKEN_CACHE_NOTHING_LIKE_IT_AT_ALL", "check-config without it"]),
], ids=["wrong type", "out of range", "empty", "one of a list", "unknown", "unknown in a section", "like no other"])
def test_a_mistaken_variable_is_named(name, value, fragments):
    message = mistake("serve", environment={name: value})
    assert all(fragment in message for fragment in ["environment", *fragments]), message


def test_variables_that_kubernetes_sets_for_a_service_of_that_name_are_passed_over():
    environment = {
        "TOKEN_CACHE_PORT": "tcp://10.0.0.1:8080", "TOKEN_CACHE_PORT_8080_TCP": "tcp://10.0.0.1:8080",
        "TOKEN_CACHE_PORT_8080_TCP_ADDR": "10.0.0.1", "TOKEN_CACHE_PORT_8080_TCP_PORT": "8080",
        "TOKEN_CACHE_PORT_8080_TCP_PROTO": "tcp", "TOKEN_CACHE_SERVICE_HOST": "10.0.0.1",
        "TOKEN_CACHE_SERVICE_PORT": "8080", "TOKEN_CACHE_SERVICE_PORT_HTTP": "8080",
    }
    assert settings(environment=environment) == settings()


def test_a_variable_of_another_program_does_not_matter():
    assert settings(environment={"TOKEN_CACHER": "1", "LOOPS": "7", "token_cache_loops": "7"}) == settings()


def test_flags_come_before_the_environment_and_that_before_the_file(configuration):
    file = configuration("log_level: debug\ndata_directory: /file\nlisten: 127.0.0.1:81\nloops: 5")
    environment = {"TOKEN_CACHE_DATA_DIRECTORY": "/environment", "TOKEN_CACHE_LISTEN": "127.0.0.1:82"}
    found = settings("--listen", "127.0.0.1:83", environment=environment, file=file)
    assert found["listen"] == "[127.0.0.1:83]"
    assert found["data_directory"] == "/environment"
    assert (found["log_level"], found["loops"]) == ("debug", "5")
    assert found["limits.body"] == "1 MiB"


def test_a_mistake_in_the_file_is_named_although_a_flag_comes_before_it(configuration):
    message = mistake("check-config", "--data-directory", "/a", file=configuration("lops: 1"))
    assert "no setting lops" in message


# Effects of settings on a running server

def test_other_paths_may_be_served(serve):
    server = serve({"paths": ["/a/b", "/c"]})
    for path in ("/a/b", "/c"):
        assert exchange(server.address, post(fresh_id(), "abc", path=path)).body == STORED
    for path in ("/token", "/token.php", "/a"):
        check_http_error(exchange(server.address, get("a", path=path)), 404)


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


@pytest.mark.parametrize("found, advice", [
    *[(form, "a port needs an address: write 127.0.0.1:80 for this machine alone, or 0.0.0.0:80 and [::]:80 for") for form in ("80", ":80", "*:80")],
    ("https://:443", "a port needs an address: write https://127.0.0.1:443 for this machine alone"),
    ("localhost", "an address needs a port: write localhost:8080, for example"),
    ("https://tokens.example.net", "an address needs a port: write https://tokens.example.net:8443, for example"),
    ("[::1]", "an address needs a port: write [::1]:8080, for example"),
    *[(form, f"an IPv6 address is written in brackets: {listener}") for form, listener in [
        ("::1", "[::1]:8080"), ("https://2001:db8::1", "https://[2001:db8::1]:8443"), (":::80", "[::]:80"),
        ("::1:80", "[::1]:80 or [::1:80]:8080")]],
    ("127.0.0.1:65536", "a port is a number from 0 to 65535"),
    ("/run/token-cache.sock", "a Unix socket is written unix:/run/token-cache.sock"),
])
def test_an_address_of_which_a_part_is_missing_is_answered_with_that_part(found, advice):
    done = run("check-config", "--syntax-only", "--listen", found)
    assert done.returncode == 1 and done.stderr.startswith(f'token-cache: command line: --listen is "{found}"; {advice}'), done
    assert "allowed is" not in done.stderr
    done = run("check-config", "--syntax-only", environment={"TOKEN_CACHE_ADMIN_LISTEN": found})
    is_plain = not found.startswith(("https:", "/"))
    expected = advice if is_plain else "allowed is"
    assert done.returncode == 1 and f'TOKEN_CACHE_ADMIN_LISTEN is "{found}"; {expected}' in done.stderr
