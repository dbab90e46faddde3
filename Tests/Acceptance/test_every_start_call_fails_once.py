"""Each system call of a start and of a stop fails, is shortened or delayed once.

A start then serves, or says why it does not; the next one without the fault serves in any case, with everything that was
acknowledged. A failing test prints a line for each fault, which `--fault` repeats alone.
"""
from concurrent.futures import ThreadPoolExecutor

import pytest

from failing_calls import STRUCK, chosen, named, points
from failing_lives import Lives
from failing_services import InheritingLives

# How many faults of each phase the plain run tries.
PLAIN = {"create": 30, "start": 40, "inherit": 30, "stop": 20}
# The others are phases of `Lives`.
OWN_LIVES = {"inherit": InheritingLives}
LANES = 2


@pytest.mark.parametrize("phase", PLAIN)
def test_a_start_or_stop_withstands_each_failing_call(phase, failing_calls_library, lasting_certificate, public_folder, is_long, fault):
    def lives(name):
        return OWN_LIVES.get(phase, Lives)(phase, failing_calls_library, lasting_certificate, public_folder / name)

    if fault:
        tried = named(fault, phase)
    else:
        tried = points(phase, lives("counted").count())
        tried = tried if is_long else chosen(tried, PLAIN[phase])
    lanes = [lives(f"lane{lane}") for lane in range(LANES)]
    with ThreadPoolExecutor(LANES) as executor:
        list(executor.map(lambda pair: pair[1].run(tried[pair[0]::LANES]), enumerate(lanes)))
    for number, lane in enumerate(lanes):
        print(lane.summary(tried[number::LANES]))
    failures = [failure for lane in lanes for failure in lane.failures]
    assert not failures, "\n" + "\n".join(failures)
    assert sum(lane.outcomes[STRUCK] for lane in lanes) > 0
