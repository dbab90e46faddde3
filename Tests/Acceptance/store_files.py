"""Reads and changes the files of a data folder as an attacker could, and runs commands on the folder."""
import contextlib
import sqlite3

from server_process import run


@contextlib.contextmanager
def opened(data):
    """The open database of a stopped server; changes are committed at the end."""
    connection = sqlite3.connect(data / "tokens.db")
    try:
        with connection:
            yield connection
    finally:
        connection.close()


def holds(data, *texts):
    """The names of the files in a data folder that contain one of the texts."""
    return [
        file.name for file in data.iterdir()
        if file.is_file() and any(text.encode() in file.read_bytes() for text in texts)
    ]


def command(data, *arguments, **options):
    """Runs a command on a data folder."""
    return run(*arguments, "--data-directory", str(data), **options)


def printed(data, *arguments, **options):
    """The output of a command that must succeed."""
    done = command(data, *arguments, **options)
    assert done.returncode == 0, done.stderr
    return done.stdout


def refused(data, *arguments, **options):
    """The error message of a command that must fail."""
    done = command(data, *arguments, **options)
    assert done.returncode == 1, (done.stdout, done.stderr)
    assert done.stderr.startswith("token-cache: ") or "\ntoken-cache: " in done.stderr
    return done.stderr
