"""Files of a running server that were copied one after the other: a start has all that was acknowledged before, or refuses.

A run is recorded with the order of all its writes. From that, copies are made as programs make them: each file is read from its
beginning to its end, in pieces, while the server writes on. Real programs do the same in `test_a_program_copies_a_live_store`.
"""
import collections
import itertools
import random
import shutil
import sqlite3
import subprocess
import time

import pytest

from contract import STORED
from http_client import Connection, post
from power_cut import Answers, Kind, read_recording
from registers import value_of
from server_process import beside
from storage_shim import StorageShim
from store_files import command
from test_power_cut import LONGEST, Client, make_large, problem, rows

REFUSAL = "are not of the same moment"
NAMES = ("tokens.db", "tokens.db-wal")


class LivePath:
    """The files of a recorded run as another program sees them."""

    def __init__(self):
        self.files, self.opened = {}, {}

    def apply(self, event):
        match event.kind:
            case Kind.OPENED if not event.position:
                self.opened[event.subject] = self.files.setdefault(event.path, bytearray())
            case Kind.WRITTEN:
                content, end = self.opened[event.subject], event.position + len(event.data)
                content.extend(bytes(max(0, end - len(content))))
                content[event.position:end] = event.data
            case Kind.TRUNCATED:
                content = self.opened[event.subject]
                del content[event.position:]
                content.extend(bytes(event.position - len(content)))
            case Kind.UNLINKED:
                self.files.pop(event.path, None)
            case Kind.RENAMED:
                source, target = event.path.split("\0")
                self.files[target] = self.files.pop(source)

    def find(self, name):
        """The content of a store's file."""
        return next((content for path, content in self.files.items() if path.endswith("/" + name)), b"")


class Copy:
    """A copy of both files, made by a program that reads pieces at these moments.

    Some programs read up to the end that they meet, others only as much as the file had when they opened it.
    """

    def __init__(self, first, last, changes, generator):
        self.order = generator.sample(NAMES, 2)
        pieces = generator.choice((1, 3, 10, 40))
        # Mostly around the changes of the files, which is when copies go wrong.
        moments = sorted(generator.choice(changes if generator.random() < 0.9 else range(first, last + 1)) for _ in range(2 * pieces))
        self.reads = collections.deque(zip(moments, self.order[:1] * pieces + self.order[1:] * pieces))
        # Two at once, as by a program with several threads.
        if generator.random() < 0.2:
            self.reads = collections.deque(zip(moments, self.order * pieces))
        self.left = collections.Counter(name for _, name in self.reads)
        self.is_as_long_as_at_first = generator.random() < 0.5
        self.copied, self.lengths, self.ended = {name: b"" for name in NAMES}, {}, set()
        self.share = {name: sorted(generator.random() for _ in range(pieces - 1)) for name in NAMES}
        self.expected = None

    def read(self, live, number):
        while self.reads and self.reads[0][0] <= number:
            _, name = self.reads.popleft()
            self.left[name] -= 1
            content = live.find(name)
            length = self.lengths.setdefault(name, len(content))
            if name in self.ended:
                continue
            have = len(self.copied[name])
            end = len(content)
            if self.left[name]:
                share = self.share[name][-self.left[name]]
                end = max(have, int(share * length))
            if self.is_as_long_as_at_first:
                end = min(end, length)
            self.copied[name] += bytes(content[have:end])
            # The end of the file was met.
            if len(content) < end or have > len(content):
                self.ended.add(name)

    def write(self, folder):
        shutil.rmtree(folder, ignore_errors=True)
        folder.mkdir(mode=0o700, parents=True)
        for name in NAMES:
            copied = self.copied[name]
            if self.is_as_long_as_at_first:
                # As tar does.
                copied += bytes(self.lengths[name] - len(copied))
            (folder / name).write_bytes(copied)


