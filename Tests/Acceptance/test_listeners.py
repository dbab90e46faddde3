"""Unix sockets and the PROXY protocol, and which client address the server assumes."""
import contextlib
import re
import socket
import stat
import struct

import pytest

from conftest import finish
from contract import STORED, found
from http_client import Connection, exchange, get, post
from server_process import Server, until

SIGNATURE = b"\r\n\r\n\x00\r\nQUIT\n"


def proxy_line(address):
    """A PROXY protocol header, version 1."""
    family = "TCP6" if ":" in address else "TCP4"
    here = "::1" if ":" in address else "127.0.0.1"
    return f"PROXY {family} {address} {here} 4711 80\r\n".encode()


def proxy_block(address):
    """A PROXY protocol header, version 2."""
    family, kind = (socket.AF_INET6, 0x21) if ":" in address else (socket.AF_INET, 0x11)
    packed = socket.inet_pton(family, address)
    return SIGNATURE + struct.pack("!BBH", 0x21, kind, 2 * len(packed) + 4) + 2 * packed + struct.pack("!HH", 4711, 80)


def answer_to_end(connection):
    """The bytes that arrive before the server closes, even if it ends with a reset because it has not read everything."""
    try:
        return connection.receive_to_end()
    except ConnectionResetError:
        return b""


@pytest.fixture(scope="module", name="behind_proxy")
def behind_proxy_server(tmp_path_factory):
    server = Server(
        tmp_path_factory.mktemp("proxy"),
        {"listen": "127.0.0.1:0?proxy-protocol=required", "https": {"mode": "proxy"}},
    )
    yield server
    finish(server)


@pytest.mark.parametrize("start", [b"GET /token HTTP/1.1\r\nHost: a\r\n\r\n", b"PROXY TCP4 x\r\n", b"\x16\x03\x01"])
def test_a_connection_without_the_required_header_is_closed_without_an_answer(behind_proxy, start):
    with Connection(behind_proxy.address) as connection:
        connection.send(start)
        # The server may have closed already.
        with contextlib.suppress(OSError):
            connection.finish_sending()
        assert answer_to_end(connection) == b""
    assert exchange(behind_proxy.address, proxy_line("127.0.0.1") + get("nobody")).status == 200


def test_a_header_from_somebody_who_is_not_trusted_is_not_believed(serve):
    server = serve({"listen": "127.0.0.1:0?proxy-protocol=required", "trusted_proxies": ["192.0.2.1"]})
    with Connection(server.address) as connection:
        connection.send(proxy_line("127.0.0.1") + get("nobody"))
        assert answer_to_end(connection) == b""


def test_the_access_log_has_the_client_that_the_proxy_names(serve):
    server = serve({"listen": "127.0.0.1:0?proxy-protocol=required", "https": {"mode": "off"}, "access_log": "combined"})
    exchange(server.address, proxy_line("203.0.113.9") + get("nobody"))
    exchange(server.address, proxy_block("2001:db8::7") + get("nobody"))
    until(lambda: server.output().count("\n") == 2)
    assert [line.split(" ")[0] for line in server.output().splitlines()] == ["203.0.113.9", "2001:db8::7"]


def test_a_unix_socket_answers_has_its_mode_and_goes_with_the_server(serve, tmp_path):
    path = tmp_path / "http.sock"
    server = serve({"listen": ["127.0.0.1:0", f"unix:{path}?mode=0600"]})
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert exchange(path, post("me", "x")).body == STORED
    assert server.get("me") == found("x")
    assert exchange(path, get("me", "X-Forwarded-Proto: http")).status == 302
    assert server.stop() == 0
    assert not path.exists()


def test_a_socket_that_a_crash_left_behind_is_replaced(serve, tmp_path):
    path = tmp_path / "http.sock"
    server = serve({"listen": ["127.0.0.1:0", f"unix:{path}"]})
    server.kill()
    assert path.exists()
    again = serve({"listen": ["127.0.0.1:0", f"unix:{path}"]}, data=server.data)
    assert exchange(path, get("nobody")).status == 200
    assert again.stop() == 0


def test_plain_http_beyond_loopback_is_warned_of(serve):
    server = serve({"listen": ["127.0.0.1:0", "0.0.0.0:0"]})
    until(lambda: "accepts plain HTTP from other machines" in server.log())
    until(lambda: re.search(r"access.mode is open, and other machines reach http://0.0.0.0:[0-9]+: whoever knows", server.log()))
    assert "access.mode is open" not in serve({"listen": "127.0.0.1:0"}).log()
    assert "accepts plain HTTP from other machines" not in serve().log()
