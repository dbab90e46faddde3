"""Servers that live for one fault each: of their start or their stop."""
import collections
import contextlib
import errno
import itertools
import re
import shutil
import signal
import subprocess
from types import SimpleNamespace

from contract import NOT_FOUND, STORED, found
from failing_audits import AuditLog, is_half_line
from failing_calls import KILLED, FailingCalls
from failing_worlds import SETTINGS, has_run_out_of_memory, is_failing_sync
from http_client import Connection, ProtocolError, exchange, get, lines, post
from server_process import Server, until
from service_manager import Messages
from store_files import FORMER_SESSIONS, FORMER_TOKENS, opened, unpack_former_store

# Says what is wrong and what to do, or gives the system's or SQLite's reason.
MESSAGE = re.compile(r"token-cache: .+(;|\(|: )")
MOST_FAILURES = 60
# What version 1.0 found expired rows by.
FORMER_INDEXES = ("token_by_writing", "token_by_expiration", "session_by_expiration", "session_by_use")
SECONDS = 30


class AttemptedServer(Server):
    """A server that may fail to start; its address, if it serves, is that of a Unix socket.

    The line of the log with the addresses may be what could not be written.
    """

    def _wait_until_ready(self):
        try:
            until(lambda: self.process.poll() is not None or self._answers(), SECONDS, 0.005)
        except AssertionError:
            self.kill()
            raise AssertionError(f"it neither serves nor ends: {self.log()}") from None
        return [] if self.process.poll() is not None else [self.folder / "http.sock"]

    def _answers(self):
        try:
            with Connection(self.folder / "http.sock", timeout=SECONDS) as connection:
                return connection.exchange(get("nobody")).body == NOT_FOUND
        except (OSError, ProtocolError):
            return False