@pytest.fixture(scope="module")
def recorded(shim_library, tmp_path_factory):
    """A run with bursts, between which the WAL is emptied, and with checkpoints under load, also in the background."""
    folder = tmp_path_factory.mktemp("copies")
    clients = [Client(number, 8) for number in range(4)]
    with StorageShim(shim_library, folder / "shim", is_recorded=True) as shim:
        server = shim.serve(folder / "recorded")
        # Only large databases are checkpointed in the background.
        make_large(server)
        for burst in (20, 3, 300, 1, 30, 900):
            with beside(lambda client, _: client.write(server.address, 1, burst), clients):
                pass
            # Until the WAL was emptied.
            time.sleep(1.5)
        assert server.stop() == 0
        requests = {key: sent for client in clients for key, sent in client.requests.items()}
        yield read_recording(shim.recording), requests, shim.data / "keys"


def first_answer(events):
    """The number of the event from which on there is a store."""
    return next(number for number, event in enumerate(events) if event.kind == Kind.SENT)


def copies_of(events, requests, count, generator):
    """Copies that were made during a recorded run, each with what was acknowledged when it was begun."""
    first = first_answer(events)
    changes = [number for number, event in enumerate(events) if number >= first and event.kind in (Kind.WRITTEN, Kind.TRUNCATED)]
    planned = collections.defaultdict(list)
    for _ in range(count):
        length = int(10 ** generator.uniform(0, 3.7))
        begin = generator.choice(changes)
        end = min(begin + length, len(events) - 1)
        copy = Copy(begin, end, [number for number in changes if begin <= number <= end], generator)
        planned[copy.reads[0][0]].append(copy)
    live, answers, open_copies = LivePath(), Answers(requests), []
    for number, event in enumerate(events):
        live.apply(event)
        answers.apply(event)
        for copy in planned.pop(number, ()):
            copy.expected = dict(answers.acknowledged)
            open_copies.append(copy)
        # The WAL gets its mark microseconds after it was truncated: what a program reads between these two calls shows nothing.
        if event.kind == Kind.TRUNCATED and event.position:
            continue
        for copy in open_copies:
            copy.read(live, number)
        for copy in open_copies:
            if not copy.reads:
                yield number, copy
        open_copies = [copy for copy in open_copies if copy.reads]


def judge(folder, expected):
    """Whether a start takes a copy; and if it does, what is wrong with it."""
    done = command(folder, "stats")
    if done.returncode != 0:
        assert REFUSAL in done.stderr or "is damaged" in done.stderr, done.stderr
        return False, None
    try:
        return True, problem(rows(folder.parent, with_integrity_check=True), expected)
    except (AssertionError, sqlite3.DatabaseError) as error:
        return True, repr(error)


def test_a_start_has_all_that_was_acknowledged_before_a_copy_or_refuses(recorded, tmp_path, is_long):
    events, requests, ring = recorded
    generator = random.Random(20)
    outcomes, wrong = collections.Counter(), {}
    for number, copy in copies_of(events, requests, 6_000 if is_long else 150, generator):
        copy.write(tmp_path / "copy" / "data")
        shutil.copy(ring, tmp_path / "copy" / "data")
        is_taken, fault = judge(tmp_path / "copy" / "data", copy.expected)
        outcomes[is_taken] += 1
        if fault:
            wrong[number] = fault
    assert not wrong, f"{len(wrong)} of {outcomes[True]} that were taken, the first: {min(wrong.items())}"
    assert min(outcomes[True], outcomes[False]) > 10


def test_files_of_one_moment_are_taken(recorded, tmp_path, is_long):
    """A snapshot, or what is there after the server was killed."""
    events, requests, ring = recorded
    generator = random.Random(21)
    first = first_answer(events)
    moments = set(generator.sample(range(first, len(events)), 2_000 if is_long else 60))
    live, answers = LivePath(), Answers(requests)
    for number, event in enumerate(events):
        live.apply(event)
        answers.apply(event)
        if number in moments:
            folder = tmp_path / "copy" / "data"
            shutil.rmtree(folder, ignore_errors=True)
            folder.mkdir(mode=0o700, parents=True)
            for name in NAMES:
                (folder / name).write_bytes(live.find(name))
            shutil.copy(ring, folder)
            assert judge(folder, answers.acknowledged) == (True, None), number


