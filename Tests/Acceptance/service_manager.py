"""Plays the part of systemd: receives the notifications of a service and passes sockets to it."""
import contextlib
import ctypes
import fcntl
import os
import socket
import subprocess
import time
from pathlib import Path

from process_tree import Closeable
from server_process import NO_ADMINISTRATION, STOP_SECONDS, binary, clean_environment, until, wait_until_serving

VARIABLES = ("NOTIFY_SOCKET", "WATCHDOG_USEC", "WATCHDOG_PID", "LISTEN_PID", "LISTEN_FDS", "LISTEN_FDNAMES")
# The shell executes the server, which keeps its process id; SERVER stands for that id.
SHELL = 'for name in $SERVER; do export "$name=$$"; done; unset SERVER; exec "$0" "$@"'


class Messages(Closeable):
    """A socket for sd_notify(3), with the messages received so far: a dictionary for each, and when it arrived."""

    def __init__(self, address):
        self.address = address
        self.socket = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        self.socket.bind("\0" + address[1:] if address.startswith("@") else address)
        self.received = []

    def close(self):
        self.socket.close()

    def all(self):
        """The messages received so far."""
        self.socket.setblocking(False)
        try:
            while True:
                text = self.socket.recv(1 << 16).decode()
                self.received.append((time.monotonic(), dict(line.split("=", 1) for line in text.split("\n"))))
        except BlockingIOError:
            return [message for _, message in self.received]

    def wait(self, name, value="1", start=0):
        """The first message, from a position on, with this variable and value."""
        return until(lambda: next((message for message in self.all()[start:] if message.get(name) == value), None))

    def signs(self):
        """The times at which watchdog notifications arrived."""
        self.all()
        return [moment for moment, message in self.received if "WATCHDOG" in message]


class Service(Closeable):
    """A server started as by systemd, with sockets and variables; SERVER in a variable stands for its process id."""

    def __init__(self, folder, *arguments, sockets=(), variables=None, prefix=()):
        self.folder = Path(folder)
        self.folder.mkdir(parents=True, exist_ok=True)
        self.log_file = self.folder / "stderr"
        variables = dict(variables or {})
        if sockets:
            variables = {"LISTEN_PID": "SERVER", "LISTEN_FDS": str(len(sockets)), **variables}
        own = [name for name, value in variables.items() if value == "SERVER"]
        environment = {name: value for name, value in clean_environment(NO_ADMINISTRATION).items() if name not in VARIABLES}
        environment.update(variables, SERVER=" ".join(own))
        numbers = [os.dup(listener if isinstance(listener, int) else listener.fileno()) for listener in sockets]

        def pass_on():
            # First to unused numbers above the final ones, so that no socket is overwritten before it has been copied.
            high = [fcntl.fcntl(number, fcntl.F_DUPFD, 3 + len(numbers)) for number in numbers]
            for index, number in enumerate(high):
                os.dup2(number, 3 + index)
                os.close(number)

        with open(self.log_file, "ab") as log:
            self.process = subprocess.Popen(
                ["sh", "-c", SHELL, *prefix, binary(), "serve", "--data-directory", str(self.folder / "data"), *arguments],
                env=environment, cwd=self.folder, stdin=subprocess.DEVNULL, stderr=log, stdout=subprocess.DEVNULL,
                pass_fds=range(3, 3 + len(numbers)), preexec_fn=pass_on, restore_signals=False)
        for number in numbers:
            os.close(number)

    def close(self):
        self.process.kill()
        self.process.wait(STOP_SECONDS)

    def log(self):
        return self.log_file.read_text(errors="replace")

    def wait_until_serving(self):
        wait_until_serving(self.process, self.log_file)
        return self

    def stop(self):
        self.process.terminate()
        return self.process.wait(STOP_SECONDS)

    def refusal(self):
        """The error message of a start that fails."""
        assert self.process.wait(STOP_SECONDS) == 1, self.log()
        return self.log()


class StoppedThread:
    """Stops one thread of a process while the others run (ptrace(2))."""

    SEIZE, INTERRUPT, DETACH = 0x4206, 0x4207, 17

    def __init__(self, process, name):
        self.library = ctypes.CDLL(None, use_errno=True)
        threads = Path(f"/proc/{process.pid}/task")

        def found():
            # Another thread may end meanwhile.
            with contextlib.suppress(FileNotFoundError, ProcessLookupError):
                return [int(thread.name) for thread in threads.iterdir() if (thread / "comm").read_text().strip() == name]

        # A thread sets its name when it starts.
        self.thread = until(found)[0]

    def _trace(self, request):
        if self.library.ptrace(request, self.thread, None, None) != 0:
            raise OSError(ctypes.get_errno(), "ptrace")

    def __enter__(self):
        self._trace(self.SEIZE)
        self._trace(self.INTERRUPT)
        os.waitpid(self.thread, 0x40000000)  # __WALL: also waits for threads
        return self

    def __exit__(self, *_):
        self._trace(self.DETACH)
