"""The commands agree on starts with addresses and Unix sockets that cannot be listened on."""
import socket
from pathlib import Path

import pytest

from start_cases import Cases, check, needs_root

CASES = Cases()
case, simple = CASES.case, CASES.simple


@case("a port in use", "sd", "is in use by another program")
def _(world):
    world.set(listen=[f"127.0.0.1:{world.taken_port()}"])


@case("a port of the administration in use", "sd", "admin.listen: .* is in use by another program")
def _(world):
    world.set(admin={"listen": f"127.0.0.1:{world.taken_port()}"})


simple("an address of another machine", "scd", "192.0.2.1:8080", listen=["192.0.2.1:8080"])
simple("an address of another machine for the administration", "scd", "admin.listen.*192.0.2.1:8080",
       admin={"listen": "192.0.2.1:8080"})
simple("a host that nobody knows", "scd", "host..invalid:8080", listen=["host..invalid:8080"])
simple("sockets that systemd does not pass", "s", "systemd has passed no sockets", listen=["systemd"])


def clashing(name, message, *listen, administration="off"):
    def arrange(world):
        port = world.free_port()
        world.set(listen=[text.format(port) for text in listen], admin={"listen": administration.format(port)})
    case(name, "scd", message)(arrange)


clashing("an address twice", "twice", "127.0.0.1:{}", "127.0.0.1:{}")
clashing("an address twice, once by name", "twice, perhaps once by name", "127.0.0.1:{}", "localhost:{}")
clashing("all addresses and one of them", "stands for", "0.0.0.0:{}", "127.0.0.1:{}")
clashing("clients' address for the administration", "listen and admin.listen both have", "127.0.0.1:{}", administration="127.0.0.1:{}")


@case("a port for which the user lacks the right", "sd", "127.0.0.1:7", needs_root)
def _(world):
    if int(Path("/proc/sys/net/ipv4/ip_unprivileged_port_start").read_text()) <= 7:
        pytest.skip("here everybody may have low ports")
    world.set(listen=["127.0.0.1:7"])


simple("a Unix socket without a folder", "scd", "the folder of unix:", listen=["unix:FOLDER/none/http.sock"])
simple("an owner of a Unix socket who does not exist", "scd", "no user or group nobody-of-that-name",
       listen=["unix:FOLDER/http.sock?owner=nobody-of-that-name"])


@case("a file in the place of a Unix socket", "scd", "is not a socket")
def _(world):
    world.write("http.sock", "")
    world.set(listen=[f"unix:{world.folder}/http.sock"])


@case("a Unix socket in use", "sd", "is in use by another program")
def _(world):
    path = world.folder / "http.sock"
    other = world.stack.enter_context(socket.socket(socket.AF_UNIX))
    other.bind(str(path))
    other.listen()
    world.give(path)
    world.set(listen=[f"unix:{path}"])


@case("a Unix socket in a folder of another user's", "scd", "http.sock", needs_root)
def _(world):
    (world.folder / "closed").mkdir(mode=0o755)
    world.set(listen=[f"unix:{world.folder}/closed/http.sock"])


@pytest.mark.parametrize("arrange, refusing, text", CASES.parameters)
def test_the_commands_agree(arrange, refusing, text):
    check(arrange, refusing, text)
