"""What the modes of access cost: processor time of a GET by session, by remembered JWT and with an audit log, each in pairs
with mode open of the same build; and how long others wait while somebody guesses at full speed.
"""

import contextlib
import dataclasses
import json
import os
import re
import signal
import socket
import statistics
import subprocess
import sys
import time
from pathlib import Path

from client import ask
from machine import BenchmarkError

sys.path.append(str(Path(__file__).resolve().parents[1] / "Acceptance"))
from issuer import Issuer  # noqa: E402

SERVES = re.compile(r"serves on http://127\.0\.0\.1:(\d+)")
TOKEN_INFO = b"%7B%22com.facebook.sdk%3ATokenInformationTokenKey%22%3A%22" + b"x" * 180 + b"%22%7D"


@dataclasses.dataclass(frozen=True)
class Plan:
    """How long and how often is measured."""

    rounds: int
    seconds: int


FULL = Plan(rounds=15, seconds=3)
QUICK = Plan(rounds=3, seconds=1)


@dataclasses.dataclass(frozen=True)
class Variant:
    """A way to ask for the same token."""

    name: str
    mode: str
    audit: str = ""
    in_header: bool = False
    allowed: float | None = None


VARIANTS = (
    Variant("mode open", "open"),
    Variant("session in unique_id", "session", allowed=1.10),
    Variant("session in Authorization", "session", in_header=True, allowed=1.10),
    Variant("remembered JWT", "bearer", in_header=True, allowed=1.20),
    Variant("session, audit.events: changes", "session", audit="changes"),
    Variant("session, audit.events: all", "session", audit="all", allowed=1.50),
)


class Target:
    """A server in one variant, with one user's token, and the request for it."""

    def __init__(self, binary: Path, folder: Path, variant: Variant) -> None:
        folder.mkdir()
        (folder / "data").mkdir(mode=0o700)
        self.variant, self.binary, self.folder = variant, binary, folder
        settings: dict = {
            "listen": ["127.0.0.1:0"], "admin": {"listen": "off"}, "loops": 1, "data_directory": str(folder / "data"),
            "access": {"mode": variant.mode},
        }
        issuer = Issuer(algorithm="RS256")
        if variant.mode == "session":
            settings["access"]["api"] = {"keys_file": str(folder / "api-keys")}
        if variant.mode == "bearer":
            settings["access"]["bearer"] = {
                "issuer": issuer.url, "audience": [issuer.audience], "keys_file": issuer.publish(folder / "jwks.json")}
        if variant.audit:
            settings["audit"] = {"file": str(folder / "audit.ndjson"), "events": variant.audit}
        self.settings = folder / "token-cache.yaml"
        self.settings.write_text(json.dumps(settings))
        self.environment = {name: value for name, value in os.environ.items() if not name.startswith("TOKEN_CACHE_")}
        if variant.audit:
            self._command("audit", "key", str(folder / "first-key"))
        if variant.mode == "session":
            key = self._command("access", "keys", "add", "benchmark", "--scope", "sessions").strip()
        with open(folder / "log", "wb") as log:
            self.process = subprocess.Popen(
                [str(binary), "serve", "--config", str(self.settings)], env=self.environment, stdout=log, stderr=log)
        deadline = time.monotonic() + 30
        while not (found := SERVES.search((folder / "log").read_text())):
            if self.process.poll() is not None or time.monotonic() > deadline:
                raise BenchmarkError(f"the server does not start:\n{(folder / 'log').read_text()}")
            time.sleep(0.01)
        self.port = int(found[1])
        credential = "user-1"
        if variant.mode == "session":
            credential = json.loads(self._post("/v1/sessions", b'{"user":"user-1"}', f"Bearer {key}"))["session"]
        elif variant.mode == "bearer":
            credential = issuer.token("user-1", lifetime=86_400)
        self.header = f"Authorization: Bearer {credential}" if variant.in_header else None
        unique_id = "" if variant.in_header else credential
        stored = self._post(
            "/token", b"unique_id=" + unique_id.encode() + b"&token_info=" + TOKEN_INFO,
            self.header and self.header.removeprefix("Authorization: "))
        if stored != b'{"status":"true"}':
            raise BenchmarkError(f"{variant.name}: the token was not stored: {stored!r}")
        self.path = "/token" if variant.in_header else f"/token?unique_id={unique_id}"

    def _command(self, *arguments: str) -> str:
        return subprocess.run(
            [str(self.binary), *arguments, "--config", str(self.settings)], env=self.environment, check=True,
            capture_output=True, text=True).stdout

    def _post(self, path: str, body: bytes, authorization: str | None) -> bytes:
        head = f"POST {path} HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/x-www-form-urlencoded\r\n"
        head += f"Content-Length: {len(body)}\r\n"
        if authorization:
            head += f"Authorization: {authorization}\r\n"
        with socket.create_connection(("127.0.0.1", self.port), timeout=60) as connection:
            return ask(connection, head.encode() + b"\r\n" + body).partition(b"\r\n\r\n")[2]

    def _processor_seconds(self) -> float:
        fields = Path(f"/proc/{self.process.pid}/stat").read_text().rpartition(")")[2].split()
        return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")

    def microseconds(self, seconds: int) -> float:
        """Processor time of a GET."""
        before = self._processor_seconds()
        output = wrk(self, 64, seconds)
        return (self._processor_seconds() - before) / int(re.search(r"(\d+) requests in", output)[1]) * 1e6

    def close(self) -> None:
        self.process.send_signal(signal.SIGTERM)
        self.process.wait()


