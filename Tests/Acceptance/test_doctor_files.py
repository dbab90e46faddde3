"""token-cache doctor looks into the other files that settings name: certificates, API keys, keys of JWTs, the access log."""
import json
import os
import select
import subprocess
from pathlib import Path

import pytest

from certificates import certificate_until, make_certificate
from doctor import NOWHERE, advices, examine, of, only_problem, problems, said
from issuer import Issuer, Key
from server_process import binary, clean_environment, run


# Certificates

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


def test_a_folder_in_the_place_of_a_private_key_keeps_its_mode(stopped, tmp_path):
    certificate, _ = make_certificate(tmp_path)
    report = with_certificate(stopped, certificate, "/tmp")
    (advice,) = advices(report)
    assert "chmod" not in advice
    only_problem(of(stopped, environment={"TOKEN_CACHE_SEALING_KEY_RING": "/tmp"}), "Key ring", "is no regular file")


# Keys

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
    only_problem(examined(), "JWT keys", "can be changed by other users")
    Path(path).unlink()
    only_problem(examined(), "JWT keys", "cannot be read")


# The access log

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
        assert "as soon as a program reads this pipe" in said(examine(environment=settings), "Access log", "ok")
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
