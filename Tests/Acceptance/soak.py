"""A soak: a server under a mixed load for a long time, with what operators do to it and what its disk suffers.

The order of events follows from a seed, though not their moments.
"""
import collections
import contextlib
import json
import math
import random
import ssl
import subprocess
import threading
import time
import traceback

from access import make_key
from certificates import make_certificate
from contract import NOT_FOUND
from http_client import Connection, get
from server_process import Server, run, until
from soak_clients import visiting
from soak_misuse import value_in
from soak_operations import FIRST, OF_OPERATORS, OPERATIONS
from soak_samples import Sampler, idle_sample, left_over, metrics
from soak_visits import AFTER_EXPIRED, LATEST, Ledger
from storage_shim import StorageShim
from store_files import printed

SECONDS = 60
# A long soak goes on after a mistake, to show whether it comes again.
MOST_MISTAKES = 10
# Seconds of everything, 0 for one round; visits a second; seconds of a fault, after an operation, to the latest expiration and
# between two samples; connections of a crowd.
SHORT = {"seconds": 0, "rate": 20, "fault_seconds": 0.3, "pause": 0.1, "expiry": 2, "sample_seconds": 0.4, "crowd": 40}
LONG = {"rate": 14, "fault_seconds": 6, "pause": 6, "expiry": 30, "sample_seconds": 5, "crowd": 200}


