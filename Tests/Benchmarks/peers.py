"""The servers that are measured. A new peer is a class with a name and a `command`, added to the lists in `benchmark.py`."""

import contextlib
import dataclasses
import os
import subprocess
import sys
import time
import typing
from collections.abc import Iterator
from pathlib import Path

from client import ask, connect
from machine import CLOCK_TICKS, BenchmarkError
from workloads import Workload

sys.path.append(str(Path(__file__).resolve().parents[1] / "Acceptance"))
from certificates import make_certificate
from ports import free_ports

if typing.TYPE_CHECKING:
    from measurement import Wrk

Certificate = tuple[str, str]
"""The paths of a certificate and its key."""
START_SECONDS = 10
STOP_SECONDS = 15


@dataclasses.dataclass(frozen=True)
class RunningPeer:
    """A running peer, and the resources of its processes."""

    name: str
    port: int
    cores: list[int]
    pids: list[int]
    answer: bytes
    """The answer to the first request of the workload; all answers have its length."""
    start_seconds: float
    """Seconds from exec to that answer."""

    def cpu_seconds(self) -> float:
        """Processor time used so far, in user space and in the kernel."""
        return sum(cpu_ticks(pid) for pid in self.pids) / CLOCK_TICKS

    def resident_bytes(self) -> int:
        """Resident memory."""
        return sum(resident_bytes(pid) for pid in self.pids)

    def peak_bytes(self) -> int:
        """The largest resident memory so far."""
        return sum(resident_bytes(pid, "VmHWM") for pid in self.pids)


def cpu_ticks(pid: int) -> int:
    """utime + stime of a process (proc_pid_stat(5)); the command's name may contain spaces."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return int(fields[11]) + int(fields[12])


def resident_bytes(pid: int, field: str = "VmRSS") -> int:
    """VmRSS of a process, or its maximum VmHWM (proc_pid_status(5))."""
    for line in Path(f"/proc/{pid}/status").read_text().splitlines():
        if line.startswith(f"{field}:"):
            return int(line.split()[1]) * 1024
    raise BenchmarkError(f"process {pid} has no memory left")


def children(pid: int) -> list[int]:
    """The processes that a process has started."""
    return [int(child) for child in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]


class Peer:
    """A server that can be started for one workload, by default on one core."""

    name: str
    start_limit = START_SECONDS

    def __init__(self, core: int, folder: Path) -> None:
        self.cores = [core]
        self.folder = folder
        self.settings: dict[str, str] = {}
        """Additional environment variables."""

    def command(self, port: int, workload: Workload) -> list[str]:
        """The command that serves the workload on a port of 127.0.0.1."""
        raise NotImplementedError

    def environment(self) -> dict[str, str]:
        """The command's environment."""
        return {**os.environ, **self.settings}

    def pids(self, process: subprocess.Popen) -> list[int]:
        """The processes whose cost counts."""
        return [process.pid]

    def driver(self, wrk: "Wrk") -> "Wrk":
        """What drives this peer: wrk, unless it speaks something other than HTTP."""
        return wrk

    def pinned(self, *command: str) -> list[str]:
        """The command, bound to the cores of this peer."""
        return ["taskset", "--cpu-list", ",".join(str(core) for core in self.cores), *command]

    @contextlib.contextmanager
    def serving(self, workload: Workload) -> Iterator[RunningPeer]:
        """Runs the peer during the block."""
        [port] = free_ports(1)
        output = self.folder / f"{self.name}.log"
        command = self.pinned(*self.command(port, workload))
        with output.open("wb") as log:
            begin = time.monotonic()
            process = subprocess.Popen(
                command, env=self.environment(), stdin=subprocess.DEVNULL, stdout=log, stderr=subprocess.STDOUT
            )
        try:
            answer = self.first_answer(process, port, workload, output)
            elapsed = time.monotonic() - begin
            if workload.expected not in answer:
                raise BenchmarkError(f"{self.name} gave a wrong answer to {workload.name}: {answer!r}")
            yield RunningPeer(self.name, port, self.cores, self.pids(process), answer, elapsed)
        finally:
            stop(process)

    def first_answer(self, process: subprocess.Popen, port: int, workload: Workload, output: Path) -> bytes:
        """Sends a request until there is an answer."""
        deadline = time.monotonic() + self.start_limit
        while True:
            try:
                return self.ask(port, workload)
            except OSError:
                if process.poll() is not None or time.monotonic() > deadline:
                    raise BenchmarkError(f"{self.name} does not start:\n{output.read_text()}") from None
                time.sleep(0.000_2)

    def ask(self, port: int, workload: Workload) -> bytes:
        """Sends a request, and returns the answer."""
        with connect(port, workload.is_tls) as connection:
            return ask(connection, workload.requests[0])


def stop(process: subprocess.Popen) -> None:
    """Ends a process, first with SIGTERM, then with SIGKILL."""
    process.terminate()
    try:
        process.wait(STOP_SECONDS)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()


class TokenCache(Peer):
    """token-cache, with a loop for each of its cores and otherwise default settings."""

    name = "token-cache"

    def __init__(self, core: int, folder: Path, binary: Path, certificate: Certificate) -> None:
        super().__init__(core, folder)
        self.binary = binary
        self.certificate = certificate
        self.data = folder / "data"

    def command(self, port: int, workload: Workload) -> list[str]:
        listen = f"{'https' if workload.is_tls else 'http'}://127.0.0.1:{port}"
        return [str(self.binary), "serve", "--listen", listen, "--data-directory", str(self.data)]

    def environment(self) -> dict[str, str]:
        """The environment without settings of the user who runs the benchmark."""
        others = {name: value for name, value in os.environ.items() if not name.startswith("TOKEN_CACHE_")}
        return {
            **others, "TOKEN_CACHE_ADMIN_LISTEN": "off",
            "TOKEN_CACHE_TLS_CERTIFICATE": self.certificate[0], "TOKEN_CACHE_TLS_PRIVATE_KEY": self.certificate[1],
            **self.settings,
        }

    def run(self, *arguments: str) -> None:
        """Runs a command to its end; it shows its progress on a terminal."""
        errors = None if sys.stderr.isatty() else subprocess.PIPE
        done = subprocess.run(
            [str(self.binary), *arguments], env=self.environment(), stdout=subprocess.DEVNULL, stderr=errors, text=True,
            check=False)
        if done.returncode != 0:
            raise BenchmarkError(f"token-cache {arguments[0]} failed:\n{done.stderr or ''}")
