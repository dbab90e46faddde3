"""Replays a recording of a server's disk and answers up to a power cut: what may be on the disk, and what must be."""
import enum
import os
import re
import shutil
import struct
from dataclasses import dataclass

from contract import STORED

SECTOR = 512
EVENT = struct.Struct("<IIQQ")
CONTENT_LENGTH = re.compile(rb"\r\nContent-Length: ([0-9]+)\r\n")

# enum kind in shim/storage_shim.c
Kind = enum.IntEnum("Kind", "STARTED OPENED WRITTEN SYNCED SYNC_FAILED TRUNCATED UNLINKED RENAMED SENT")


@dataclass(slots=True)
class Event:
    """One recorded event. Its subject is the number of an open file, or the port of a client; paths are in `data`.

    The position of a sync is the number of the first event that it does not cover. It is not 0 for an opened folder.
    """
    kind: Kind
    subject: int
    position: int
    data: memoryview

    @property
    def path(self):
        return bytes(self.data).decode()


def read_recording(path):
    """All events in their order, without those of -shm files, which each start creates again."""
    content = memoryview(path.read_bytes())
    events = []
    # For the recording process: its -shm files, and our numbers of the events, which it numbered from 0.
    left_out, numbers = set(), []
    end = 0
    while end < len(content):
        kind, subject, position, length = EVENT.unpack_from(content, end)
        start, end = end + EVENT.size, end + EVENT.size + length
        event = Event(Kind(kind), subject, position, content[start:end])
        if kind == Kind.STARTED:
            left_out, numbers = set(), []
        elif kind == Kind.OPENED and event.path.endswith("-shm"):
            left_out.add(subject)
        elif kind in (Kind.SYNCED, Kind.SYNC_FAILED):
            event.position = numbers[position] if position < len(numbers) else len(events)
        numbers.append(len(events))
        if subject not in left_out or kind == Kind.SENT:
            events.append(event)
    return events


@dataclass(slots=True)
class Change:
    """A write or a truncation that has not been synced yet."""
    event: int
    position: int
    data: memoryview | None
    size: int
    is_doubtful: bool = False


class File:
    """The synced contents of a file, and the changes to it that a power cut may undo."""

    def __init__(self):
        self.certain = bytearray()
        self.changes = []

    @property
    def size(self):
        """The contents as the server sees them."""
        return self.changes[-1].size if self.changes else len(self.certain)

    def write(self, event, position, data):
        self.changes.append(Change(event, position, data, max(self.size, position + len(data))))

    def truncate(self, event, size):
        self.changes.append(Change(event, size, None, size))

    def sync(self, covered, succeeded):
        """Marks the changes before an event as synced, or leaves the writes among them in doubt.

        In doubt for ever: after a failure the kernel takes them for written and forgets them. They may be on the disk,
        or not, also after a later sync that succeeds.
        """
        if not succeeded:
            for change in self.changes:
                change.is_doubtful |= change.event < covered and change.data is not None
            return
        remaining = []
        for change in self.changes:
            if change.event >= covered:
                remaining.append(change)
            elif change.is_doubtful:
                remaining.append(change)
                resize(self.certain, max(len(self.certain), change.size))
            elif change.data is None:
                resize(self.certain, change.size)
                remaining = [other for other in remaining if other.position + len(other.data) <= change.size]
            else:
                end = change.position + len(change.data)
                resize(self.certain, max(len(self.certain), end))
                self.certain[change.position:end] = change.data
                remaining = [other for other in remaining
                             if other.position >= end or other.position + len(other.data) <= change.position]
        for change in remaining:
            # The file's length is certain, also while the content is in doubt.
            if change.is_doubtful:
                change.size = max(change.size, len(self.certain))
        self.changes = remaining

    def after_power_cut(self, generator):
        """A possible content of the disk: with no change, all, those up to some moment, or any sectors of any of them."""
        fate = generator.choice(("none", "all", "prefix", "any"))
        count = len(self.changes)
        if not count or fate == "none":
            return self.certain
        # The size, with the truncations that led to it, is kept independently of the written data.
        sized = count if fate == "all" else generator.randint(0, count)
        chance = generator.choice((0.1, 0.5, 0.9))
        content = bytearray(self.certain)
        final = self.changes[sized - 1].size if sized else len(content)
        for number, change in enumerate(self.changes):
            if change.data is None:
                if number < sized:
                    resize(content, change.size)
            elif fate == "all" or (fate == "prefix" and number < sized):
                overlay(content, change.position, change.data, generator)
            elif fate == "any" or number == sized:
                for start, part in sectors(change):
                    if generator.random() < chance:
                        overlay(content, start, part, generator)
        resize(content, final, generator)
        return content


def resize(content, size, generator=None):
    """Truncates or extends; new bytes may have any value."""
    if size < len(content):
        del content[size:]
    elif generator and generator.random() < 0.5:
        content.extend(generator.randbytes(size - len(content)))
    else:
        content.extend(bytes(size - len(content)))


def overlay(content, position, data, generator):
    if position > len(content):
        resize(content, position, generator)
    content[position:position + len(data)] = data


