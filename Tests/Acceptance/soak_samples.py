"""Samples of what a server uses during a soak, and judgements on series of them."""
import collections
import os
import re
import statistics
import threading
import time
from dataclasses import dataclass
from pathlib import Path

from http_client import Connection, ProtocolError, lines

METRIC = re.compile(rb"^([a-z_]+(?:\{[^}]*\})?) ([-+0-9.e]+)$", re.M)
# Gauges that are zero when nobody uses the server.
GAUGES = {
    "connections": "token_cache_connections_open", "buffers": "token_cache_buffers_bytes", "queue": "token_cache_store_queue_bytes",
}


def text_of(address, path):
    """The body of a page of the administration, whatever its type."""
    with Connection(address) as connection:
        connection.send(lines(f"GET {path} HTTP/1.1", "Host: localhost", "Connection: close"))
        head, _, body = connection.receive_to_end().partition(b"\r\n\r\n")
    if not head.startswith(b"HTTP/1.1 200 ") or f"\r\nContent-Length: {len(body)}".encode() not in head:
        raise ProtocolError(f"{path} is answered with {head[:300]!r} and {body[:300]!r}")
    return body


def metrics(server):
    """All metrics, over the control socket."""
    text = text_of(server.data / "control.sock", "/metrics")
    return {name.decode(): float(value) for name, value in METRIC.findall(text)}


def memory(process):
    """Resident bytes, and those that no file backs and no other process shares."""
    fields = dict(line.split(":", 1) for line in Path(f"/proc/{process}/smaps_rollup").read_text().splitlines()[1:])
    kibibytes = {name: int(value.split()[0]) for name, value in fields.items()}
    return {"resident": kibibytes["Rss"] << 10, "private": (kibibytes["Private_Dirty"] + kibibytes["Swap"]) << 10}


def descriptors(process):
    """What the open descriptors of a process lead to, without the numbers of sockets and the like, and how many of each kind."""
    kinds = collections.Counter()
    for name in os.listdir(f"/proc/{process}/fd"):
        try:
            kinds[re.sub(r":\[[0-9]+\]", "", os.readlink(f"/proc/{process}/fd/{name}"))] += 1
        except FileNotFoundError:
            pass
    return dict(kinds)


def threads(process):
    """How many threads of each name a process has; those of the runtime's pool have the program's name."""
    names = collections.Counter()
    for task in Path(f"/proc/{process}/task").iterdir():
        try:
            names[(task / "comm").read_text().strip()] += 1
        except OSError:
            pass
    return dict(names)


def size(path):
    try:
        return path.stat().st_size
    except FileNotFoundError:
        return 0


def sample(server):
    """What the server uses now."""
    process = server.process.pid
    taken = {
        **memory(process), "descriptors": server.open_descriptors(), "threads": len(list(Path(f"/proc/{process}/task").iterdir())),
        "wal": size(server.data / "tokens.db-wal"), "database": size(server.data / "tokens.db"),
        "processor": server.processor_seconds(), "log": size(server.log_file),
    }
    values = metrics(server)
    taken.update((name, values[metric]) for name, metric in GAUGES.items())
    taken["requests"] = sum(value for name, value in values.items() if name.startswith("token_cache_requests_total"))
    taken["writes"] = values["token_cache_store_writes_total"]
    taken["failures"] = sum(value for name, value in values.items() if name.startswith("token_cache_store_failures_total"))
    taken["expired"] = values["token_cache_store_expired_tokens_total"]
    taken["handshakes"] = values["token_cache_tls_handshakes_total"]
    return taken


def idle_sample(server):
    """A sample, and besides what each descriptor and thread is for."""
    process = server.process.pid
    return {**sample(server), "open": descriptors(process), "names": threads(process)}


class Sampler:
    """Takes samples in the background: `with Sampler(server, pause) as sampler`."""

    def __init__(self, server, pause):
        self.server, self.pause = server, pause
        self.samples, self.mistakes = [], []
        self.over = threading.Event()
        self.thread = threading.Thread(target=self._run, daemon=True)

    def __enter__(self):
        self.start = time.monotonic()
        self.thread.start()
        return self

    def __exit__(self, *_):
        self.over.set()
        self.thread.join(60)

    def _run(self):
        try:
            while not self.over.is_set():
                self.samples.append({"time": time.monotonic() - self.start, **sample(self.server)})
                self.over.wait(self.pause)
        except (AssertionError, OSError, KeyError) as error:
            self.mistakes.append(f"no sample can be taken: {error!r}")

    def series(self, name, since=0.0):
        """The values of a measure, from this many seconds after the start on."""
        return [taken[name] for taken in self.samples if taken["time"] >= since]


