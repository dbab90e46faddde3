"""Servers that get their listening sockets from a service manager, and live for one fault of their start each."""
import contextlib
import json
import re
import select
import socket

from contract import NOT_FOUND
from failing_lives import SECONDS, Lives
from http_client import Connection, ProtocolError, get
from server_process import until
from service_manager import Messages, Service

NAMES = ("http", "https")
UNHEARD = re.compile(r"the service manager (could not|cannot) be notified")


class Manager:
    """The sockets that outlive the servers of a folder, and the messages that these send."""

    def __init__(self, folder):
        self.folder = folder
        self.path = folder / "http.sock"
        plain, secure = socket.socket(socket.AF_UNIX), socket.create_server(("127.0.0.1", 0))
        plain.bind(str(self.path))
        plain.listen(16)
        self.sockets = plain, secure
        self.messages = Messages(str(folder / "notify"))

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.messages.__exit__()
        for listener in self.sockets:
            listener.close()

    def client(self):
        """A connection with a request, which waits for whichever server comes."""
        connection = Connection(self.path, timeout=SECONDS)
        connection.send(get("nobody"))
        return connection


class AttemptedService(Service):
    """A server with passed sockets that may fail to start; it has those members of `Server` that `Lives` needs."""

    def __init__(self, room, settings, environment):
        self.manager, self.data = room.manager, room.data
        self.earlier_messages = len(self.manager.messages.all())
        configuration = room.folder / "token-cache.yaml"
        configuration.write_text(json.dumps(settings))
        # The failing call is to be the server's, and not that of the shell that executes it.
        assignments = [f"{name}={value}" for name, value in environment.items()]
        variables = {"LISTEN_FDNAMES": ":".join(NAMES), "NOTIFY_SOCKET": self.manager.messages.address}
        super().__init__(
            room.folder, "--config", str(configuration), sockets=self.manager.sockets, variables=variables,
            prefix=["env", *assignments])
        try:
            self.addresses = [self.manager.path] if self._serves() else []
        except AssertionError:
            self.kill()
            raise AssertionError(f"it neither serves nor ends: {self.log()}") from None

    def _serves(self):
        """Waits until it answers or has ended; its sockets take connections meanwhile."""
        while True:
            with self.manager.client() as client:
                until(lambda: self.process.poll() is not None or select.select([client.socket], [], [], 0)[0], SECONDS, 0.005)
                if self.process.poll() is not None:
                    return False
                # The connection may be what the fault ends.
                with contextlib.suppress(ConnectionError, ProtocolError):
                    return client.receive().body == NOT_FOUND

    def is_announced(self):
        """Whether it has told the manager that it serves."""
        return any(message.get("READY") == "1" for message in self.manager.messages.all()[self.earlier_messages:])

    def send_signal(self):
        self.process.terminate()

    def wait(self, seconds):
        return self.process.wait(seconds)

    def kill(self):
        self.__exit__()


class InheritingLives(Lives):
    """Starts with passed sockets."""

    @contextlib.contextmanager
    def _room(self):
        with super()._room() as room, Manager(room.folder) as room.manager:
            yield room

    def _start(self, room, is_failing):
        settings = {**self.settings, "audit": room.log.settings}
        if is_failing:
            return AttemptedService(room, settings, self.calls.environment)
        # Whatever the first server did, the sockets have kept listening.
        with room.manager.client() as waiting:
            server = AttemptedService(room, settings, {})
            try:
                assert not server.addresses or waiting.receive().body == NOT_FOUND
            except BaseException:
                server.kill()
                raise
            return server

    def check(self, server, point=None):
        super().check(server, point)
        may_be_unheard = point and not point.passes

        def manager_knows_that_it_serves():
            return server.is_announced() or may_be_unheard and UNHEARD.search(server.log())

        until(manager_knows_that_it_serves, SECONDS)
