"""A server one of whose calls fails, what its clients were told, and what must hold afterwards."""
import json
import os
import signal
import subprocess
from pathlib import Path

from administration import last_line
from contract import NOT_FOUND, STORED, WRITE_FAILED, found
from http_client import TRUSTING, Connection, ProtocolError, get, post
from server_process import Server, until

SECONDS = 30
IDS = 6
# SQLite keeps the descriptor of a closed connection to a database that has other connections, because closing it would end the
# locks of all, and uses it for the next connection (os_unix.c, "POSIX advisory locks"). So a database has as many descriptors as
# it had connections at once, up to this number with one loop: while it is opened again, old and new ones exist together.
# Another one has read the database's head beside the WAL, in another mode.
MOST_OF_DATABASE = 6
# Without an answer cache, so that each GET reads from the store; with one loop, so that calls keep their order.
SETTINGS = {
    "listen": ["127.0.0.1:0", "https://127.0.0.1:0"], "admin": {"listen": "127.0.0.1:0"}, "loops": 1, "cache": {"max_bytes": 0},
    "access_log": "combined",
}
# How a program ends that gets no memory: Swift's and libdispatch's traps, abort, and an access to address zero.
ENDS = tuple(-number for number in (signal.SIGILL, signal.SIGTRAP, signal.SIGABRT, signal.SIGSEGV))
# Calls that a connection may not survive.
OF_CONNECTIONS = ("accept", "recv", "send", "epoll_ctl", "epoll_create1", "eventfd", "timerfd_create", "socket", "malloc")


class Answers:
    """What each id may have: the value that was acknowledged last, and those whose fate is unknown."""

    def __init__(self):
        self.possible = {f"id{number}": {None} for number in range(IDS)}
        self.last = 0

    def next_write(self):
        """An id and a new value for it."""
        self.last += 1
        return f"id{self.last % IDS}", f"value {self.last} ".replace(" ", "-") + "x" * (self.last * 37 % 900)

    def take_write(self, unique_id, value, body):
        """Takes the answer to a POST; None if there was none."""
        if body == STORED:
            self.possible[unique_id] = {value}
        else:
            assert body in (None, WRITE_FAILED), f"the answer to a POST is {body}"
            self.possible[unique_id].add(value)

    def take_read(self, unique_id, body, may_fail=False):
        if body == NOT_FOUND:
            if may_fail:
                return
            value = None
        else:
            value = json.loads(body).get("token_info")
            assert body == found(value), f"the answer to a GET is {body}"
        possible = self.possible[unique_id]
        assert value in possible, f"{unique_id} has {value!r:.40}, and not {[repr(one)[:40] for one in possible]}"
        self.possible[unique_id] = {value}


