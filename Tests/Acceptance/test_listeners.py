"""Unix sockets and the PROXY protocol, and which client address the server assumes."""
import contextlib
import json
import os
import re
import socket
import stat
import struct
import subprocess
import tempfile
from pathlib import Path

import pytest

from conftest import finish
from contract import STORED, found
from http_client import Connection, exchange, get, lines, post
from server_process import NO_ADMINISTRATION, Server, binary, clean_environment, run, until

HTTPS_CASES = [
    json.loads(line) for line in (Path(__file__).parents[1] / "Fixtures" / "https.jsonl").read_text().splitlines()
]
needs_root = pytest.mark.skipif(os.geteuid() != 0, reason="only root can run as somebody else")
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

@pytest.mark.parametrize("start", [b"", b"PROXY TCP4 192.0.2", b"\r\n\r\n\0\r\nQUIT\n\x21\x11\0\x0c\xc0"], ids=["none", "text", "binary"])
def test_a_proxy_header_that_cannot_come_whole_any_more_is_not_waited_for(serve, start):
    server = serve({"listen": "127.0.0.1:0?proxy-protocol=required", "timeouts": {"head": "1h"}})
    with Connection(server.address) as connection:
        connection.send(start)
        connection.finish_sending()
        # The server does not read the data, so the connection may end with a reset.
        with contextlib.suppress(ConnectionResetError):
            connection.expect_end()



@pytest.mark.parametrize("header", [proxy_line, proxy_block], ids=["version 1", "version 2"])
@pytest.mark.parametrize("case", HTTPS_CASES, ids=lambda case: case["id"])
def test_mode_proxy_redirects_what_the_script_redirects(behind_proxy, case, header):
    target = case["target"].replace("{PATH}", "/token.php")
    body = (case.get("body") or "").encode("latin-1")
    fields = [f"{name}: {value}" for name, value in case["headers"]]
    if body and not any(field.lower().startswith("content-length") for field in fields):
        fields.append(f"Content-Length: {len(body)}")
    request = lines(f"{case['method']} {target} HTTP/1.1", f"Host: {case['host']}", *fields, body=body)
    response = exchange(behind_proxy.address, header(case["remote_addr"]) + request, case["method"])
    if case["expect"]["outcome"] == "redirect":
        location = case["expect"]["location"].replace("{PATH}", "/token.php")
        assert (response.status, response.headers["location"]) == (case["expect"]["status"], location)
        assert response.body == b""
    else:
        assert response.status == 200


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


def unix_exchange(path, request):
    """One exchange over a Unix socket."""
    with socket.socket(socket.AF_UNIX) as client:
        client.settimeout(20)
        client.connect(str(path))
        client.sendall(request)
        client.shutdown(socket.SHUT_WR)
        received = b""
        while part := client.recv(1 << 16):
            received += part
    return received


def test_a_unix_socket_answers_has_its_mode_and_goes_with_the_server(serve, tmp_path):
    path = tmp_path / "http.sock"
    server = serve({"listen": ["127.0.0.1:0", f"unix:{path}?mode=0600"]})
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert unix_exchange(path, post("me", "x")).endswith(STORED)
    assert exchange(server.address, get("me")).body == found("x")
    assert b"302 Found" in unix_exchange(path, get("me", "X-Forwarded-Proto: http"))
    assert server.stop() == 0
    assert not path.exists()


def test_a_socket_that_a_crash_left_behind_is_replaced(serve, tmp_path):
    path = tmp_path / "http.sock"
    server = serve({"listen": ["127.0.0.1:0", f"unix:{path}"]})
    server.kill()
    assert path.exists()
    again = serve({"listen": ["127.0.0.1:0", f"unix:{path}"]}, data=server.data)
    assert unix_exchange(path, get("nobody")).startswith(b"HTTP/1.1 200")
    assert again.stop() == 0


