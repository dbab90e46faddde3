"""The commands agree on starts with settings, certificates and limits that no server accepts, and on those that are fine."""
import os
import shutil
from pathlib import Path

import pytest

from certificates import certificate_until, make_certificate
from start_cases import Cases, check, needs_root

CASES = Cases()
case, simple = CASES.case, CASES.simple


def written(name, text, message):
    def arrange(world):
        world.text = text
    case(name, "scd", message)(arrange)


written("broken YAML", "listen: [\n", "not valid YAML")
written("a tab", "limits:\n\tbody: 1MiB\n", "tab")
written("an unknown setting", "lisen: 127.0.0.1:0\n", "no setting lisen")
written("a value that is not allowed", "loops: many\n", 'loops is "many"')
simple("settings that contradict each other", "scd", "limits.head is", limits={"head": "4KiB"})


@case("no settings file", "scd", "there is no such file")
def _(world):
    world.file = world.folder / "none.yaml"
    world.text = ""


@case("settings of another user", "scd", "permission denied", needs_root)
def _(world):
    world.command("serve")
    world.file.chmod(0o600)
    os.chown(world.file, 0, 0)


# Certificates

def with_tls(world):
    pair = make_certificate(world.folder)
    world.give(*pair)
    world.set(listen=["https://127.0.0.1:0"], tls={"certificate": pair[0], "private_key": pair[1]})
    return pair


@case("certificate and key", "", "")
def _(world):
    with_tls(world)


@case("no certificate", "scd", "certificate.pem cannot be read")
def _(world):
    os.unlink(with_tls(world)[0])


@case("no private key", "scd", "private-key.pem cannot be read")
def _(world):
    os.unlink(with_tls(world)[1])


@case("a private key of another user's", "scd", "private-key.pem", needs_root)
def _(world):
    os.chown(with_tls(world)[1], 0, 0)


@case("a private key behind a closed folder", "scd", "closed/key.pem", needs_root)
def _(world):
    certificate, key = with_tls(world)
    closed = world.folder / "closed"
    closed.mkdir(mode=0o700)
    shutil.move(key, closed / "key.pem")
    world.set(tls={"certificate": certificate, "private_key": str(closed / "key.pem")})


@case("a key of another certificate", "scd", "does not belong to the certificate")
def _(world):
    certificate, _ = with_tls(world)
    _, other = certificate_until(world.folder, "20240101000000Z", "20900101000000Z")
    world.give(other)
    world.set(tls={"certificate": certificate, "private_key": str(other)})


@case("a certificate that is none", "scd", "holds no usable certificate")
def _(world):
    Path(with_tls(world)[0]).write_text("none")


@case("a certificate that has expired", "d", "has expired on 2025-01-01")
def _(world):
    pair = [str(path) for path in certificate_until(world.folder, "20240101000000Z", "20250101000000Z")]
    os.chmod(pair[1], 0o600)
    world.give(*pair)
    world.set(listen=["https://127.0.0.1:0"], tls={"certificate": pair[0], "private_key": pair[1]})


@case("no authorities of clients", "scd", "none.pem cannot be read")
def _(world):
    with_tls(world)
    world.settings["tls"]["client_ca"] = str(world.folder / "none.pem")


# Descriptors

@case("too few descriptors to start", "sd", "files open|limit of open files with ulimit")
def _(world):
    world.prefix = ["prlimit", "--nofile=16:16"]


@case("few descriptors, but enough to start", "", "")
def _(world):
    world.set(loops=2)
    world.prefix = ["prlimit", "--nofile=40:40"]


@pytest.mark.parametrize("arrange, refusing, text", CASES.parameters)
def test_the_commands_agree(arrange, refusing, text):
    check(arrange, refusing, text)
