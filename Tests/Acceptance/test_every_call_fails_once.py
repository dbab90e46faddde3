"""Each system call of a running server fails, is shortened or delayed once; the server recovers by itself and loses nothing.

A failing test prints a line for each fault, which `--fault` repeats alone.
"""
from concurrent.futures import ThreadPoolExecutor

import pytest

from failing_acts import ACTS
from failing_calls import STRUCK, chosen, named
from failing_campaigns import Campaign

# How many faults of each phase the plain run tries.
PLAIN = {"post": 50, "get": 30, "tls": 40, "backup": 50, "rekey": 50, "reload": 40, "erase": 40, "checkpoint": 16}
# A checkpoint waits a second, so several servers do it at once.
SIDE_BY_SIDE = {"checkpoint": 8}


@pytest.mark.parametrize("phase", ACTS)
def test_a_running_server_withstands_each_failing_call(phase, failing_calls_library, lasting_certificate, public_folder, is_long, fault):
    if fault:
        tried = named(fault, phase)
    else:
        tried = Campaign(phase, failing_calls_library, lasting_certificate, public_folder).points()
        tried = tried if is_long else chosen(tried, PLAIN[phase])
    lanes = min(SIDE_BY_SIDE.get(phase, 1), len(tried))
    campaigns = [Campaign(phase, failing_calls_library, lasting_certificate, public_folder / f"lane{lane}") for lane in range(lanes)]
    with ThreadPoolExecutor(lanes) as executor:
        list(executor.map(lambda lane: campaigns[lane].run(tried[lane::lanes]), range(lanes)))
    for lane, campaign in enumerate(campaigns):
        print(campaign.summary(tried[lane::lanes]))
    failures = [failure for campaign in campaigns for failure in campaign.failures]
    assert not failures, "\n" + "\n".join(failures)
    assert sum(campaign.outcomes[STRUCK] for campaign in campaigns) > 0
