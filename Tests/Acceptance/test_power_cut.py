"""Acknowledged writes survive a power cut at any moment, whatever the disk kept of the unsynced data.

A recorded run is replayed up to each of many moments, and the files that a disk may then hold are opened.
"""
import functools
import itertools
import random
import shutil
import signal
import sqlite3
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path

import pytest

from administration import last_line
from contract import NOT_FOUND, STORED, WRITE_FAILED, fresh_id
from http_client import Connection, ProtocolError, get, post
from power_cut import Kind, choose_cuts, read_recording, replay, write_files
from registers import number_of, value_of
from sealed_rows import KeyRing
from server_process import beside, until
from storage_shim import ALWAYS, StorageShim
from store_files import command

CLIENTS = 6
LONGEST = 20_000
INTEGRITY_CHECKS = 25

# With slow syncs, an answer that does not wait for its sync arrives long before the end of the sync.
SLOW_SYNCS = {"sync_delay_microseconds": 1_000}
# A commit makes some twenty writes and one sync.
FAULTS = {"write_failures": 60, "short_writes": 60, "sync_failures": 4_000}


class Client:
    """A client that writes growing numbers to its own ids; some ids are new, most were written before.

    Each id is written this many times on average.
    """

    def __init__(self, number, times):
        self.name = f"client{number}"
        self.times = times
        self.generator = random.Random(number)
        self.number = 0
        self.requests = {}

    def write(self, address, start, count):
        """Sends this many requests, some of them pipelined, or as many as possible until the server is gone."""
        try:
            with Connection(address) as connection:
                sent = self.requests[start, connection.socket.getsockname()[1]] = []
                while len(sent) < count:
                    batch = [self._next() for _ in range(self.generator.randint(1, 6))]
                    sent += batch
                    connection.send(b"".join(post(unique_id, value_of(unique_id, number, LONGEST))
                                             for unique_id, number in batch))
                    for _ in batch:
                        assert connection.receive().body in (STORED, WRITE_FAILED)
        except (OSError, ProtocolError):
            # The shim ended the server in the middle.
            return

    def _next(self):
        self.number += 1
        return f"{self.name}-{self.generator.randint(0, self.number // self.times)}", self.number


@dataclass
class Recorded:
    """The recording of one or more runs of a server, and what the clients sent."""
    events: list
    requests: dict


def rotate(server):
    """Has the server go over all rows at full speed, with one key after the other, until it is gone."""
    def ask(path, request=None):
        return (last_line(server.data, path, request) or {}).get("reply")
    def retire():
        for key in (ask("/store/keyring/list") or {"keys": []})["keys"]:
            ask("/store/keyring/retire", {"number": key["number"]})
    while server.is_running():
        ask("/store/keyring/add")
        # In vain, as rows need these keys.
        retire()
        ask("/store/walk")
        retire()


def make_large(server):
    """Stores tokens that are not checked."""
    with Connection(server.address) as connection:
        for number in range(9):
            assert connection.exchange(post(f"large{number}", "x" * 1_000_000)).body == STORED


@pytest.fixture(scope="module")
def fast_folder(tmp_path_factory):
    """A folder in memory, if there is enough, because the disk is only simulated."""
    memory = Path("/dev/shm")
    if not memory.is_dir() or shutil.disk_usage(memory).free < 1 << 30:
        yield tmp_path_factory.mktemp("power_cut")
        return
    with tempfile.TemporaryDirectory(prefix="token-cache-", dir=memory) as folder:
        yield Path(folder)


@pytest.fixture(scope="module")
def new_disk(shim_library, fast_folder):
    """A function that makes recorded disks."""
    numbers = itertools.count()
    return lambda: StorageShim(shim_library, fast_folder / f"shim{next(numbers)}", is_recorded=True)