class World:
    """A server with one loop, its data, and its clients."""
    # Threads that live as long as the server.
    lasting_threads = ("loop 0", "administration", "writer")
    # How many descriptors come and go for other reasons.
    spare_descriptors = 0

    def __init__(self, calls, folder, settings=None, **options):
        self.calls = calls
        self.answers = Answers()
        self.settings = {**SETTINGS, **(settings or {})}
        self.server = Server(folder, self.settings, environment=calls.environment, **options)
        try:
            self.threads = until(self._lasting_threads)
        except BaseException:
            self.server.kill()
            raise
        self.descriptors = 0

    def _lasting_threads(self):
        names = {}
        for thread in sorted(Path(f"/proc/{self.server.process.pid}/task").iterdir(), key=lambda path: int(path.name)):
            try:
                names.setdefault((thread / "comm").read_text().strip(), thread)
            except OSError:
                pass
        return {name: names[name] for name in self.lasting_threads} if set(self.lasting_threads) <= set(names) else None

    def note_descriptors(self):
        """Takes the present number of open descriptors as that to which the server must return."""
        self.descriptors = max(self.descriptors, self._descriptors())

    def _descriptors(self):
        """The number of open descriptors; for those of the database the most that there may be."""
        files = self.server.open_files()
        of_database = files.count(os.path.realpath(self.server.data / "tokens.db"))
        return len(files) - of_database + max(of_database, MOST_OF_DATABASE)

    def may_fail(self, point):
        """Whether a request may fail because of a fault; known once that has struck."""
        return point is not None and not point.passes

    # Clients

    def credential(self, unique_id):
        """What a client sends as the id."""
        return unique_id

    def take_done(self, response):
        """Takes the answer to a request that has stored or found something."""

    def pipeline(self, point, writes, is_secure=False):
        """Sends a POST and GETs at once, and checks the answers and their order."""
        unique_id, value = self.answers.next_write()
        other = next(iter(self.answers.possible.keys() - {unique_id}))
        asked = [("read", other), ("read", "nobody"), ("read", unique_id)]
        if writes:
            asked[1:1] = [("write", unique_id)]
        requests = {"read": get, "write": lambda credential: post(credential, value)}
        may_be_cut = self.may_fail(point) and point.kind in OF_CONNECTIONS
        is_written = not writes
        try:
            with Connection(self.server.addresses[is_secure], SECONDS, context=TRUSTING if is_secure else None) as connection:
                connection.send(b"".join(requests[kind](self.credential(name)) for kind, name in asked))
                for kind, name in asked:
                    response = connection.receive()
                    assert response.status == 200, response
                    if kind == "write":
                        assert response.body == STORED or self.may_fail(point) or is_failing_sync(point), response
                        self.answers.take_write(name, value, response.body)
                        is_written = True
                    elif name == "nobody":
                        assert response.body == NOT_FOUND, response
                    else:
                        self.answers.take_read(name, response.body, self.may_fail(point))
                    if response.body != NOT_FOUND and response.body != WRITE_FAILED:
                        self.take_done(response)
                assert not connection.unread, f"after the last answer came {connection.unread[:100]}"
        except (OSError, ProtocolError) as error:
            if not is_written:
                self.answers.take_write(unique_id, value, None)
            assert may_be_cut and not isinstance(error, TimeoutError), f"the client gets no answer: {error!r}"

    def steer(self, path, request=None):
        """Sends a request over the control socket; returns its last line, or None without an answer."""
        return last_line(self.server.data, path, request, SECONDS)

    # What must hold

    def settle(self):
        """Checks that the server has recovered by itself and that nothing is lost."""
        assert self.server.is_running(), f"the server ended with {self.server.process.returncode}: {self.server.log()[-2000:]}"
        unique_id, value = self.answers.next_write()

        def stores():
            body = self.server.post(self.credential(unique_id), value)
            self.answers.take_write(unique_id, value, body)
            return body == STORED

        until(stores, SECONDS)
        self.check()
        for name, thread in self.threads.items():
            assert thread.exists(), f"the thread {name!r} has ended"
        until(lambda: self._descriptors() <= self.descriptors + self.spare_descriptors, SECONDS)

    def check(self):
        """Reads all ids."""
        with Connection(self.server.address, timeout=SECONDS) as connection:
            connection.send(b"".join(get(self.credential(unique_id)) for unique_id in self.answers.possible))
            for unique_id in self.answers.possible:
                self.answers.take_read(unique_id, connection.receive().body)

    def restart_soundly(self):
        """Kills the server, and checks that one without faults finds everything."""
        self.server.kill()
        self.server = Server(self.server.folder, self.settings, data=self.server.data)
        try:
            self.check()
            assert self.server.stop() == 0
        finally:
            self.server.kill()


def has_run_out_of_memory(server):
    """Whether a server has ended because an allocation failed; an end of another kind fails."""
    try:
        status = server.wait(5)
    except subprocess.TimeoutExpired:
        return False
    assert status in ENDS, f"the server ended with {status}: {server.log()[-2000:]}"
    return True


def is_failing_sync(point):
    """Whether the fault is a sync that was interrupted: SQLite takes that for a failure, as it is not known what is synced."""
    return point is not None and point.kind == "fdatasync"
