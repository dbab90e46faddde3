"""The server under systemd: notifications, watchdog, passed sockets, upgrades under load."""
import json
import os
import socket
import subprocess
import time

import pytest

from certificates import make_certificate
from contract import STORED, found
from http_client import TRUSTING, Connection, exchange, get, post
from server_process import STOP_SECONDS, beside, binary, clean_environment, until
from service_manager import Messages, Service, StoppedThread
from test_shutdown import IDLE_SECONDS


@pytest.fixture(name="messages")
def notification_socket(tmp_path):
    # An abstract address, because the folders of tests have names too long for sun_path (108 bytes).
    with Messages(f"@token-cache-test-{os.getpid()}-{tmp_path.name}") as messages:
        yield messages


# Notifications

def test_a_server_tells_that_it_serves_reloads_and_stops(serve, messages):
    server = serve({"drain_timeout": "20s"}, environment={"NOTIFY_SOCKET": messages.address})
    messages.wait("READY")
    assert server.post("me", "x") == STORED

    start = len(messages.all())
    before = time.clock_gettime_ns(time.CLOCK_MONOTONIC) // 1000
    os.kill(server.process.pid, 1)
    reloading = messages.wait("RELOADING", start=start)
    messages.wait("READY", start=start + 1)
    assert before <= int(reloading["MONOTONIC_USEC"]) <= time.clock_gettime_ns(time.CLOCK_MONOTONIC) // 1000

    assert server.stop() == 0
    stopping = messages.wait("STOPPING", start=start)
    assert int(stopping["EXTEND_TIMEOUT_USEC"]) > 20_000_000
    assert [name for message in messages.all() for name in message if message[name] == "1"] == [
        "READY", "RELOADING", "READY", "STOPPING"]


def test_a_manager_that_does_not_listen_is_warned_of_once(serve):
    server = serve(environment={"NOTIFY_SOCKET": "/nowhere/notify"})
    os.kill(server.process.pid, 1)
    until(lambda: "SIGHUP received" in server.log())
    assert server.post("me", "x") == STORED
    assert server.stop() == 0
    assert server.log().count("the service manager could not be notified") == 1


# The journal

def journal_stream(file):
    """What systemd sets for a service whose standard error is this file; it would be a socket."""
    status = os.stat(file)
    return f"{status.st_dev}:{status.st_ino}"


@pytest.mark.parametrize("form", ["text", "json"])
def test_the_journal_is_told_how_serious_each_line_is(serve, tmp_path, form):
    folder = tmp_path / "server0"
    folder.mkdir()
    (folder / "stderr").touch()
    settings = {"https": {"mode": "off"}, "log_format": form, "log_level": "debug"}
    server = serve(settings, environment={"JOURNAL_STREAM": journal_stream(folder / "stderr")})
    assert server.stop() == 0
    priorities = {"debug": "<7>", "info": "<6>", "notice": "<5>", "warning": "<4>", "error": "<3>"}
    lines_of_log = server.log().splitlines()
    for line in lines_of_log:
        level = json.loads(line[3:])["level"] if form == "json" else line.split()[1].rstrip(":")
        assert line.startswith(priorities[level] + ("{" if form == "json" else "2")), line
    assert {line[:3] for line in lines_of_log} >= {"<7>", "<6>", "<4>"}
    # Where standard error leads elsewhere, as in a shell that a service has started.
    other = serve(settings, environment={"JOURNAL_STREAM": journal_stream(folder / "stderr")})
    assert other.stop() == 0 and "<" not in {line[0] for line in other.log().splitlines()}


def test_a_start_that_fails_is_an_error_in_the_journal(tmp_path):
    settings, errors = tmp_path / "settings", tmp_path / "errors"
    settings.write_text("listen: nowhere\nlog_level: loud\n")
    with open(errors, "wb") as output:
        subprocess.run(
            [binary(), "serve", "--config", str(settings)], env=clean_environment({"JOURNAL_STREAM": journal_stream(errors)}),
            stderr=output, timeout=STOP_SECONDS, check=False)
    assert [line[:15] for line in errors.read_text().splitlines()] == ["<3>token-cache:"] * 2


# Watchdog

@pytest.mark.parametrize("loop", ["loop 0", "loop 1", "administration"])
def test_no_sign_of_life_comes_while_a_loop_hangs(serve, messages, loop):
    server = serve(environment={"NOTIFY_SOCKET": messages.address, "WATCHDOG_USEC": "100000"})
    until(lambda: len(messages.signs()) >= 2)
    with StoppedThread(server.process, loop):
        def is_silent():
            before = len(messages.signs())
            time.sleep(0.5)
            return len(messages.signs()) == before

        # One may have been sent before the loop stopped.
        until(is_silent)
    before = len(messages.signs())
    until(lambda: len(messages.signs()) > before + 2)
    assert server.stop() == 0


# Sockets

def listening():
    return socket.create_server(("127.0.0.1", 0))


def test_passed_sockets_take_the_place_of_the_configured_address(tmp_path):
    with listening() as listener, listening() as taken:
        # The configured address is in use: a server that bound it would not start.
        configured = f"127.0.0.1:{taken.getsockname()[1]}"
        with Service(tmp_path / "service", "--listen", configured, sockets=[listener]) as service:
            service.wait_until_serving()
            assert exchange(listener.getsockname(), post("me", "x")).body == STORED
            assert service.stop() == 0


