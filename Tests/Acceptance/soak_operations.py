"""What operators do during a soak, and what the disk does meanwhile."""
import contextlib
import errno
import os
import shutil
import signal
import ssl
import time
from pathlib import Path

from contract import NOT_FOUND, STORED
from http_client import Connection, exchange, get, lines, post
from server_process import until
from soak_samples import metrics
from storage_shim import ALWAYS
from store_files import command, printed
from test_reload import rewrite

SECONDS = 60
# The id of the first write on a disk that is sound again.
RECOVERED = "recovered"
# Ids that are not in the ledger.
OF_OPERATORS = (RECOVERED, "outgrows")
RELOADED = "token_cache_last_reload_successful"


def steer(soak, path):
    """Sends a POST over the control socket."""
    return exchange(soak.server.data / "control.sock", lines(f"POST {path} HTTP/1.1", "Host: localhost")).body


# The disk

@contextlib.contextmanager
def failing(soak, **faults):
    """The disk fails; at the end it is sound again, and the server has recovered by itself."""
    soak.begin_failing()
    soak.disk.set(**faults)
    try:
        yield
    finally:
        soak.disk.heal()
        soak.disk.set(sync_delay_microseconds=0, error=0)
        until(lambda: exchange(soak.server.address, post(RECOVERED, "yes")).body == STORED, SECONDS)
        until(lambda: metrics(soak.server)["token_cache_ready"] == 1, SECONDS)
        soak.end_failing()


def fail_writes(soak):
    with failing(soak, write_failures=4_000, error=errno.EIO):
        time.sleep(soak.pace["fault_seconds"])


def fail_syncs(soak):
    with failing(soak, sync_failures=20_000, error=errno.EIO):
        time.sleep(soak.pace["fault_seconds"])


