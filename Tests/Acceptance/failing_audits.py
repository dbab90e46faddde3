"""An audit log, some of whose lines meet a failing call, and what it must say afterwards."""
import json
import re
import shutil

from access import API, session_settings, unknown_session
from failing_calls import SHORT
from failing_worlds import World
from server_process import Server, run, until

# How long a key is used, in seconds.
PERIOD = 900
NAME = "audit.ndjson"


class AuditLog:
    """A log in a folder of its own, with its keys; copies of the folder are logs as well."""

    def __init__(self, folder):
        self.folder = folder
        self.file, self.running_key, self.first_key = folder / NAME, folder / "audit-key", folder / "first.key"

    @property
    def environment(self):
        """Names the log to commands."""
        return {"TOKEN_CACHE_AUDIT_FILE": str(self.file), "TOKEN_CACHE_AUDIT_KEY_FILE": str(self.running_key)}

    @property
    def settings(self):
        """Names it to servers, which record reads too, so that every request has a line."""
        return {"file": str(self.file), "key_file": str(self.running_key), "events": "all"}

    def make_keys(self):
        self.folder.mkdir(parents=True)
        self.run("audit", "key", self.first_key)

    def age_key(self):
        """Makes the running key older than a key may be."""
        text = self.running_key.read_text()
        self.running_key.write_text(re.sub(r"(?m)^(period \d+) \d+ ", r"\1 1 ", text))

    def saved_period(self):
        """The number of the running key that a crash would leave."""
        # A file that was replaced since it was opened is overwritten.
        return int(until(lambda: re.search(r"(?m)^period (\d+) ", self.running_key.read_text()))[1])

    def verify(self, *files):
        """Each line is as it was written, in these files or the present one."""
        self.run("audit", "verify", *(files or [self.file]), "--key", self.first_key)

    def run(self, *arguments):
        done = run(*map(str, arguments), environment=self.environment)
        assert done.returncode == 0, f"{arguments} ends with {done.returncode}: {done.stdout}{done.stderr}"


def is_half_line(point, strike):
    """Whether a fault has shortened a line of the log.

    A line is written with one call, so that it is whole or not there: a disk that takes half of it is full.
    """
    return point is not None and point.action == SHORT and NAME in strike.target


class AuditedWorld(World):
    """A server that records each request; its clients send a session of each user instead of the id."""

    def __init__(self, calls, folder, settings=None):
        self.log = AuditLog(folder / "log")
        self.log.make_keys()
        self.rotated = []
        self.done = []
        access, key = session_settings(folder / "keys")
        audit = {**self.log.settings, "required": "on"}
        super().__init__(calls, folder, {**access, "audit": audit, **(settings or {})})
        try:
            api = API(self.server, key)
            self.sessions = {user: api.session(user) for user in self.answers.possible} | {"nobody": unknown_session()}
            # The data folder of a process that takes over the log; the tokens in it do not matter.
            self.successor = Server(folder / "successor")
            assert self.successor.stop() == 0
        except BaseException:
            self.server.kill()
            raise

    def credential(self, unique_id):
        return self.sessions[unique_id]

    def may_fail(self, point):
        return super().may_fail(point) or is_half_line(point, self.calls.strike())

    # What the log has

    def take_done(self, response):
        self.done.append(response.headers["x-request-id"])

    def files(self):
        """The files of the log, the earliest first."""
        return [*self.rotated, *[self.log.file][:self.log.file.exists()]]

    def events(self, action):
        """The events with this action."""
        lines = [json.loads(line) for file in self.files() for line in file.read_text().splitlines()]
        return [line for line in lines if line["action"] == action]

    def rotate(self):
        """Renames the present file, as logrotate does."""
        if self.log.file.exists():
            self.rotated.append(self.log.folder / f"{NAME}.{len(self.rotated) + 1}")
            self.log.file.rename(self.rotated[-1])

    # What must hold

    def settle(self):
        super().settle()
        self.check_log()
        self.check_successor()

    def check_log(self):
        """What was answered as done is there."""
        self.log.verify(*self.files())
        text = "".join(file.read_text() for file in self.files())
        missing = [request for request in self.done if f'"request_id":"{request}"' not in text]
        assert not missing, f"the audit log lacks {missing}"
        self.done.clear()

    def check_successor(self):
        """Takes over what a crash would leave of the log now; no line may be missed."""
        *earlier, last = self.files()
        copy = AuditLog(self.successor.folder / "log")
        shutil.copytree(self.log.folder, copy.folder, ignore=shutil.ignore_patterns(f"{NAME}*"))
        shutil.copyfile(last, copy.file)
        copy.run("put", "nobody", "--data-directory", self.successor.data)
        copy.verify(*earlier, copy.file)
        *_, opened = [line for line in map(json.loads, copy.file.read_text().splitlines()) if line["action"] == "open_log"]
        assert opened["reason"] in ("unaltered", "new_file"), opened
        shutil.rmtree(copy.folder)

    def restart_soundly(self):
        super().restart_soundly()
        self.check_log()
