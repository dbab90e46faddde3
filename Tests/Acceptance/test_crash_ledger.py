"""Acknowledged writes survive kill -9 and a failing disk, and the server recovers by itself."""
import errno
import random
import subprocess
import time

import pytest

from contract import STORED, fresh_id
from registers import Load
from server_process import binary, clean_environment, until
from storage_shim import ALWAYS
from store_files import opened, printed, unpack_former_store

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


def make_load():
    return Load([], clients=6, registers_of_each=4, longest=200_000)


@pytest.mark.parametrize("kinds", [[], ["failing writes", "failing syncs", "everything at random and slow"]], ids=["sound", "failing"])
def test_every_acknowledged_write_survives_kill_9(shim, tmp_path, is_long, kinds):
    generator, load = random.Random(20), make_load()
    for _ in range((200 if is_long else 25) // (1 + len(kinds) // 2)):
        server = shim.serve(tmp_path / "server")
        load.servers = [server]
        load.check()
        shim.set(**FAULTS[generator.choice(kinds)] if kinds else {})
        with load:
            # The walk goes over all rows beside the writes, at full speed.
            rotation = subprocess.Popen(
                [binary(), "keyring", "rotate", "--data-directory", str(server.data)], env=clean_environment(),
                stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
            load.go_on(1)
            time.sleep(generator.uniform(0.0, 0.2))
            load.over.set()
            server.kill()
        # Without a server, the command goes on by itself.
        rotation.wait()
        shim.heal()
    load.servers = [shim.serve(tmp_path / "server")]
    load.check()
    assert "the store is sound" in printed(load.servers[0].data, "verify")
    assert bool(shim.faults()) == bool(kinds)
    assert kinds or all(register.certain for registers in load.registers for register in registers), "every id was written"


def check_recovery(load, server):
    """Checks that writes succeed on a disk that is sound again, and that nothing is missing."""
    until(lambda: server.post(fresh_id(), "after") == STORED)
    # Requests that were under way may still fail.
    load.go_on(2)
    failures = load.failed_writes
    load.go_on(5)
    assert load.failed_writes == failures, "writes fail although the disk is sound again"
    load.check()


@pytest.mark.parametrize("kind", FAULTS)
def test_a_failing_disk_loses_nothing_and_is_no_reason_to_restart(shim, tmp_path, kind):
    server, load = shim.serve(tmp_path / "server"), make_load()
    load.servers = [server]
    with load:
        load.go_on(5)
        lines = server.log().count("\n")
        for _ in range(2):
            shim.set(**FAULTS[kind])
            time.sleep(0.7)
            shim.heal()
            check_recovery(load, server)
        shim.set(**FAULTS[kind])
        load.go_on(1)
    # On a failing disk the server cannot finish its work, but it must end.
    assert server.stop() == 0
    assert shim.faults() > 0
    assert server.log().count("\n") - lines < MOST_LOG_LINES, server.log()
    shim.heal()
    server, = load.servers = [shim.serve(tmp_path / "server again")]
    with load:
        check_recovery(load, server)
    assert server.stop() == 0


def test_a_stop_late_in_a_backup_leaves_nothing_of_it(shim, tmp_path):
    server = shim.serve(tmp_path / "server")
    backup = shim.disk / "backup.db"
    assert server.post("me", "1") == STORED
    # So that the backup is interrupted while it syncs its file.
    shim.set(sync_delay_microseconds=700_000)
    command = [binary(), "backup", str(backup), "--data-directory", str(shim.data)]
    with subprocess.Popen(command, env=clean_environment(), stderr=subprocess.DEVNULL) as process:
        partial = shim.disk / "backup.db.partial"
        # On a machine that sleeps here, the backup may be complete by then.
        until(lambda: backup.exists() or partial.exists() and partial.stat().st_size > 0, pause=0.001)
        assert server.stop() == 0
        process.wait(20)
    assert not partial.exists()


def test_a_store_of_version_1_0_is_refused_by_that_version_as_soon_as_it_lacks_its_indexes(serve, tmp_path):
    """Otherwise it would call the store damaged, if the server was killed before its first checkpoint."""
    data = tmp_path / "data"
    unpack_former_store(data)
    with opened(data) as database:
        database.execute("PRAGMA wal_checkpoint(TRUNCATE)")
        assert database.execute("PRAGMA user_version").fetchall() == [(6,)]
    server = serve(data=data)
    server.kill()
    # In the file itself, without what the WAL has in its place.
    with open(data / "tokens.db", "rb") as file:
        assert int.from_bytes(file.read(64)[60:], "big") > 255
