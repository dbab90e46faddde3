"""How attacks affect other clients: their waiting times, and the memory of the server.

Long answers: many connections that each store a short token and ask for a long one, with little traffic, and never read.
Large writes: many connections that each store a token of almost 1 MiB while the disk is stopped.
Handshakes: many connections that begin a TLS handshake and do not go on, at once or at a steady rate.
"""

import contextlib
import dataclasses
import multiprocessing
import os
import socket
import ssl
import statistics
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from threading import Event

from http_client import Connection, ProtocolError, exchange, get, lines, post
from machine import choose_cores, raise_descriptor_limit
from peers import make_certificate
from server_process import Server, beside
from service_manager import Messages
from storage_shim import StorageShim, compile_library

ATTACKERS = 3
"""Attacking processes; several, because each may open only so many files."""
PERIOD_SECONDS = 8.0
"""Seconds between two requests of a connection for a long answer."""
SETTINGS = {
    "admin": {"listen": "127.0.0.1:0"}, "limits": {"connections": 19_000, "body": "4 MiB"},
}


@dataclasses.dataclass(frozen=True)
class Plan:
    """The size and the duration of an attack."""

    long_answers: int
    seconds: float
    large_writes: int
    handshakes: int
    hellos_a_second: int = 2_300


FULL = Plan(long_answers=18_000, seconds=30, large_writes=10_000, handshakes=10_900)
QUICK = Plan(long_answers=6_000, seconds=12, large_writes=2_000, handshakes=3_000)


@dataclasses.dataclass
class Waits:
    """The times of one kind of request, in seconds, over one connection or over a new one each time."""

    name: str
    address: tuple[str, int]
    request: bytes
    pause: float = 0.01
    keeps: bool = False
    seconds: list[float] = dataclasses.field(default_factory=list)
    failures: int = 0

    def ask(self, over: Event) -> None:
        """Sends the request repeatedly, and measures how long it takes."""
        with Connection(self.address, timeout=60) as kept:
            send = kept.exchange if self.keeps else lambda request: exchange(self.address, request)
            while not over.wait(self.pause):
                begin = time.monotonic()
                try:
                    send(self.request)
                    self.seconds.append(time.monotonic() - begin)
                except (OSError, ProtocolError):
                    self.failures += 1

    def __str__(self) -> str:
        if len(self.seconds) < 2:
            return f"{self.name}: {len(self.seconds)} answers, {self.failures} failures"
        percentiles = statistics.quantiles(self.seconds, n=100)
        return (
            f"{self.name}: {len(self.seconds)} answers, {self.failures} failures, p50 {percentiles[49] * 1e3:.1f} ms, "
            f"p99 {percentiles[98] * 1e3:.1f} ms, longest {max(self.seconds) * 1e3:.1f} ms"
        )


def asking(*waits: Waits) -> contextlib.AbstractContextManager[None]:
    """Measures during the block."""
    return beside(Waits.ask, waits)


@contextlib.contextmanager
def running(server: Server) -> Iterator[Server]:
    """Stores what others ask for, and ends the server after the block."""
    try:
        server.post("other", "x")
        yield server
    finally:
        server.kill()


def demand(address: tuple[str, int], count: int, seconds: float, data: bytes) -> None:
    """Opens this many connections in each period, which replace the previous ones and send the data once."""
    raise_descriptor_limit()
    slots: list[socket.socket | None] = [None] * count
    begin, turn = time.monotonic(), 0
    while (elapsed := time.monotonic() - begin) < seconds:
        if turn * PERIOD_SECONDS / count > elapsed:
            time.sleep(0.002)
            continue
        slot = turn % count
        if (old := slots[slot]) is not None:
            old.close()
        slots[slot] = None
        with contextlib.suppress(OSError):
            new = socket.create_connection(address, timeout=5)
            new.sendall(data)
            slots[slot] = new
        turn += 1


def flood(address: tuple[str, int], count: int, seconds: float, data: bytes) -> None:
    """Opens this many connections, which send the data as far as the server reads it and stay open."""
    raise_descriptor_limit()
    begin, pending, answered = time.monotonic(), {}, []
    for _ in range(count):
        with contextlib.suppress(OSError):
            connection = socket.create_connection(address, timeout=5)
            connection.setblocking(False)
            pending[connection] = 0
    while time.monotonic() - begin < seconds:
        for connection, sent in list(pending.items()):
            with contextlib.suppress(BlockingIOError):
                try:
                    pending[connection] += connection.send(data[sent:sent + 262_144])
                except BlockingIOError:
                    raise
                except OSError:
                    pending[connection] = len(data)
            if pending[connection] >= len(data):
                # It stays open, like a connection that waits for its answer.
                answered.append(connection)
                del pending[connection]
        time.sleep(0.001 if pending else 0.05)


@contextlib.contextmanager
def attacked(attack: Callable[..., None], address: tuple[str, int], count: int, seconds: float, data: bytes) -> Iterator[None]:
    """Runs the block while processes attack."""
    share = count // ATTACKERS
    processes = [multiprocessing.Process(target=attack, args=(address, share, seconds, data)) for _ in range(ATTACKERS)]
    for process in processes:
        process.start()
    try:
        yield
        for process in processes:
            process.join()
    finally:
        for process in processes:
            process.kill()


