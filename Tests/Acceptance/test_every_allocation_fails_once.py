"""An allocation of memory fails: the server may end by design, but its store is whole and has all that was acknowledged.

A failing test prints a line for each fault, which `--fault` repeats alone.
"""
import errno
import random

import pytest

from failing_calls import STRUCK, Point, named
from failing_campaigns import Campaign
from failing_lives import Lives

# How many allocations of each act fail in the plain run, and how many times as many in the long one. Erasing includes a
# checkpoint.
PLAIN = {"post": 8, "get": 3, "tls": 3, "backup": 4, "rekey": 4, "reload": 3, "erase": 4}
LONG_FACTOR = 15


# The same of starts, which make ten thousands of allocations, and of stops.
PLAIN_LIVES = {"create": 4, "start": 4, "stop": 3}


def sampled(phase, count, number, is_long):
    """Allocations that fail, of those that a phase makes."""
    number *= LONG_FACTOR if is_long else 1
    numbers = random.Random(phase).sample(range(1, count + 1), min(count, number))
    return [Point(phase, "malloc", number, errno.ENOMEM) for number in sorted(numbers)]


def check(tried, campaign):
    campaign.run(tried)
    print(campaign.summary(tried))
    assert not campaign.failures, "\n" + "\n".join(campaign.failures)
    assert campaign.outcomes[STRUCK] > 0


@pytest.mark.parametrize("phase", PLAIN)
def test_a_failed_allocation_leaves_a_whole_store(phase, failing_calls_library, lasting_certificate, public_folder, is_long, fault):
    campaign = Campaign(phase, failing_calls_library, lasting_certificate, public_folder)
    check(named(fault, phase, is_allocation=True) if fault
          else sampled(phase, campaign.count()["malloc"], PLAIN[phase], is_long), campaign)


@pytest.mark.parametrize("phase", PLAIN_LIVES)
def test_a_start_or_stop_without_memory_leaves_a_whole_store(
        phase, failing_calls_library, lasting_certificate, public_folder, is_long, fault):
    lives = Lives(phase, failing_calls_library, lasting_certificate, public_folder / "lives")
    check(named(fault, phase, is_allocation=True) if fault
          else sampled(phase, lives.count()["malloc"], PLAIN_LIVES[phase], is_long), lives)
