"""What the clients of a soak have written, and which answers to a read are right.

As in `registers.py`, an id is a register with growing numbers. Here a number may also be a removal, and any client may write, but
only one at a time: it holds the register's `writer`.
"""
import collections
import datetime
import itertools
import json
import threading
import time

from ledger import number_of, value_of

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
