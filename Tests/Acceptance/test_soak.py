"""A server under a mixed load, with faults, misuse and operators beside it, uses no more at the end than at the beginning, and loses
nothing. For about half a minute; with --long for an hour, or for --soak-minutes."""
import collections
import contextlib
import errno
import json
import math
import os
import random
import re
import shutil
import signal
import ssl
import statistics
import threading
import time
import traceback
from pathlib import Path

from access import api_request, make_key
from administration import metrics, steer
from certificates import make_certificate
from contract import NOT_FOUND, STORED
from http_client import HOST, TRUSTING, Connection, ProtocolError, get, lines, post
from registers import Load
from server_process import beside, until
from storage_shim import ALWAYS, StorageShim
from store_files import audit_events, command, has_commits, printed, verify_audit
from test_reload import rewrite

SECONDS = 60
# Seconds of a fault, after an operation, and between two samples; connections of a crowd.
SHORT = {"fault": 0.3, "pause": 0.1, "sample": 0.4, "crowd": 40}
LONG = {"fault": 6, "pause": 6, "sample": 5, "crowd": 200}
# A visitor that was slower than this may have been cut off, because the machine did not let it run.
SLOW = 1.5
# How long the server may take to notice that it can write its audit log again.
SECONDS_TO_RECORD = 3
# How long a client may take to read a part of an answer.
SECONDS_TO_READ = 6
RELOADED = "token_cache_last_reload_successful"


class Soak:
    """A server, its disk, its clients, and what they know of one another. All that is random follows from the seed."""

    def __init__(self, library, folder, seed, pace):
        self.folder, self.pace, self.random = folder, pace, random.Random(seed)
        self.key, self.pairs = make_key(folder / "api-keys", "backend"), []
        for name in ("first", "second", "served"):
            (folder / name).mkdir()
            self.pairs.append(make_certificate(folder / name, days=100))
        self.pair = self.pairs.pop()
        self.disk = StorageShim(library, folder / "shim", seed=self.random.randrange(1 << 32))
        # The audit log is on the disk that fails, and must still have every change by an app's server.
        self.audit_log, self.audit_key, self.access_log = self.disk.disk / "audit.log", folder / "audit.key", folder / "access.log"
        printed(self.disk.data, "audit", "key", str(self.audit_key))
        self.settings = {
            "listen": ["127.0.0.1:0", "https://127.0.0.1:0"], "admin": {"listen": "127.0.0.1:0"}, "loops": 2,
            "tls": {"certificate": self.pair[0], "private_key": self.pair[1]},
            "access": {"api": {"keys_file": str(folder / "api-keys")}},
            # Small, so that it is full before memory is measured.
            "cache": {"max_bytes": "2 MiB"},
            "audit": {"file": str(self.audit_log)}, "access_log": f"json {self.access_log}",
            "store": {"timeout": "4s"}, "timeouts": {"body": f"{SECONDS_TO_READ}s", "idle": "5s"},
        }
        self.server = self.disk.serve(folder / "server", self.settings)
        self.loads, self.mistakes, self.counts, self.recorded = [], [], collections.Counter(), 0
        # When the disk was sound again; infinity while it is not.
        self.failed_until = 0.0
        self.over = threading.Event()

    def connect(self, is_secure, **options):
        return Connection(self.server.addresses[is_secure], SECONDS, context=TRUSTING if is_secure else None, **options)

    @contextlib.contextmanager
    def visited(self):
        """Has clients read and write without a pause, and others misuse the server."""
        self.over.clear()
        load = Load([self.server], clients=6, registers_of_each=20, longest=20_000, connect=lambda _: self.connect(len(self.loads) % 2))
        self.loads.append(load)
        visitors = [threading.Thread(target=self._visit, args=(number, visits), daemon=True)
                    for number, visits in enumerate([QUICK, QUICK, PATIENT, PATIENT])]
        with load:
            for visitor in visitors:
                visitor.start()
            yield load
            self.over.set()
            for visitor in visitors:
                visitor.join(2 * SECONDS)
        assert not [visitor for visitor in visitors if visitor.is_alive()], "visitors wait for ever"
        load.raise_mistakes()

    def _visit(self, number, visits):
        generator = random.Random(number)
        while not self.over.wait(generator.expovariate(8)):
            visit, begun = generator.choice(visits), time.monotonic()
            try:
                with contextlib.ExitStack() as stack:
                    visit(self, generator, lambda *arguments, **options: stack.enter_context(self.connect(*arguments, **options)))
                self.counts[visit.__name__] += 1
            except (OSError, AssertionError) as error:
                if not isinstance(error, (OSError, ProtocolError)) or time.monotonic() - begun < SLOW:
                    self.mistakes.append(f"{visit.__name__}: {traceback.format_exc()}")

    def may_fail(self):
        """Whether the disk has failed a moment ago; the server tries only once a second to write its audit log again."""
        return self.failed_until >= time.monotonic() - SECONDS_TO_RECORD

    def operate(self, operations, load, end=math.inf):
        """Carries the operations out, in any order, and begins none after the end."""
        for operation in self.random.sample(operations, len(operations)):
            if time.monotonic() >= end:
                return
            failed = load.failed_writes
            operation(self)
            assert operation in FAILING or load.failed_writes == failed, f"writes have failed during {operation.__name__}"
            self.counts[operation.__name__] += 1
            time.sleep(self.pace["pause"] * self.random.uniform(0.2, 1.8))
            assert self.server.is_running(), f"the server ended with {self.server.process.returncode}: {self.server.log()[-2000:]}"
            assert not self.mistakes, "\n".join(self.mistakes)

    def idle(self, before=None):
        """What the server uses when nothing is left to do; waits until this is as little as before, or no longer changes."""
        taken = [sample(self.server)]

        def is_settled():
            taken.append(sample(self.server))
            if before is not None:
                return not left_over(before, taken[-1])
            return len(taken) > 5 and not any(left_over(one, taken[-1]) for one in taken[-5:])

        # If it does not come true, the caller sees what there is too much of.
        with contextlib.suppress(AssertionError):
            until(is_settled, SECONDS, pause=0.2)
        return taken[-1]

    def end(self):
        """Kills the server, and stops the next one; nothing is lost, and the audit log has every change by an app's server."""
        self.server.kill()
        self.server = self.disk.serve(self.folder / "again", self.settings)
        for load in self.loads:
            load.servers = [self.server]
            load.check()
        assert self.server.stop() == 0
        assert "the store is sound" in printed(self.server.data, "verify", seconds=SECONDS)
        verify_audit(self.audit_log, key=self.audit_key)
        events = collections.Counter((event["action"], event["outcome"]) for event in audit_events(self.audit_log))
        assert events["store_token", "ok"] + events["remove_token", "ok"] >= self.recorded > 0, events

    def close(self):
        self.over.set()
        self.disk.close()


