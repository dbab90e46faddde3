"""What the disk of a server does during a soak."""
import contextlib
import errno
import time

from contract import STORED
from http_client import Connection, exchange, post
from server_process import until
from soak_samples import metrics
from storage_shim import ALWAYS

SECONDS = 60
# The id of the first write on a disk that is sound again.
RECOVERED = "recovered"


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
