"""Ends programs of tests: signals to a process with all its descendants, and what is closed also when it did not come up."""
import contextlib
import os
import signal
from pathlib import Path

from server_process import until

# A process that waits for a disk takes a signal only afterwards.
SECONDS = 30


def state(process):
    """The state letter of a process id in proc(5), for example T for stopped; None if there is no such process."""
    try:
        return Path(f"/proc/{process}/stat").read_text(encoding="ascii", errors="replace").rsplit(")", 1)[1].split()[0]
    except (FileNotFoundError, ProcessLookupError):
        return None


def family(process):
    """A process id and those of all its descendants, parents first."""
    found = [process]
    for parent in found:
        for file in Path(f"/proc/{parent}/task").glob("*/children"):
            try:
                found += map(int, file.read_text(encoding="ascii").split())
            except (FileNotFoundError, ProcessLookupError):
                pass
    return found


def send(processes, number):
    """Sends a signal to those of the processes that still run."""
    for process in processes:
        try:
            os.kill(process, number)
        except ProcessLookupError:
            pass


def freeze(process):
    """Stops a process and all its descendants, and returns their ids when none of them runs any more."""
    stopped = []
    # A parent is stopped before its children are listed, so that it forks no more.
    while new := [member for member in family(process) if member not in stopped]:
        send(new, signal.SIGSTOP)
        until(lambda members=new: all(state(member) in ("T", "Z", None) for member in members), SECONDS, 0.001)
        stopped += new
    return stopped


def thaw(process):
    """Lets a frozen process and its descendants run again."""
    send(family(process), signal.SIGCONT)


def kill(process):
    """Kills a process and all its descendants at once, and waits for the end of the descendants.

    Whoever started the process has to wait for its own end.
    """
    # Stopped first, so that no descendant is missed; killed before the descendants can see anything of it.
    send([process], signal.SIGSTOP)
    until(lambda: state(process) in ("T", "Z", None), SECONDS, 0.001)
    members = family(process)
    send(members, signal.SIGKILL)
    until(lambda: all(state(member) in ("Z", None) for member in members), SECONDS, 0.001)


class Closeable:
    """Something with a method `close`, which is called at the end of a `with`."""

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.close()

    @contextlib.contextmanager
    def closed_on_failure(self):
        """Closes it if the statements in the `with` fail; an object whose `__init__` fails cannot be closed by its user."""
        try:
            yield
        except BaseException:
            self.close()
            raise
