"""Ids as registers, which many clients write and read through several servers that share a store.

    with Load(servers) as load:
        load.go_on()                      # every client has got further answers
        ...                               # faults
        load.check()                      # nothing that was acknowledged is missing
    load.outages(after=moment)        # how long the servers have given no good answer since

Each id is written by one client alone, with growing numbers. A read gives at least the number that was acknowledged or read
before it began, through whichever server, and at most the last one that was sent when it ended: no acknowledged write is
missing, and no read goes back. A write that failed may have been stored, or be so yet, but never on top of a later one.
"""
import collections
import itertools
import json
import math
import random
import threading
import time

from contract import NOT_FOUND, STORED, WRITE_FAILED
from http_client import Connection, ProtocolError, get, post
from server_process import until

LONGEST = 400
SECONDS = 60
# Answers of a server that are remembered, of writes and of reads each: those of the last ten seconds and more.
KEPT = 50_000


def value_of(unique_id, number, longest):
    """The value for this number: of random length and different in every part, so that a torn value is recognized.

    It starts with its number; some values are the number alone.
    """
    generator = random.Random(f"{unique_id} {number}")
    if generator.random() < 0.25:
        return str(number)
    length = int(math.exp(generator.uniform(math.log(10), math.log(longest))))
    return f"{number}.{generator.randbytes(length).hex()}"[:max(length, len(str(number)) + 1)]


def number_of(unique_id, value, longest):
    """The number of a value; fails if the value is torn."""
    start = value.partition(".")[0]
    assert start.isdecimal(), f"{unique_id} has a foreign value: {value[:50]!r}"
    assert value == value_of(unique_id, int(start), longest), f"{unique_id} has a torn value: {value[:50]!r}"
    return int(start)


class Register:
    """An id, and which of its numbers an answer may give."""

    def __init__(self, unique_id, longest=LONGEST):
        self.unique_id, self.longest = unique_id, longest
        self.lock = threading.Lock()
        # Acknowledged or read; sent.
        self.certain = self.sent = 0
        # The last answers, for reports: the moment, and what it was.
        self.answers = collections.deque(maxlen=12)

    def begin_write(self):
        """The next number; only the client that owns the register calls this."""
        with self.lock:
            self.sent += 1
            return self.sent

    def value(self, number):
        """What is stored for a number."""
        return value_of(self.unique_id, number, self.longest)

    def end_write(self, number, server):
        """The write was acknowledged."""
        with self.lock:
            self.certain = max(self.certain, number)
            self.note(f"{number} was stored", server)

    def note(self, answer, server):
        self.answers.append(f"{time.monotonic():.3f}: {answer} by {server.folder.name}")

    def begin_read(self):
        """The smallest number that the read may return."""
        with self.lock:
            return self.certain

    def end_read(self, body, least, server):
        """Checks what was read."""
        number = number_of(self.unique_id, json.loads(body)["token_info"], self.longest)
        with self.lock:
            self.note(f"{number} was read, which must be {least} to {self.sent},", server)
            assert least <= number <= self.sent, "; ".join([self.unique_id, *self.answers])
            self.certain = max(self.certain, number)