def test_the_file_of_a_passed_unix_socket_stays_and_serves_again(tmp_path):
    link = f"/tmp/token-cache-test-{os.getpid()}"
    os.symlink(tmp_path, link)
    try:
        with socket.socket(socket.AF_UNIX) as listener:
            listener.bind(f"{link}/http.sock")
            listener.listen()
            for _ in range(2):
                with Service(tmp_path / "service", sockets=[listener]) as service:
                    service.wait_until_serving()
                    assert f"unix:{link}/http.sock" in service.log()
                    assert exchange(f"{link}/http.sock", get("nobody")).status == 200
                    assert service.stop() == 0
                assert (tmp_path / "http.sock").is_socket()
    finally:
        os.unlink(link)


@pytest.fixture(name="certificate", scope="module")
def certificate_files(tmp_path_factory):
    return make_certificate(tmp_path_factory.mktemp("certificate"))


def test_the_names_of_sockets_say_what_is_spoken_on_them(tmp_path, certificate):
    variables = {
        "LISTEN_FDNAMES": "https:proxy:http",
        "TOKEN_CACHE_TLS_CERTIFICATE": certificate[0], "TOKEN_CACHE_TLS_PRIVATE_KEY": certificate[1],
    }
    with listening() as secure, listening() as proxied, listening() as plain:
        sockets = [secure, proxied, plain]
        with Service(tmp_path / "service", sockets=sockets, variables=variables) as service:
            service.wait_until_serving()
            assert exchange(plain.getsockname(), post("me", "x")).body == STORED
            header = b"PROXY TCP4 127.0.0.1 127.0.0.1 4711 80\r\n"
            assert exchange(proxied.getsockname(), header + get("me")).body == found("x")
            with Connection(secure.getsockname(), context=TRUSTING) as client:
                assert client.exchange(get("me")).body == found("x")
            assert service.stop() == 0


# Passed sockets, variables, and a part of the error message
FAULTS = {
    "a file": (lambda: open("/dev/null", "rb"), {}, "socket 3 is not open, or is no stream socket that listens"),
    "a connected socket": (lambda: socket.socketpair()[0], {}, "socket 3 is not open, or is no stream socket that listens"),
    "more sockets than are there": (listening, {"LISTEN_FDS": "9000"}, "socket "),
    "https without a certificate": (listening, {"LISTEN_FDNAMES": "https"}, "tls.certificate"),
}


@pytest.mark.filterwarnings("ignore::ResourceWarning")
@pytest.mark.parametrize("make, variables, expected", FAULTS.values(), ids=FAULTS)
def test_sockets_that_cannot_be_served_are_told_of(tmp_path, make, variables, expected):
    with make() as passed:
        with Service(tmp_path / "service", sockets=[passed], variables=variables) as service:
            message = service.refusal()
    assert expected in message and message.count("\n") == 1
    assert "the sockets that systemd has passed cannot be used" in message
    assert not (tmp_path / "service" / "data").exists()


# Upgrades under load: systemd keeps the listening sockets, the old server drains, the new one takes over

UPGRADES = 3


class Clients:
    """Clients that store and fetch, on open connections and on a new one for each request; no request may fail."""

    def __init__(self, plain, secure):
        self.kinds = [(plain, None, True), (plain, None, False), (secure, TRUSTING, True), (secure, TRUSTING, False)] * 2
        self.counts = [0] * len(self.kinds)

    def go_on(self):
        """Waits until each client has received more answers."""
        counts = list(self.counts)
        until(lambda: all(now > before + 10 for now, before in zip(self.counts, counts)))

    def ask(self, number, over):
        """What a client does until the end."""
        address, context, is_kept = self.kinds[number]
        connection, last = None, 0.0
        try:
            while not over.is_set():
                value = f"value{self.counts[number]}"
                for request, answer in ((post(f"id{number}", value), STORED), (get(f"id{number}"), found(value))):
                    sent = None
                    try:
                        if connection is None:
                            last = time.monotonic()
                            connection = Connection(address, context=context)
                        begun = time.monotonic()
                        connection.send_while_possible(request)
                        sent = time.monotonic()
                        response = connection.receive()
                    except (OSError, AssertionError) as error:
                        # A thread that has slept repeats its requests, as any client does whose idle connection was closed.
                        if isinstance(error, ConnectionRefusedError) or (sent or time.monotonic()) - last < IDLE_SECONDS:
                            raise
                        if connection:
                            connection.close()
                        connection = None
                        break
                    last = begun
                    assert response.body == answer
                    if response.closes or not is_kept:
                        connection.close()
                        connection = None
                else:
                    self.counts[number] += 1
        finally:
            if connection:
                connection.close()


def test_upgrades_in_a_row_under_load_fail_no_request(tmp_path, certificate):
    variables = {
        "LISTEN_FDNAMES": "http:https",
        "TOKEN_CACHE_TLS_CERTIFICATE": certificate[0], "TOKEN_CACHE_TLS_PRIVATE_KEY": certificate[1],
    }
    with listening() as plain, listening() as secure:
        service = Service(tmp_path / "service", sockets=[plain, secure], variables=variables)
        try:
            clients = Clients(plain.getsockname(), secure.getsockname())
            with beside(clients.ask, range(len(clients.counts))):
                for _ in range(UPGRADES):
                    clients.go_on()
                    # Like systemd, which starts the new server after the old one has ended.
                    assert service.stop() == 0
                    service = Service(tmp_path / "service", sockets=[plain, secure], variables=variables)
                clients.go_on()
        finally:
            assert service.stop() == 0
    assert service.log().count("serves on") == UPGRADES + 1
