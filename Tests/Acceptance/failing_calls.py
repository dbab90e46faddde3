"""Lets one chosen call of a process fail, be shortened, be delayed or kill the process, and sets its clock, with the library in
shim/failing_calls.c."""
import errno
import functools
import mmap
import os
import struct
import subprocess
from dataclasses import dataclass
from pathlib import Path

import pytest

SOURCE = Path(__file__).parent / "shim" / "failing_calls.c"
# enum kind in shim/failing_calls.c; `open` includes fopen and opendir, `fdatasync` fsync, `getrandom` getentropy.
KINDS = (
    "open", "read", "pread", "write", "pwrite", "fdatasync", "ftruncate", "rename", "mmap", "accept", "recv", "send",
    "epoll_ctl", "epoll_create1", "eventfd", "timerfd_create", "getrandom", "pthread_create", "socket", "connect", "poll",
    "sendto", "getsockname", "malloc",
)
# struct control in shim/failing_calls.c: how far the clock is ahead; whether a call is chosen, and which; the counts; the
# outcome, the thread, the target, the caller and its library. What is native has the padding that C gives it.
CONTROL = f"@2q4I{len(KINDS)}II16s128sQ128s"
CHOSEN = struct.calcsize("@2q")
SHORT, DELAYED, KILLED = 1000, 1001, 1002
NOT_REACHED, STRUCK, IMPOSSIBLE = range(3)
NAMES = {SHORT: "short", DELAYED: "delayed", KILLED: "killed"}

# The errors of each call that its manual page in section 2 lists (pthread_create, getentropy and malloc: section 3) and that
# do not stem from a wrong argument. `open` fails with ENOSPC only if it creates a file. Transfers are shortened only if they
# have two bytes, EAGAIN exists only on sockets that do not block, EIO and ENOSPC only on files, and no error of read and write
# on descriptors such as those of eventfd, which neither wait nor have a disk below them: the library leaves these alone.
ACTIONS = {
    "open": (errno.EINTR, errno.EMFILE, errno.ENFILE, errno.ENOMEM, errno.ENOSPC, DELAYED),
    "read": (errno.EINTR, errno.EIO, SHORT, DELAYED),
    "pread": (errno.EINTR, errno.EIO, SHORT, DELAYED),
    "write": (errno.EINTR, errno.EIO, errno.ENOSPC, SHORT, DELAYED),
    "pwrite": (errno.EINTR, errno.EIO, errno.ENOSPC, SHORT, DELAYED),
    "fdatasync": (errno.EINTR, errno.EIO, errno.ENOSPC, DELAYED),
    "ftruncate": (errno.EINTR, errno.EIO, DELAYED),
    "rename": (errno.ENOMEM, errno.ENOSPC, DELAYED),
    "mmap": (errno.ENOMEM, errno.ENFILE),
    "accept": (errno.EINTR, errno.EAGAIN, errno.EMFILE, errno.ENFILE, errno.ENOMEM, errno.ENOBUFS, errno.ECONNABORTED, DELAYED),
    "recv": (errno.EINTR, errno.EAGAIN, errno.ENOMEM, errno.ECONNRESET, SHORT, DELAYED),
    "send": (errno.EINTR, errno.EAGAIN, errno.ENOMEM, errno.ENOBUFS, errno.ECONNRESET, errno.EPIPE, SHORT, DELAYED),
    "epoll_ctl": (errno.ENOMEM, errno.ENOSPC),
    "epoll_create1": (errno.EMFILE, errno.ENFILE, errno.ENOMEM),
    "eventfd": (errno.EMFILE, errno.ENFILE, errno.ENOMEM),
    "timerfd_create": (errno.EMFILE, errno.ENFILE, errno.ENOMEM),
    "getrandom": (errno.EIO, errno.ENOSYS),
    "pthread_create": (errno.EAGAIN,),
    "socket": (errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM),
    "connect": (errno.ECONNREFUSED, errno.ENETUNREACH, errno.ETIMEDOUT, DELAYED),
    "poll": (errno.EINTR, errno.ENOMEM, DELAYED),
    "sendto": (errno.EINTR, errno.ENOBUFS, errno.ENOMEM, errno.ECONNREFUSED, DELAYED),
    "getsockname": (errno.ENOBUFS,),
}
# What a program must put up with: the call succeeds when it is repeated.
PASSING = (errno.EINTR, errno.EAGAIN, SHORT, DELAYED)