@pytest.fixture(scope="module")
def record(new_disk, fast_folder):
    """Records a run: the shim ends the server after each of these counts of events; the last server is stopped.

    The background checkpointer only works if the database `is_large`.
    """

    def record_run(event_counts, request_count, faults, times=8, is_large=False, is_rotated=False):
        clients = [Client(number, times) for number in range(CLIENTS)]
        with new_disk() as shim:
            for start, event_count in enumerate([*event_counts, 0], 1):
                shim.set(end_after_events=event_count, **SLOW_SYNCS)
                server = shim.serve(fast_folder / "recorded")
                if is_large:
                    make_large(server)
                shim.set(**faults)
                count = 1 << 30 if event_count else request_count
                with beside(lambda client, _: client.write(server.address, start, count), clients):
                    if is_rotated and event_count:
                        rotate(server)
                shim.heal()
                status = server.wait() if event_count else server.stop()
                assert status == (-signal.SIGKILL if event_count else 0)
            assert bool(shim.faults()) == bool(faults)
        requests = {}
        for client in clients:
            requests.update(client.requests)
        return Recorded(read_recording(shim.recording), requests)

    return record_run


@pytest.fixture(scope="module")
def calm(record):
    return record([15_000], 900, {}, is_large=True)


@pytest.fixture(scope="module")
def rotated(record):
    return record([8_000, 8_000], 100, {}, is_rotated=True)


@pytest.fixture(scope="module")
def faulty(record):
    return record([4_000, 4_000, 4_000], 500, FAULTS)


@pytest.fixture(scope="module")
def ahead(record):
    """The first sync of the database fails, which under constant load is that of the background checkpointer.

    It ends after another commit has written to the log, however busy the machine is.
    """
    return record([], 900, {"next_database_syncs": 1, "late_database_syncs": 1}, is_large=True)


@pytest.fixture(scope="module")
def twice_ahead(record):
    """The failing sync takes so long that another one starts and succeeds before the next checkpoint.

    Most pages that the first one covers are not written again.
    """
    return record([], 900, {"next_database_syncs": 1, "late_database_syncs": 6 << 20}, times=1, is_large=True)


# Finding mistakes in what the disk kept

whole_number_of = functools.cache(functools.partial(number_of, longest=LONGEST))


def rows(folder, with_integrity_check):
    """All rows of the database in a folder, as text."""
    database = folder / "data" / "tokens.db"
    if not database.exists():
        return {}
    # A read-only connection does not checkpoint at its end, which saves time. A journal must be rolled back first.
    mode = "rw" if database.with_name("tokens.db-journal").exists() else "ro"
    connection = sqlite3.connect(f"file:{database}?mode={mode}", uri=True)
    try:
        if with_integrity_check:
            assert connection.execute("PRAGMA integrity_check").fetchall() == [("ok",)]
        if not connection.execute("SELECT 1 FROM sqlite_schema WHERE name = 'token'").fetchone():
            return {}
        found = connection.execute(
            f"SELECT value, key, key_number, written_at, expires_at FROM token WHERE length(value) <= {2 * LONGEST}").fetchall()
        # Before there is a row, there may be no key ring.
        ring = KeyRing(folder / "data" / "keys") if found else None
        tokens = (ring.open(*row) for row in found)
        return {unique_id.decode(): token_info.decode() for unique_id, token_info in tokens}
    finally:
        connection.close()


def problem(found, acknowledged):
    """What is wrong with these values, or None."""
    try:
        numbers = {unique_id: whole_number_of(unique_id, value) for unique_id, value in found.items()}
    except AssertionError as error:
        return str(error)
    for unique_id, least in acknowledged.items():
        if numbers.get(unique_id, 0) < least:
            return f"{unique_id} has number {numbers.get(unique_id, 0)}, but {least} was acknowledged"
    return None


def problems(events, requests, cuts, folder, generator):
    """The mistakes after cuts at these moments, by moment."""
    found = {}
    checked = set(generator.sample(sorted(cuts), min(len(cuts), INTEGRITY_CHECKS)))
    for cut, files, acknowledged in replay(events, requests, cuts, generator):
        write_files(folder, files)
        try:
            reason = problem(rows(folder, cut in checked), acknowledged)
        # The last three are those of a key ring that is lost, or lacks a key.
        except (AssertionError, sqlite3.DatabaseError, OSError, ValueError, KeyError) as error:
            reason = repr(error)
        if reason:
            found[cut] = reason
    return found


