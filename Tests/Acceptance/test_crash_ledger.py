"""Acknowledged writes survive kill -9 and a failing disk, and the server recovers by itself."""
import errno
import random
import subprocess
import threading
import time

import pytest

from contract import STORED, fresh_id
from http_client import Connection, exchange, post
from ledger import Ledger, check_all
from server_process import Server, binary, clean_environment, until
from storage_shim import ALWAYS, StorageShim

CLIENTS = 4
PIPELINE = 5
MOST_LOG_LINES = 20

# Faults, as chances per 65,536 calls. A commit makes a few dozen writes and one sync.
FAULTS = {
    "failing writes": {"write_failures": 300, "error": errno.EIO},
    "failing syncs": {"sync_failures": 20_000, "error": errno.EIO},
    "disk full now and then": {"write_failures": 200, "short_writes": 400, "error": errno.ENOSPC},
    "no write succeeds": {"write_failures": ALWAYS},
    "no sync succeeds": {"sync_failures": ALWAYS},
    "no truncation succeeds": {"truncate_failures": ALWAYS},
    "everything at random and slow": {
        "write_failures": 100, "short_writes": 100, "sync_failures": 5_000, "truncate_failures": 30_000,
        "sync_delay_microseconds": 2_000,
    },
}


def start(function, ledgers, *arguments):
    """Runs a function for each ledger in a thread of its own."""
    threads = [threading.Thread(target=function, args=(client, ledger, *arguments))
               for client, ledger in enumerate(ledgers)]
    for thread in threads:
        thread.start()
    return threads


def write(client, ledger, address, is_over=lambda: False):
    ledger.write(address, PIPELINE if client % 2 else 1, is_over)


def read(client, ledger, address, is_over, failures):
    """Reads the ids of a ledger while they are written, and records mistakes."""
    generator = random.Random(client)
    try:
        with Connection(address) as connection:
            while not is_over():
                ledger.read(connection, generator.choice(ledger.ids), may_fail=True)
    except (AssertionError, OSError) as error:
        failures.append(error)


def join(threads):
    for thread in threads:
        thread.join()


def write_for(seconds, ledgers, address):
    """Writes and reads for some time; no connection may break."""
    over = threading.Event()
    failures = []
    threads = start(write, ledgers, address, over.is_set) + start(read, ledgers, address, over.is_set, failures)
    time.sleep(seconds)
    over.set()
    join(threads)
    assert not failures, failures[0]
    assert not any(ledger.was_cut_off for ledger in ledgers)


def write_until_killed(ledgers, server, seconds):
    """Writes for some time, and kills the server meanwhile."""
    before = sum(ledger.successes for ledger in ledgers)
    threads = start(write, ledgers, server.address)
    until(lambda: sum(ledger.successes for ledger in ledgers) > before, pause=0.001)
    time.sleep(seconds)
    server.kill()
    join(threads)


def test_every_acknowledged_write_survives_kill_9(tmp_path, is_long):
    data = tmp_path / "data"
    generator = random.Random(20)
    ledgers = [Ledger(client) for client in range(CLIENTS)]
    for _ in range(200 if is_long else 25):
        server = Server(tmp_path / "server", data=data)
        try:
            check_all(ledgers, server.address)
            write_until_killed(ledgers, server, generator.uniform(0.0, 0.2))
        finally:
            server.kill()
    server = Server(tmp_path / "server", data=data)
    try:
        check_all(ledgers, server.address)
    finally:
        server.kill()
    assert all(all(ledger.acknowledged.values()) for ledger in ledgers), "every id was written"


@pytest.fixture
def shim(shim_library, tmp_path):
    """A disk that can fail."""
    with StorageShim(shim_library, tmp_path / "shim") as shim:
        yield shim


def check_recovery(ledgers, server):
    """Ends all faults, and checks that writes succeed again and nothing is missing."""
    until(lambda: exchange(server.address, post(fresh_id(), "after")).body == STORED, seconds=10)
    failures = sum(ledger.failures for ledger in ledgers)
    check_all(ledgers, server.address)
    write_for(0.2, ledgers, server.address)
    assert sum(ledger.failures for ledger in ledgers) == failures, "writes fail although the disk is sound again"
    check_all(ledgers, server.address)


@pytest.mark.parametrize("kind", FAULTS)
def test_a_failing_disk_loses_nothing_and_is_no_reason_to_restart(shim, tmp_path, kind):
    ledgers = [Ledger(client) for client in range(CLIENTS)]
    server = shim.serve(tmp_path / "server")
    try:
        write_for(0.2, ledgers, server.address)
        lines = server.log().count("\n")
        for _ in range(2):
            shim.set(**FAULTS[kind])
            write_for(0.7, ledgers, server.address)
            shim.heal()
            check_recovery(ledgers, server)
        shim.set(**FAULTS[kind])
        write_for(0.1, ledgers, server.address)
        # On a failing disk the server cannot finish its work, but it must end.
        assert server.stop() == 0
        assert shim.faults() > 0
        assert server.log().count("\n") - lines < MOST_LOG_LINES, server.log()
        shim.heal()
        server = shim.serve(tmp_path / "server again")
        check_recovery(ledgers, server)
        assert server.stop() == 0
    finally:
        server.kill()


def test_thousands_of_failures_are_few_lines_in_the_log(shim, tmp_path):
    server = shim.serve(tmp_path / "server")
    try:
        lines = server.log().count("\n")
        shim.set(write_failures=ALWAYS)
        ledger = Ledger(0)
        over = time.monotonic() + 20
        ledger.write(server.address, 100, lambda: ledger.failures >= 3_000 or time.monotonic() > over)
        assert (ledger.successes, ledger.failures >= 3_000) == (0, True)
        assert 1 <= server.log().count("\n") - lines < MOST_LOG_LINES, server.log()
    finally:
        server.kill()


def test_every_acknowledged_write_survives_kill_9_on_a_failing_disk(shim, tmp_path, is_long):
    generator = random.Random(21)
    ledgers = [Ledger(client) for client in range(CLIENTS)]
    for _ in range(60 if is_long else 10):
        server = shim.serve(tmp_path / "server")
        try:
            check_all(ledgers, server.address)
            kind = generator.choice(["failing writes", "failing syncs", "everything at random and slow"])
            shim.set(**FAULTS[kind])
            write_until_killed(ledgers, server, generator.uniform(0.0, 0.4))
        finally:
            server.kill()
            shim.heal()
    server = shim.serve(tmp_path / "server")
    try:
        check_all(ledgers, server.address)
    finally:
        server.kill()
    assert shim.faults() > 0


def test_a_stop_late_in_a_backup_leaves_nothing_of_it(shim, tmp_path):
    server = shim.serve(tmp_path / "server")
    backup = shim.disk / "backup.db"
    try:
        assert exchange(server.address, post("me", "1")).body == STORED
        # So that the backup is interrupted while it syncs its file.
        shim.set(sync_delay_microseconds=700_000)
        command = [binary(), "backup", str(backup), "--data-directory", str(shim.data)]
        with subprocess.Popen(command, env=clean_environment(), stderr=subprocess.DEVNULL) as process:
            partial = shim.disk / "backup.db.partial"
            until(lambda: partial.exists() and partial.stat().st_size > 0, pause=0.001)
            assert server.stop() == 0
            process.wait(20)
        assert not partial.exists()
    finally:
        server.kill()
