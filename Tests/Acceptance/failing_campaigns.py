"""Tries faults of a running server one after the other, with the same server until one of them ends it."""
import collections
from concurrent.futures import ThreadPoolExecutor

from failing_acts import ACTS
from failing_calls import IMPOSSIBLE, KINDS, NOT_REACHED, STRUCK, FailingCalls, chosen, named, points
from failing_worlds import has_run_out_of_memory

# After so many failures a campaign ends, as one fault may make many points fail.
MOST_FAILURES = 10
# How many servers do at once what takes a second.
SIDE_BY_SIDE = 8


def withstand(phase, most, library, certificate, folder, fault=None):
    """Tries about `most` of a phase's faults, all if that is None, or only `fault`; fails if one of them has broken something."""
    if fault:
        tried = named(fault, phase)
    else:
        tried = points(phase, Campaign(phase, library, certificate, folder).count())
        tried = tried if most is None else chosen(tried, most)
    lanes = min(SIDE_BY_SIDE if ACTS[phase].is_slow else 1, len(tried))
    try_side_by_side([Campaign(phase, library, certificate, folder / f"lane{lane}") for lane in range(lanes)], tried)


def try_side_by_side(lanes, tried):
    """Divides the faults among campaigns, or `Lives`, which try them at the same time."""
    shares = [tried[number::len(lanes)] for number in range(len(lanes))]
    with ThreadPoolExecutor(len(lanes)) as executor:
        list(executor.map(lambda lane, share: lane.run(share), lanes, shares))
    outcomes = collections.Counter()
    for lane in lanes:
        outcomes.update(lane.outcomes)
    print(f"{len(tried)} faults: {outcomes[STRUCK]} struck, {outcomes[IMPOSSIBLE]} cannot occur there, {outcomes[NOT_REACHED]} not reached")
    failures = [failure for lane in lanes for failure in lane.failures]
    assert not failures, "\n" + "\n".join(failures)
    assert outcomes[STRUCK] > 0


class Campaign:
    """Tries faults of one phase."""

    def __init__(self, phase, library, certificate, folder):
        self.phase, self.library, self.folder = phase, library, folder
        self.settings = {
            "tls": {"certificate": certificate[0], "private_key": certificate[1]},
            "access_log": f"combined {folder}/access.log"}
        self.rounds = 1 if ACTS[phase].is_slow else 3
        self.worlds = 0
        self.failures = []
        self.outcomes = collections.Counter()

    def new_world(self):
        """A server that has done everything once."""
        self.worlds += 1
        folder = self.folder / f"world{self.worlds}"
        folder.mkdir(parents=True)
        world = ACTS[self.phase].world(FailingCalls(self.library, folder / "control"), folder / "server", self.settings)
        try:
            for _ in range(self.rounds):
                for phase in {"post", self.phase}:
                    self._act(world, phase, None)
            world.note_descriptors()
            world.settle()
            world.note_descriptors()
        except BaseException:
            world.server.kill()
            raise
        return world

    @staticmethod
    def _act(world, phase, point):
        act = ACTS[phase]
        if act.prepare:
            act.prepare(world)
        if point:
            world.calls.arm(point)
        else:
            world.calls.count()
        try:
            act.do(world, point)
        finally:
            world.calls.disarm()
        if act.check and point and world.server.is_running():
            act.check(world)

    def count(self):
        """The number of calls of each kind: the most of some rounds without a fault."""
        world = self.new_world()
        try:
            calls = dict.fromkeys(KINDS, 0)
            for _ in range(self.rounds):
                self._act(world, self.phase, None)
                calls = {kind: max(calls[kind], number) for kind, number in world.calls.calls().items()}
                world.settle()
        finally:
            world.server.kill()
        print(self.phase, {kind: number for kind, number in calls.items() if number})
        return calls

    def run(self, chosen_points):
        """Tries faults; records those after which something does not hold."""
        world = None
        for point in chosen_points:
            if len(self.failures) >= MOST_FAILURES:
                break
            world = world or self.new_world()
            try:
                is_ended = self._try(world, point)
            except (AssertionError, OSError) as error:
                log = world.server.log()[-1000:]
                self.failures.append(f"--fault {point}: {world.calls.strike()}: {error}; the server's log ends with:\n{log}")
                is_ended = True
            else:
                self.outcomes[world.calls.strike().outcome] += 1
            if is_ended:
                world.server.kill()
                world = None
        if world:
            try:
                world.restart_soundly()
            except AssertionError as error:
                self.failures.append(f"after the last of {[str(point) for point in chosen_points]}: {error}")

    def _try(self, world, point):
        """Tries a fault; returns whether it has ended the server, as it may."""
        try:
            self._act(world, self.phase, point)
            world.settle()
            return False
        except (AssertionError, OSError):
            if point.kind != "malloc" or not has_run_out_of_memory(world.server):
                raise
        world.restart_soundly()
        return True