# Heading, measure, divisor; peaks of a row's time, and what was counted in it.
PEAKS = [("private MiB", "private", 1 << 20), ("resident MiB", "resident", 1 << 20), ("descriptors", "descriptors", 1),
         ("threads", "threads", 1), ("WAL MiB", "wal", 1 << 20), ("database MiB", "database", 1 << 20),
         ("connections", "connections", 1), ("buffers KiB", "buffers", 1 << 10), ("queue KiB", "queue", 1 << 10)]
COUNTS = [("requests", "requests"), ("writes", "writes"), ("failures", "failures"), ("expired", "expired"),
          ("handshakes", "handshakes"), ("CPU s", "processor"), ("log bytes", "log")]


def table(samples, seconds):
    """A row for each of these periods: what was counted in it, and the peaks of what was used."""
    rows = [["from"] + [heading for heading, _ in COUNTS] + [heading for heading, _, _ in PEAKS]]
    periods = {}
    for taken in samples:
        periods.setdefault(int(taken["time"] // seconds), []).append(taken)
    before = samples[0]
    for period, taken in sorted(periods.items()):
        begun = int(period * seconds)
        counts = [f"{taken[-1][name] - before[name]:.0f}" for _, name in COUNTS]
        peaks = [f"{max(one[name] for one in taken) / divisor:.{1 if divisor > 1 << 10 else 0}f}" for _, name, divisor in PEAKS]
        rows.append([f"{begun // 60}:{begun % 60:02}", *counts, *peaks])
        before = taken[-1]
    widths = [max(map(len, column)) for column in zip(*rows)]
    return "\n".join("  ".join(cell.rjust(width) for cell, width in zip(row, widths)) for row in rows)


MIB = 1 << 20
LEAST_SAMPLES = 9


@dataclass(frozen=True)
class Allowance:
    """By how much a measure may have risen: a part of what it was, and an amount besides."""
    part: float
    amount: float

    def __call__(self, before):
        return before * (1 + self.part) + self.amount


def thirds(series):
    """The first and the last third of a series."""
    length = len(series) // 3
    return series[:length], series[-length:]


def rises(name, series, allowance):
    """Sentences about what has risen by more than the allowance from the first third of a series to the last."""
    assert len(series) >= LEAST_SAMPLES, f"{name} has {len(series)} samples, too few to judge"
    first, last = thirds(series)
    found = []
    for what, measure in (("peak", max), ("median", statistics.median)):
        before, after = measure(first), measure(last)
        if after > allowance(before):
            found.append(f"the {what} of {name} rose from {before:,.0f} in the first third to {after:,.0f} in the last, "
                         f"and {allowance(before):,.0f} is allowed")
    return found


def exceeds(name, series, limit):
    """A sentence if a series was ever beyond a limit."""
    return [f"{name} reached {max(series):,.0f}, and the limit is {limit:,.0f}"] if max(series) > limit else []


# Names of threads of the runtime's pool, which makes and ends them as it needs them, and how many more there may be.
POOL, MORE_OF_POOL = "qos", 8
# SQLite keeps a descriptor of a database that it closes while other connections of the process have locks on it, and uses it for
# the next connection.
MORE_OF_DATABASE = 2
# The connections of commands, for users and for listings, are opened for the first command and stay.
MORE_OF_WAL = 2


def left_over(before, after):
    """Sentences about what an idle server has more of than when it was idle before, each given by `soak_samples.idle_sample`."""
    found = [f"{name} is {after[name]:,.0f} without clients" for name in ("connections", "buffers", "queue", "wal") if after[name]]
    for file, count in after["open"].items():
        more = {"tokens.db": MORE_OF_DATABASE + MORE_OF_WAL, "tokens.db-wal": MORE_OF_WAL}
        allowed = before["open"].get(file, 0) + more.get(file.rpartition("/")[2], 0)
        if count > allowed:
            found.append(f"{count} descriptors lead to {file} without clients, and {allowed} are allowed")
    for name, count in after["names"].items():
        allowed = before["names"].get(name, 0) + (MORE_OF_POOL if POOL in name else 0)
        if count > allowed:
            found.append(f"{count} threads are called {name!r} without clients, and {allowed} are allowed")
    for name in before["names"].keys() - after["names"].keys():
        if POOL not in name:
            found.append(f"the thread {name!r} has ended")
    return found
