"""What a server is asked to do while one of its calls fails, and what must hold of the answer."""
import contextlib
import re
import sqlite3
from collections.abc import Callable
from dataclasses import dataclass

from contract import STORED
from failing_audits import PERIOD, AuditedWorld
from failing_calls import STRUCK
from failing_worlds import OF_CONNECTIONS, SECONDS, World, is_failing_sync
from server_process import Server, until
from store_files import has_commits

# The user whose token an operator removes.
REMOVED = "id1"
KEY = re.compile(r"(\d+) \d+ [0-9a-f]{64}")


class PostgresWorld(World):
    """A server with tables of its own; to be used with the fixture `tables_for_folders`."""
    lasting_threads = ("loop 0", "administration")
    # Connections of the administration: it makes one more if two things are done at once, and keeps it.
    spare_descriptors = 2

    @property
    def database(self):
        return Server.place(self.server.data).database

    def disconnect(self):
        """Has the database end the server's connections."""
        assert self.database.server.terminate(f"usename = '{self.database.user}'") > 0


def replied(world, point, path, request=None):
    """The reply to a request over the control socket; None if it failed, as it may."""
    answer = world.steer(path, request)
    may_fail = world.may_fail(point) or is_failing_sync(point)
    if answer is None:
        assert may_fail and point.kind in OF_CONNECTIONS, f"{path} gets no answer"
        return None
    if "error" in answer:
        assert may_fail, f"{path} fails: {answer['error']}"
        assert answer["error"].strip(), f"{path} fails without a reason"
        return None
    return answer.get("reply", answer)


def write_and_read(world, point):
    world.pipeline(point, writes=True)


def read(world, point):
    world.pipeline(point, writes=False)


def write_and_read_over_tls(world, point):
    world.pipeline(point, writes=True, is_secure=True)


def back_up(world, point):
    folder = world.server.folder / "backups"
    folder.mkdir(exist_ok=True)
    path = folder / "backup.db"
    reply = replied(world, point, "/store/backup", {"path": str(path)})
    if reply is None and world.server.is_running():
        # A client that gets no answer does not know when the server has finished or cleaned up.
        until(lambda: {file.name for file in folder.iterdir()} <= {path.name}, SECONDS)
    if reply is not None or path.exists():
        with contextlib.closing(sqlite3.connect(f"file:{path}?mode=ro&immutable=1", uri=True)) as database:
            assert database.execute("PRAGMA integrity_check").fetchall() == [("ok",)]
            [count] = database.execute("SELECT count(*) FROM token").fetchone()
        assert reply is None or reply["tokens"] == count, (reply, count)
        path.unlink()
    assert not list(folder.iterdir()), f"a backup leaves {list(folder.iterdir())}"


def rekey(world, point):
    """Adds a key, seals all rows with it, and retires the earlier keys."""
    replied(world, point, "/store/keyring/add")
    replied(world, point, "/store/walk")
    for key in keys(world, point):
        if not key["seals"]:
            replied(world, point, "/store/keyring/retire", {"number": key["number"]})


def keys(world, point=None):
    listed = replied(world, point, "/store/keyring/list")
    return listed["keys"] if listed else []


def check_key_ring(world):
    """The file has exactly the keys of which the server knows, and nothing is left beside it."""
    numbers = {key["number"] for key in keys(world)}
    lines = (world.server.data / "keys").read_text().splitlines()
    written = [KEY.fullmatch(line) for line in lines if line[:1].isdigit()]
    assert all(written) and {int(match[1]) for match in written} == numbers, (numbers, len(lines))


def reload(world, point):
    answer = replied(world, point, "/reload")
    if answer is not None and not answer["reloaded"]:
        assert world.may_fail(point) and ":" in answer["outcome"], answer


def erase(world, point):
    unique_id = "id1"
    if replied(world, point, "/store/erase", {"user": unique_id}) is None:
        world.answers.possible[unique_id].add(None)
    else:
        world.answers.possible[unique_id] = {None}


def checkpoint(world, point):
    """Waits until the WAL is in the database, a second after the last commit, or the chosen call was made."""
    until(lambda: not has_commits(world.server.data) or world.calls.strike().outcome, SECONDS)


def prepare_checkpoint(world):
    unique_id, value = world.answers.next_write()
    world.answers.take_write(unique_id, value, world.server.post(unique_id, value))


def prepare_removal(world):
    """Stores what `remove` removes."""
    value = "to be removed"
    assert world.server.post(world.credential(REMOVED), value) == STORED
    world.answers.possible[REMOVED] = {value}


def remove(world, point):
    """Removes a token as an operator does, who is told whether that was done and recorded."""
    before = len(world.events("remove_token"))
    answer = world.steer("/store/delete", {"ids": [REMOVED]})
    if answer is not None and "reply" in answer:
        world.answers.possible[REMOVED] = {None}
        assert answer["reply"] == {"removed": 1} and len(world.events("remove_token")) == before + 1, answer
        return
    assert world.may_fail(point) or is_failing_sync(point), answer
    assert answer is not None or point.kind in OF_CONNECTIONS, "an operator gets no answer"
    if answer is None or "nothing was done" not in answer["error"]:
        world.answers.possible[REMOVED].add(None)


def rotate(world, point):
    reload(world, point)
    strike = world.calls.strike()
    # Its last lines may be lost in a power cut.
    if point and point.kind == "fdatasync" and not point.passes and strike.target == str(world.rotated[-1]):
        assert strike.outcome == STRUCK and "the renamed audit log could not be synced" in world.server.log()


def check_rotation(world):
    """Another reload begins the new file, if the first one could not."""
    reload(world, None)
    assert world.log.file.exists() and world.events("continue_log"), world.files()


def renew(world, point):
    """Waits until the running key is replaced twice: when its time is over, and when the clock was set back."""
    period = world.log.saved_period()
    for number, ahead in enumerate((PERIOD, 0), 1):
        world.calls.set_clock(ahead)
        until(lambda number=number: world.log.saved_period() == period + number, SECONDS)


def reconnect(world, point):
    """Stores a token after the database has ended its connections."""
    world.disconnect()
    world.pipeline(point, writes=True)


@dataclass(frozen=True)
class Act:
    """Something that a server does while one of its calls fails."""
    do: Callable
    # Without a fault, before and after it
    prepare: Callable | None = None
    check: Callable | None = None
    world: type = World
    # Whether it takes a second or more: then several servers try faults at once, and each does it less often before.
    is_slow: bool = False


ACTS = {
    "post": Act(write_and_read),
    "get": Act(read),
    "tls": Act(write_and_read_over_tls),
    "backup": Act(back_up),
    "rekey": Act(rekey, check=check_key_ring),
    "reload": Act(reload),
    "erase": Act(erase),
    "checkpoint": Act(checkpoint, prepare=prepare_checkpoint, is_slow=True),
    "record": Act(write_and_read, world=AuditedWorld),
    "remove": Act(remove, prepare_removal, world=AuditedWorld),
    "rotate": Act(rotate, AuditedWorld.rotate, check_rotation, AuditedWorld),
    "renew": Act(renew, world=AuditedWorld, is_slow=True),
    "insert": Act(write_and_read, world=PostgresWorld),
    "select": Act(read, world=PostgresWorld),
    "reconnect": Act(reconnect, world=PostgresWorld),
}
