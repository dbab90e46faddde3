"""How attacks affect other clients: their waiting times, and the memory of the server.

Long answers: many connections that each store a short token and ask for a long one, with little traffic, and never read.
Large writes: many connections that each store a token of almost 1 MiB while the disk is stopped.
Handshakes: many connections that begin a TLS handshake and do not go on, at once or at a steady rate.
"""

import contextlib
import dataclasses
import multiprocessing
import os
import re
import resource
import socket
import ssl
import statistics
import struct
import subprocess
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

from client import ask
from machine import BenchmarkError, choose_cores, raise_descriptor_limit
from peers import Certificate
from workloads import get, post

ATTACKERS = 3
"""Attacking processes; several, because each may open only so many files."""
CONTROL_BYTES = 14 * 4
"""Of `struct control` in storage_shim.c, whose second number is the delay of a sync in microseconds."""
PERIOD_SECONDS = 8.0
"""Seconds between two requests of a connection for a long answer."""
SERVES = re.compile(
    r"serves on http://127\.0\.0\.1:(\d+)(?: https://127\.0\.0\.1:(\d+))?, administration on http://127\.0\.0\.1:(\d+)"
)


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
    """The times of one kind of request, in seconds."""

    name: str
    seconds: list[float] = dataclasses.field(default_factory=list)
    failures: int = 0

    def __str__(self) -> str:
        if len(self.seconds) < 2:
            return f"{self.name}: {len(self.seconds)} answers, {self.failures} failures"
        percentiles = statistics.quantiles(self.seconds, n=100)
        return (
            f"{self.name}: {len(self.seconds)} answers, {self.failures} failures, p50 {percentiles[49] * 1e3:.1f} ms, "
            f"p99 {percentiles[98] * 1e3:.1f} ms, longest {max(self.seconds) * 1e3:.1f} ms"
        )


def token(unique_id: str, token_info: bytes) -> bytes:
    """A POST of an already encoded token info."""
    return post(b"unique_id=" + unique_id.encode() + b"&token_info=" + token_info)


class SlowDisk:
    """A disk that delays each sync below a folder, with the library that acceptance tests use as well."""

    def __init__(self, folder: Path) -> None:
        library, self.control = folder / "storage_shim.so", folder / "storage-shim"
        source = Path(__file__).parents[1] / "Acceptance/shim/storage_shim.c"
        subprocess.run(["cc", "-shared", "-fPIC", "-O2", "-Wall", "-o", str(library), str(source), "-ldl"], check=True)
        self.control.write_bytes(bytes(CONTROL_BYTES))
        self.settings = {
            "LD_PRELOAD": str(library), "STORAGE_SHIM_FOLDER": os.path.realpath(folder), "STORAGE_SHIM_CONTROL": str(self.control)}
        """The environment variables of the server."""

    def set(self, seconds: float) -> None:
        """Changes the delay of each sync from now on; the file keeps its length, as the server has mapped it."""
        with self.control.open("r+b") as file:
            file.seek(4)
            file.write(struct.pack("=I", round(seconds * 1e6)))