def sectors(change):
    """The parts of a write, each within one sector."""
    start, end = change.position, change.position + len(change.data)
    while start < end:
        stop = min(end, start // SECTOR * SECTOR + SECTOR)
        yield start, change.data[start - change.position:stop - change.position]
        start = stop


class Disk:
    """The files below the recorded folder, by path, as the server sees them and as they were synced."""

    def __init__(self):
        self.names = {}
        self.certain_names = {}
        # The names that appeared and disappeared since the last sync of their folder, as functions that repeat it.
        self.name_changes = []
        self.opened = {}

    def apply(self, number, event):
        """Applies an event."""
        match event.kind:
            case Kind.STARTED:
                self.opened = {}
            case Kind.OPENED:
                self._open(number, event)
            case Kind.WRITTEN:
                self.opened[event.subject].write(number, event.position, event.data)
            case Kind.TRUNCATED:
                self.opened[event.subject].truncate(number, event.position)
            case Kind.SYNCED | Kind.SYNC_FAILED:
                self.opened[event.subject].sync(event.position, event.kind == Kind.SYNCED)
            case Kind.UNLINKED:
                self._change_names(number, event.path, lambda names: names.pop(event.path, None))
            case Kind.RENAMED:
                source, target = event.path.split("\0")
                self._change_names(number, target, lambda names: names.update({target: names.pop(source)}))

    def _open(self, number, event):
        if event.position:
            self.opened[event.subject] = Folder(self, event.path)
            return
        if event.path not in self.names:
            file = File()
            self._change_names(number, event.path, lambda names: names.update({event.path: file}))
        self.opened[event.subject] = self.names[event.path]

    def _change_names(self, number, path, change):
        change(self.names)
        self.name_changes.append((number, path.rpartition("/")[0], change))

    def sync_names(self, folder, covered):
        """Marks the changes to a folder's names before an event as synced."""
        remaining = []
        for number, parent, change in self.name_changes:
            if parent == folder and number < covered:
                change(self.certain_names)
            else:
                remaining.append((number, parent, change))
        self.name_changes = remaining

    def after_power_cut(self, generator):
        """A possible content of the disk, by path: with the changes of names up to some moment."""
        names = dict(self.certain_names)
        for _, _, change in self.name_changes[:generator.randint(0, len(self.name_changes))]:
            change(names)
        return {path: file.after_power_cut(generator) for path, file in names.items()}


class Folder:
    """A folder that was opened to sync its names."""

    def __init__(self, disk, path):
        self.disk = disk
        self.path = path

    def sync(self, covered, succeeded):
        if succeeded:
            self.disk.sync_names(self.path, covered)


class Answers:
    """The writes that were acknowledged to clients, from the bytes that were sent to them."""

    def __init__(self, requests):
        # By start of the server and port of the client, in order: unique id and number. Other clients only read.
        self.requests = requests
        self.acknowledged = {}
        self.counts = dict.fromkeys(requests, 0)
        self.starts = 0
        self.unread = {}

    def apply(self, event):
        if event.kind == Kind.STARTED:
            self.starts += 1
        client = (self.starts, event.subject)
        if event.kind != Kind.SENT or client not in self.requests:
            return
        unread = self.unread.get(client, b"") + bytes(event.data)
        while True:
            head, end, rest = unread.partition(b"\r\n\r\n")
            length = int(CONTENT_LENGTH.search(head + b"\r\n")[1]) if end else 0
            if not end or len(rest) < length:
                break
            self._take(client, rest[:length])
            unread = rest[length:]
        self.unread[client] = unread

    def _take(self, client, body):
        unique_id, number = self.requests[client][self.counts[client]]
        self.counts[client] += 1
        if body == STORED:
            self.acknowledged[unique_id] = max(number, self.acknowledged.get(unique_id, 0))


def replay(events, requests, cuts, generator):
    """Replays a recording and yields, for each cut, a possible disk and what was acknowledged before."""
    disk, answers = Disk(), Answers(requests)
    waiting = sorted(cuts, reverse=True)
    for number in range(len(events) + 1):
        while waiting and waiting[-1] == number:
            waiting.pop()
            yield number, disk.after_power_cut(generator), answers.acknowledged
        if number < len(events):
            disk.apply(number, events[number])
            answers.apply(events[number])


def choose_cuts(events, count, generator):
    """Moments of power cuts: around the events that matter most, and at random."""
    rare, checkpoints, syncs = [], [], []
    database = set()
    for number, event in enumerate(events):
        if event.kind == Kind.STARTED:
            database = set()
        elif event.kind == Kind.OPENED and event.path.endswith("tokens.db"):
            database.add(event.subject)
        if event.kind in (Kind.STARTED, Kind.OPENED, Kind.TRUNCATED, Kind.UNLINKED, Kind.RENAMED):
            rare.append(number)
        elif event.kind in (Kind.SYNCED, Kind.SYNC_FAILED):
            (checkpoints if event.subject in database else syncs).append(number)
        elif event.kind == Kind.WRITTEN and (event.subject in database or event.position == 0):
            checkpoints.append(number)
    cuts = {0, len(events)}
    while len(cuts) < min(count, len(events)):
        near = generator.choice((rare, checkpoints, syncs, range(len(events))))
        cuts.add(min(len(events), max(0, generator.choice(near) + generator.randint(-2, 3))))
    return cuts


def write_files(folder, contents):
    """Puts files into a folder of their own."""
    shutil.rmtree(folder, ignore_errors=True)
    for path, content in contents.items():
        file = folder / path
        file.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        with open(file, "wb", opener=lambda name, flags: os.open(name, flags, 0o600)) as target:
            target.write(content)
