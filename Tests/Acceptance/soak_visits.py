"""What the clients of a soak do, and what they must be told. A visit gets a `Client`."""
import collections
import datetime
import itertools
import json
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from urllib.parse import quote

from access import api_request
from contract import NOT_FOUND, STORED, WRITE_FAILED
from http_client import FORM, ProtocolError, chunked_post, get, lines, post
from ledger import number_of, value_of
from soak_misuse import (
    HOST, ask_for_nothing, be_idle, be_refused, break_off, come_and_go, leave_answers_unread, never_finish, never_shake_hands,
    read_nothing, read_slowly, spoil_handshake, take_read, take_write, use_the_wrong_protocol, value_in,
)
from soak_samples import text_of

PAGES = ("/", "/status", "/history", "/log", "/settings", "/metrics", "/readyz", "/healthz")


@dataclass(frozen=True)
class Visit:
    """Something that clients do, and how often compared with other visits."""
    act: Callable
    weight: int


def some_registers(client):
    ledger = client.soak.ledger
    return client.random.choices([ledger.small, ledger.large, ledger.largest, ledger.removed], [60, 8, 1, 6])[0]


# Ordinary requests

def fetch_and_store(client):
    """Several requests, one after the other."""
    connection = client.connect()
    for _ in range(client.random.randint(1, 8)):
        if client.random.random() < 0.5:
            register = client.random.choice(some_registers(client))
            least = register.begin_read()
            take_read(client, register, least, connection.exchange(get(register.unique_id)).body)
            continue
        with client.writing(some_registers(client)) as registers:
            for register in registers:
                number = register.begin_write()
                make = client.random.choice([post, post, chunked_post])
                take_write(client, register, number, connection.exchange(make(register.unique_id, register.value(number))))
    client.keep_session(connection)


def pipeline(client):
    """Many requests at once, whose answers come in their order."""
    connection = client.connect()
    with client.writing(client.soak.ledger.small, client.random.randint(2, 12)) as registers:
        asked, requests = [], []
        for register in registers:
            number = register.begin_write()
            requests.append(post(register.unique_id, register.value(number)))
            asked.append((register, number))
            if client.random.random() < 0.6:
                other = client.random.choice(client.soak.ledger.small)
                requests.append(get(other.unique_id))
                asked.append((other, None))
        leasts = [register.begin_read() for register, _ in asked]
        connection.send(b"".join(requests))
        for (register, number), least in zip(asked, leasts):
            response = connection.receive()
            if number is None:
                take_read(client, register, least, response.body)
            else:
                take_write(client, register, number, response)


def use_versions(client):
    """An app's server fetches, compares, replaces and removes a token by its version."""
    connection = client.connect()
    with client.writing(client.soak.ledger.removed) as registers:
        for register in registers:
            path = f"/v1/users/{register.unique_id}/token"

            def ask(method, *fields, value=None):
                body = None if value is None else {"token_info": value}
                return connection.exchange(api_request(client.soak.key, method, path, body, *fields), method)

            least = register.begin_read()
            present = ask("GET")
            take_read(client, register, least, present.body)
            tag = present.headers.get("etag")
            if tag:
                condition = f"If-Match: {tag}"
                assert_unless_failing(client, ask("GET", f"If-None-Match: {tag}"), 304)
                head = ask("HEAD")
                assert (head.status, head.headers.get("etag")) == (200, tag) or client.may_fail(), head
                assert_unless_failing(client, ask("PUT", 'If-Match: "1"', value="never"), 412)
            else:
                condition = "If-None-Match: *"
            if tag and client.random.random() < 0.5:
                number = register.begin_write(removes=True)
                response = ask("DELETE", condition)
            else:
                number = register.begin_write()
                response = ask("PUT", condition, value=register.value(number))
            if response.status == 412 or response.body == NOT_FOUND:
                # What was read at first was not what is stored.
                assert client.may_fail(), response
            else:
                take_write(client, register, number, response)
                if response.body == STORED:
                    client.soak.count("writes to be audited")


def assert_unless_failing(client, response, status):
    assert response.status == status or client.may_fail() or client.may_refuse(response), f"{response}, not {status}"


def meet_expiry(client):
    """Stores a token that expires soon, and looks at those that others have stored."""
    expiring = client.soak.ledger.expiring
    connection = client.connect(False)
    token = Expiring(client.random.randint(1, client.soak.pace["expiry"]))
    fields = f"unique_id={token.unique_id}&token_info={quote(token.value, safe='')}".encode()
    head = ("POST /token HTTP/1.1", HOST, FORM, f"Content-Length: {len(fields)}")
    response = connection.exchange(lines(*head, body=fields))
    if response.body == STORED:
        expiring.append(token)
    else:
        assert response.body == WRITE_FAILED and client.may_fail(), response
    for other in client.random.sample(list(expiring)[-60:], min(len(expiring), 4)):
        begun = time.time()
        value = value_in(connection.exchange(get(other.unique_id)).body)
        assert other.is_right(value, begun, time.time()) or (value is None and client.may_fail()), (
            f"{other.unique_id} of {other.date} is {value!r} at {begun}")


