"""Records what clients sent and which writes were acknowledged, to compare with the store after a failure."""
import json
import math
import random

from contract import NOT_FOUND, STORED, WRITE_FAILED
from http_client import Connection, ProtocolError, get, post

LONGEST = 200_000


def value_of(unique_id, number, longest=LONGEST):
    """The value for this number: of random length and different in every part, so that a torn value is recognized.

    It starts with its number; some values are the number alone.
    """
    generator = random.Random(f"{unique_id} {number}")
    if generator.random() < 0.25:
        return str(number)
    length = int(math.exp(generator.uniform(math.log(10), math.log(longest))))
    return f"{number}.{generator.randbytes(length).hex()}"[:max(length, len(str(number)) + 1)]


def number_of(unique_id, value, longest=LONGEST):
    """The number of a value; fails if the value is torn."""
    start = value.partition(".")[0]
    assert start.isdecimal(), f"{unique_id} has a foreign value: {value[:50]!r}"
    assert value == value_of(unique_id, int(start), longest), f"{unique_id} has a torn value: {value[:50]!r}"
    return int(start)


class Ledger:
    """The ids of one client, which alone writes them, with growing numbers."""

    def __init__(self, client, keys=6):
        self.ids = [f"client{client}-{key}" for key in range(keys)]
        self.sent = dict.fromkeys(self.ids, 0)
        self.acknowledged = dict.fromkeys(self.ids, 0)
        self.successes = 0
        self.failures = 0
        self.was_cut_off = False

    def write(self, address, depth, is_over=lambda: False):
        """Stores growing numbers, with some requests pipelined, until told to stop or the server is gone."""
        number = max(self.sent.values())
        try:
            with Connection(address) as connection:
                while not is_over():
                    batch = []
                    for _ in range(depth):
                        number += 1
                        unique_id = self.ids[number % len(self.ids)]
                        self.sent[unique_id] = number
                        batch.append((unique_id, number))
                    connection.send(b"".join(post(unique_id, value_of(unique_id, value)) for unique_id, value in batch))
                    for unique_id, value in batch:
                        self._take(unique_id, value, connection.receive())
        except (OSError, ProtocolError):
            self.was_cut_off = True

    def _take(self, unique_id, number, response):
        assert response.status == 200, response
        assert response.body in (STORED, WRITE_FAILED), response.body
        if response.body == STORED:
            self.successes += 1
            self.acknowledged[unique_id] = number
        else:
            # The store may have the old value or this one.
            self.failures += 1

    def read(self, connection, unique_id, may_fail):
        """Reads an id during writes, and checks that it has its acknowledged value or one that was sent later."""
        least = self.acknowledged[unique_id]
        body = connection.exchange(get(unique_id)).body
        most = self.sent[unique_id]
        if body == NOT_FOUND:
            assert may_fail or least == 0, f"{unique_id} is lost"
            return 0
        number = number_of(unique_id, json.loads(body)["token_info"])
        assert least <= number <= most, f"{unique_id} has number {number}, not {least} to {most}"
        return number

    def check(self, connection):
        """Reads all ids while nobody writes; values that were read count as acknowledged from then on."""
        for unique_id in self.ids:
            self.acknowledged[unique_id] = self.read(connection, unique_id, may_fail=False)


def check_all(ledgers, address):
    """Checks each ledger against the server's store."""
    with Connection(address) as connection:
        for ledger in ledgers:
            ledger.check(connection)