def wrk_command(target: Target, connections: int, seconds: int, path: str | None = None) -> list[str]:
    header = ["-H", target.header] if target.header else []
    url = f"http://127.0.0.1:{target.port}{path or target.path}"
    return ["wrk", "-t1", f"-c{connections}", f"-d{seconds}s", "--latency", *header, url]


def wrk(target: Target, connections: int, seconds: int) -> str:
    output = subprocess.run(
        wrk_command(target, connections, seconds), check=True, capture_output=True, text=True).stdout
    if "Non-2xx" in output:
        raise BenchmarkError(f"{target.variant.name}: there were errors:\n{output}")
    return output


def costs(binary: Path, folder: Path, plan: Plan) -> None:
    """Compares the variants, one after the other in each round."""
    with contextlib.ExitStack() as stack:
        targets = []
        for number, variant in enumerate(VARIANTS):
            targets.append(Target(binary, folder / str(number), variant))
            stack.callback(targets[-1].close)
        rounds = [[target.microseconds(plan.seconds) for target in targets] for _ in range(plan.rounds)]
    for number, variant in enumerate(VARIANTS):
        ratio = statistics.median(times[number] / times[0] for times in rounds)
        allowed = f", at most {variant.allowed:.2f} promised" if variant.allowed else ""
        time_of_all = statistics.median(times[number] for times in rounds)
        print(f"GET, {variant.name}: {time_of_all:.2f} us of processor time, {ratio:.2f} x mode open{allowed}", flush=True)


def guesses(binary: Path, folder: Path, plan: Plan) -> None:
    """Measures the waits of clients with a session beside as many connections that ask as fast as they can: first with a good
    session as well, then with unknown ones.
    """
    target = Target(binary, folder / "guesses", VARIANTS[1])
    guess = "/token?unique_id=tcs_" + "A" * 43
    waits: dict[str, list[float]] = {"a good session": [], "guesses": []}
    try:
        for _ in range(plan.rounds):
            for name, path in zip(waits, (None, guess)):
                with subprocess.Popen(
                    wrk_command(target, 16, plan.seconds + 1, path), stdout=subprocess.DEVNULL) as other:
                    output = wrk(target, 16, plan.seconds)
                    other.wait()
                number, unit = re.search(r"99%\s+([\d.]+)(us|ms|s)\b", output).groups()
                waits[name].append(float(number) * {"us": 1e-3, "ms": 1.0, "s": 1e3}[unit])
        ratio = statistics.median(bad / good for good, bad in zip(*waits.values()))
        medians = ", ".join(f"beside {name} {statistics.median(times):.2f} ms" for name, times in waits.items())
        print(f"p99 of GETs by session: {medians}, {ratio:.2f} x, at most 1.05 promised", flush=True)
    finally:
        target.close()


def measure(binary: Path, folder: Path, plan: Plan) -> None:
    costs(binary, folder, plan)
    guesses(binary, folder, plan)