class Lives:
    """Servers that live for one fault each."""

    def __init__(self, phase, library, certificate, folder):
        self.phase, self.folder = phase, folder
        folder.mkdir()
        self.calls = FailingCalls(library, folder / "control")
        self.settings = {
            **SETTINGS, "tls": {"certificate": certificate[0], "private_key": certificate[1]},
            "access_log": f"combined {folder}/access.log", "access": {"session": {"idle_timeout": "3650d"}}}
        self.log = AuditLog(folder / "log")
        self.log.make_keys()
        self.expected = {}
        self.template = folder / "template"
        self.numbers = itertools.count()
        self.outcomes = collections.Counter()
        self.failures = []
        if phase == "upgrade":
            unpack_former_store(self.template)
            self.expected = FORMER_TOKENS
        elif phase != "create":
            self._make_template()
        # So that a start replaces it.
        self.log.age_key()

    def _make_template(self):
        """A data folder with tokens, partly in the WAL: what a crash has left."""
        server = Server(self.folder / "first", {**self.settings, "audit": self.log.settings}, data=self.template)
        with Connection(server.address) as connection:
            for number in range(20):
                value = f"value{number}" + "x" * number * 50
                assert connection.exchange(post(f"id{number}", value)).body == STORED
                self.expected[f"id{number}"] = value
        server.kill()

    def _start(self, room, is_failing):
        environment = {**self.calls.environment, "NOTIFY_SOCKET": room.messages.address} if is_failing else None
        settings = {**self.settings, "audit": room.log.settings, "listen": [f"unix:{room.folder}/http.sock", "https://127.0.0.1:0"]}
        return AttemptedServer(room.folder, settings, data=room.data, environment=environment)

    def check(self, server):
        """Reads everything that was acknowledged, and writes; the server has lived through a fault, or had none."""
        with Connection(server.addresses[0], timeout=SECONDS) as connection:
            for unique_id, value in self.expected.items():
                body = connection.exchange(get(unique_id)).body
                assert body == found(value), f"{unique_id} is {body[:60]}"
            # The fault may be still to come.
            until(lambda: connection.exchange(post("new", "value")).body == STORED, SECONDS)
            assert connection.exchange(get("new")).body == found("value")
        # A server that cannot make its control socket says so and serves without.
        control = server.data / "control.sock"
        if control.exists():
            assert exchange(control, lines("GET /healthz HTTP/1.1", "Host: localhost")).status == 200

    def count(self):
        """The number of calls of each kind in a life without a fault."""
        with self._room() as room:
            calls = self._first_life(None, room)
        print(self.phase, {kind: number for kind, number in calls.items() if number})
        return calls

    def live(self, point):
        """One life with a fault, and one without it."""
        with self._room() as room:
            self._first_life(point, room)
            after = self._start(room, is_failing=False)
            try:
                assert after.addresses, f"the next start fails: {after.log()[-1000:]}"
                self.check(after)
            finally:
                after.kill()
            room.log.verify()
            if self.phase == "upgrade":
                with opened(room.data) as database:
                    assert database.execute("SELECT count(*) FROM session").fetchall() == [(FORMER_SESSIONS,)]
                    [(left,)] = database.execute("SELECT count(*) FROM sqlite_schema WHERE name IN (?, ?, ?, ?)", FORMER_INDEXES)
                    assert left == 0

    @contextlib.contextmanager
    def _room(self):
        """What the two servers of a fault have: a folder, and in it their data and the audit log."""
        folder = self.folder / f"life{next(self.numbers)}"
        room = SimpleNamespace(folder=folder, data=folder / "data", log=AuditLog(folder / "log"))
        shutil.copytree(self.log.folder, room.log.folder)
        if self.template.exists():
            shutil.copytree(self.template, room.data, ignore=shutil.ignore_patterns("control.sock"))
        # The service manager hears of a start, unless that is what fails.
        with Messages(str(folder / "notify")) as room.messages:
            yield room
        shutil.rmtree(folder)

    def _choose(self, point):
        if point:
            self.calls.arm(point)
        else:
            self.calls.count()

    def _first_life(self, point, room):
        """Starts and stops a server, one of whose calls fails in one of the two; returns how many calls it made in it."""
        if self.phase != "stop":
            self._choose(point)
        server = self._start(room, is_failing=True)
        calls = self.calls.calls()
        if self.phase != "stop":
            # Later faults are those of a running server.
            self.calls.disarm()
        try:
            if server.addresses:
                self.check(server)
                if self.phase == "stop":
                    self._choose(point)
                server.send_signal()
                assert server.wait(SECONDS) == 0, f"the stop ends with {server.process.returncode}: {server.log()[-1000:]}"
            else:
                self._check_refusal(server, point)
            return self.calls.calls() if self.phase == "stop" else calls
        except (AssertionError, OSError, subprocess.TimeoutExpired) as error:
            if point and self._may_end(point, server):
                return None
            raise AssertionError(f"{error}; the server's log ends with:\n{server.log()[-1000:]}") from None
        finally:
            self.calls.disarm()
            server.kill()

    def _may_end(self, point, server):
        """Whether a fault may end the server in any way, or keep it from starting or stopping."""
        if point.kind == "malloc":
            return has_run_out_of_memory(server)
        if point.action == KILLED:
            # What follows a start, as the walk's first step, may come before the server's first answer or after it.
            return server.wait(SECONDS) == -signal.SIGKILL
        return self.calls.strike().is_of_dispatch and not point.passes

    def _check_refusal(self, server, point):
        strike = self.calls.strike()
        last = server.log().strip().splitlines()[-1:]
        status = server.process.returncode
        if point.action == KILLED:
            assert status == -signal.SIGKILL, status
            return
        assert status == 1, f"the start ends with {status}: {server.log()[-1500:]}"
        if point.kind == "malloc":
            # What a library could not do for want of memory may be all that is known.
            assert last and last[0].startswith("token-cache: "), last
            return
        # The message itself may be what could not be written.
        if not (point.kind == "write" and strike.target.endswith("/stderr")):
            assert last and MESSAGE.match(last[0]), f"the start is refused without a reason: {last}"
            print(point, last[0])
            if point.kind in ("socket", "epoll_create1", "eventfd"):
                advice = {errno.EMFILE: "raise the limit of open files", errno.ENFILE: "sysctl fs.file-max"}
                assert advice.get(point.action, "") in last[0], last
        assert not point.passes or is_failing_sync(point) or is_half_line(point, strike), f"the start is refused: {last}"

    def run(self, chosen_points):
        for point in chosen_points:
            if len(self.failures) >= MOST_FAILURES:
                return
            try:
                self.live(point)
            except (AssertionError, OSError) as error:
                strike = self.calls.strike()
                self.failures.append(f"--fault {point}: {strike}: {error}")
            else:
                self.outcomes[self.calls.strike().outcome] += 1
