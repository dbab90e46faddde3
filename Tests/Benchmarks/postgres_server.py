"""A PostgreSQL server for measurements: its own folder on a disk, durable, and with the settings of a real one."""

import contextlib
import os
import pwd
import secrets
import shutil
import subprocess
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

import machine
from machine import CLOCK_TICKS, BenchmarkError
from peers import children, free_ports, stop

OWNER = "postgres"
ROLE = "token_cache"
START_SECONDS = 60
# Bytes of WAL before a checkpoint, which therefore does not come in the middle of a run.
WAL_BYTES = 8 << 30


def programs() -> Path:
    """The folder of the programs in Debian's newest package."""
    folders = sorted(Path("/usr/lib/postgresql").glob("*/bin/postgres"), key=lambda path: int(path.parts[-3]))
    if not folders:
        raise BenchmarkError("PostgreSQL's server is not installed")
    return folders[-1].parent


def settings() -> dict[str, str]:
    """What differs from PostgreSQL's defaults, apart from names and places."""
    quarter = int(machine.value_of("/proc/meminfo", "MemTotal", ":").split()[0]) // 4 // 1024
    return {
        "shared_buffers": f"{quarter}MB", "max_connections": "200", "max_wal_size": f"{WAL_BYTES >> 30}GB",
        "checkpoint_timeout": "15min",
    }


class PostgresServer:
    """A running server, without TLS and with passwords."""

    def __init__(self, folder: Path) -> None:
        # PostgreSQL does not run as root.
        self.user = pwd.getpwnam(OWNER) if os.geteuid() == 0 else pwd.getpwuid(os.geteuid())
        self.folder = folder
        self.data = folder / "data"
        [self.port] = free_ports(1)
        self.password = secrets.token_hex(16)
        self.process: subprocess.Popen | None = None

    @staticmethod
    @contextlib.contextmanager
    def running() -> Iterator["PostgresServer"]:
        """Runs one during the block, in a folder in /var/tmp, which is on a disk."""
        folder = Path(tempfile.mkdtemp(prefix="token-cache-postgres-", dir="/var/tmp"))
        server = PostgresServer(folder)
        try:
            os.chown(folder, server.user.pw_uid, server.user.pw_gid)
            server.start()
            yield server
        finally:
            server.stop()
            shutil.rmtree(folder, ignore_errors=True)

    def command(self, program: str, *arguments: str) -> list[str]:
        """One of PostgreSQL's programs, as its user."""
        owner = [] if os.geteuid() != 0 else [
            "setpriv", f"--reuid={self.user.pw_uid}", f"--regid={self.user.pw_gid}", "--init-groups", "--"]
        return [*owner, str(programs() / program), *arguments]

    def environment(self) -> dict[str, str]:
        """The environment of PostgreSQL's programs, and the password of the role."""
        kept = {name: value for name, value in os.environ.items() if not name.startswith(("PG", "TOKEN_CACHE_"))}
        return {**kept, "LC_ALL": "C.UTF-8", "PGPASSWORD": self.password}

    def run(self, program: str, *arguments: str) -> str:
        """Runs one of PostgreSQL's programs to its end, and returns what it prints."""
        done = subprocess.run(
            self.command(program, *arguments), env=self.environment(), cwd="/", capture_output=True, text=True,
            check=False)
        if done.returncode != 0:
            raise BenchmarkError(f"{program} failed:\n{done.stderr}{done.stdout}")
        return done.stdout

    def start(self) -> None:
        """Makes the server, starts it and makes the role."""
        # The digest is cheap to check: what the 64 clients of pgbench spend on their passwords is not to be measured.
        self.run(
            "initdb", f"--pgdata={self.data}", f"--username={OWNER}", "--encoding=UTF8", "--locale=C.UTF-8",
            "--data-checksums", "--auth-local=peer", "--auth-host=md5", "--no-instructions")
        (self.data / "pg_ident.conf").write_text(f"us {self.user.pw_name} {OWNER}\n")
        (self.data / "pg_hba.conf").write_text("local all all peer map=us\nhost all all 127.0.0.1/32 md5\n")
        own = settings() | {
            "listen_addresses": "127.0.0.1", "port": str(self.port), "unix_socket_directories": str(self.folder),
            "password_encryption": "md5",
        }
        with (self.data / "postgresql.auto.conf").open("a") as file:
            file.writelines(f"{name} = '{value}'\n" for name, value in own.items())
        log = self.folder / "log"
        with log.open("wb") as output:
            self.process = subprocess.Popen(
                self.command("postgres", "-D", str(self.data)), env=self.environment(), cwd="/",
                stdin=subprocess.DEVNULL, stdout=output, stderr=output)
        deadline = time.monotonic() + START_SECONDS
        while not self.is_ready():
            if self.process.poll() is not None or time.monotonic() > deadline:
                raise BenchmarkError(f"PostgreSQL does not start:\n{log.read_text()}")
            time.sleep(0.05)
        self.sql(f"CREATE ROLE {ROLE} LOGIN PASSWORD '{self.password}'")

    def is_ready(self) -> bool:
        """Whether it accepts connections, as pg_ctl finds out."""
        try:
            return (self.data / "postmaster.pid").read_text().splitlines()[7].strip() == "ready"
        except (FileNotFoundError, IndexError):
            return False

    def stop(self) -> None:
        """Ends it."""
        if self.process:
            stop(self.process)

    # SQL

    def sql(self, text: str, database: str = "postgres") -> list[list[str]]:
        """Runs statements as superuser; the rows of the last one."""
        output = self.run(
            "psql", "-XqAt", "-v", "ON_ERROR_STOP=1", "-h", str(self.folder), "-p", str(self.port), "-U", OWNER, "-c",
            text, database)
        return [line.split("|") for line in output.splitlines()]

    def value(self, text: str, database: str = "postgres") -> str:
        """The first value of the first row."""
        return self.sql(text, database)[0][0]

    def create_database(self, name: str) -> None:
        """Makes a database that the role owns."""
        self.sql(f"CREATE DATABASE {name} OWNER {ROLE}")

    def url(self, database: str) -> str:
        """For clients, which find the password in `environment`."""
        return f"postgresql://{ROLE}@127.0.0.1:{self.port}/{database}?sslmode=disable"

    def cpu_seconds(self) -> float:
        """Processor time used so far by all of its processes, also those that have ended."""
        root = self.process.pid
        # Before the processes, so that one that ends meanwhile is counted once rather than twice.
        fields = Path(f"/proc/{root}/stat").read_text().rpartition(")")[2].split()
        ended_ticks = int(fields[13]) + int(fields[14])
        nanoseconds = 0
        for pid in (root, *children(root)):
            with contextlib.suppress(FileNotFoundError, ProcessLookupError):
                # Not in ticks, as each of hundreds of processes may take less than one in a run.
                nanoseconds += int(Path(f"/proc/{pid}/schedstat").read_text().split()[0])
        return ended_ticks / CLOCK_TICKS + nanoseconds / 1e9