@dataclass(frozen=True)
class Point:
    """One fault: the n-th call of a kind in a phase, and what happens to it."""
    phase: str
    kind: str
    number: int
    action: int

    def __str__(self):
        return f"{self.phase}-{self.kind}-{self.number}-{NAMES.get(self.action) or errno.errorcode[self.action]}"

    @classmethod
    def named(cls, name):
        """The fault that has this name."""
        phase, kind, number, action = name.split("-")
        actions = {text: action for action, text in NAMES.items()}
        return cls(phase, kind, int(number), actions.get(action) or getattr(errno, action))

    @property
    def passes(self):
        """Whether nothing may come of it but a delay."""
        # A thread that cannot be created is not a call to repeat at once.
        return self.action in PASSING and self.kind != "pthread_create"


@dataclass(frozen=True)
class Strike:
    """What became of a fault."""
    outcome: int
    thread: str
    target: str
    caller: int
    library: str

    def __str__(self):
        return f"{self.function()} in {self.thread!r}, on {self.target!r}"

    def function(self):
        """The mangled name of the function that made the call; that of the library if its functions have no names."""
        before = [name for address, name in functions(self.library) if address < self.caller]
        return before[-1] if before else os.path.basename(self.library)

    @property
    def is_of_dispatch(self):
        """Whether libdispatch made the call.

        It ends the process if it gets no descriptor for its signals and timers, and hears of no signal if it gets no memory
        to watch that descriptor.
        """
        return "dispatch_" in self.function() or self.function().startswith("libdispatch.so")


@functools.cache
def functions(program):
    """The addresses and names of a program's functions, in order."""
    listed = subprocess.run(["nm", "--numeric-sort", "--defined-only", program], capture_output=True, text=True, check=False)
    words = [line.split(" ", 2) for line in listed.stdout.splitlines()]
    return [(int(address, 16), name) for address, kind, name in words if kind in "tTwW"]


class FailingCalls:
    """The calls of one process at a time."""

    def __init__(self, library, control):
        self.control = Path(control)
        self.control.write_bytes(bytes(struct.calcsize(CONTROL)))
        with open(self.control, "r+b") as file:
            self.memory = mmap.mmap(file.fileno(), 0)
        # Without the runtime's backtrace of a crash, which takes seconds.
        self.environment = {
            "LD_PRELOAD": str(library), "FAILING_CALLS_CONTROL": os.path.realpath(control), "SWIFT_BACKTRACE": "enable=no"}

    def close(self):
        self.memory.close()

    def count(self):
        """Counts calls from zero."""
        self.memory[CHOSEN:] = bytes(len(self.memory) - CHOSEN)

    def arm(self, point):
        """Counts calls from zero, and chooses the one that fails."""
        self.count()
        struct.pack_into("@4I", self.memory, CHOSEN, 0, KINDS.index(point.kind), point.number, point.action)
        self.memory[CHOSEN] = 1

    def disarm(self):
        """Ends the fault, and returns what became of it."""
        self.memory[CHOSEN] = 0
        return self.strike()

    def strike(self):
        *_, outcome, thread, target, caller, library = struct.unpack(CONTROL, self.memory)
        thread, target, library = (text.partition(b"\0")[0].decode(errors="replace") for text in (thread, target, library))
        return Strike(outcome, thread, target, caller, library)

    def calls(self):
        """The number of calls of each kind since `count` or `arm`."""
        return dict(zip(KINDS, struct.unpack(CONTROL, self.memory)[6:6 + len(KINDS)]))

    def set_clock(self, seconds_ahead):
        """Sets the clock of the process ahead of the machine's."""
        struct.pack_into("@q", self.memory, 0, seconds_ahead)

    def suspend(self, seconds):
        """Sets the monotonic clock of the process back, which stands still while a machine is suspended."""
        struct.pack_into("@q", self.memory, struct.calcsize("@q"), int(seconds * 1e9))


def points(phase, calls):
    """All faults of a phase that makes so many calls of each kind."""
    return [
        Point(phase, kind, number, action)
        for kind, actions in ACTIONS.items() for action in actions for number in range(1, calls[kind] + 1)]


# Rare calls that are tried whatever the number of faults.
ALWAYS = ("rename", "getrandom", "pthread_create", "sendto")


def named(fault, phase, is_allocation=False):
    """The points of `--fault`: the one that it names; skips the test if that is of another phase or another test's."""
    point = Point.named(fault)
    if point.phase != phase or (point.kind == "malloc") != is_allocation:
        pytest.skip("--fault names another fault")
    return [point]


def chosen(points, most):
    """About so many of the points: all of rare calls, and the others evenly distributed."""
    rare = [point for point in points if point.kind in ALWAYS]
    others = [point for point in points if point.kind not in ALWAYS]
    rest = min(len(others), max(most - len(rare), 1))
    return rare + [others[index * len(others) // rest] for index in range(rest)]
