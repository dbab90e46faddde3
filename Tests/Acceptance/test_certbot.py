"""The deploy hook of certbot: a renewed certificate is served without a restart, and root follows no link of the server's user."""
import os
import re
import shutil
import ssl
import subprocess
from pathlib import Path

import pytest

from certificates import make_certificate
from server_process import NOBODY, needs_root, until

HOOK = Path(__file__).parents[2] / "deploy" / "certbot" / "token-cache-certificate"
NAME = "tokens.example.com"
HALF = "-----BEGIN CERTIFICATE-----\nMII"


@pytest.fixture(name="lineage")
def certbots_folder(tmp_path):
    folder = tmp_path / "live" / NAME
    folder.mkdir(parents=True)
    renew(folder)
    return folder


def renew(lineage):
    """Does what certbot does before it runs the hook."""
    certificate, key = make_certificate(lineage)
    os.replace(certificate, lineage / "fullchain.pem")
    os.replace(key, lineage / "privkey.pem")


def deploy(lineage, data, status=0, **variables):
    done = subprocess.run([str(HOOK)], capture_output=True, text=True, timeout=30, check=False, cwd="/", env={
        "PATH": os.environ["PATH"], "RENEWED_LINEAGE": str(lineage), "TOKEN_CACHE_DATA_DIRECTORY": str(data), **variables})
    assert done.returncode == status, done
    return done.stderr


def encrypt(key):
    """Encrypts a private key with a passphrase."""
    subprocess.run(
        ["openssl", "pkey", "-out", key, "-aes256", "-passout", "pass:secret"], input=key.read_bytes(), check=True)


def exchange_key(lineage):
    """Puts the key of another certificate in the place of the right one."""
    certificate = (lineage / "fullchain.pem").read_bytes()
    renew(lineage)
    (lineage / "fullchain.pem").write_bytes(certificate)


def served(address):
    """The certificate that the server shows, as PEM."""
    return ssl.get_server_certificate(address, timeout=20).strip()


def test_a_renewed_certificate_is_served_without_a_restart(serve, lineage, tmp_path):
    data = tmp_path / "data"
    data.mkdir(mode=0o700)
    deploy(lineage, data)
    file = data / "tls" / f"{NAME}.pem"
    server = serve({"listen": "https://127.0.0.1:0", "tls": {"certificate": str(file), "private_key": str(file)}}, data=data)
    before = served(server.address)
    assert before in (lineage / "fullchain.pem").read_text()
    for _ in range(2):
        renew(lineage)
        deploy(lineage, data)
        until(lambda: served(server.address) in (lineage / "fullchain.pem").read_text())
    assert os.listdir(data / "tls") == [f"{NAME}.pem"]
    assert server.process.poll() is None and "do not belong together" not in server.log()


@needs_root
def test_the_file_is_the_servers_and_nobody_elses(lineage, tmp_path):
    # As with DynamicUser=, below a folder that only root can enter.
    private = tmp_path / "private"
    private.mkdir(mode=0o700)
    data = private / "token-cache"
    data.mkdir(mode=0o700)
    os.chown(data, NOBODY, NOBODY)
    deploy(lineage, data)
    for path, mode in ((data / "tls", 0o40700), (data / "tls" / f"{NAME}.pem", 0o100600)):
        status = path.stat()
        assert (status.st_mode, status.st_uid, status.st_gid) == (mode, NOBODY, NOBODY)


@needs_root
def test_the_servers_user_gets_nothing_of_roots(lineage, public_folder):
    data = public_folder / "data"
    data.mkdir(mode=0o700)
    os.chown(data, NOBODY, NOBODY)
    # In the place of a program that runs with this user's rights.
    program = public_folder / "mktemp"
    program.write_text(f'#!/bin/sh\n{{ env; cat /proc/$$/stat; }} >{data}/seen\nexec {shutil.which("mktemp")} "$@"\n')
    program.chmod(0o755)
    deploy(lineage, data, PATH=f"{public_folder}:{os.environ['PATH']}", DNS_API_TOKEN="canary")
    *variables, status = (data / "seen").read_text().splitlines()
    assert (data / "seen").stat().st_uid == NOBODY and (data / "tls" / f"{NAME}.pem").exists()
    assert "PATH" in {variable.split("=")[0] for variable in variables}
    assert not [variable for variable in variables if "canary" in variable or "RENEWED_LINEAGE" in variable]
    # As in `4711 (mktemp) R 4710 4710 4710 0 …`: the session is another one than ours.
    assert int(status.rpartition(")")[2].split()[3]) != os.getsid(0)


@needs_root
def test_root_follows_no_link_of_the_servers_user(lineage, tmp_path):
    data, others = tmp_path / "data", tmp_path / "others"
    data.mkdir(mode=0o700)
    others.mkdir(mode=0o700)
    (data / "tls").symlink_to(others)
    os.chown(data, NOBODY, NOBODY)
    assert "cannot be written" in deploy(lineage, data, status=1)
    assert os.listdir(others) == []
    # Nor one in the place of the file, which is replaced.
    (data / "tls").unlink()
    (data / "tls").mkdir()
    (others / "file").write_text("not to be lost")
    (data / "tls" / f"{NAME}.pem").symlink_to(others / "file")
    os.chown(data / "tls", NOBODY, NOBODY)
    deploy(lineage, data)
    assert (others / "file").read_text() == "not to be lost" and not (data / "tls" / f"{NAME}.pem").is_symlink()


@pytest.mark.parametrize("fault, message", [
    (lambda lineage, data: (lineage / "privkey.pem").unlink(), "there is no .*/privkey.pem"),
    (lambda lineage, data: (lineage / "fullchain.pem").write_text(""), "there is no .*/fullchain.pem"),
    (lambda lineage, data: shutil.rmtree(lineage), "there is no folder .*"),
    (lambda lineage, data: (lineage / "fullchain.pem").write_text(HALF), "fullchain.pem does not begin with a certificate"),
    (lambda lineage, data: (lineage / "privkey.pem").write_text(HALF), "privkey.pem has no private key that can be read"),
    (lambda lineage, data: encrypt(lineage / "privkey.pem"), "privkey.pem has no private key that can be read"),
    (lambda lineage, data: exchange_key(lineage), "privkey.pem is not the key of the certificate"),
    (lambda lineage, data: shutil.rmtree(data), "start token-cache once"),
])
@pytest.mark.skipif(not shutil.which("openssl"), reason="there is no openssl")
def test_what_is_incomplete_or_does_not_fit_replaces_nothing(lineage, tmp_path, fault, message):
    data = tmp_path / "data"
    data.mkdir()
    deploy(lineage, data)
    before = (data / "tls" / f"{NAME}.pem").read_bytes()
    fault(lineage, data)
    assert re.search(message, deploy(lineage, data, status=1))
    if data.exists():
        assert (data / "tls" / f"{NAME}.pem").read_bytes() == before and len(os.listdir(data / "tls")) == 1