# The tests

@pytest.mark.parametrize("name", ["calm", "rotated", "faulty", "ahead", "twice_ahead"])
def test_no_acknowledged_write_is_lost_in_a_power_cut(request, fast_folder, is_long, name):
    recorded = request.getfixturevalue(name)
    generator = random.Random(22)
    cuts = choose_cuts(recorded.events, 4_000 if is_long else 500, generator)
    found = problems(recorded.events, recorded.requests, cuts, fast_folder / "replayed", generator)
    assert not found, f"{len(found)} of {len(cuts)}, the first: {min(found.items())}"


@pytest.mark.parametrize("name", ["calm", "rotated", "faulty", "ahead", "twice_ahead"])
def test_no_power_cut_is_taken_for_a_damaged_log(request, fast_folder, is_long, name):
    """Damage means an acknowledged write that cannot be read; a server that refuses to start after a power cut is useless."""
    recorded = request.getfixturevalue(name)
    generator = random.Random(27)
    cuts = choose_cuts(recorded.events, 1_000 if is_long else 40, generator)
    folder = fast_folder / "replayed"
    for cut, files, _ in replay(recorded.events, recorded.requests, cuts, generator):
        write_files(folder, files)
        done = command(folder / "data", "stats")
        assert done.returncode == 0 or "there is no store" in done.stderr, (cut, done.stderr)


def test_the_recording_is_complete(calm):
    *_, (_, _, acknowledged) = replay(calm.events, calm.requests, {len(calm.events)}, random.Random(23))
    last = {}
    for (start, _), requests in calm.requests.items():
        last.update(requests if start == 2 else ())
    assert last and last.items() <= acknowledged.items(), "each answer that a client has seen was recorded"
    log_starts = sum(event.kind == Kind.WRITTEN and event.position == 0 and len(event.data) == 32
                     for event in calm.events)
    assert log_starts >= 3, "the log was moved to the database several times"


@pytest.mark.parametrize("name, kind", [("calm", Kind.SYNCED), ("ahead", Kind.SYNC_FAILED),
                                        ("twice_ahead", Kind.SYNC_FAILED)])
def test_the_log_is_written_on_while_the_database_is_synced(request, name, kind):
    """The recordings show background checkpoints: pages of the database, commits, and then the sync of the pages."""
    paths, state = {}, "synced"
    for event in request.getfixturevalue(name).events:
        if event.kind == Kind.OPENED:
            paths[event.subject] = event.path
        path = paths.get(event.subject, "")
        if event.kind == Kind.WRITTEN and path.endswith("-wal") and state == "moved":
            state = "written on"
        elif event.kind == Kind.WRITTEN and path.endswith(".db"):
            state = "moved"
        elif event.kind == kind and path.endswith(".db"):
            if state == "written on":
                return
            state = "synced"
    raise AssertionError("no sync came after further commits")


