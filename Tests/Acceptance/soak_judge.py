"""Judges whether what a server uses stays flat, from samples that were taken while it worked.

What a server uses rises and falls with its load, so single values say little. What leaks, though, is larger at the end than at
the beginning, at its peaks as well as most of the time.
"""
import statistics
from dataclasses import dataclass

MIB = 1 << 20
LEAST_SAMPLES = 9


@dataclass(frozen=True)
class Allowance:
    """By how much a measure may have risen: a part of what it was, and an amount besides."""
    part: float
    amount: float

    def __call__(self, before):
        return before * (1 + self.part) + self.amount


def thirds(series):
    """The first and the last third of a series."""
    length = len(series) // 3
    return series[:length], series[-length:]


def rises(name, series, allowance):
    """Sentences about what has risen by more than the allowance from the first third of a series to the last."""
    assert len(series) >= LEAST_SAMPLES, f"{name} has {len(series)} samples, too few to judge"
    first, last = thirds(series)
    found = []
    for what, measure in (("peak", max), ("median", statistics.median)):
        before, after = measure(first), measure(last)
        if after > allowance(before):
            found.append(f"the {what} of {name} rose from {before:,.0f} in the first third to {after:,.0f} in the last, "
                         f"and {allowance(before):,.0f} is allowed")
    return found


def exceeds(name, series, limit):
    """A sentence if a series was ever beyond a limit."""
    return [f"{name} reached {max(series):,.0f}, and the limit is {limit:,.0f}"] if max(series) > limit else []


# Names of threads of the runtime's pool, which makes and ends them as it needs them, and how many more there may be.
POOL, MORE_OF_POOL = "qos", 8
# SQLite keeps a descriptor of a database that it closes while other connections of the process have locks on it, and uses it for
# the next connection.
MORE_OF_DATABASE = 2
# The connections of commands, for users and for listings, are opened for the first command and stay.
MORE_OF_WAL = 2


def left_over(before, after):
    """Sentences about what an idle server has more of than when it was idle before, each given by `soak_samples.idle_sample`."""
    found = [f"{name} is {after[name]:,.0f} without clients" for name in ("connections", "buffers", "queue", "wal") if after[name]]
    for file, count in after["open"].items():
        more = {"tokens.db": MORE_OF_DATABASE + MORE_OF_WAL, "tokens.db-wal": MORE_OF_WAL}
        allowed = before["open"].get(file, 0) + more.get(file.rpartition("/")[2], 0)
        if count > allowed:
            found.append(f"{count} descriptors lead to {file} without clients, and {allowed} are allowed")
    for name, count in after["names"].items():
        allowed = before["names"].get(name, 0) + (MORE_OF_POOL if POOL in name else 0)
        if count > allowed:
            found.append(f"{count} threads are called {name!r} without clients, and {allowed} are allowed")
    for name in before["names"].keys() - after["names"].keys():
        if POOL not in name:
            found.append(f"the thread {name!r} has ended")
    return found
