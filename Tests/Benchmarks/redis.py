"""Redis, which writes each SET to its append-only file and syncs it before it answers."""

import csv
import shutil
import subprocess
from pathlib import Path

import machine
from client import connect
from machine import BenchmarkError, stolen_seconds
from measurement import PacedClient, Sample, Wrk
from peers import Peer, RunningPeer
from workloads import NUMBERED_INFO, TOKEN_COUNT, Workload

SET = Workload(
    "POST",
    [b"*3\r\n$3\r\nSET\r\n$16\r\nkey:%012d\r\n$%d\r\n%s\r\n" % (number, len(NUMBERED_INFO), NUMBERED_INFO.encode())
     for number in range(TOKEN_COUNT)],
    len(NUMBERED_INFO), b"+OK",
)
"""What token-cache's POST is for Redis: a value of the same length for one of as many keys."""
# Requests of each connection in the short run that shows how many a run of the wanted time needs.
TRIAL = 50


def version() -> str:
    """The version of Debian's package."""
    return machine.first_line("redis-server", "--version").partition(" sha=")[0].rpartition("v=")[2]


class Redis(Peer):
    """Redis with `appendfsync always`, which promises as much as a durable POST."""

    name = "redis"

    def __init__(self, core: int, folder: Path) -> None:
        super().__init__(core, folder)
        self.own = folder / self.name

    def command(self, port: int, workload: Workload) -> list[str]:
        # Otherwise it would first load what the last run has written.
        shutil.rmtree(self.own, ignore_errors=True)
        self.own.mkdir()
        settings = {
            "bind": "127.0.0.1", "port": str(port), "dir": str(self.own), "appendonly": "yes", "appendfsync": "always",
            "save": "", "daemonize": "no",
        }
        options = (part for name, value in settings.items() for part in (f"--{name}", value))
        return [machine.program("redis-server"), *options]

    def driver(self, wrk: Wrk) -> Wrk:
        if isinstance(wrk, PacedClient):
            return wrk
        return RedisBenchmark(wrk.core, wrk.server_core, wrk.folder, wrk.seconds, wrk.connections)

    def ask(self, port: int, workload: Workload) -> bytes:
        with connect(port) as connection:
            connection.sendall(workload.requests[0])
            return connection.recv(100)


class RedisBenchmark(Wrk):
    """The load from redis-benchmark, which speaks Redis' protocol and takes a number of requests rather than a time."""

    def run(self, peer: RunningPeer, workload: Workload, seed: int) -> Sample:
        trial = TRIAL * self.connections
        requests = max(trial, round(float(self.drive(peer, trial)["rps"]) * self.seconds))
        stolen_before, cpu_before = stolen_seconds(self.server_core), peer.cpu_seconds()
        figures = self.drive(peer, requests)
        cpu, stolen = peer.cpu_seconds() - cpu_before, stolen_seconds(self.server_core) - stolen_before
        rate = float(figures["rps"])
        return Sample(
            requests=requests,
            requests_per_second=rate,
            p50_microseconds=float(figures["p50_latency_ms"]) * 1e3,
            p99_microseconds=float(figures["p99_latency_ms"]) * 1e3,
            cpu_microseconds=cpu / requests * 1e6,
            busy=cpu / requests * rate / len(peer.cores),
            stolen=stolen / requests * rate,
            resident_bytes=peer.resident_bytes(),
        )

    def drive(self, peer: RunningPeer, requests: int) -> dict[str, str]:
        """The figures of one run."""
        process = subprocess.run(
            ["taskset", "--cpu-list", str(self.core), machine.program("redis-benchmark"), "-p", str(peer.port),
             "-c", str(self.connections), "-n", str(requests), "-r", str(TOKEN_COUNT), "-d", str(len(NUMBERED_INFO)),
             "-t", "set", "--csv"],
            stdin=subprocess.DEVNULL, capture_output=True, text=True, check=False,
        )
        lines = list(csv.DictReader(process.stdout.splitlines()))
        if process.returncode != 0 or len(lines) != 1:
            raise BenchmarkError(f"redis-benchmark failed:\n{process.stdout}{process.stderr}")
        return lines[0]
