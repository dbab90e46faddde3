"""Memory under many connections, and whether it stays within its limits."""

import dataclasses
import time

from measurement import Wrk
from stores import Store
from workloads import SEED, numbered_gets

SAMPLE_SECONDS = 0.1
# The default.
CACHE_BYTES = 64 << 20
# Descriptors of the benchmark itself.
SPARE_CONNECTIONS = 100


@dataclasses.dataclass(frozen=True)
class Memory:
    """The memory of a server while it answered many requests."""

    connections: int
    requests: int
    first_half_bytes: int
    """The largest resident memory in the first half of the requests; the next value is that of the second half."""
    second_half_bytes: int
    peak_bytes: int
    cache_bytes: int
    """The limit of its cache."""


def measure(store: Store, wrk: Wrk, requests: int) -> Memory:
    """Requests random tokens, which fill the cache, until this many requests were answered."""
    store.settings = {
        "TOKEN_CACHE_LIMITS_CONNECTIONS": str(wrk.connections + SPARE_CONNECTIONS),
        "TOKEN_CACHE_CACHE_MAX_BYTES": str(CACHE_BYTES),
    }
    workload = numbered_gets(store.count)
    try:
        with store.serving(workload) as running:
            halves, answered, seed = [], 0, SEED
            for share in (requests // 2, requests):
                largest = 0
                while answered < share:
                    seed += 1
                    with wrk.driving(running.port, workload, seed) as process:
                        while process.poll() is None:
                            largest = max(largest, running.resident_bytes())
                            time.sleep(SAMPLE_SECONDS)
                        answered += wrk.figures(process, "memory", len(running.answer)).requests
                halves.append(largest)
            return Memory(wrk.connections, answered, *halves, running.peak_bytes(), CACHE_BYTES)
    finally:
        store.settings = {}
