"""The primary fails in every way, a standby is promoted, and 64 clients go on through three servers.

No acknowledged write is missing, no read goes back, and no server is restarted.
"""
import time

import pytest

from contract import NOT_FOUND, STORED, found
from http_client import Connection, get
from postgres_failover import FAULTS
from registers import Load
from server_process import until
from test_clocks import clock

SERVERS = 3


def test_failovers_lose_nothing_and_no_read_goes_back(replicated_postgres, store_on, five_loops, is_long):
    databases = replicated_postgres(standbys=2, has_network=True, has_small_disks=True)
    faults = FAULTS * (15 if is_long else 1)
    store = store_on(databases)
    servers = [store.serve(f"server{number}", environment=five_loops if number else None) for number in range(SERVERS)]
    with Load(servers) as load:
        for fault in faults:
            load.go_on()
            failover = databases.failover(fault)
            measured = load.outages(failover.promoted)
            print(
                f"{fault}: promoted {failover.promoted - failover.broken:.2f} s after the fault, complete "
                f"{failover.completed - failover.promoted:.2f} s later; the longest outage of a server after the promotion: "
                f"writes {measured['writes']:.2f} s, reads {measured['reads']:.2f} s; "
                f"{load.failed_writes} writes and {load.failed_reads} reads failed so far; {sum(load.counts)} answers")
            # 2 s is what is promised, on a machine that has nothing else to do.
            assert max(measured.values()) < 15
            # The old primary is there again as it was, and does not know yet what has happened.
            databases.end_fault(failover.old)
            load.go_on()
            load.check()
            databases.repair(failover.old)
        load.go_on()
    load.raise_mistakes()
    load.check()
    for server in servers:
        assert server.is_running()
        # One line each.
        assert server.log().count(" is the primary now in the place of ") == len(faults)


@pytest.mark.parametrize("fault", ["freeze", "nothing"])
def test_an_old_primary_that_answers_gives_no_server_what_is_old(replicated_postgres, store_on, fault):
    """A server that had no request meanwhile still has its connections to the old primary, which nobody has stopped."""
    databases = replicated_postgres(standbys=2)
    store = store_on(databases)
    idle, busy = store.serve("idle"), store.serve("busy")
    for server in (idle, busy):
        assert server.post("me", "before") == STORED
        assert server.get("me") == found("before")
    old = databases.primary
    if fault == "freeze":
        old.freeze()
    databases.promote()
    assert busy.post("me", "after") == STORED
    old.thaw()
    with Connection(idle.address) as one, Connection(idle.address) as other:
        for connection in (one, other):
            assert connection.exchange(get("me")).body == found("after")


def test_a_server_whose_machine_was_suspended_gives_nothing_that_is_old(replicated_postgres, store_on, clock):
    """Its connections to the old primary, which nobody has stopped, are open, and by the clock that stood still its proof is new."""
    databases = replicated_postgres(standbys=2)
    store = store_on(databases)
    suspended, other = store.serve("suspended", environment=clock.environment), store.serve("other")
    assert other.post("me", "before") == STORED
    # Proves the primary again and again.
    for _ in range(20):
        assert suspended.get("me") == found("before")
        time.sleep(0.05)
    with suspended.paused():
        began = time.monotonic()
        databases.promote()
        assert other.post("me", "after") == STORED
        clock.suspend(time.monotonic() - began)
    assert suspended.get("me") == found("after")


def test_a_later_primary_that_is_restarted_does_not_bring_the_former_one_back(replicated_postgres, store_on):
    """A server that had no request meanwhile finds a former primary that answers, and a later one that refuses connections."""
    databases = replicated_postgres(standbys=2)
    store = store_on(databases)
    idle, busy = store.serve("idle"), store.serve("busy")
    assert busy.post("me", "before") == STORED
    assert idle.get("me") == found("before")
    failover = databases.failover("freeze")
    assert busy.post("me", "after") == STORED
    failover.old.thaw()
    failover.new.stop()
    assert idle.get("me") == NOT_FOUND
    failover.new.start()
    until(lambda: idle.get("me") == found("after"))
