"""The clients of a soak: threads that visit a server again and again, each time in another way."""
import contextlib
import random
import ssl
import threading
import time
import traceback

from http_client import Connection, ProtocolError
from soak_visits import PATIENT, QUICK

# Far longer than any answer takes, also on a disk that hangs.
SECONDS = 60
# A client that was slower than this may have been cut off, because the machine did not let it run.
SLOW = 1.5
# How long the server may take to notice that it can write its audit log again.
SECONDS_TO_RECORD = 3


class Paced(Connection):
    """A connection that knows how long its client has let the server wait."""

    def __init__(self, address, **options):
        self.moment, self.slowest = time.monotonic(), 0.0
        super().__init__(address, timeout=SECONDS, **options)

    def send(self, data):
        super().send(data)
        self.is_on_time()

    def receive(self, method="GET"):
        response = super().receive(method)
        if response.status == 408:
            raise ProtocolError("the server has given up waiting for the request")
        self.moment = time.monotonic()
        return response

    def is_on_time(self):
        now = time.monotonic()
        self.slowest, self.moment = max(self.slowest, now - self.moment), now


class Client:
    """One thread: what it does is chosen by its own random numbers, and the registers by those of all."""

    def __init__(self, soak, number, visits, rate):
        self.soak, self.visits, self.rate = soak, visits, rate
        self.name = f"client {number}"
        self.random = random.Random(f"{soak.seed} {number}")
        self.sessions = {}
        self.begun = 0.0
        self.connections = []
        self.thread = threading.Thread(target=self._run, daemon=True)

    def _run(self):
        weights = [visit.weight for visit in self.visits]
        while not self.soak.over.wait(self.random.expovariate(self.rate)):
            [visit] = self.random.choices(self.visits, weights)
            self.begun, self.connections = time.monotonic(), []
            try:
                visit.act(self)
                self.soak.count(visit.act.__name__)
            except (OSError, AssertionError) as error:
                if isinstance(error, (OSError, ProtocolError)) and any(one.slowest > SLOW for one in self.connections):
                    self.soak.count("was too slow")
                else:
                    self.soak.note_mistake(f"{self.name}, {visit.act.__name__}: {traceback.format_exc()}")
            finally:
                for connection in self.connections:
                    connection.close()

    # For visits

    def may_fail(self):
        """Whether the disk has failed since the visit began."""
        return self.soak.has_failed_since(self.begun)

    def may_refuse(self, response):
        """Whether a request was refused because it could not be recorded: the disk has failed a moment ago, and the server tries only
        once a second to write its audit log again."""
        return response.status == 503 and self.soak.has_failed_since(self.begun - SECONDS_TO_RECORD)

    @contextlib.contextmanager
    def writing(self, registers, count=1):
        """Some of the registers, which nobody else writes meanwhile."""
        held = []
        for register in self.random.sample(registers, len(registers)):
            if len(held) < count and register.writer.acquire(blocking=False):
                held.append(register)
        try:
            yield held
        finally:
            for register in held:
                register.writer.release()

    def connect(self, is_secure=None, at=None, **options):
        """A connection that is closed after the visit; `at` is the number of a listener, otherwise the fitting one."""
        is_secure = self.random.random() < 0.3 if is_secure is None else is_secure
        connection = Paced(self.soak.server.addresses[is_secure if at is None else at], **options)
        self.connections.append(connection)
        if is_secure:
            self.secure(connection, self.random.random() < 0.6)
        return connection

    def secure(self, connection, resumes):
        """A TLS handshake, which may go on with an earlier session."""
        version = self.random.choice(list(self.soak.contexts))
        plain = connection.socket
        try:
            connection.socket = self.soak.contexts[version].wrap_socket(
                plain, session=self.sessions.get(version) if resumes else None)
        except BaseException:
            plain.close()
            raise
        finally:
            connection.is_on_time()
        self.soak.count("TLS sessions resumed" if connection.socket.session_reused else "TLS sessions begun")
        connection.version = version

    def keep_session(self, connection):
        """Remembers the TLS session, which with TLS 1.3 is complete only after an answer."""
        if isinstance(connection.socket, ssl.SSLSocket) and connection.socket.session is not None:
            self.sessions[connection.version] = connection.socket.session


    def wait_for_end(self, connection):
        """Waits until the server closes a connection, and returns what came before; None if the soak is over earlier."""
        connection.socket.settimeout(0.2)
        while not self.soak.over.is_set():
            try:
                return connection.receive_to_end()
            except TimeoutError:
                pass
        return None


def make_clients(soak, rate):
    """Clients that together make about this many visits a second, and some that take their time."""
    quick = [Client(soak, number, QUICK, rate / 5) for number in range(5)]
    return quick + [Client(soak, 10 + number, PATIENT, 1.0) for number in range(4)]


@contextlib.contextmanager
def visiting(soak, rate):
    """Has clients visit the server; at the end, they have all left."""
    soak.over.clear()
    clients = make_clients(soak, rate)
    for client in clients:
        client.thread.start()
    try:
        yield
    finally:
        soak.over.set()
        for client in clients:
            client.thread.join(2 * SECONDS)
        still = [client.name for client in clients if client.thread.is_alive()]
    assert not still, f"{still} wait for ever"