@pytest.mark.parametrize("kind", ["a file", "a live socket"])
def test_a_path_that_is_taken_is_left_alone(serve, tmp_path, kind):
    path = tmp_path / "http.sock"
    if kind == "a file":
        path.write_text("precious")
    else:
        serve({"listen": ["127.0.0.1:0", f"unix:{path}"]})
    result = subprocess.run(
        [binary(), "serve", "--listen", f"unix:{path}", "--data-directory", str(tmp_path / "other")],
        env=clean_environment(NO_ADMINISTRATION), capture_output=True, text=True, timeout=30, check=False,
    )
    assert result.returncode == 1
    if kind == "a file":
        assert f"{path} exists and is not a socket" in result.stderr
        assert path.read_text() == "precious"
    else:
        assert f"unix:{path} is in use by another program" in result.stderr and "ss -lxp" in result.stderr
        assert unix_exchange(path, get("nobody")).startswith(b"HTTP/1.1 200")


@pytest.fixture(name="of_nobody")
def folder_of_nobody():
    """A folder of the user nobody, who cannot enter pytest's folders."""
    with tempfile.TemporaryDirectory() as folder:
        os.chown(folder, 65534, 65534)
        yield Path(folder)


def refused_as_nobody(folder, address):
    """The error message about a Unix socket when the user nobody starts the server."""
    done = run("serve", "--listen", address, "--data-directory", str(folder / "data"), folder="/",
               prefix=["setpriv", "--reuid=65534", "--regid=65534", "--clear-groups"])
    assert done.returncode == 1 and "CAP_NET_BIND_SERVICE" not in done.stderr, done
    return done.stderr


@needs_root
def test_a_socket_that_cannot_be_given_away_is_not_left_behind(of_nobody):
    path = of_nobody / "http.sock"
    for _ in range(2):
        message = refused_as_nobody(of_nobody, f"unix:{path}?owner=root")
        assert f"unix:{path} cannot be given to root" in message and "only root can" in message
        assert not path.exists()


@needs_root
def test_what_keeps_a_socket_from_being_made_is_named(of_nobody):
    with tempfile.TemporaryDirectory() as closed, socket.socket(socket.AF_UNIX) as other:
        Path(closed).chmod(0o755)
        path = Path(closed) / "http.sock"
        assert f"may not write in {closed}" in refused_as_nobody(of_nobody, f"unix:{path}")
        other.bind(str(path))
        path.chmod(0o600)
        assert f"unix:{path} exists, and this user may not see" in refused_as_nobody(of_nobody, f"unix:{path}")
        assert path.exists()
    missing = of_nobody / "none" / "http.sock"
    assert f"the folder of unix:{missing} is missing" in refused_as_nobody(of_nobody, f"unix:{missing}")


def test_sockets_that_systemd_passes_on_are_served(tmp_path):
    with socket.socket() as listener, open(tmp_path / "log", "wb") as log:
        listener.bind(("127.0.0.1", 0))
        listener.listen()

        def pass_on():
            os.dup2(listener.fileno(), 3)

        process = subprocess.Popen(
            ["sh", "-c", 'LISTEN_PID=$$ LISTEN_FDS=1 exec "$0" serve --listen systemd --data-directory "$1"',
             binary(), str(tmp_path / "data")],
            env=clean_environment(NO_ADMINISTRATION), pass_fds=[3], preexec_fn=pass_on, stderr=log,
        )
        try:
            assert exchange(listener.getsockname(), post("me", "x")).body == STORED
            process.terminate()
            assert process.wait(30) == 0
        finally:
            process.kill()
            process.wait()


def test_without_systemd_its_sockets_are_missed(tmp_path):
    result = subprocess.run(
        [binary(), "serve", "--listen", "systemd", "--data-directory", str(tmp_path / "data")],
        env=clean_environment(NO_ADMINISTRATION), capture_output=True, text=True, timeout=30, check=False,
    )
    assert result.returncode == 1
    assert "systemd has passed no sockets" in result.stderr


def test_plain_http_beyond_loopback_is_warned_of(serve):
    server = serve({"listen": ["127.0.0.1:0", "0.0.0.0:0"]})
    until(lambda: "accepts plain HTTP from other machines" in server.log())
    until(lambda: re.search(r"access.mode is open, and other machines reach http://0.0.0.0:[0-9]+: whoever knows", server.log()))
    assert "access.mode is open" not in serve({"listen": "127.0.0.1:0"}).log()
    assert "accepts plain HTTP from other machines" not in serve().log()