def fill_the_disk(soak):
    with failing(soak, write_failures=ALWAYS // 2, short_writes=ALWAYS // 4, error=errno.ENOSPC):
        time.sleep(soak.pace["fault_seconds"])


def fail_everything(soak):
    """No write succeeds."""
    with failing(soak, write_failures=ALWAYS, sync_failures=ALWAYS, truncate_failures=ALWAYS, error=errno.EIO):
        time.sleep(soak.pace["fault_seconds"])


def slow_down_the_disk(soak):
    """Nothing fails."""
    soak.disk.set(sync_delay_microseconds=40_000)
    time.sleep(soak.pace["fault_seconds"])
    soak.disk.set(sync_delay_microseconds=0)


def stall_the_disk(soak):
    """A sync takes longer than writes may wait."""
    with failing(soak), Connection(soak.server.address, timeout=SECONDS) as connection:
        soak.disk.set(sync_delay_microseconds=60_000_000)
        connection.send(post(RECOVERED, "perhaps"))
        until(lambda: metrics(soak.server)["token_cache_ready"] == 0, SECONDS)
        time.sleep(soak.pace["fault_seconds"] / 2)


# Reloads

def reload_without_a_change(soak):
    assert b'"reloaded":true' in steer(soak, "/reload").replace(b" ", b"")


def reload_with_a_change(soak):
    for value in ("on", "off"):
        rewrite(soak.server, json_bodies=value)
        answer = steer(soak, "/reload")
        assert f"to {value}".encode() in answer, answer


def reload_a_bad_configuration(soak):
    good = soak.server.folder / "token-cache.yaml"
    text = good.read_text()
    rewrite(soak.server, limits={"body": "huge"})
    soak.server.process.send_signal(signal.SIGHUP)
    until(lambda: metrics(soak.server)[RELOADED] == 0, SECONDS)
    good.write_text(text)
    soak.server.process.send_signal(signal.SIGHUP)
    until(lambda: metrics(soak.server)[RELOADED] == 1, SECONDS)


# Certificates and logs

def certificate(soak):
    """The one that the server shows."""
    return ssl.get_server_certificate(soak.server.addresses[1], timeout=SECONDS)


def replace(file, content):
    """Replaces a file at once."""
    new = Path(f"{file}.new")
    new.write_bytes(content)
    os.replace(new, file)


def change_the_certificate(soak):
    """The server notices by itself."""
    before = certificate(soak)
    soak.pairs.append(soak.pairs.pop(0))
    for file, source in zip(soak.pair, soak.pairs[0]):
        replace(file, Path(source).read_bytes())
    until(lambda: certificate(soak) != before, SECONDS)


def spoil_the_certificate(soak):
    file = Path(soak.pair[0])
    before, content = certificate(soak), file.read_bytes()
    replace(file, b"no certificate")
    soak.server.process.send_signal(signal.SIGHUP)
    until(lambda: metrics(soak.server)[RELOADED] == 0, SECONDS)
    assert certificate(soak) == before
    replace(file, content)
    soak.server.process.send_signal(signal.SIGHUP)
    until(lambda: metrics(soak.server)[RELOADED] == 1, SECONDS)


def rotate_the_log(soak):
    """As logrotate does; the log before the last is removed."""
    file = soak.access_log
    os.replace(file, f"{file}.1")
    soak.server.process.send_signal(signal.SIGHUP)
    until(lambda: exchange(soak.server.address, get("nobody")) and file.exists() and file.stat().st_size > 0, SECONDS)


# The store

def back_up(soak):
    """Takes a backup and verifies it, with the keys of that time."""
    number = len(soak.backups)
    path, keys = soak.folder / f"backup{number}.db", soak.folder / f"keys{number}"
    before = soak.ledger.bounds()
    printed(soak.server.data, "backup", str(path), seconds=SECONDS)
    after = soak.ledger.bounds()
    shutil.copy(soak.server.data / "keys", keys)
    verified = command(soak.server.data, "verify", str(path), seconds=SECONDS,
                       environment={"TOKEN_CACHE_SEALING_KEY_RING": str(keys)})
    assert verified.returncode == 0, verified.stderr
    soak.backups.append((path, keys, before, after))
    for earlier, _, _, _ in soak.backups[1:-2]:
        earlier.unlink(missing_ok=True)


def change_the_key(soak):
    """Seals every token with a new key, and retires the former."""
    printed(soak.server.data, "keyring", "rotate", seconds=SECONDS)


def remove_tokens(soak):
    """With the command, and by erasing a user."""
    for arguments in (["delete"], ["erase"]):
        register = soak.random.choice(soak.ledger.removed)
        with register.writer:
            number = register.begin_write(removes=True)
            done = command(soak.server.data, *arguments, register.unique_id, seconds=SECONDS)
            assert done.returncode in (0, 1), done.stderr
            register.end_write(number)
            assert exchange(soak.server.address, get(register.unique_id)).body == NOT_FOUND


def inspect(soak):
    """Commands that look, beside the running server."""
    printed(soak.server.data, "stats", seconds=SECONDS)
    printed(soak.server.data, "list", seconds=SECONDS)
    printed(soak.server.data, "keyring", seconds=SECONDS)
    assert "the store is sound" in printed(soak.server.data, "verify", seconds=SECONDS)


def operate_on_a_failing_disk(soak):
    """What operators do fails with a reason, or succeeds."""
    with failing(soak, write_failures=1_000, short_writes=500, sync_failures=10_000, truncate_failures=10_000):
        for arguments in (["keyring", "add"], ["keyring", "rotate"], ["backup", str(soak.folder / "on-a-failing-disk.db")]):
            done = command(soak.server.data, *arguments, seconds=SECONDS)
            assert done.returncode == 0 or (done.returncode == 1 and "token-cache: " in done.stderr), done
        steer(soak, "/reload")
    printed(soak.server.data, "keyring", "rotate", seconds=SECONDS)


def outgrow_the_wal(soak):
    """Writes more than the WAL has before it is moved to the database in the background."""
    with Connection(soak.server.address, timeout=SECONDS) as connection:
        for number in range(60):
            assert connection.exchange(post(OF_OPERATORS[1], f"{number}{'x' * 500_000}")).body == STORED


# Clients

def bring_a_crowd(soak):
    """Many connections at once, some of them secure, which all ask and then leave in different ways."""
    with contextlib.ExitStack() as stack:
        crowd = []
        for number in range(soak.pace["crowd"]):
            connection = stack.enter_context(Connection(soak.server.addresses[number % 4 == 0], timeout=SECONDS))
            if number % 4 == 0:
                connection.socket = soak.contexts["TLS 1.3"].wrap_socket(connection.socket)
            # At once: connections that wait for the others to come could be closed as idle ones.
            connection.send(get("nobody"))
            crowd.append(connection)
        for number, connection in enumerate(crowd):
            if number % 3:
                assert connection.receive().body == NOT_FOUND
            if number % 2:
                connection.reset()


OPERATIONS = [
    reload_without_a_change, reload_with_a_change, reload_a_bad_configuration, change_the_certificate, spoil_the_certificate,
    rotate_the_log, back_up, change_the_key, remove_tokens, inspect, outgrow_the_wal, bring_a_crowd, fail_writes, fail_syncs, fill_the_disk,
    fail_everything, operate_on_a_failing_disk, slow_down_the_disk, stall_the_disk,
]
# After these, a server has whatever it makes at the first use of something.
FIRST = [change_the_certificate, back_up, change_the_key, fail_writes]