# How each program makes a backup of `data`, and restores it below `restored`; `repository` is its own folder, and `{n}` counts.
# Where a folder is restored with its whole path, the data folder is looked for.
PROGRAMS = {
    "cp": (["cp -r {data} {repository}/{n}"], ["cp -r {repository}/{n} {restored}/data"]),
    "tar": (["tar -czf {repository}/{n}.tar -C {data} ."], ["mkdir {restored}/data", "tar -xf {repository}/{n}.tar -C {restored}/data"]),
    "rsync": (["rsync -a {data}/ {repository}/latest"], ["cp -rp {repository}/latest {restored}/data"]),
    "borg": (["borg create {repository}::{n} {data}"], ["cd {restored} && borg extract {repository}::{n}"]),
    "restic": (["restic -r {repository} backup --quiet {data}"], ["restic -r {repository} restore latest --quiet --target {restored}"]),
    "rdiff-backup": (["rdiff-backup {data} {repository}"], ["rdiff-backup -r now {repository} {restored}/data"]),
    "duplicity": (["duplicity --no-encryption --archive-dir {repository}-cache {data} file://{repository}"],
                  ["duplicity --no-encryption --archive-dir {repository}-cache restore file://{repository} {restored}/data"]),
}
PREPARATIONS = {"borg": "borg init -e none {repository}", "restic": "restic -r {repository} init --quiet"}
ENVIRONMENT = ["env", "RESTIC_PASSWORD=x", "BORG_RELOCATED_REPO_ACCESS_IS_OK=yes", "BORG_UNKNOWN_UNENCRYPTED_REPO_ACCESS_IS_OK=yes"]
# Those of the plain run; the others are only installed for the long one.
QUICK = ("cp", "tar")


class Writers:
    """Clients that store ever new values, in bursts or without a pause; `stored` has the last number of each id that was acknowledged."""

    def __init__(self, server, count):
        self.server, self.stored = server, {}
        self.ids = [f"id{number}" for number in range(count)]
        with Connection(server.address) as connection:
            for start in range(0, count, 100):
                group = self.ids[start:start + 100]
                connection.send(b"".join(post(unique_id, value_of(unique_id, 1, LONGEST)) for unique_id in group))
                for unique_id in group:
                    assert connection.receive("POST").body == STORED
                    self.stored[unique_id] = 1

    def write(self, client, over):
        """Stores values of a share of the ids, and adds new ones."""
        generator, numbers = random.Random(client), itertools.count(2)
        with Connection(self.server.address) as connection:
            while not over.is_set():
                for _ in range(generator.choice((1, 5, 50, 400))):
                    number = next(numbers)
                    unique_id = f"new{client}-{number}" if generator.random() < 0.3 else generator.choice(self.ids[client::4])
                    assert connection.exchange(post(unique_id, value_of(unique_id, number, LONGEST)), "POST").body == STORED
                    self.stored[unique_id] = number
                # Longer than until the WAL is emptied, now and then.
                over.wait(generator.choice((0, 0.05, 1.3)))


def execute(commands, **places):
    for line in commands:
        # Some say with their status that a file has changed meanwhile.
        subprocess.run([*ENVIRONMENT, "sh", "-c", line.format(**places)], capture_output=True, timeout=120, check=False)


@pytest.mark.parametrize("program", PROGRAMS)
def test_a_program_copies_a_live_store(serve, tmp_path, is_long, program):
    if not is_long and program not in QUICK:
        pytest.skip("takes long")
    server = serve()
    writers = Writers(server, 6_000 if is_long else 1_000)
    places = {"data": server.data, "repository": tmp_path / "repository"}
    if program in PREPARATIONS:
        execute([PREPARATIONS[program]], **places)
    else:
        places["repository"].mkdir()
    outcomes = collections.Counter()
    backup, restore = PROGRAMS[program]
    with beside(writers.write, range(4)):
        for number in range(30 if is_long else 4):
            time.sleep(random.Random(number).uniform(0, 1.5))
            expected = dict(writers.stored)
            execute(backup, n=number, **places)
            restored = tmp_path / f"restored{number}"
            restored.mkdir()
            execute(restore, n=number, restored=restored, **places)
            [data] = [path.parent for path in restored.rglob("tokens.db")]
            for name in ("lock", "control.sock"):
                (data / name).unlink(missing_ok=True)
            data.chmod(0o700)
            is_taken, fault = judge(data, expected)
            assert fault is None, (number, fault, outcomes)
            outcomes[is_taken] += 1
            shutil.rmtree(restored)
    print(program, dict(outcomes))