# What visitors do: each gets the soak, random numbers and a function that connects

REFUSED = [
    (lines("GET /token?unique_id=a HTTP/1.1"), 400), (lines("GET /nowhere HTTP/1.1", HOST), 404),
    (lines("POST /token HTTP/1.1", HOST, "Content-Length: 9000000"), 413), (lines(f"GET /token?{'x' * 17_000} HTTP/1.1", HOST), 414),
    (lines("GET /token HTTP/1.1", HOST, *["X: y"] * 200), 431), (b"\x00\x01\x02 nonsense\r\n\r\n", 400),
]


def be_refused(soak, chance, connect):
    request, status = chance.choice(REFUSED)
    assert connect(False).exchange(request).status == status


def pipeline(soak, chance, connect):
    connection = connect(chance.random() < 0.5)
    connection.send(get("nobody") * 20)
    assert {connection.receive().body for _ in range(20)} == {NOT_FOUND}


def vanish(soak, chance, connect):
    """Leaves before, in or after a request or a handshake, or with unread answers."""
    hello = b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03" + chance.randbytes(200)
    request = post("abandoned", "x" * 5_000)
    connection = connect(False) if chance.random() < 0.6 else Connection(soak.server.addresses[1])
    with connection:
        connection.send(chance.choice([b"", request, request[:chance.randrange(1, len(request))], hello, hello[:5], get("abandoned") * 90]))
        if chance.random() < 0.5:
            connection.reset()


def use_versions(soak, chance, connect):
    """An app's server stores, compares, replaces and removes a token by its version."""
    connection, path = connect(chance.random() < 0.5), f"/v1/users/{threading.get_ident()}/token"

    def ask(method, *fields, value=None):
        return connection.exchange(api_request(soak.key, method, path, value and {"token_info": value}, *fields), method)

    present = ask("GET")
    tag = present.headers.get("etag")
    answers = [ask("PUT", f"If-Match: {tag}" if tag else "If-None-Match: *", value=f"{chance.random()}"),
               ask("PUT", 'If-Match: "1"', value="never"), ask("DELETE", "If-Match: *")]
    assert [answer.status for answer in answers] == [200, 412, 200] or soak.may_fail(), answers
    soak.recorded += sum(answer.body == STORED for answer in answers)