def long_answers(binary: Path, folder: Path, plan: Plan) -> None:
    """Measures how long other clients wait while long answers are requested."""
    with Messages(str(folder / "notify")) as messages:
        watched = {"NOTIFY_SOCKET": messages.address, "WATCHDOG_USEC": "2000000"}
        with running(Server(folder / "long-answers", SETTINGS, environment=watched, program=binary)) as server:
            server.post("long", "%01" * 1_048_000)
            for name, first in (("POST and GET", post("small", "x")), ("GET", b"")):
                others = Waits("others' GET", server.address, get("other"))
                health = Waits("/healthz", server.administration[0], lines("GET /healthz HTTP/1.1", "Host: localhost"), 0.1)
                begin = time.monotonic()
                with attacked(demand, server.address, plan.long_answers, plan.seconds, first + get("long")), asking(others, health):
                    while time.monotonic() - begin < plan.seconds:
                        messages.signs()
                        time.sleep(0.02)
                moments = [begin, *(sign for sign in messages.signs() if sign > begin), time.monotonic()]
                silence = max(later - earlier for earlier, later in zip(moments, moments[1:]))
                print(
                    f"long answers, {name}, {plan.long_answers} connections: {others}; {health}; "
                    f"longest time without a watchdog notification {silence:.1f} s; "
                    f"resident {server.resident_bytes() >> 20} MiB",
                    flush=True,
                )


def large_writes(binary: Path, folder: Path, plan: Plan) -> None:
    """Measures memory, and reads, while large writes wait for a stopped disk."""
    settings = {**SETTINGS, "limits": {**SETTINGS["limits"], "buffers": "256 MiB"}}
    with (
        StorageShim(compile_library(folder), folder / "slow-disk") as disk,
        running(disk.serve(folder / "large-writes", settings, program=binary)) as server,
    ):
        print(f"large writes: resident before {server.resident_bytes() >> 20} MiB", flush=True)
        calm, others = (Waits(name, server.address, get("other")) for name in ("GET before", "GET meanwhile"))
        with asking(calm):
            time.sleep(5)
        disk.set(sync_delay_microseconds=round(plan.seconds * 1e6))
        data = post("large", "x" * 1_000_000)
        with attacked(flood, server.address, plan.large_writes, plan.seconds, data), asking(others):
            time.sleep(plan.seconds)
        disk.set(sync_delay_microseconds=0)
        print(
            f"large writes, {plan.large_writes} connections: at most {server.peak_resident_bytes() >> 20} MiB resident; "
            f"{calm}; {others}", flush=True)
        for seconds in (10, 50):
            time.sleep(seconds)
            print(f"{seconds} s later: {server.resident_bytes() >> 20} MiB resident", flush=True)


def client_hello() -> bytes:
    """What a client sends first in a TLS handshake."""
    sent = ssl.MemoryBIO()
    client = ssl.create_default_context().wrap_bio(ssl.MemoryBIO(), sent, server_hostname="localhost")
    with contextlib.suppress(ssl.SSLWantReadError):
        client.do_handshake()
    return sent.read()


def long_hello() -> bytes:
    """112 KiB of a ClientHello of 128,000 bytes, in records of 16 KiB."""
    message = b"\x01" + (128_000).to_bytes(3) + b"\x03\x03" + bytes(112 << 10)
    records = (message[start:start + (16 << 10)] for start in range(0, 112 << 10, 16 << 10))
    return b"".join(b"\x16\x03\x01" + len(record).to_bytes(2) + record for record in records)


def handshakes(binary: Path, folder: Path, plan: Plan) -> None:
    """Measures memory with many handshakes that have begun, and waits while new ones begin at a steady rate."""
    certificate, key = make_certificate(folder)
    settings = {
        **SETTINGS, "listen": ["127.0.0.1:0", "https://127.0.0.1:0"], "tls": {"certificate": certificate, "private_key": key},
        "loops": 1,
    }
    for name, data in (("one byte", b"\x16"), ("112 KiB of a hello", long_hello()), ("a whole hello", client_hello())):
        with running(Server(folder / f"handshakes-{len(data)}", settings, program=binary)) as server:
            before, others = server.resident_bytes(), Waits("GET meanwhile", server.address, get("other"))
            with attacked(flood, server.addresses[1], plan.handshakes, plan.seconds, data), asking(others):
                time.sleep(plan.seconds)
            print(
                f"handshakes, {name}, {plan.handshakes} connections: resident before {before >> 20} MiB, "
                f"at most {server.peak_resident_bytes() >> 20} MiB; {others}", flush=True,
            )
    with running(Server(folder / "hellos", settings, program=binary)) as server:
        core, _ = choose_cores()
        for task in Path(f"/proc/{server.process.pid}/task").iterdir():
            os.sched_setaffinity(int(task.name), {core})
        kept = Waits("kept connection's GET", server.address, get("other"), keeps=True)
        new = Waits("new connections' GET", server.address, get("other"))
        writes = Waits("new connections' POST", server.address, post("other", "x"))
        count = int(plan.hellos_a_second * PERIOD_SECONDS)
        with attacked(demand, server.addresses[1], count, plan.seconds, client_hello()), asking(kept, new, writes):
            time.sleep(plan.seconds)
        print(f"handshakes, {plan.hellos_a_second} hellos a second: {kept}; {new}; {writes}", flush=True)


def measure(binary: Path, folder: Path, plan: Plan) -> None:
    """Runs the attacks, one after the other, and prints the results."""
    raise_descriptor_limit()
    long_answers(binary, folder, plan)
    large_writes(binary, folder, plan)
    handshakes(binary, folder, plan)
