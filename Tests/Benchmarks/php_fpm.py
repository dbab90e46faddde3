"""The contract in PHP, as on a usual web server."""

import contextlib
import os
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

from machine import BenchmarkError
from nginx import Nginx, user_name
from peers import START_SECONDS, Certificate, RunningPeer, children, stop
from workloads import Workload

WORKERS = 4


class PhpFpm(Nginx):
    """`token.php` on php-fpm behind nginx, both on one core; it stores each token in a file."""

    name = "php-fpm"

    def __init__(self, core: int, folder: Path, certificate: Certificate) -> None:
        super().__init__(core, folder, certificate, {}, PhpFpm.name)
        self.socket = self.own / "php-fpm.sock"
        self.tokens = self.own / "tokens"
        self.tokens.mkdir()
        self.pool: subprocess.Popen | None = None

    @contextlib.contextmanager
    def serving(self, workload: Workload) -> Iterator[RunningPeer]:
        """Runs php-fpm around nginx."""
        configuration, output = self.own / "php-fpm.conf", self.own / "php-fpm.log"
        configuration.write_text(self.configuration())
        command = [program(), "--nodaemonize", "--fpm-config", str(configuration)]
        if os.geteuid() == 0:
            command.append("--allow-to-run-as-root")
        self.socket.unlink(missing_ok=True)
        with output.open("wb") as log:
            self.pool = subprocess.Popen(
                self.pinned(*command), stdin=subprocess.DEVNULL, stdout=log, stderr=subprocess.STDOUT
            )
        try:
            self.wait_for_socket(self.pool, output)
            with super().serving(workload) as running:
                yield running
        finally:
            stop(self.pool)
            self.pool = None

    def configuration(self) -> str:
        """A pool of a fixed size, otherwise with Debian's settings and the opcache on."""
        # Only root can switch to another user.
        user = f"user = {user_name()}\n" if os.geteuid() == 0 else ""
        return (
            f"[global]\npid = {self.own}/php-fpm.pid\nerror_log = {self.own}/php-fpm-errors.log\n"
            f"[token]\n{user}listen = {self.socket}\nlisten.backlog = 1024\npm = static\npm.max_children = {WORKERS}\n"
        )

    def wait_for_socket(self, pool: subprocess.Popen, output: Path) -> None:
        """Until php-fpm listens."""
        deadline = time.monotonic() + START_SECONDS
        while not self.socket.exists():
            if pool.poll() is not None or time.monotonic() > deadline:
                raise BenchmarkError(f"php-fpm does not start:\n{output.read_text()}")
            time.sleep(0.01)

    def location(self, workload: Workload) -> str:
        script = Path(__file__).with_name("token.php")
        parameters = {
            "SCRIPT_FILENAME": str(script), "QUERY_STRING": "$query_string", "REQUEST_METHOD": "$request_method",
            "CONTENT_TYPE": "$content_type", "CONTENT_LENGTH": "$content_length", "TOKEN_FOLDER": str(self.tokens),
        }
        lines = " ".join(f"fastcgi_param {name} {value};" for name, value in parameters.items())
        return f"location / {{ fastcgi_pass unix:{self.socket}; {lines} }}"

    def pids(self, process: subprocess.Popen) -> list[int]:
        """nginx, and php-fpm with its workers."""
        pool = self.pool.pid
        return [*super().pids(process), pool, *children(pool)]


def program() -> str:
    """Debian's php-fpm, whose name contains its version."""
    found = sorted(Path("/usr/sbin").glob("php-fpm[0-9]*"))
    if not found:
        raise BenchmarkError("there is no php-fpm in /usr/sbin; install Debian's package php-fpm")
    return str(found[-1])