def administer(soak, chance, connect):
    """Reads what operators read."""
    page = chance.choice(("/", "/status", "/history", "/settings", "/metrics", "/healthz"))
    with Connection(soak.server.administration[0]) as connection:
        connection.send(lines(f"GET {page} HTTP/1.1", HOST, "Connection: close"))
        assert connection.receive_to_end().startswith(b"HTTP/1.1 200 "), page


def wait_for_end(soak, connection):
    """What the server sends until it closes a connection; None if the soak is over earlier."""
    connection.socket.settimeout(0.2)
    while not soak.over.is_set():
        with contextlib.suppress(TimeoutError):
            return connection.receive_to_end()
    return None


def be_idle(soak, chance, connect):
    connection = connect(chance.random() < 0.5)
    assert connection.exchange(get("nobody")).body == NOT_FOUND
    assert not wait_for_end(soak, connection)


def never_finish(soak, chance, connect):
    connection = connect(False)
    connection.send(chance.choice([b"GET /token?uni", post("abandoned", "x" * 500)[:-300]]))
    answer = wait_for_end(soak, connection)
    assert answer is None or answer.startswith(b"HTTP/1.1 408 "), answer


def never_shake_hands(soak, chance, connect):
    with Connection(soak.server.addresses[1]) as connection:
        assert not wait_for_end(soak, connection)


def read_nothing(soak, chance, connect):
    """Asks for more than the system takes, and reads the rest when it was cut off."""
    connection = connect(False, receive_buffer=4096)
    connection.send(get("outgrows") * 60)
    # Before that, it would get all of the answers, which takes minutes through so small a buffer.
    if not soak.over.wait(SECONDS_TO_READ + 2):
        with contextlib.suppress(ConnectionResetError):
            connection.receive_to_end()


QUICK = [be_refused, pipeline, vanish, vanish, use_versions, administer]
PATIENT = [be_idle, never_finish, never_shake_hands, read_nothing]


# What operators do, and what the disk does meanwhile

@contextlib.contextmanager
def failing(soak, **faults):
    """The disk fails; at the end it is sound again, and the server has recovered by itself."""
    soak.failed_until = math.inf
    soak.disk.set(**faults)
    try:
        yield
    finally:
        soak.disk.heal()
        soak.disk.set(sync_delay_microseconds=0, error=0)
        until(lambda: soak.server.post("recovered", "yes") == STORED, SECONDS)
        until(lambda: metrics(soak.server)["token_cache_ready"] == 1, SECONDS)
        # Requests that were under way may still fail.
        soak.loads[-1].go_on(2)
        soak.failed_until = time.monotonic()


