"""Runs the server under test as a process."""
import contextlib
import itertools
import json
import os
import re
import resource
import signal
import subprocess
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from types import SimpleNamespace

import pytest

from http_client import exchange, get, post

SERVES = re.compile(
    r"token-cache \S+ serves on (?P<addresses>.*?)(, administration on (?P<administration>.*?))?, store .*")
START_SECONDS = 30
STOP_SECONDS = 60


def binary():
    """The path of the program under test."""
    path = os.environ.get("TOKEN_CACHE_BINARY", "")
    if not os.path.isabs(path) or not os.access(path, os.X_OK):
        raise RuntimeError(
            "set TOKEN_CACHE_BINARY to the absolute path of the built token-cache program, "
            f"for example $PWD/.build/release/token-cache; it is {path!r}"
        )
    return path


def clean_environment(additions=None):
    """Our environment without the server's settings, plus the additions."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith("TOKEN_CACHE_")}
    return {**kept, **(additions or {})}


# For servers that are started without a settings file, because the default port may be in use.
NO_ADMINISTRATION = {"TOKEN_CACHE_ADMIN_LISTEN": "off"}
NO_FIXED_PORTS = {"TOKEN_CACHE_LISTEN": "127.0.0.1:0", **NO_ADMINISTRATION}


def run(*arguments, environment=None, prefix=(), folder=None, seconds=STOP_SECONDS, input="", program=None):
    """Runs a command of the program, or of another build of it, to its end."""
    if arguments[:1] == ("serve",):
        environment = {**NO_ADMINISTRATION, **(environment or {})}
    if arguments[:1] == ("doctor",) and "--config" not in arguments:
        environment = {**NO_FIXED_PORTS, **(environment or {})}
    return subprocess.run(
        [*prefix, program or binary(), *arguments], env=clean_environment(environment), cwd=folder, input=input,
        capture_output=True, text=True, timeout=seconds, check=False,
    )


# The user nobody, who owns nothing on most machines, and how to run a program as nobody.
NOBODY = 65534
AS_NOBODY = ["setpriv", f"--reuid={NOBODY}", f"--regid={NOBODY}", "--clear-groups"]
needs_root = pytest.mark.skipif(os.geteuid() != 0, reason="only root can run as somebody else, or make files of another user")


def until(condition, seconds=30.0, pause=0.02):
    """Waits until a condition is true and returns its value; fails if it does not become true in time."""
    deadline = time.monotonic() + seconds
    while True:
        result = condition()
        if result:
            return result
        assert time.monotonic() < deadline, f"did not come true in {seconds:.0f} s: {condition}"
        time.sleep(pause)


def wait_until_serving(process, log_file):
    """Waits until a server has logged that it serves; returns the match of `SERVES`."""
    def log():
        return log_file.read_text(errors="replace")

    line = until(lambda: SERVES.search(log()) or process.poll() is not None, START_SECONDS, 0.005)
    assert line is not True, f"the server ended with {process.returncode}: {log()}"
    return line


@contextlib.contextmanager
def beside(function, arguments):
    """Calls a function with each of the arguments and an event, all of them beside the block; raises the first error of a call.

    The event is set when the block has ended, and then the calls have to end.
    """
    over = threading.Event()
    with ThreadPoolExecutor(len(arguments)) as pool:
        calls = [pool.submit(function, argument, over) for argument in arguments]
        try:
            yield
        finally:
            over.set()
            for call in calls:
                call.result()


_first_core = itertools.count()


def some_cores(count):
    """The cores of a server that is to have so many loops; other ones than those of the server before, if there are enough."""
    cores, first = sorted(os.sched_getaffinity(0)), next(_first_core)
    return {cores[(first + number) % len(cores)] for number in range(count)}


class Server:
    """A running server with its own folder, configuration and log files.

    Its settings are written to a settings file in JSON, which is also YAML; `loops` among them says how many cores it gets.
    """

    @staticmethod
    def place(data):
        """Where a server with this data folder keeps its tokens: further variables of its environment, and its program.

        In the data folder, unless `TablesForFolders` replaces this function.
        """
        return SimpleNamespace(environment={}, program=binary())

    def __init__(self, folder, settings=None, *flags, environment=None, descriptors=None, file_size=None, output=None,
                 data=None, program=None, prefix=()):
        self.folder = Path(folder)
        self.folder.mkdir(parents=True, exist_ok=True)
        self.data = Path(data) if data else self.folder / "data"
        self.log_file = self.folder / "stderr"
        self.output_file = self.folder / "stdout"
        configuration = self.folder / "token-cache.yaml"
        complete = {"listen": "127.0.0.1:0", "admin": {"listen": "off"}, "data_directory": str(self.data), **(settings or {})}
        cores = some_cores(complete.pop("loops", 2))
        configuration.write_text(json.dumps(complete))
        place = SimpleNamespace(environment={}, program=program) if program else self.place(self.data)

        def prepare():
            # Python ignores SIGPIPE, and the server would inherit that.
            signal.signal(signal.SIGPIPE, signal.SIG_DFL)
            os.sched_setaffinity(0, cores)
            if descriptors is not None:
                resource.setrlimit(resource.RLIMIT_NOFILE, (descriptors, descriptors))
            if file_size is not None:
                # A write beyond the limit must fail, not kill the process.
                signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
                resource.setrlimit(resource.RLIMIT_FSIZE, (file_size, resource.RLIM_INFINITY))

        with open(self.log_file, "wb") as log, open(self.output_file, "wb") as own_output:
            self.process = subprocess.Popen(
                [*prefix, place.program, "serve", "--config", str(configuration), *flags],
                env=clean_environment({**place.environment, **(environment or {})}),
                cwd=self.folder, stdin=subprocess.DEVNULL, stdout=output if output is not None else own_output,
                stderr=log, preexec_fn=prepare, restore_signals=False,
            )
        self.was_ended = False
        self.addresses = self._wait_until_ready()

    def _wait_until_ready(self):
        try:
            line = wait_until_serving(self.process, self.log_file)
        except BaseException:
            self.kill()
            raise
        self.administration = self._addresses(line["administration"] or "")
        return self._addresses(line["addresses"])

    @staticmethod
    def _addresses(text):
        found = re.findall(r"https?://\[?([0-9a-f.:]+?)\]?:([0-9]+)(?= |$)", text)
        return [(host, int(port)) for host, port in found]

    @property
    def address(self):
        """The first address that it listens on."""
        return self.addresses[0]

    @property
    def base(self):
        """The first address as a URL."""
        return f"http://{self.address[0]}:{self.address[1]}"

    # Requests, each on a connection of its own

    def post(self, *arguments, **options):
        """The body of the answer to a POST; the arguments are those of `post`."""
        return exchange(self.address, post(*arguments, **options)).body

    def get(self, *arguments, **options):
        """The body of the answer to a GET; the arguments are those of `get`."""
        return exchange(self.address, get(*arguments, **options)).body

    # The process

    def log(self):
        return self.log_file.read_text(errors="replace")

    def output(self):
        return self.output_file.read_text(errors="replace")

    def is_running(self):
        return self.process.poll() is None

    def open_descriptors(self):
        return len(os.listdir(f"/proc/{self.process.pid}/fd"))

    def open_files(self):
        """What its descriptors lead to: paths, and names such as `socket:[1234]`."""
        folder, files = f"/proc/{self.process.pid}/fd", []
        for name in os.listdir(folder):
            try:
                files.append(os.readlink(f"{folder}/{name}"))
            except FileNotFoundError:
                pass
        return files

    def open_sockets(self):
        """Without the descriptors that the runtime opens for its timers at some moment after the start."""
        return sum(file.startswith("socket:") for file in self.open_files())

    def resident_bytes(self):
        """Resident memory."""
        pages = int(Path(f"/proc/{self.process.pid}/statm").read_text().split()[1])
        return pages * resource.getpagesize()

    def peak_resident_bytes(self):
        """The peak of its resident memory."""
        status = Path(f"/proc/{self.process.pid}/status").read_text()
        return int(status.partition("VmHWM:")[2].split()[0]) << 10

    @contextlib.contextmanager
    def paused(self):
        """Stops all threads of the server, so that requests to it accumulate."""
        self.process.send_signal(signal.SIGSTOP)
        try:
            until(self._is_stopped)
            yield
        finally:
            self.process.send_signal(signal.SIGCONT)

    def _is_stopped(self):
        try:
            return all(
                status.read_text().rsplit(")", 1)[1].split()[0] == "T"
                for status in Path(f"/proc/{self.process.pid}/task").glob("*/stat"))
        except (FileNotFoundError, ProcessLookupError):
            # A thread has ended meanwhile.
            return False

    def send_signal(self, number=signal.SIGTERM):
        self.was_ended = True
        self.process.send_signal(number)

    def wait(self, seconds=STOP_SECONDS):
        """The exit status."""
        return self.process.wait(seconds)

    def stop(self, number=signal.SIGTERM):
        """Asks the server to stop and returns its exit status."""
        self.send_signal(number)
        return self.wait()

    def kill(self):
        """Kills it, whatever its state."""
        self.was_ended = True
        if self.process.poll() is None:
            self.process.kill()
        self.process.wait(STOP_SECONDS)


def finish(server):
    """Ends a server; fails if it had ended by itself."""
    crashed = not server.was_ended and not server.is_running()
    status = server.process.returncode
    server.kill()
    assert not crashed, f"the server ended by itself with {status}: {server.log()[-2000:]}"


def shared_server(name, settings, scope="session"):
    """A fixture with one server for all tests that leave nothing but rows behind."""

    @pytest.fixture(scope=scope, name=name)
    def fixture(tmp_path_factory):
        server = Server(tmp_path_factory.mktemp(name), settings)
        yield server
        finish(server)

    return fixture
