"""Unix sockets and the PROXY protocol, and which client address the server assumes."""
import contextlib
import re
import socket
import stat
import struct

import pytest

from conftest import finish
from contract import STORED, found
from http_client import TRUSTING, Connection, exchange, get, lines, post
from server_process import Server, until

SIGNATURE = b"\r\n\r\n\x00\r\nQUIT\n"


def proxy_line(address):
    """A PROXY protocol header, version 1."""
    family = "TCP6" if ":" in address else "TCP4"
    here = "::1" if ":" in address else "127.0.0.1"
    return f"PROXY {family} {address} {here} 4711 80\r\n".encode()


def proxy_block(address, extensions=b""):
    """A PROXY protocol header, version 2."""
    family, kind = (socket.AF_INET6, 0x21) if ":" in address else (socket.AF_INET, 0x11)
    packed = socket.inet_pton(family, address)
    content = 2 * packed + struct.pack("!HH", 4711, 80) + extensions
    return SIGNATURE + struct.pack("!BBH", 0x21, kind, len(content)) + content


def tls_extension(is_tls):
    """PP2_TYPE_SSL with or without PP2_CLIENT_SSL (section 2.2.6 of the protocol)."""
    return struct.pack("!BHBI", 0x20, 5, is_tls, 0)


LOCAL = SIGNATURE + struct.pack("!BBH", 0x20, 0, 0)
UNKNOWN = b"PROXY UNKNOWN\r\n"
REMOTE = proxy_line("192.0.2.7")


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


# The header; and the status of the answer without and with tls=terminated
HEADERS = {
    "version 1": (REMOTE, 302, 200), "version 2": (proxy_block("192.0.2.7"), 302, 200),
    "of this machine": (proxy_line("127.0.0.1"), 421, 200),
    "TLS": (proxy_block("192.0.2.7", tls_extension(True)), 200, 200),
    "TLS from IPv6": (proxy_block("2001:db8::7", b"\x01\x00\x02h2" + tls_extension(True)), 200, 200),
    "no TLS": (proxy_block("192.0.2.7", tls_extension(False)), 302, 302),
    # Behind these, somebody may be hidden, so they do not count as programs on this machine.
    "unknown client": (UNKNOWN, 302, 200), "health check": (LOCAL, 302, 200),
}


@pytest.mark.parametrize("options, column", [("", 1), ("&tls=terminated", 2)], ids=["plain", "terminated"])
def test_only_clients_over_tls_are_answered_behind_a_proxy_that_may_have_ended_it(serve, options, column):
    server = serve({"listen": f"127.0.0.1:0?proxy-protocol=required{options}"})
    for name, row in HEADERS.items():
        answer = exchange(server.address, row[0] + lines("GET /token?unique_id=nobody HTTP/1.1", "Host: tokens.test"))
        assert answer.status == row[column], name
        assert ("strict-transport-security" in answer.headers) == (answer.status == 200), name


def test_a_hidden_client_gets_no_token_under_the_public_host(serve):
    server = serve({"listen": "127.0.0.1:0?proxy-protocol=required", "https": {"public_host": "tokens.test"}})
    for host in "tokens.test", "localhost", "127.0.0.1":
        for header in UNKNOWN, LOCAL:
            assert exchange(server.address, header + lines("GET /token?unique_id=a HTTP/1.1", f"Host: {host}")).status == 302


def test_a_request_that_came_through_a_proxy_is_none_of_a_program_here(serve):
    """As tinyproxy sends it, whose host is the server's own address."""
    server = serve()
    host = f"Host: 127.0.0.1:{server.address[1]}"
    for via, status in (([], 200), (["Via: 1.1 vm (tinyproxy/1.11.1)"], 302), (["via: 1.0 fred, 1.1 p.example.net"], 302)):
        assert exchange(server.address, lines("GET /token?unique_id=a HTTP/1.1", host, *via)).status == status


def test_no_name_of_this_machine_is_kept_to_https(serve, lasting_certificate):
    certificate, key = lasting_certificate
    server = serve({"listen": "https://127.0.0.1:0", "tls": {"certificate": certificate, "private_key": key}})
    for host, is_kept in {"tokens.test": True, "tokens.test:443": True, "localhost": False, "a.localhost:443": False,
                          "127.0.0.1": False, "[::1]:443": False, "192.0.2.1": False}.items():
        with Connection(server.addresses[0], context=TRUSTING, host="localhost") as connection:
            answer = connection.exchange(lines("GET /token?unique_id=a HTTP/1.1", f"Host: {host}"))
            assert answer.status == 200 and ("strict-transport-security" in answer.headers) == is_kept, host


def test_mode_proxy_takes_two_lines_for_one(behind_proxy):
    for values in (["https", "http"], ["http", "https"], ["http", "http"], ["http", ""]):
        for fields in ([f"X-Forwarded-Proto: {', '.join(values)}"], [f"X-Forwarded-Proto: {value}" for value in values]):
            assert exchange(behind_proxy.address, REMOTE + get("nobody", *fields)).status == 200, fields
    assert exchange(behind_proxy.address, REMOTE + get("nobody", "X-Forwarded-Proto: http")).status == 302


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
