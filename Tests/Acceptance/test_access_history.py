"""Users are registers, while their sessions are revoked, their tokens replaced and the users erased under load.

A read gives at least what was acknowledged before it began, at most what had begun when it ended, and nothing at all with a
session whose end was acknowledged.
"""
import concurrent.futures
import contextlib
import json
import random
import threading

import pytest

from access import API, api_request, bearer, fetch, session_settings, store
from contract import NOT_FOUND, STORED
from http_client import Connection
from server_process import until


class Device:
    """A session, and how far its end has come."""

    def __init__(self, made):
        self.session, self.id = made["session"], made["id"]
        self.is_ending = self.has_ended = False


class User:
    """What was written for a user, as states with growing numbers: a token is its number, and a removal has one too."""

    def __init__(self, name):
        self.name = name
        self.lock = threading.Lock()
        self.certain = self.begun = 0
        self.removals = [0]
        self.devices = []

    def state_of(self, body, least, most):
        """The number of the state that an answer shows, or -1 if none explains it. Of several removals, which cannot be told apart,
        it is the earliest: only that one is certain."""
        if body == NOT_FOUND:
            return min((number for number in self.removals if least <= number <= most), default=-1)
        return int(json.loads(body)["token_info"])


class History:
    """The requests of writers and readers of some users, each to any of the servers, which share a store."""

    def __init__(self, servers, key, users, rounds):
        self.servers, self.key, self.rounds = servers, key, rounds
        self.users = [User(f"user-{number}") for number in range(users)]
        self.over = threading.Event()
        self.reads = self.refused = 0

    @contextlib.contextmanager
    def connections(self):
        """Four connections to each server, which shares them out among its loops."""
        with contextlib.ExitStack() as stack:
            yield [stack.enter_context(Connection(server.address)) for server in self.servers for _ in range(4)]

    def write(self, user, seed):
        """Stores, revokes, logs out and erases; no other writer does so for this user."""
        generator = random.Random(seed)
        with self.connections() as connections:
            for _ in range(self.rounds):
                api, connection = API(generator.choice(self.servers), self.key), generator.choice(connections)
                if len(user.devices) < 3:
                    device = Device(api.make_session(user.name))
                    with user.lock:
                        user.devices.append(device)
                else:
                    self.change(user, generator.choice(["store"] * 6 + ["end"] * 3 + ["end all", "erase"]), generator, api, connection)

    def change(self, user, what, generator, api, connection):
        device = generator.choice(user.devices)
        ending = {"store": [], "end": [device], "end all": list(user.devices), "erase": list(user.devices)}[what]
        with user.lock:
            if what in ("store", "erase"):
                user.begun += 1
            if what == "erase":
                user.removals.append(user.begun)
            for one in ending:
                one.is_ending = True
        if what == "store":
            field, value = bearer(device.session), str(user.begun)
            data = store(value, field) if generator.random() < 0.5 else store(value, unique_id=device.session)
            assert connection.exchange(data).body == STORED
        elif what == "end":
            api.end(device.id)
        elif what == "end all":
            api.end_all(user.name)
        else:
            api.erase(user.name)
        with user.lock:
            if what in ("store", "erase"):
                user.certain = max(user.certain, user.begun)
            for one in ending:
                one.has_ended = True
                user.devices.remove(one)
        if ending:
            # Neither a read nor a write of an ended session gets through from here on.
            for one in ending:
                assert connection.exchange(fetch(bearer(one.session))).status == 401
                assert connection.exchange(store("-1", bearer(one.session))).status == 401

    def read(self, seed):
        """Reads with sessions and with the API key until the writers are done."""
        generator = random.Random(seed)
        with self.connections() as connections:
            while not self.over.is_set():
                self.read_once(generator.choice(self.users), generator, generator.choice(connections))

    def run(self):
        """Lets all writers write to their end while others read."""
        with concurrent.futures.ThreadPoolExecutor(8) as pool:
            readers = [pool.submit(self.read, seed) for seed in range(4)]
            writers = [pool.submit(self.write, user, seed) for seed, user in enumerate(self.users)]
            try:
                for writer in concurrent.futures.as_completed(writers):
                    writer.result()
            finally:
                self.over.set()
            for reader in readers:
                reader.result()
        assert self.reads > 100
        assert all(user.begun > 10 for user in self.users)

    def read_once(self, user, generator, connection):
        with user.lock:
            least = user.certain
            device = generator.choice(user.devices) if user.devices and generator.random() < 0.8 else None
            had_ended = device is not None and device.has_ended
        if device is None:
            data = api_request(self.key, "GET", f"/v1/users/{user.name}/token")
        else:
            data = fetch(bearer(device.session))
        response = connection.exchange(data)
        with user.lock:
            most = user.begun
            if response.status == 401:
                assert device is not None and device.is_ending, "a session is refused that nobody ended"
                self.refused += 1
                return
            assert not had_ended, "an ended session was answered"
            assert response.status == 200, response
            number = user.state_of(response.body, least, most)
            assert least <= number <= most, f"{user.name}: {number} is not in {least}...{most}"
            user.certain = max(user.certain, number)
            self.reads += 1


@pytest.mark.parametrize("settings", [{}, {"cache": {"max_bytes": 0}}], ids=["cached", "uncached"])
def test_nothing_is_answered_after_an_acknowledged_revocation_or_erasure(serve, tmp_path, settings, is_long):
    access, key = session_settings(tmp_path / "keys")
    # A disk that is slow for a while is no failure here.
    server = serve({**access, **settings, "loops": 2, "store": {"timeout": "120s"}})
    History([server], key, users=4, rounds=600 if is_long else 80).run()


def test_what_one_server_has_acknowledged_is_so_on_all(direct, tmp_path, is_long):
    settings, key = session_settings(tmp_path / "keys")
    servers = [direct.serve(f"server{number}", settings) for number in range(3)]
    History(servers, key, users=4, rounds=600 if is_long else 80).run()


def test_a_read_that_waits_does_not_find_what_was_stored_after_its_session_had_ended(direct, postgres, tmp_path):
    settings, key = session_settings(tmp_path / "keys")
    settings.update({"loops": 1, "store": {"timeout": "30s", "connections": 2}})
    one, other = [direct.serve(f"server{number}", settings) for number in range(2)]
    api = API(other, key)
    made = api.make_session("anna")
    assert api.put("anna", "new").status == 200
    postgres.sql("CREATE TABLE later AS SELECT * FROM token")
    # Now all connections to the database are used, so that none has to be prepared while the table is locked.
    assert API(one, key).put("anna", "old", "If-Match: *").status == 200
    assert json.loads(api.get("anna").body)["token_info"] == "old"
    with postgres.session() as session, Connection(one.address) as connection:
        request = fetch(bearer(made["session"]))
        assert json.loads(connection.exchange(request).body)["token_info"] == "old"
        session.sql("BEGIN; LOCK TABLE token")
        connection.send(request)
        # It has found the session, and waits for the token; after a while also on another connection.
        until(lambda: postgres.value(
            "SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() AND wait_event_type = 'Lock' "
            "AND query LIKE '%octet_length(value)%'") != "0")
        api.end(made["id"])
        # What another device stores. A server would have to wait for the lock as well.
        session.sql("DELETE FROM token; INSERT INTO token SELECT * FROM later; COMMIT")
        response = connection.receive()
        assert response.status == 401, response
    assert json.loads(api.get("anna").body)["token_info"] == "new"
