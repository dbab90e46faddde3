"""SQL through psql: a text that runs to its end, and sessions that stay open, for example in a transaction."""
import contextlib
import csv
import io
import queue
import re
import subprocess
import threading

from postgres_programs import SUPERUSER, environment, programs
from process_tree import Closeable

SECONDS = 30
# Lines with which psql tells what is no row, and what belongs to an error.
NOTE = re.compile("(WARNING|NOTICE|INFO|DETAIL|HINT|CONTEXT|LOCATION|STATEMENT): ")


class SQLError(Exception):
    """What psql said about SQL that failed, or about a server that it could not reach."""


def command(server, database, user):
    """psql with the arguments and the environment for a user of a server.

    The superuser comes over the server's Unix socket and needs no password, others over TCP with theirs.
    """
    host, own = (server.address, {"PGPASSWORD": server.passwords.get(user, "")})
    if user == SUPERUSER:
        host, own = server.socket_folder, {}
    arguments = [
        str(programs() / "psql"), "--no-psqlrc", "--quiet", "--csv", "--tuples-only", "--set=ON_ERROR_STOP=1",
        "--set=VERBOSITY=verbose", f"--host={host}", f"--port={server.port}", f"--username={user}",
        f"--dbname={database}", "--no-password"]
    return arguments, {**environment(), "PGCONNECT_TIMEOUT": "10", **own}


def rows_of(text):
    """The rows of CSV, with all values as text; NULL is empty."""
    csv.field_size_limit(1 << 30)
    # A row with one empty value is an empty line, for which csv has an empty row.
    return [tuple(row) or ("",) for row in csv.reader(io.StringIO(text, newline=""))]


def run_sql(server, text, database="postgres", user=SUPERUSER, seconds=SECONDS):
    """Runs statements one by one and returns the rows of all of them; raises `SQLError`.

    The text goes through a pipe: passwords in it do not appear in the list of processes.
    """
    arguments, variables = command(server, database, user)
    try:
        done = subprocess.run(
            [*arguments, "--file=-"], env=variables, cwd="/", input=text, capture_output=True, text=True,
            timeout=seconds, check=False)
    except subprocess.TimeoutExpired:
        raise SQLError(f"no end after {seconds} s: {text}") from None
    if done.returncode != 0:
        raise SQLError(done.stderr.strip())
    return rows_of(done.stdout)


class Session(Closeable):
    """A connection that stays open between statements."""
    END = "\x1e"

    def __init__(self, server, database="postgres", user=SUPERUSER):
        arguments, variables = command(server, database, user)
        # An error ends a text but not the session.
        arguments.remove("--set=ON_ERROR_STOP=1")
        self.process = subprocess.Popen(
            arguments, env=variables, cwd="/", stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
            text=True, bufsize=1)
        self.lines = queue.Queue()
        self.reader = threading.Thread(target=self._read, daemon=True)
        self.reader.start()
        # Returns when there is a connection.
        self.sql("SELECT 1")

    def _read(self):
        for line in self.process.stdout:
            self.lines.put(line)
        self.lines.put(None)

    def start(self, text):
        """Sends statements without waiting for them."""
        self.process.stdin.write(f"{text.rstrip().rstrip(';')};\n\\echo {self.END}\n")
        self.process.stdin.flush()

    def finish(self, seconds=SECONDS):
        """The rows of the statements that were sent; raises `SQLError` with their errors, or if they do not end in time."""
        text = notes = ""
        while True:
            try:
                line = self.lines.get(timeout=seconds)
            except queue.Empty:
                raise SQLError(f"no end after {seconds} s; so far: {text}") from None
            if line is None or line == self.END + "\n":
                break
            if NOTE.match(line):
                notes += line
            else:
                text += line
        if line is None or "ERROR: " in text or "FATAL: " in text:
            raise SQLError((text + notes).strip() or "the connection is closed")
        return rows_of(text)

    def sql(self, text, seconds=SECONDS):
        """The rows of statements."""
        self.start(text)
        return self.finish(seconds)

    def close(self):
        """Ends the connection, whatever it is doing."""
        if self.process.poll() is None:
            self.process.kill()
        self.process.wait(SECONDS)
        self.reader.join(SECONDS)
        for pipe in (self.process.stdin, self.process.stdout):
            # What was not sent is lost with the process.
            with contextlib.suppress(OSError):
                pipe.close()