def fail(soak):
    """The disk fails now and then, in syncs, as if it were full, and always."""
    for faults in ({"write_failures": 4_000, "error": errno.EIO}, {"sync_failures": 20_000, "error": errno.EIO},
                   {"write_failures": ALWAYS // 2, "short_writes": ALWAYS // 4, "error": errno.ENOSPC},
                   {"write_failures": ALWAYS, "sync_failures": ALWAYS, "truncate_failures": ALWAYS, "error": errno.EIO}):
        with failing(soak, **faults):
            time.sleep(soak.pace["fault"])


def stall(soak):
    """A sync takes longer than writes may wait."""
    with failing(soak, sync_delay_microseconds=60_000_000):
        until(lambda: metrics(soak.server)["token_cache_ready"] == 0, SECONDS)


def operate_on_a_failing_disk(soak):
    """What operators do fails with a reason, or succeeds."""
    with failing(soak, write_failures=1_000, short_writes=500, sync_failures=10_000, truncate_failures=10_000):
        for arguments in (["keyring", "add"], ["keyring", "rotate"], ["backup", str(soak.folder / "on-a-failing-disk.db")]):
            done = command(soak.server.data, *arguments, seconds=SECONDS)
            assert done.returncode == 0 or (done.returncode == 1 and "token-cache: " in done.stderr), done
        steer(soak.server, "/reload")
    printed(soak.server.data, "keyring", "rotate", seconds=SECONDS)


def reload(soak):
    """Reloads the settings with a change, and with a mistake."""
    for value in ("on", "off"):
        rewrite(soak.server, json_bodies=value)
        assert f"to {value}" in steer(soak.server, "/reload")[1]["outcome"]
    for body, is_good in (("huge", 0), (None, 1)):
        rewrite(soak.server, limits=body and {"body": body})
        soak.server.process.send_signal(signal.SIGHUP)
        until(lambda: metrics(soak.server)[RELOADED] == is_good, SECONDS)


def change_the_certificate(soak):
    """Replaces the certificate, which the server notices by itself, and then puts something else in its place."""
    def shown():
        return ssl.get_server_certificate(soak.server.addresses[1], timeout=SECONDS)

    def replace(contents):
        for file, content in zip(soak.pair, contents):
            Path(f"{file}.new").write_bytes(content)
            os.replace(f"{file}.new", file)

    before = shown()
    soak.pairs.append(soak.pairs.pop(0))
    contents = [Path(file).read_bytes() for file in soak.pairs[0]]
    replace(contents)
    until(lambda: shown() != before, SECONDS)
    for given, is_good in (([b"no certificate"], 0), (contents, 1)):
        replace(given)
        soak.server.process.send_signal(signal.SIGHUP)
        until(lambda: metrics(soak.server)[RELOADED] == is_good, SECONDS)
        assert shown() != before


def rotate_the_log(soak):
    """Rotates the access log as logrotate does; the log before the last is removed."""
    os.replace(soak.access_log, f"{soak.access_log}.1")
    soak.server.process.send_signal(signal.SIGHUP)
    until(lambda: soak.access_log.exists() and soak.access_log.stat().st_size > 0, SECONDS)


def maintain(soak):
    """A backup that is verified, a new key, tokens that are removed and users erased, and commands that look."""
    data, backup = soak.server.data, str(soak.folder / "backup.db")
    for arguments in (["backup", backup], ["verify", backup], ["keyring", "rotate"], ["put", "operators", "x"], ["delete", "operators"],
                      ["erase", "operators"], ["stats"], ["list"], ["keyring"]):
        printed(data, *arguments, seconds=SECONDS)
    assert soak.server.get("operators") == NOT_FOUND
    assert "the store is sound" in printed(data, "verify", seconds=SECONDS)
    for kept in data.glob("keys.retired-*"):
        shutil.move(kept, soak.folder)


def outgrow_the_wal(soak):
    """Writes more than the WAL has before it is moved to the database in the background, on a slow disk."""
    soak.disk.set(sync_delay_microseconds=20_000)
    for number in range(60):
        # On a connection of its own: on this disk, 60 writes may take longer than one connection may live.
        assert soak.server.post("outgrows", f"{number}{'x' * 500_000}") == STORED
    soak.disk.set(sync_delay_microseconds=0)


def bring_a_crowd(soak):
    """Many connections at once, which all ask and then leave in different ways."""
    with contextlib.ExitStack() as stack:
        crowd = [stack.enter_context(soak.connect(number % 4 == 0)) for number in range(soak.pace["crowd"])]
        for connection in crowd:
            connection.send(get("nobody"))
        for number, connection in enumerate(crowd):
            if number % 3:
                assert connection.receive().body == NOT_FOUND
            if number % 2:
                connection.reset()


FAILING = [fail, stall, operate_on_a_failing_disk]
OPERATIONS = [*FAILING, reload, change_the_certificate, rotate_the_log, maintain, outgrow_the_wal, bring_a_crowd]


# What the server uses

def sample(server):
    """Bytes, the numbers of descriptors and threads, and what each of these is for."""
    process, values = Path(f"/proc/{server.process.pid}"), metrics(server)
    fields = dict(re.findall(r"^(\w+): +(\d+) kB$", (process / "smaps_rollup").read_text(), re.M))
    names = collections.Counter()
    for task in (process / "task").iterdir():
        with contextlib.suppress(OSError):
            names[(task / "comm").read_text().strip()] += 1
    files = collections.Counter(re.sub(r":\[[0-9]+\]", "", file) for file in server.open_files())
    return {
        "resident": int(fields["Rss"]) << 10, "private": (int(fields["Private_Dirty"]) + int(fields["Swap"])) << 10,
        "descriptors": files.total(), "threads": names.total(), "files": dict(files), "names": dict(names),
        "wal": (server.data / "tokens.db-wal").stat().st_size * has_commits(server.data), "database": (server.data / "tokens.db").stat().st_size,
        "connections": values["token_cache_connections_open"], "buffers": values["token_cache_buffers_bytes"],
        "queue": values["token_cache_store_queue_bytes"],
    }


@contextlib.contextmanager
def sampling(server, pause):
    """Takes samples in the background."""
    samples = []

    def take(pause, over):
        while not over.wait(pause):
            samples.append(sample(server))

    with beside(take, [pause]):
        yield samples


# Threads of the runtime's pool, which makes and ends them as it needs them.
POOL = "qos"
# SQLite keeps the descriptor of a connection that is closed while others have locks, and the connections of commands stay.
MORE_OF_FILES = {"tokens.db": 4, "tokens.db-wal": 2}


def left_over(before, after):
    """Sentences about what an idle server has more of than when it was idle before."""
    found = [f"{name} is {after[name]:,.0f} without clients" for name in ("buffers", "queue", "wal") if after[name]]
    for kind in ("files", "names"):
        for name, count in after[kind].items():
            more = 8 if kind == "names" and POOL in name else MORE_OF_FILES.get(name.rpartition("/")[2], 0)
            if count > before[kind].get(name, 0) + more:
                found.append(f"there are {count} of {name} without clients, and {before[kind].get(name, 0)} before")
    return found + [f"the thread {name} has ended" for name in before["names"].keys() - after["names"].keys() if POOL not in name]


MIB = 1 << 20
# By which share, and by how much besides, each may rise from the first third of the samples to the last. A short soak is over
# before the memory that is freed in one place is used in another.
ALLOWED = {
    "descriptors": (0.25, 60), "threads": (0, 8), "connections": (0.25, 60), "database": (0.10, 8 * MIB), "buffers": (0.25, 8 * MIB),
    "queue": (0.25, 8 * MIB),
}
MEMORY = {"short": (0.10, 24 * MIB), "long": (0.05, 6 * MIB)}
# A checkpoint begins at 8 MiB; while the disk fails, the WAL grows on.
MOST_WAL = 128 * MIB


def growth(samples, length):
    """Sentences about what has grown.

    In the first quarter of an hour, the caches of SQLite, of libdispatch's threads and of the allocator still fill.
    """
    settled = samples[len(samples) // 4:] if length == "long" else samples
    third, found = len(settled) // 3, []
    assert third >= 3, f"{len(samples)} samples are too few to judge"
    for name, (part, amount) in {**ALLOWED, "private": MEMORY[length], "resident": MEMORY[length]}.items():
        for measure in (max, statistics.median):
            first, last = (measure(one[name] for one in some) for some in (settled[:third], settled[-third:]))
            if last > first * (1 + part) + amount:
                found.append(f"the {measure.__name__} of {name} rose from {first:,.0f} to {last:,.0f}")
    most = max(one["wal"] for one in samples)
    return found + [f"the WAL reached {most:,} bytes"] * (most > MOST_WAL)


def test_nothing_grows_and_nothing_is_lost(request, is_long, shim_library, tmp_path):
    minutes = request.config.getoption("--soak-minutes") or (60 if is_long else 0)
    seed = request.config.getoption("--seed") or random.randrange(1 << 32)
    print(f"the order of events can be repeated with --seed {seed}")
    soak = Soak(shim_library, tmp_path, seed, LONG if minutes else SHORT)
    try:
        end = time.monotonic() + minutes * 60
        # After these, a server has whatever it makes at the first use of something.
        with soak.visited() as load:
            soak.operate(OPERATIONS if minutes else [fail, change_the_certificate, maintain], load)
        before = soak.idle()
        with soak.visited() as load, sampling(soak.server, soak.pace["sample"]) as samples:
            soak.operate(OPERATIONS, load)
            while time.monotonic() < end:
                soak.operate(OPERATIONS, load, end)
        after = soak.idle(before)
        print(dict(sorted(soak.counts.items())), before, after, sep="\n")
        (tmp_path / "samples.json").write_text(json.dumps({"before": before, "after": after, "samples": samples}))
        soak.end()
        assert not soak.mistakes, "\n".join(soak.mistakes)
        assert left_over(before, after) == []
        assert growth(samples, "long" if minutes else "short") == []
    finally:
        soak.close()
