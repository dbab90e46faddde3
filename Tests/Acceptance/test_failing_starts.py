"""Each system call of a start, an upgrade and a stop fails, is shortened or is delayed once; some allocations fail, also of a running server.

A start serves, or says why it does not; the next one without the fault serves in any case, with everything that was acknowledged.
Without memory a server may end by design, but its store is whole. A failing test prints a line for each fault, which `--fault`
repeats alone.
"""
import errno
import random

import pytest

from failing_calls import KILLED, Point, chosen, named, points
from failing_campaigns import Campaign, try_side_by_side
from failing_lives import Lives

# How many faults of each phase the plain run tries.
PLAIN_LIVES = {"create": 30, "start": 40, "stop": 20, "upgrade": 20}
# The calls that change the disk: a server is killed before each of them that an upgrade from version 1.0 makes.
CHANGING = ("write", "pwrite", "fdatasync", "ftruncate", "rename")
# How many allocations fail, of tens of thousands in a start, and how many times as many with --long. Erasing includes a checkpoint.
ALLOCATIONS = {"post": 8, "get": 3, "tls": 3, "backup": 4, "rekey": 4, "reload": 3, "erase": 4, "create": 4, "start": 4, "stop": 3}
LONG_FACTOR = 15
LANES = 2


@pytest.fixture
def make(failing_calls_library, lasting_certificate, public_folder):
    """A function that makes the `Lives` or the `Campaign` for the faults of a phase, in a folder of its own."""
    def made(phase, name):
        kind = Lives if phase in PLAIN_LIVES else Campaign
        return kind(phase, failing_calls_library, lasting_certificate, public_folder / name)
    return made


@pytest.mark.parametrize("phase", PLAIN_LIVES)
def test_a_start_or_stop_withstands_each_failing_call(phase, make, is_long, fault):
    if fault:
        tried = named(fault, phase)
    else:
        calls = make(phase, "counted").count()
        tried = points(phase, calls)
        tried = tried if is_long else chosen(tried, PLAIN_LIVES[phase])
        if phase == "upgrade":
            tried += [Point(phase, kind, number, KILLED) for kind in CHANGING for number in range(1, calls[kind] + 1)]
    try_side_by_side([make(phase, f"lane{lane}") for lane in range(LANES)], tried)


@pytest.mark.parametrize("phase", ALLOCATIONS)
def test_a_failed_allocation_leaves_a_whole_store(phase, make, is_long, fault):
    if fault:
        tried = named(fault, phase, is_allocation=True)
    else:
        count = make(phase, "counted").count()["malloc"]
        most = ALLOCATIONS[phase] * (LONG_FACTOR if is_long else 1)
        numbers = random.Random(phase).sample(range(1, count + 1), min(count, most))
        tried = [Point(phase, "malloc", number, errno.ENOMEM) for number in sorted(numbers)]
    try_side_by_side([make(phase, "tried")], tried)
