"""Sessions, revocations and erasures that were acknowledged survive kill -9, and nothing that has ended comes back."""
import random
import time

from administration import last_line
from contract import NOT_FOUND, STORED, found
from http_client import ProtocolError, exchange, get, post
from server_process import beside, until
from store_files import printed

USERS = 4


def ask(data, name, **request):
    """The reply to a command; fails with ConnectionError if there is none."""
    answer = last_line(data, f"/store/{name}", request)
    if "reply" not in (answer or {}):
        raise ConnectionError(answer)
    return answer["reply"]


class UserLedger:
    """What is known of a user, whom one client alone changes."""

    def __init__(self, number):
        self.user = f"user-{number}-of-the-ledger"
        self.generator = random.Random(number)
        # Ids of sessions that are certainly there, and that are certainly not.
        self.present, self.absent = set(), set()
        # Tokens that may be stored; None for none.
        self.tokens = {None}
        self.number = 0
        self.operations = 0
        self.erasures = 0

    def change(self, data, address):
        """Makes changes until the server is gone."""
        try:
            while True:
                self.generator.choice([self.add, self.add, self.end_one, self.store, self.store, self.erase])(data, address)
                self.operations += 1
        except (OSError, ProtocolError, ValueError):
            return

    def add(self, data, _):
        reply = ask(data, "sessions/add", user=self.user, max_age=3_600, per_user=100)
        self.present.add(reply["id"])

    def end_one(self, data, _):
        if not self.present:
            return
        # Until it is acknowledged, it may be there or not.
        session = self.present.pop()
        assert ask(data, "sessions/remove", id=session)["removed"] == 1
        self.absent.add(session)

    def store(self, _, address):
        self.number += 1
        token = f"token {self.number} of {self.user}"
        self.tokens.add(token)
        assert exchange(address, post(self.user, token)).body == STORED
        self.tokens = {token}

    def erase(self, data, _):
        if self.generator.random() < 0.6:
            return
        present, self.present = self.present, set()
        self.tokens.add(None)
        ask(data, "erase", user=self.user)
        self.absent |= present
        self.tokens = {None}
        self.erasures += 1

    def check(self, data, address):
        """Compares the user with the store of a server that nobody else changes; takes over what was uncertain."""
        listed = {session["id"] for session in ask(data, "sessions/list", user=self.user)["sessions"]}
        assert self.present <= listed, f"{self.user} has lost sessions"
        assert not self.absent & listed, f"{self.user} has sessions that had ended"
        body = exchange(address, get(self.user)).body
        tokens = [token for token in self.tokens if body == (NOT_FOUND if token is None else found(token))]
        assert tokens, f"{self.user} has none of {self.tokens}: {body}"
        self.present, self.tokens = listed, set(tokens)


def run_and_kill(ledgers, server, seconds):
    """Has all users changed for some time, and kills the server meanwhile."""
    before = [ledger.operations for ledger in ledgers]
    with beside(lambda ledger, _: ledger.change(server.data, server.address), ledgers):
        try:
            until(lambda: all(ledger.operations > count + 2 for ledger, count in zip(ledgers, before)), pause=0.001)
            time.sleep(seconds)
        finally:
            server.kill()


def test_sessions_revocations_and_erasures_survive_kill_9(serve, tmp_path, is_long):
    generator = random.Random(28)
    ledgers = [UserLedger(number) for number in range(USERS)]
    data = tmp_path / "data"
    for _ in range(100 if is_long else 12):
        server = serve(data=data)
        for ledger in ledgers:
            ledger.check(data, server.address)
        run_and_kill(ledgers, server, generator.uniform(0.0, 0.3))
    server = serve(data=data)
    for ledger in ledgers:
        ledger.check(data, server.address)
    server.kill()
    assert all(ledger.absent for ledger in ledgers) and sum(ledger.erasures for ledger in ledgers) > 0
    assert "sound" in printed(data, "verify")