def test_the_check_finds_writes_that_were_never_synced(calm, fast_folder):
    generator = random.Random(24)
    database, kept = set(), []
    for event in calm.events:
        if event.kind == Kind.OPENED:
            (database.add if "tokens.db" in event.path else database.discard)(event.subject)
        if event.kind != Kind.SYNCED or event.subject not in database:
            kept.append(event)
    cuts = generator.sample(range(len(kept) // 2, len(kept)), 12)
    assert problems(kept, calm.requests, cuts, fast_folder / "replayed", generator)


def test_the_check_finds_answers_that_were_sent_before_their_sync(calm, fast_folder):
    generator = random.Random(25)
    events, cuts = list(calm.events), []
    for number in range(len(events) - 1):
        if (events[number].kind, events[number + 1].kind) == (Kind.SYNCED, Kind.SENT):
            events[number], events[number + 1] = events[number + 1], events[number]
            cuts.append(number + 1)
    cuts = generator.sample(cuts, 40)
    assert problems(events, calm.requests, cuts, fast_folder / "replayed", generator)


def fetch_all(server, unique_ids):
    """The values that the server returns for these ids."""
    found = {}
    with Connection(server.address) as connection:
        for unique_id in unique_ids:
            body = connection.exchange(get(unique_id)).body
            if body != NOT_FOUND:
                found[unique_id] = body.removeprefix(b'{"status":"true","token_info":"').removesuffix(b'"}').decode()
    return found


def test_the_server_starts_and_has_everything_after_a_power_cut(record, serve, fast_folder, is_long):
    """With the default settings, to show that the server can read its own files."""
    recorded = record([3_000], 150, {})
    generator = random.Random(26)
    cuts = choose_cuts(recorded.events, 250 if is_long else 25, generator)
    folder = fast_folder / "replayed"
    for cut, files, acknowledged in replay(recorded.events, recorded.requests, cuts, generator):
        write_files(folder, files)
        server = serve(data=folder / "data")
        assert problem(fetch_all(server, acknowledged), acknowledged) is None, cut
        assert server.post(fresh_id(), "after") == STORED
        server.kill()


def exchange_recorded(server, start, requests, unique_id, number):
    """Stores a value in a recorded run and returns the answer."""
    with Connection(server.address) as connection:
        requests[start, connection.socket.getsockname()[1]] = [(unique_id, number)]
        return connection.exchange(post(unique_id, value_of(unique_id, number, LONGEST))).body


def crash_and_repeat(shim, folder, start, requests, unique_id):
    """Kills the server before a write's sync and stores the same again; returns whether the repeated write changed nothing."""
    server = shim.serve(folder)
    log = shim.data / "tokens.db-wal"
    before = log.read_bytes()
    until(lambda: 0.02 < time.time() % 1 < 0.1, pause=0.01)
    second = int(time.time())
    shim.set(sync_delay_microseconds=60_000_000)
    with Connection(server.address) as connection:
        connection.send(post(unique_id, value_of(unique_id, 1, LONGEST)))
        until(lambda: log.read_bytes() != before, pause=0.001)
        assert connection.is_silent(0.1)
    server.kill()
    shim.set(sync_delay_microseconds=0)
    server = shim.serve(folder)
    looks_stored = server.get(unique_id) != NOT_FOUND
    assert exchange_recorded(server, start + 1, requests, unique_id, 1) == STORED
    in_time = int(time.time()) == second
    # Stopped, not killed, because the answer is recorded just after it is sent.
    assert server.stop() == 0
    return looks_stored and in_time


def test_a_write_that_is_repeated_after_a_crash_is_on_disk_when_it_is_acknowledged(new_disk, fast_folder):
    """A crash before a write's sync leaves the write in the WAL, where the next start finds it: it looks stored.

    If it is repeated in the same second, it changes nothing, not even the time.
    """
    requests = {}
    with new_disk() as shim:
        for attempt in range(5):
            if crash_and_repeat(shim, fast_folder / "crashed", 2 * attempt + 1, requests, f"id{attempt}"):
                break
    events = read_recording(shim.recording)
    cuts = {number + 1 for number, event in enumerate(events) if event.kind == Kind.SENT}
    for seed in range(20):
        found = problems(events, requests, cuts, fast_folder / "replayed", random.Random(seed))
        assert not found, found


def test_a_write_whose_sync_failed_before_a_crash_does_not_take_later_ones_with_it(new_disk, fast_folder):
    """The next start finds that write in the WAL although it may not be on the disk; later writes follow it there."""
    requests = {}
    with new_disk() as shim:
        server = shim.serve(fast_folder / "crashed")
        assert exchange_recorded(server, 1, requests, "first", 1) == STORED
        shim.set(sync_failures=ALWAYS)
        assert exchange_recorded(server, 1, requests, "second", 1) == WRITE_FAILED
        server.kill()
        shim.heal()
        server = shim.serve(fast_folder / "crashed")
        for number in range(1, 4):
            assert exchange_recorded(server, 2, requests, "third", number) == STORED
        assert server.stop() == 0
    events = read_recording(shim.recording)
    for seed in range(5):
        cuts = range(len(events) + 1)
        found = problems(events, requests, cuts, fast_folder / "replayed", random.Random(seed))
        assert not found, f"{len(found)} of {len(cuts)}, the first: {min(found.items())}"