class Target:
    """A server under attack, with its watchdog notifications."""

    def __init__(self, binary: Path, folder: Path, **variables: str) -> None:
        self.folder = folder
        folder.mkdir()
        self.signs: list[float] = []
        self.notifications = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        self.notifications.bind(str(folder / "notify"))
        environment = {name: value for name, value in os.environ.items() if not name.startswith("TOKEN_CACHE_")}
        environment |= {
            "NOTIFY_SOCKET": str(folder / "notify"), "WATCHDOG_USEC": "2000000", "TOKEN_CACHE_LISTEN": "127.0.0.1:0",
            "TOKEN_CACHE_ADMIN_LISTEN": "127.0.0.1:0", "TOKEN_CACHE_DATA_DIRECTORY": str(folder / "data"),
            "TOKEN_CACHE_LIMITS_CONNECTIONS": "19000", "TOKEN_CACHE_LIMITS_BODY": "4 MiB", **variables,
        }
        with open(folder / "log", "wb") as log:
            self.process = subprocess.Popen([str(binary), "serve"], env=environment, stdout=log, stderr=log)
        threading.Thread(target=self._listen, daemon=True).start()
        deadline = time.monotonic() + 30
        while not (found := SERVES.search((folder / "log").read_text())):
            if self.process.poll() is not None or time.monotonic() > deadline:
                raise BenchmarkError(f"the server does not start:\n{(folder / 'log').read_text()}")
            time.sleep(0.01)
        self.port, self.tls_port, self.administration = int(found[1]), int(found[2] or 0), int(found[3])

    def _listen(self) -> None:
        while message := self.notifications.recv(4096):
            if b"WATCHDOG=1" in message:
                self.signs.append(time.monotonic())

    def longest_silence(self, since: float) -> float:
        """The times between two watchdog notifications, in seconds."""
        moments = [since, *(sign for sign in self.signs if sign > since), time.monotonic()]
        return max(later - earlier for earlier, later in zip(moments, moments[1:]))

    def resident_mebibytes(self) -> float:
        pages = int(Path(f"/proc/{self.process.pid}/statm").read_text().split()[1])
        return pages * resource.getpagesize() / (1 << 20)

    def ask(self, request: bytes) -> bytes:
        """Sends a request over its own connection."""
        with socket.create_connection(("127.0.0.1", self.port), timeout=60) as connection:
            return ask(connection, request)

    def close(self) -> None:
        self.process.kill()
        self.process.wait()


@contextlib.contextmanager
def asking(waits: Waits, port: int, request: bytes, pause: float, keeps: bool = False) -> Iterator[None]:
    """Sends a request repeatedly, over one connection or over a new one each time, and measures how long it takes."""
    ended = threading.Event()

    def run() -> None:
        if keeps:
            with socket.create_connection(("127.0.0.1", port), timeout=60) as connection:
                while not ended.wait(pause):
                    begin = time.monotonic()
                    ask(connection, request)
                    waits.seconds.append(time.monotonic() - begin)
            return
        while not ended.wait(pause):
            begin = time.monotonic()
            try:
                with socket.create_connection(("127.0.0.1", port), timeout=60) as connection:
                    ask(connection, request)
                waits.seconds.append(time.monotonic() - begin)
            except OSError:
                waits.failures += 1

    thread = threading.Thread(target=run)
    thread.start()
    try:
        yield
    finally:
        ended.set()
        thread.join()


def demand(port: int, count: int, seconds: float, data: bytes) -> None:
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
            new = socket.create_connection(("127.0.0.1", port), timeout=5)
            new.sendall(data)
            slots[slot] = new
        turn += 1


def flood(port: int, count: int, seconds: float, data: bytes) -> None:
    """Opens this many connections, which send the data as far as the server reads it and stay open."""
    raise_descriptor_limit()
    begin, pending, answered = time.monotonic(), {}, []
    for _ in range(count):
        with contextlib.suppress(OSError):
            connection = socket.create_connection(("127.0.0.1", port), timeout=5)
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
def attacked(attack: Callable[..., None], port: int, count: int, seconds: float, data: bytes) -> Iterator[None]:
    """Runs the block while processes attack."""
    share = count // ATTACKERS
    processes = [multiprocessing.Process(target=attack, args=(port, share, seconds, data)) for _ in range(ATTACKERS)]
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
    target = Target(binary, folder / "long-answers")
    try:
        for name, first in (("POST and GET", token("small", b"x")), ("GET", b"")):
            target.ask(token("long", b"%01" * 1_048_000))
            target.ask(token("other", b"x"))
            others, health = Waits("others' GET"), Waits("/healthz")
            begin = time.monotonic()
            with (
                attacked(demand, target.port, plan.long_answers, plan.seconds, first + get("long")),
                asking(others, target.port, get("other"), 0.01),
                asking(health, target.administration, get("x").replace(b"/token?unique_id=x", b"/healthz"), 0.1),
            ):
                time.sleep(plan.seconds)
            print(
                f"long answers, {name}, {plan.long_answers} connections: {others}; {health}; "
                f"longest time without a watchdog notification {target.longest_silence(begin):.1f} s; "
                f"resident {target.resident_mebibytes():.0f} MiB",
                flush=True,
            )
    finally:
        target.close()


