"""A server under a mixed load, with faults and operators beside it, uses no more at the end than at the beginning and loses nothing.

For about half a minute; with --long for an hour, or for --soak-minutes. `soak.py` says what happens.
"""
import json
import random

import pytest

import soak
from soak_judge import MIB, Allowance, exceeds, left_over, rises
from soak_ledger import AFTER_EXPIRED, LATEST, Abandoned, Expiring, Register
from soak_samples import table

# What may have risen from the first third of the samples to the last. A short soak is over before the memory that is freed in
# one place is used in another.
MEMORY = {"short": Allowance(0.10, 24 * MIB), "long": Allowance(0.05, 6 * MIB)}
ALLOWED = {
    "descriptors": Allowance(0.25, 60), "threads": Allowance(0, 8), "connections": Allowance(0.25, 60),
    "database": Allowance(0.10, 8 * MIB), "buffers": Allowance(0.25, 8 * MIB), "queue": Allowance(0.25, 8 * MIB),
}
# A checkpoint begins at 16 MiB; while the disk fails, the WAL grows on.
MOST_WAL = 48 * MIB


def growth(samples, length):
    """Sentences about what has grown.

    In the first quarter of an hour, the caches of SQLite, of libdispatch's threads and of the allocator still fill.
    """
    settled = samples[len(samples) // 4:] if length == "long" else samples
    series = {name: [one[name] for one in settled] for name in samples[0]}
    allowed = {"private": MEMORY[length], "resident": MEMORY[length], **ALLOWED}
    found = [sentence for name, allowance in allowed.items() for sentence in rises(name, series[name], allowance)]
    return found + exceeds("wal", [one["wal"] for one in samples], MOST_WAL)


def test_nothing_grows_and_nothing_is_lost(request, is_long, shim_library, tmp_path, record_property):
    minutes = request.config.getoption("--soak-minutes") or (60 if is_long else 0)
    seed = request.config.getoption("--seed") or random.randrange(1 << 32)
    pace = {**soak.LONG, "seconds": minutes * 60} if minutes else soak.SHORT
    print(f"the order of events can be repeated with --seed {seed}")
    world = soak.Soak(shim_library, tmp_path / "soak", seed, pace)
    try:
        before = world.warm_up()
        samples = world.work()
        after = world.idle(before)
        shown = f"--seed {seed}\n{table(samples, 60 if minutes else 2)}\n{dict(sorted(world.counts.items()))}"
        print(shown, before, after, sep="\n")
        (tmp_path / "samples.json").write_text(json.dumps({"before": before, "after": after, "samples": samples}))
        if minutes:
            record_property("table", shown)
        if minutes:
            world.check()
        world.kill_and_restart()
        world.check()
        world.check_backups()
        world.end()
        world.raise_mistakes()
        assert left_over(before, after) == []
        assert growth(samples, "long" if minutes else "short") == []
    finally:
        world.close()


# What the soak finds

USED = {name: 0 for name in ("private", "resident", *ALLOWED, "wal")}
LENGTH = 600
USUAL = 60 * MIB


@pytest.mark.parametrize("name", ["private", "resident", *ALLOWED])
@pytest.mark.parametrize("leak", [
    lambda at: USUAL + at * MIB / 5,
    # At the peaks only, and between them only.
    lambda at: USUAL * (1 if at % 50 else 2 + 2 * at / LENGTH), lambda at: USUAL * (6 if at % 50 == 0 else 2 + 2 * at / LENGTH),
    # Once, late.
    lambda at: USUAL * (2 if at > LENGTH * 3 // 4 else 1),
], ids=["slow", "peaks", "troughs", "step"])
def test_what_grows_is_found(name, leak):
    found = growth([{**USED, name: leak(at)} for at in range(LENGTH)], "long")
    assert found and all(f" of {name} rose " in sentence for sentence in found)


@pytest.mark.parametrize("use", [
    lambda at: USUAL, lambda at: USUAL + at % 60 * MIB, lambda at: USUAL * (1 + 3 * (at % 97 == 5)),
    # Falls, and rises by less than is allowed.
    lambda at: USUAL * (2 - at / LENGTH), lambda at: USUAL + at * MIB / LENGTH * 4,
], ids=["flat", "saw", "peaks", "falling", "within"])
def test_what_comes_and_goes_is_no_growth(use):
    assert growth([{**USED, "private": use(at), "resident": use(at)} for at in range(LENGTH)], "long") == []


def test_a_wal_that_is_once_too_large_is_found():
    assert growth([{**USED, "wal": MOST_WAL + (at == 7)} for at in range(LENGTH)], "long")


IDLE = {"connections": 0, "buffers": 0, "queue": 0, "wal": 0, "open": {"socket": 4, "/data/tokens.db": 4},
        "names": {"loop 0": 1, "writer": 1, "-qos.overcommit": 3}}


@pytest.mark.parametrize("change, count", [
    ({}, 0), ({"buffers": 1}, 1), ({"connections": 1, "queue": 5, "wal": 32}, 3), ({"open": {"socket": 5}}, 1),
    ({"open": {"socket": 4, "/data/tokens.db": 8}}, 0), ({"open": {"/data/tokens.db": 9}}, 1), ({"open": {"/data/old.pem": 1}}, 1),
    ({"names": {"loop 0": 1, "writer": 1, "-qos.overcommit": 9}}, 0), ({"names": {"loop 0": 1, "writer": 2}}, 1),
    ({"names": {"loop 0": 1, "writer": 1, "-qos.overcommit": 12}}, 1), ({"names": {"loop 0": 1}}, 1),
])
def test_what_an_idle_server_keeps_is_found(change, count):
    assert len(left_over(IDLE, {**IDLE, **change})) == count


def written(register, *removes):
    """A register with acknowledged writes, each of which is a removal or not."""
    for is_removal in removes:
        register.end_write(register.begin_write(is_removal))
    return register


def test_lost_and_older_tokens_are_found():
    register = written(Register("a", 50), False, False)
    number = register.begin_write()
    least = register.begin_read()
    for wrong in (None, register.value(1), register.value(2) + "x", register.value(number + 1)):
        with pytest.raises(AssertionError):
            register.end_read(wrong, least)
    register.end_read(register.value(2), least)
    # The write that has not been acknowledged may be seen, but not go away again.
    register.end_read(register.value(number), least)
    with pytest.raises(AssertionError):
        register.end_read(register.value(2), register.begin_read())


def test_removed_tokens_may_be_missing_and_do_not_come_back():
    register = written(Register("a", 50, is_removed=True), False, True)
    register.end_read(None, register.begin_read())
    with pytest.raises(AssertionError):
        register.end_read(register.value(1), register.begin_read())
    written(register, False)
    with pytest.raises(AssertionError):
        register.end_read(None, register.begin_read())


def test_a_backup_that_does_not_fit_is_found():
    register = written(Register("a", 50), *[False] * 5)
    register.check_copy(register.value(3), 2, 4)
    for wrong in (None, register.value(1), register.value(5)):
        with pytest.raises(AssertionError):
            register.check_copy(wrong, 2, 4)
    register.check_copy(None, 0, 4)


def test_torn_tokens_are_found_where_nothing_else_is_known():
    register = Abandoned("a", 5_000)
    number = register.begin_write()
    register.end_read(None, 0)
    register.end_read(register.value(number), 0)
    with pytest.raises(AssertionError):
        register.end_read(register.value(number)[:-1] + "?", 0)


def test_tokens_that_expire_too_early_or_never_are_found():
    token = Expiring(100)
    gone, late = token.date + AFTER_EXPIRED, token.date + LATEST
    assert token.is_right(token.value, gone - 1, gone) and not token.is_right(None, gone - 2, gone - 1)
    assert token.is_right(None, gone, gone) and not token.is_right(token.value, late + 1, late + 1)
    assert not token.is_right("another", gone - 2, gone - 1)