def administer(client):
    """Reads what operators read."""
    for page in client.random.sample(PAGES, 3):
        try:
            assert text_of(client.soak.server.administration[0], page)
        except ProtocolError as error:
            # Not ready, while the disk fails.
            assert page == "/readyz" and " 503 " in str(error) and client.may_fail(), error


QUICK = [
    Visit(fetch_and_store, 40), Visit(pipeline, 14), Visit(use_versions, 10), Visit(meet_expiry, 8), Visit(be_refused, 5),
    Visit(ask_for_nothing, 6), Visit(come_and_go, 4), Visit(break_off, 6), Visit(leave_answers_unread, 2),
    Visit(spoil_handshake, 3), Visit(use_the_wrong_protocol, 2), Visit(administer, 3),
]
PATIENT = [
    Visit(be_idle, 3), Visit(never_finish, 3), Visit(never_shake_hands, 2), Visit(read_slowly, 4), Visit(read_nothing, 2),
    Visit(administer, 2),
]


DATE_KEY = "com.facebook.sdk:TokenInformationExpirationDateKey"
# A token expires this long after its date, by the server's settings; its times are whole seconds.
AFTER_EXPIRED = 1
LATEST = AFTER_EXPIRED + 2


class Register:
    """An id, and which of its numbers an answer may give."""

    def __init__(self, unique_id, longest, is_removed=False):
        self.unique_id, self.longest, self.is_removed = unique_id, longest, is_removed
        self.lock, self.writer = threading.Lock(), threading.Lock()
        # Acknowledged or read; sent.
        self.certain = self.sent = 0
        # The numbers from which on nothing was stored.
        self.removals = {0}

    def begin_write(self, removes=False):
        """The next number; only who holds `writer` calls this."""
        with self.lock:
            self.sent += 1
            if removes:
                self.removals.add(self.sent)
            return self.sent

    def value(self, number):
        """What is stored for a number."""
        return value_of(self.unique_id, number, self.longest)

    def end_write(self, number):
        """The write was acknowledged."""
        with self.lock:
            self.certain = max(self.certain, number)

    def begin_read(self):
        """The least number that a read may give."""
        with self.lock:
            return self.certain

    def end_read(self, value, least):
        """Checks what was read; None for nothing. Without an answer that is right, the register stays as it was."""
        number = None if value is None else number_of(self.unique_id, value, self.longest)
        with self.lock:
            self.certain = max(self.certain, self._check(number, least, self.sent))

    def check_copy(self, value, least, most):
        """Checks what a copy of the store has, which was made between two moments, by the numbers that were possible at these."""
        number = None if value is None else number_of(self.unique_id, value, self.longest)
        is_right = least == 0 or self.is_removed if number is None else least <= number <= most
        assert is_right, f"{self.unique_id} has number {number}, not {least} to {most}"

    def bounds(self):
        """The numbers that are certain and sent now."""
        with self.lock:
            return self.certain, self.sent

    def _check(self, number, least, most):
        if number is None:
            possible = [removal for removal in self.removals if least <= removal <= most]
            assert possible, f"{self.unique_id} has nothing, although {least} was certain and {most} sent"
            return min(possible)
        assert least <= number <= most, f"{self.unique_id} has number {number}, not {least} to {most}"
        return number


class Abandoned(Register):
    """An id to which clients write that do not wait for the answer: it has some whole value, or nothing."""

    def end_read(self, value, least):
        if value is not None:
            assert number_of(self.unique_id, value, self.longest) <= self.sent

    def check_copy(self, value, least, most):
        self.end_read(value, least)


class Expiring:
    """A token with an expiration date: it is there until then, and not for long after that."""
    numbers = itertools.count(1)

    def __init__(self, seconds):
        self.unique_id = f"expiring{next(self.numbers)}"
        self.date = int(time.time()) + seconds
        text = datetime.datetime.fromtimestamp(self.date, datetime.timezone.utc).strftime("%Y-%m-%dT%H:%M:%SZ")
        self.value = json.dumps({"access_token": self.unique_id * 20, DATE_KEY: text})

    def is_right(self, value, begun, ended):
        """Whether a read that began and ended at these times may have given this value; None for nothing."""
        if value is None:
            return ended >= self.date + AFTER_EXPIRED
        return value == self.value and begun <= self.date + LATEST


class Ledger:
    """All ids of a soak."""

    def __init__(self):
        self.small = [Register(f"small{number}", 600) for number in range(120)]
        self.large = [Register(f"large{number}", 60_000) for number in range(16)]
        self.largest = [Register(f"largest{number}", 400_000) for number in range(3)]
        self.removed = [Register(f"removed{number}", 2_000, is_removed=True) for number in range(24)]
        self.abandoned = [Abandoned(f"abandoned{number}", 5_000) for number in range(12)]
        self.expiring = collections.deque(maxlen=300)

    def registers(self):
        return [*self.small, *self.large, *self.largest, *self.removed, *self.abandoned]

    def bounds(self):
        """What is certain of each id now, and what was sent."""
        return {register.unique_id: register.bounds() for register in self.registers()}
