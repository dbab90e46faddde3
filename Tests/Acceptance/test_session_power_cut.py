"""Sessions, revocations and erasures that the API has acknowledged survive a power cut at any moment.

One client makes one change at a time, so after each cut the store has the changes that were acknowledged, and perhaps the
next one. Nothing of a user whose erasure was acknowledged is on the disk, except where SQLite may leave it (see used_parts).
"""
import base64
import json
import random
import re
import shutil
import signal
import sqlite3
import struct

import pytest

from access import api_request, make_key
from http_client import Connection, ProtocolError
from power_cut import Answers, Disk, choose_cuts, read_recording, write_files
from sealed_rows import KeyRing
from storage_shim import StorageShim

PAGE_SIZE = 2_048
SLOW_SYNCS = {"sync_delay_microseconds": 500}


@pytest.fixture(name="disk")
def recorded_disk(shim_library, tmp_path):
    with StorageShim(shim_library, tmp_path / "shim", is_recorded=True) as shim:
        yield shim


class Client:
    """Makes changes by the API, and records what the store is to have after each of them."""

    def __init__(self, key):
        self.key = key
        self.generator = random.Random(29)
        self.users = 0
        # By id, whose it is.
        self.sessions = {}
        self.tokens = {}
        # For each start and port, what was there before each request, and after the last one.
        self.states = {}
        # For each start and port, the users that the requests erase; None for others.
        self.erased = {}

    def write(self, address, start, count):
        try:
            with Connection(address) as connection:
                place = start, connection.socket.getsockname()[1]
                states, erased = self.states.setdefault(place, []), self.erased.setdefault(place, [])
                states.append((dict(self.sessions), dict(self.tokens)))
                while len(erased) < count:
                    method, path, body, done = self._change(erased)
                    # Unknown until it is acknowledged, as the server chooses the ids of sessions.
                    states.append(None)
                    condition = ["If-None-Match: *"] if method == "PUT" else []
                    response = connection.exchange(api_request(self.key, method, path, body, *condition))
                    assert response.status in (200, 201), response
                    done(json.loads(response.body))
                    states[-1] = dict(self.sessions), dict(self.tokens)
        except (OSError, ProtocolError):
            return

    def _change(self, erased):
        """A request: its method, path and body, and what its answer means."""
        owners = sorted(set(self.sessions.values()) | set(self.tokens))
        kind = self.generator.choice(["session", "session", "token", "token", "end", "erase"])
        erased.append(None)
        if kind == "erase" and owners:
            user = erased[-1] = self.generator.choice(owners)
            return "DELETE", f"/v1/users/{user}", None, lambda _: self._forget(user)
        if kind == "end" and self.sessions:
            session = self.generator.choice(sorted(self.sessions))
            return "DELETE", f"/v1/sessions/{session}", None, lambda _: self.sessions.pop(session)
        self.users += 1
        # In a page of which only some sectors were written, the beginning of one name may stand before the end of another one:
        # with numbers, that would be a third user's name.
        user = f"canary-{self.generator.getrandbits(64):016x}-of-the-ledger"
        if owners and self.generator.random() < 0.5:
            user = self.generator.choice(owners)
        if kind == "token":
            token = f"canary of {user}, number {self.users}" * self.generator.choice([1, 3, 40, 300])
            if user in self.tokens:
                return "DELETE", f"/v1/users/{user}/token", None, lambda _: self.tokens.pop(user)
            return "PUT", f"/v1/users/{user}/token", {"token_info": token}, lambda _: self.tokens.update({user: token})
        return "POST", "/v1/sessions", {"user": user}, lambda reply: self.sessions.update({reply["id"]: user})

    def _forget(self, user):
        self.tokens.pop(user, None)
        self.sessions = {session: owner for session, owner in self.sessions.items() if owner != user}


class Answered(Answers):
    """How many answers each client has got."""
    last = None

    def _take(self, client, body):
        self.counts[client] += 1
        self.last = client


