"""nginx, as a peer and in front of PHP-FPM, which runs token.php."""
import contextlib
import os
import pwd
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

import machine
from machine import BenchmarkError
from peers import START_SECONDS, Certificate, Peer, RunningPeer, children, stop
from workloads import Workload


class Nginx(Peer):
    """nginx with one worker, or one on each of its cores, and `return 200`: the body of token-cache's answer, and its headers."""

    def __init__(
        self, core: int, folder: Path, certificate: Certificate, answers: dict[bytes, bytes], name: str = "nginx"
    ) -> None:
        super().__init__(core, folder)
        self.name = name
        self.certificate = certificate
        self.answers = answers
        # nginx' configuration takes no blanks in paths.
        self.own = folder / name.replace(", ", "-").replace(" ", "-")
        self.own.mkdir()

    def command(self, port: int, workload: Workload) -> list[str]:
        kinds = ("client_body", "proxy", "fastcgi", "uwsgi", "scgi")
        places = "".join(f"{kind}_temp_path {self.own}/{kind};" for kind in kinds)
        # The worker needs the files of the user who runs the benchmark.
        user = f"user {user_name()};" if os.geteuid() == 0 else ""
        # Without these, one worker would accept most connections.
        masks = " ".join(f"{1 << core:b}" for core in self.cores)
        pinning, sharing = (f"worker_cpu_affinity {masks};", "reuseport") if len(self.cores) > 1 else ("", "")
        configuration = self.own / "nginx.conf"
        configuration.write_text(f"""
            {user} daemon off; worker_processes {len(self.cores)}; {pinning} pid {self.own}/nginx.pid; error_log stderr crit;
            events {{ worker_connections 16384; }}
            http {{
                access_log off; keepalive_requests 1000000000; default_type application/json; {places}
                server {{
                    listen 127.0.0.1:{port} {"ssl" if workload.is_tls else ""} {sharing}; ssl_protocols TLSv1.2 TLSv1.3;
                    ssl_certificate {self.certificate[0]}; ssl_certificate_key {self.certificate[1]};
                    {self.location(workload)}
                }}
            }}
        """)
        return [machine.program("nginx"), "-e", "stderr", "-c", str(configuration)]

    def location(self, workload: Workload) -> str:
        """The directives that answer."""
        body = self.answers[workload.expected].partition(b"\r\n\r\n")[2]
        text = body.decode().replace("\\", "\\\\").replace("'", "\\'")
        hsts = "add_header Strict-Transport-Security max-age=31536000;" if workload.is_tls else ""
        return (
            f"add_header Cache-Control no-store; add_header X-Content-Type-Options nosniff; {hsts}"
            f"location / {{ return 200 '{text}'; }}"
        )

    def pids(self, process: subprocess.Popen) -> list[int]:
        """Master and worker."""
        return [process.pid, *children(process.pid)]


def user_name() -> str:
    """The user who runs the benchmark."""
    return pwd.getpwuid(os.geteuid()).pw_name


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
        command = [php_fpm_program(), "--nodaemonize", "--fpm-config", str(configuration)]
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


def php_fpm_program() -> str:
    """Debian's php-fpm, whose name contains its version."""
    found = sorted(Path("/usr/sbin").glob("php-fpm[0-9]*"))
    if not found:
        raise BenchmarkError("there is no php-fpm in /usr/sbin; install Debian's package php-fpm")
    return str(found[-1])