class Soak:
    """A server, its disk, its clients, and what they know of one another."""

    timeouts = {"head": "3s", "body": "3s", "idle": "5s"}

    def __init__(self, library, folder, seed, pace):
        self.folder, self.seed, self.pace = folder, seed, pace
        self.random = random.Random(seed)
        self.ledger = Ledger()
        self.backups = []
        self.begun = time.monotonic()
        # Of all clients: whether they are to leave, and whether the server is about to be killed.
        self.over, self.is_ending = threading.Event(), False
        self.lock = threading.Lock()
        self.counts = collections.Counter()
        self.mistakes = []
        # When the disk was sound again; infinity while it is not.
        self.failed_until = 0.0
        self.contexts = {"TLS 1.2": tls_context(ssl.TLSVersion.TLSv1_2), "TLS 1.3": tls_context(ssl.TLSVersion.TLSv1_3)}
        self._make_files()
        self.disk = StorageShim(library, folder / "shim", seed=self.random.randrange(1 << 32))
        # It lies on the disk that fails, and must have every change by an app's server all the same.
        self.audit_log, self.audit_key = self.disk.disk / "audit.log", folder / "audit.key"
        printed(self.disk.data, "audit", "key", str(self.audit_key))
        self.settings = {
            "listen": ["127.0.0.1:0", "https://127.0.0.1:0"], "admin": {"listen": "127.0.0.1:0"}, "loops": 2,
            "tls": {"certificate": self.pair[0], "private_key": self.pair[1]},
            "access": {"api": {"keys_file": str(folder / "api-keys")}},
            # Small, so that it is full before memory is measured.
            "cache": {"max_bytes": "2 MiB"},
            "audit": {"file": str(self.audit_log)}, "access_log": "json", "access_log_file": str(self.access_log),
            "retention": {"after_expired": f"{AFTER_EXPIRED}s"}, "store": {"queue": {"max_wait": "2s"}}, "timeouts": self.timeouts,
        }
        self.server = self.disk.serve(folder / "server", self.settings)

    def _make_files(self):
        self.folder.mkdir(parents=True, exist_ok=True)
        self.access_log = self.folder / "access.log"
        self.key = make_key(self.folder / "api-keys", "backend")
        self.pairs = []
        for name in ("first", "second"):
            (self.folder / name).mkdir()
            self.pairs.append(make_certificate(self.folder / name, days=100))
        (self.folder / "served").mkdir()
        self.pair = make_certificate(self.folder / "served", days=100)

    # What clients and operators report

    def count(self, name):
        with self.lock:
            self.counts[name] += 1

    def note_mistake(self, text):
        if not self.is_ending:
            self.mistakes.append(text)

    def raise_mistakes(self):
        assert not self.mistakes, f"{len(self.mistakes)} mistakes: " + "\n".join(self.mistakes)

    def begin_failing(self):
        self.failed_until = math.inf

    def end_failing(self):
        self.failed_until = time.monotonic()

    def has_failed_since(self, moment):
        return self.failed_until >= moment

    # What happens

    def operate(self, operations, end=math.inf):
        """Carries the operations out, one after the other, and begins none after the end."""
        for operation in operations:
            if time.monotonic() >= end:
                return
            try:
                operation(self)
            except (AssertionError, OSError, subprocess.SubprocessError):
                self.note_mistake(f"{operation.__name__}: {traceback.format_exc()}")
            self.count(operation.__name__)
            time.sleep(self.pace["pause"] * self.random.uniform(0.2, 1.8))
            assert self.server.is_running(), f"the server ended with {self.server.process.returncode}: {self.server.log()[-2000:]}"
            if len(self.mistakes) > MOST_MISTAKES:
                self.raise_mistakes()

    def warm_up(self):
        """Has the server do everything of which it keeps something, and returns what it uses without clients afterwards."""
        with visiting(self, self.pace["rate"]):
            self.operate(self._shuffled(OPERATIONS if self.pace["seconds"] else FIRST))
        return self.idle()

    def work(self):
        """Rounds of all operations in any order, until the time is over; returns the samples of that time."""
        end = self.begun + self.pace["seconds"]
        with Sampler(self.server, self.pace["sample_seconds"]) as sampler, visiting(self, self.pace["rate"]):
            self.operate(self._shuffled(OPERATIONS))
            while time.monotonic() < end:
                self.operate(self._shuffled(OPERATIONS), end)
        self.mistakes += sampler.mistakes
        return sampler.samples

    def _shuffled(self, operations):
        return self.random.sample(operations, len(operations))

    def idle(self, before=None):
        """What the server uses when nothing is left to do; waits until this is as little as before, or no longer changes."""
        taken = [idle_sample(self.server)]

        def is_settled():
            taken.append(idle_sample(self.server))
            if before is not None:
                return not left_over(before, taken[-1])
            return len(taken) > 5 and not any(left_over(one, taken[-1]) for one in taken[-5:])

        # If it does not come true, the caller sees what there is too much of.
        with contextlib.suppress(AssertionError):
            until(is_settled, SECONDS, pause=0.2)
        return taken[-1]

    def kill_and_restart(self):
        """Kills the server while clients visit it, and starts another one."""
        with visiting(self, self.pace["rate"]):
            before = self.counts["writes acknowledged"]
            until(lambda: self.counts["writes acknowledged"] > before + 20, SECONDS)
            self.is_ending = True
            self.server.kill()
        self.server = self.disk.serve(self.folder / "again", self.settings)
        self.is_ending = False

    # What is stored

    def check(self):
        """Reads all ids, and counts that there are no others."""
        found = 0
        with Connection(self.server.address, timeout=SECONDS) as connection:
            for register in self.ledger.registers():
                least = register.begin_read()
                value = value_in(connection.exchange(get(register.unique_id)).body)
                register.end_read(value, least)
                found += value is not None
            found += sum(connection.exchange(get(unique_id)).body != NOT_FOUND for unique_id in OF_OPERATORS)
            until(lambda: self._expired(connection), SECONDS)
        until(lambda: metrics(self.server)["token_cache_store_tokens"] == found, SECONDS)
        return found

    def _expired(self, connection):
        """Whether no token is left that has an expiration date, as must be soon after the last of these dates."""
        is_over = time.time() > max((token.date for token in self.ledger.expiring), default=0) + LATEST
        there = [token for token in self.ledger.expiring if connection.exchange(get(token.unique_id)).body != NOT_FOUND]
        assert not (is_over and there), f"{[token.unique_id for token in there]} have not expired"
        return not there

    def check_backups(self):
        """Restores the first and the last backup, or only this in a short soak."""
        for backup in {self.backups[0][0]: self.backups[0], self.backups[-1][0]: self.backups[-1]}.values():
            if backup == self.backups[-1] or self.pace["seconds"]:
                self._check_backup(*backup)

    def _check_backup(self, path, keys, before, after):
        """Restores a backup and compares it with what was certain when it began and sent when it ended."""
        data = path.with_suffix(".restored")
        environment = {"TOKEN_CACHE_SEALING_KEY_RING": str(keys)}
        printed(data, "restore", str(path), environment=environment, seconds=SECONDS)
        restored = Server(path.with_suffix(".server"), data=data, environment=environment)
        try:
            with Connection(restored.address, timeout=SECONDS) as connection:
                for register in self.ledger.registers():
                    value = value_in(connection.exchange(get(register.unique_id)).body)
                    register.check_copy(value, before[register.unique_id][0], after[register.unique_id][1])
            assert restored.stop() == 0
        finally:
            restored.kill()
        assert "the store is sound" in printed(data, "verify", environment=environment, seconds=SECONDS)

    def end(self):
        """Stops the server; the store is sound, and so is the audit log, which has every change by an app's server."""
        assert self.server.stop() == 0
        assert "the store is sound" in printed(self.server.data, "verify", seconds=SECONDS)
        verified = run("audit", "verify", str(self.audit_log), "--key", str(self.audit_key), seconds=SECONDS)
        assert verified.returncode == 0, verified
        with self.audit_log.open() as log:
            events = collections.Counter((event["action"], event["outcome"]) for event in map(json.loads, log))
        assert events["store_token", "ok"] + events["remove_token", "ok"] >= self.counts["writes to be audited"] > 0, events

    def close(self):
        self.over.set()
        self.server.kill()
        self.disk.knobs.close()


def tls_context(version):
    """Trusts any certificate, and speaks one version."""
    context = ssl.create_default_context()
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    context.minimum_version = context.maximum_version = version
    return context