def content(folder):
    """The sessions and tokens of the database in a folder."""
    database = folder / "data" / "tokens.db"
    if not database.exists():
        return {}, {}
    connection = sqlite3.connect(f"file:{database}?mode=rw", uri=True)
    try:
        if not connection.execute("SELECT 1 FROM sqlite_schema WHERE name = 'session'").fetchone():
            return {}, {}
        tokens = connection.execute("SELECT value, key, key_number, written_at, expires_at FROM token").fetchall()
        sessions = connection.execute(
            "SELECT id, user, CAST(key || id || user_key AS BLOB), key_number, created_at, expires_at FROM session").fetchall()
        # Before there is a row, there may be no key ring.
        ring = KeyRing(folder / "data" / "keys") if tokens or sessions else None
        return (
            {base64.urlsafe_b64encode(found).decode().rstrip("="): ring.open(*row)[0].decode() for found, *row in sessions},
            {unique_id.decode(): info.decode() for unique_id, info in (ring.open(*row) for row in tokens)})
    finally:
        connection.close()


def used_parts(file):
    """A file's content, with zeros in the unused parts of B-tree pages.

    SQLite's secure_delete overwrites a removed row, but not what stays there of a row that has moved to another page, which
    deploy's documentation says. The format: https://www.sqlite.org/fileformat2.html#b_tree_pages
    """
    content = bytearray(file.read_bytes())
    first, frame_header = {".db": (0, 0), ".db-wal": (32, 24)}.get(file.suffix, (0, None))
    if frame_header is None:
        return content
    for page in range(first + frame_header, len(content) - PAGE_SIZE + 1, PAGE_SIZE + frame_header):
        header = page + (100 if content[page:page + 6] == b"SQLite" else 0)
        pointers = header + {0x02: 12, 0x05: 12, 0x0A: 8, 0x0D: 8}.get(content[header], 0)
        if pointers > header:
            cells, begin = struct.unpack_from(">HH", content, header + 3)
            unused = slice(pointers + 2 * cells, page + (begin or 65_536))
            content[unused] = bytes(len(content[unused]))
    return content


def test_what_the_api_has_acknowledged_survives_a_power_cut(disk, tmp_path, is_long):
    keys = tmp_path / "api-keys"
    client = Client(make_key(keys, "test"))
    settings = {"access": {"mode": "session", "api": {"keys_file": str(keys)}}}
    for start, events in enumerate((2_500, 0), 1):
        disk.set(end_after_events=events, **SLOW_SYNCS)
        server = disk.serve(tmp_path / "recorded", settings)
        client.write(server.address, start, 1 << 30 if events else 150)
        disk.heal()
        assert (server.wait() if events else server.stop()) == (-signal.SIGKILL if events else 0)
        if events:
            # Of the change that was cut off nothing is known. Reading changes the files, which is not recorded.
            copy = tmp_path / "copy"
            shutil.copytree(disk.data, copy / "data", ignore=shutil.ignore_patterns("*.sock"))
            client.sessions, client.tokens = content(copy)
    erasures = sum(user is not None for users in client.erased.values() for user in users)
    assert erasures > 10
    check(client, read_recording(disk.recording), tmp_path / "replayed", 1_500 if is_long else 200)


def check(client, events, folder, count):
    """Compares the disk after power cuts with what was acknowledged."""
    generator = random.Random(30)
    cuts = set(choose_cuts(events, count, generator))
    disk, answered = Disk(), Answered(client.states)
    for number, event in enumerate([*events, None]):
        if number in cuts:
            write_files(folder, disk.after_power_cut(generator))
            check_one(client, answered, folder, number)
        if event:
            disk.apply(number, event)
            answered.apply(event)


def check_one(client, answered, folder, cut):
    erased = [user for place, users in client.erased.items() for user in users[:answered.counts[place]] if user]
    if erased:
        ring = KeyRing(folder / "data" / "keys")
        for file in sorted((folder / "data").glob("*")):
            written = used_parts(file)
            for user in erased:
                # The rows of the user's token and sessions have this key, and so has the index of sessions.
                assert ring.row_key(user) not in written, (cut, user, file.name)
        records = (folder / "data" / "erasures").read_text(errors="replace")
        assert len(re.findall(r"^1[0-9]{15} [0-9a-f]{64}$", records, re.MULTILINE)) >= len(erased), cut
    if answered.last is None:
        return
    states, done = client.states[answered.last], answered.counts[answered.last]
    # The last one is None if the server was ended before it answered: then it is not known what it would have been.
    possible = states[done:done + 2]
    found = content(folder)
    assert None in possible or found in possible, (cut, found, possible)