def large_writes(binary: Path, folder: Path, plan: Plan) -> None:
    """Measures memory, and reads, while large writes wait for a stopped disk."""
    disk = SlowDisk(folder)
    target = Target(binary, folder / "large-writes", TOKEN_CACHE_LIMITS_BUFFERS="256 MiB", **disk.settings)
    try:
        target.ask(token("other", b"x"))
        print(f"large writes: resident before {target.resident_mebibytes():.0f} MiB", flush=True)
        calm, others = Waits("GET before"), Waits("GET meanwhile")
        with asking(calm, target.port, get("other"), 0.01):
            time.sleep(5)
        disk.set(plan.seconds)
        peak = 0.0
        with (
            attacked(flood, target.port, plan.large_writes, plan.seconds, token("large", b"x" * 1_000_000)),
            asking(others, target.port, get("other"), 0.01),
        ):
            end = time.monotonic() + plan.seconds
            while time.monotonic() < end:
                peak = max(peak, target.resident_mebibytes())
                time.sleep(0.1)
        disk.set(0)
        print(f"large writes, {plan.large_writes} connections: at most {peak:.0f} MiB resident; {calm}; {others}", flush=True)
        for seconds in (10, 50):
            time.sleep(seconds)
            print(f"{seconds} s later: {target.resident_mebibytes():.0f} MiB resident", flush=True)
    finally:
        target.close()


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
    certificate = Certificate.make(folder)
    settings = {
        "TOKEN_CACHE_LISTEN": "127.0.0.1:0,https://127.0.0.1:0", "TOKEN_CACHE_TLS_CERTIFICATE": str(certificate.chain),
        "TOKEN_CACHE_TLS_PRIVATE_KEY": str(certificate.key), "TOKEN_CACHE_LOOPS": "1",
    }
    for name, data in (("one byte", b"\x16"), ("112 KiB of a hello", long_hello()), ("a whole hello", client_hello())):
        target = Target(binary, folder / f"handshakes-{len(data)}", **settings)
        try:
            target.ask(token("other", b"x"))
            before, peak, others = target.resident_mebibytes(), 0.0, Waits("GET meanwhile")
            with (
                attacked(flood, target.tls_port, plan.handshakes, plan.seconds, data),
                asking(others, target.port, get("other"), 0.01),
            ):
                end = time.monotonic() + plan.seconds
                while time.monotonic() < end:
                    peak = max(peak, target.resident_mebibytes())
                    time.sleep(0.05)
            print(
                f"handshakes, {name}, {plan.handshakes} connections: resident before {before:.0f} MiB, "
                f"at most {peak:.0f} MiB; {others}", flush=True,
            )
        finally:
            target.close()
    target = Target(binary, folder / "hellos", **settings)
    try:
        core, _ = choose_cores()
        for task in Path(f"/proc/{target.process.pid}/task").iterdir():
            os.sched_setaffinity(int(task.name), {core})
        target.ask(token("other", b"x"))
        kept, new, writes = Waits("kept connection's GET"), Waits("new connections' GET"), Waits("new connections' POST")
        count = int(plan.hellos_a_second * PERIOD_SECONDS)
        with (
            attacked(demand, target.tls_port, count, plan.seconds, client_hello()),
            asking(kept, target.port, get("other"), 0.01, keeps=True),
            asking(new, target.port, get("other"), 0.01),
            asking(writes, target.port, token("other", b"x"), 0.01),
        ):
            time.sleep(plan.seconds)
        print(f"handshakes, {plan.hellos_a_second} hellos a second: {kept}; {new}; {writes}", flush=True)
    finally:
        target.close()


def measure(binary: Path, folder: Path, plan: Plan) -> None:
    """Runs the attacks, one after the other, and prints the results."""
    raise_descriptor_limit()
    long_answers(binary, folder, plan)
    large_writes(binary, folder, plan)
    handshakes(binary, folder, plan)
