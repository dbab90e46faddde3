"""Reload and drain, by requests over the control socket and by the commands that send them."""
import json
import os
import signal
import subprocess
from pathlib import Path

import pytest

from administration import ADMINISTRATION, HOST, readiness, steer
from certificates import make_certificate
from contract import STORED, fresh_id
from http_client import Connection, exchange, get, lines, post
from server_process import run, until


@pytest.fixture(name="server")
def administrated_server(serve):
    return serve(ADMINISTRATION)


def test_reloading_tells_what_came_of_it(serve, tmp_path):
    chain, key = make_certificate(tmp_path)
    files = {"certificate": chain, "private_key": key}
    server = serve({**ADMINISTRATION, "listen": "https://127.0.0.1:0", "tls": files})
    status, answer = steer(server, "/reload")
    assert (status, answer["reloaded"]) == (200, True) and "certificates reloaded" in answer["outcome"]
    Path(chain).write_text("no certificate")
    status, answer = steer(server, "/reload")
    assert (status, answer["reloaded"]) == (500, False) and "in use stay" in answer["outcome"]
    assert f"reload requested by uid {os.getuid()}, process {os.getpid()} over control.sock: " in server.log()


def test_draining_answers_what_was_received_and_ends(server):
    unique_id = fresh_id()
    with Connection(server.address) as connection, Connection(server.administration[0]) as watching:
        assert connection.exchange(get("nobody")).status == 200
        assert steer(server, "/drain") == (200, {"draining": True})
        response = watching.exchange(lines("GET /readyz HTTP/1.1", HOST))
        assert response.status == 503
        assert json.loads(response.body) == {"ready": False, "reasons": ["the server is stopping"]}
    assert server.wait() == 0
    server.was_ended = True
    who = f"uid {os.getuid()}, process {os.getpid()} over control.sock"
    assert server.log().splitlines()[-1].endswith(f"token-cache has stopped: drain requested by {who}")
    with pytest.raises(OSError):
        exchange(server.address, post(unique_id, "a"))


def test_a_signal_after_a_drain_does_not_hasten_it(serve):
    server = serve({**ADMINISTRATION, "drain_timeout": "20s"})
    unique_id = fresh_id()
    request = post(unique_id, "abc")
    with Connection(server.address) as connection:
        connection.send(request[:-1])
        # The server has started to read the request.
        until(lambda: exchange(server.address, get("nobody")).status == 200)
        assert steer(server, "/drain")[0] == 200
        server.send_signal(signal.SIGTERM)
        assert connection.is_silent(0.5)
        connection.send(request[-1:])
        assert connection.receive().body == STORED
    assert server.wait() == 0


def test_the_log_ends_with_the_signal_that_has_ended_it(server):
    assert server.stop() == 0
    assert server.log().splitlines()[-1].endswith("token-cache has stopped: SIGTERM received")


def test_the_control_socket_answers_the_same(server):
    def curl(*arguments):
        return subprocess.run(
            ["curl", "-sS", "--unix-socket", "control.sock", *arguments], cwd=server.data, capture_output=True,
            text=True, timeout=20, check=True).stdout

    assert json.loads(curl("http://localhost/readyz")) == {"ready": True, "reasons": []}
    assert json.loads(curl("-X", "POST", "http://localhost/reload"))["reloaded"] is True
    assert json.loads(curl("-X", "POST", "http://localhost/drain")) == {"draining": True}
    assert server.wait() == 0
    server.was_ended = True


# The commands

def command(server, name, *flags):
    done = run(name, "--data-directory", str(server.data), *flags)
    return done.returncode, done.stdout.strip(), done.stderr.strip()


def test_the_commands_reload_and_drain(serve):
    server = serve()
    assert command(server, "reload") == (0, "reloaded: no setting has changed", "")
    assert json.loads(command(server, "reload", "--json")[1]) == {"outcome": "no setting has changed", "reloaded": True}
    (server.folder / "token-cache.yaml").write_text("loops: many")
    status, printed, fault = command(server, "reload")
    assert (status, fault) == (1, "") and "no setting changes" in printed and "loops is" in printed
    assert command(server, "drain") == (0, "the server answers the requests it has received, and stops", "")
    assert server.wait() == 0
    server.was_ended = True
    assert f"token-cache has stopped: drain requested by uid {os.getuid()}, process " in server.log().splitlines()[-1]
    for name in "reload", "drain":
        status, printed, fault = command(server, name)
        assert (status, printed) == (1, "") and f"no server uses the data folder {server.data}" in fault


@pytest.mark.skipif(os.geteuid() != 0, reason="only root becomes other users")
def test_another_user_cannot_have_it_do_anything(server):
    server.folder.chmod(0o755)
    server.data.chmod(0o755)
    done = run("drain", "--data-directory", str(server.data),
               prefix=["setpriv", "--reuid=65534", "--regid=65534", "--clear-groups"])
    assert done.returncode == 1 and "this user may not connect to" in done.stderr, done
    assert readiness(server)[0] == 200
