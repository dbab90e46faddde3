"""When a server is ready, and how the command health reports it."""
import json
import signal
import time

import pytest

from administration import ADMINISTRATION, ask, impostor, readiness
from contract import STORED, fresh_id
from http_client import HOST, Connection, exchange, get, lines, post
from server_process import run, until


@pytest.fixture(name="server")
def administrated_server(serve):
    return serve(ADMINISTRATION)


def test_a_server_that_waits_for_its_clients_says_so(serve):
    """To probes on new and on open connections."""
    server = serve({**ADMINISTRATION, "drain_timeout": "20s"})
    request = post(fresh_id(), "abc")
    with Connection(server.address) as connection, Connection(server.administration[0]) as open_before:
        assert open_before.exchange(lines("GET /readyz HTTP/1.1", HOST)).status == 200
        connection.send(request[:-1])
        until(lambda: exchange(server.address, get("nobody")).status == 200)
        server.send_signal(signal.SIGTERM)
        until(lambda: readiness(server)[0] == 503)
        time.sleep(0.5)
        expected = {"ready": False, "reasons": ["the server is stopping"]}
        assert readiness(server) == (503, expected)
        assert json.loads(open_before.exchange(lines("GET /readyz HTTP/1.1", HOST)).body) == expected
        assert ask(server.administration[0], "GET", "/healthz")[0] == 200
        connection.send(request[-1:])
        assert connection.receive().body == STORED
        open_before.expect_end()
    assert server.wait() == 0


# The command health

def health(data, *flags):
    """Runs a command as an operator does, with the server's own settings."""
    done = run("health", "--data-directory", str(data), *flags)
    return done.returncode, done.stdout.strip(), done.stderr


def test_the_command_asks_over_the_control_socket(server):
    assert health(server.data) == (0, "ready", "")
    assert health(server.data, "--json") == (0, '{"ready":true,"reasons":[]}', "")
    server.kill()
    status, printed, _ = health(server.data)
    assert status == 1 and "control.sock" in printed and "no server listens there" in printed


def test_the_command_does_not_wait_for_a_server_that_hangs(server):
    with server.paused():
        status, printed, _ = health(server.data)
    assert status == 1 and "no answer came" in printed


@pytest.mark.parametrize(
    ("part", "pause"), [(b"x" * 4096, 0), (b"X: y\r\n" * 512, 0), (b"x", 0.5)],
    ids=["no line", "no end of the head", "a byte now and then"])
def test_the_command_does_not_read_without_end(tmp_path, part, pause):
    def answer(connection):
        while True:
            connection.sendall(part)
            time.sleep(pause)

    with impostor(tmp_path / "control.sock", answer):
        status, printed, _ = health(tmp_path)
    assert status == 1 and "is not token-cache" in printed