class Load:
    """Clients that write and read without a pause, each through all servers in turn; a load may be entered again, also with others.

    - servers: anything that has an `address` and a `folder`.
    - longest: the longest value, in characters.
    - connect: makes a connection to one of the servers.
    """
    numbers = itertools.count(1)

    def __init__(self, servers, clients=64, registers_of_each=2, longest=LONGEST,
                 connect=lambda server: Connection(server.address, timeout=SECONDS)):
        self.servers, self.connect, name = servers, connect, next(self.numbers)
        self.registers = [
            [Register(f"load{name}-client{client}-{key}", longest) for key in range(registers_of_each)]
            for client in range(clients)]
        self.over = threading.Event()
        self.mistakes = []
        # Each server's last good answers, and when they were asked for: (answered, asked), of writes and of reads.
        self.answered = collections.defaultdict(lambda: {what: collections.deque(maxlen=KEPT) for what in ("writes", "reads")})
        # What each client waits for: the server, what, and since when.
        self.asked = [None] * clients
        self.failed_writes = self.failed_reads = 0
        # The longest that a client has waited for an answer, in seconds.
        self.longest_wait = 0.0
        self.counts = [0] * clients
        self.threads = []

    def __enter__(self):
        self.over.clear()
        self.threads = [threading.Thread(target=self._run, args=(client,), daemon=True) for client in range(len(self.counts))]
        for thread in self.threads:
            thread.start()
        return self

    def __exit__(self, *_):
        self.over.set()
        for thread in self.threads:
            thread.join(SECONDS)

    def _run(self, client):
        generator = random.Random(f"{client} {self.counts[client]}")
        connections = {}
        try:
            for server in itertools.islice(itertools.cycle(self.servers), client, None):
                if self.over.is_set():
                    break
                if server not in connections:
                    connections[server] = self.connect(server)
                before, what = time.monotonic(), "writes" if generator.random() < 0.5 else "reads"
                self.asked[client] = (server, what, before)
                if what == "writes":
                    response, is_good = self.write(connections[server], server, generator.choice(self.registers[client]))
                else:
                    owner = generator.choice(self.registers)
                    response, is_good = self.read(connections[server], server, generator.choice(owner))
                now, self.asked[client] = time.monotonic(), None
                if is_good:
                    self.answered[server][what].append((now, before))
                self.longest_wait = max(self.longest_wait, now - before)
                if response.closes:
                    connections.pop(server).close()
                self.counts[client] += 1
        except (AssertionError, OSError) as error:
            # A server may be killed once the load is over.
            if not self.over.is_set() or not isinstance(error, (OSError, ProtocolError)):
                self.mistakes.append(f"client {client}: {error!r}")
        finally:
            for connection in connections.values():
                connection.close()

    def write(self, connection, server, register):
        number = register.begin_write()
        response = connection.exchange(post(register.unique_id, register.value(number)))
        if response.body == STORED:
            register.end_write(number, server)
            return response, True
        assert response.body == WRITE_FAILED, response
        register.note(f"{number} was perhaps not stored", server)
        self.failed_writes += 1
        return response, False

    def read(self, connection, server, register):
        least = register.begin_read()
        response = connection.exchange(get(register.unique_id))
        if response.body != NOT_FOUND:
            register.end_read(response.body, least, server)
            return response, True
        if least:
            # Nothing tells a read that has failed from a token that is gone: `check` does.
            self.failed_reads += 1
        return response, False

    def go_on(self, answers=3):
        """Waits until each client has received further answers, or one has made a mistake."""
        counts = list(self.counts)

        def is_done():
            self.raise_mistakes()
            return all(now >= before + answers for now, before in zip(self.counts, counts))
        until(is_done, SECONDS)

    def raise_mistakes(self):
        assert not self.mistakes, f"{len(self.mistakes)} mistakes, such as {self.mistakes[:3]}"

    def check(self):
        """Reads every register through each server, which must give what was acknowledged."""
        for server in self.servers:
            with self.connect(server) as connection:
                for register in itertools.chain(*self.registers):
                    least = register.begin_read()
                    if least:
                        body = until(lambda: self._found(connection, register), SECONDS)
                        register.end_read(body, least, server)
        self.raise_mistakes()

    @staticmethod
    def _found(connection, register):
        """A present answer; None if the read has failed."""
        body = connection.exchange(get(register.unique_id)).body
        return None if body == NOT_FOUND else body

    def first_good(self, server, after, what="writes"):
        """The moment of the first good answer of a server to a write, or to a read, after a moment."""
        return min(self._good(server, after, what))[0]

    def _good(self, server, after, what):
        """The good answers after a moment, as soon as there are some: (answered, asked)."""
        def found():
            self.raise_mistakes()
            return [answer for answer in list(self.answered[server][what]) if answer[0] > after]
        return until(found, SECONDS)

    def outages(self, after):
        """How long the servers have gone without a good answer since a moment, in seconds: the longest, of writes and of reads.

        Does not count the time in which nobody asked a server, as all clients may wait for another one.
        """
        longest = {}
        for what in ("writes", "reads"):
            for server in self.servers:
                good = self._good(server, after, what)
                asked = [since for of, kind, since in filter(None, list(self.asked)) if (of, kind) == (server, what)]
                begun = max(after, min([since for _, since in good] + asked))
                longest[what] = max(longest.get(what, 0.0), min(good)[0] - begun)
        return longest
