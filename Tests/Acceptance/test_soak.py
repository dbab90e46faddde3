"""A server under a mixed load, with faults and operators beside it, uses no more at the end than at the beginning and loses nothing.

For about half a minute; with --long for an hour, or for --soak-minutes. `soak.py` says what happens.
"""
import json
import random

import soak
from soak_samples import MIB, Allowance, exceeds, left_over, rises
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
