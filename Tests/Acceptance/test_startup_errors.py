"""A start that cannot succeed ends with exit status 1 and a message on standard error that says what to do."""
import json
import os
import re
import shutil
import sqlite3
import subprocess
import tempfile
from pathlib import Path

import pytest

from contract import STORED, fresh_id
from http_client import exchange, post
from server_process import NO_ADMINISTRATION, binary, clean_environment, run
from storage_shim import compile_library

ADDRESS = "127.0.0.1:0"


def failed_start(data, *flags, **options):
    """The error message of a start that must fail."""
    done = run("serve", "--listen", ADDRESS, "--data-directory", str(data), *flags, **options)
    assert done.returncode == 1, done
    assert done.stdout == ""
    assert done.stderr.startswith("token-cache: ") and done.stderr.count("\n") == 1, done.stderr
    assert not re.search(r"\b(SELECT|INSERT|UPDATE|DELETE|CREATE|PRAGMA|FROM|COMMIT)\b", done.stderr), "SQL is for us alone"
    return done.stderr


def test_arguments_count_with_a_preloaded_library_that_sets_a_variable(tmp_path):
    """As libfaketime's does, before Swift has looked for the arguments."""
    source = tmp_path / "variable.c"
    source.write_text(
        '#include <stdlib.h>\n__attribute__((constructor)) static void set(void) { setenv("OF_THE_LIBRARY", "1", 1); }\n')
    done = run("get", "--config", "/nowhere", "an id", environment={"LD_PRELOAD": str(compile_library(tmp_path, source))})
    assert "/nowhere cannot be read: there is no such file" in done.stderr, done


def test_a_start_that_gets_no_thread_at_all_says_so(strangers_folder):
    folder, prefix = strangers_folder
    message = failed_start(folder / "data", prefix=[*prefix, "prlimit", "--nproc=1:1"], folder="/")
    assert "no thread can be started" in message and "TasksMax=" in message


@pytest.fixture
def forgotten(public_folder):
    """Runs a command without --config on a machine where the package has its settings file, in a namespace of mounts of its own."""
    folder = public_folder / "here"
    folder.mkdir()
    if os.geteuid() != 0:
        pytest.skip("only root can mount")

    def go(*arguments):
        script = ("cp -L /etc/passwd /etc/group /etc/ld.so.cache $0; mount -t tmpfs none /etc || exit 99; cp $0/* /etc;"
                  " mkdir /etc/token-cache; touch /etc/token-cache/token-cache.yaml; exec \"$@\"")
        done = run(*arguments, prefix=["unshare", "-m", "sh", "-c", script, public_folder],
                   environment=NO_ADMINISTRATION, folder=folder)
        if done.returncode == 99 or "unshare failed" in done.stderr:
            pytest.skip("nothing can be mounted here")
        return done
    return go


def test_a_settings_file_that_was_forgotten_is_named(forgotten, public_folder):
    named = "no settings file was named; for that of the installed server, add --config /etc/token-cache/token-cache.yaml\n"
    for command in (["stats"], ["reload"], ["get", "an id"], ["backup", "copy.db"], ["health"]):
        done = forgotten(*command)
        assert done.returncode == 1 and done.stderr.endswith(named), done
    report = json.loads(forgotten("doctor", "--json").stdout)["findings"]
    (warned,) = [finding for finding in report if finding["topic"] == "Settings" and finding["state"] == "warning"]
    assert f"the data folder {public_folder}/here/data of the defaults does not exist, but /etc/token-cache/" in warned["text"]
    assert warned["advice"].endswith("token-cache doctor --config /etc/token-cache/token-cache.yaml")
    for command in (["stats", "--data-directory", "elsewhere"], ["stats", "--config", "/etc/token-cache/token-cache.yaml"]):
        done = forgotten(*command)
        assert done.returncode == 1 and named not in done.stderr and "there is no store" in done.stderr, done
    (public_folder / "here" / "data").mkdir()
    assert named not in forgotten("stats").stderr
    assert "of the defaults does not exist" not in forgotten("doctor").stdout


@pytest.fixture
def strangers_folder():
    """A folder that an unprivileged user can read but not write, and the command that becomes that user."""
    folder = Path(tempfile.mkdtemp(prefix="token-cache-test-"))
    prefix = []
    try:
        folder.chmod(0o555)
        if os.geteuid() == 0:
            if not shutil.which("setpriv"):
                pytest.skip("permission bits do not bind root, and there is no setpriv to become somebody else")
            prefix = ["setpriv", "--reuid=65534", "--regid=65534", "--clear-groups"]
            if subprocess.run([*prefix, "test", "-x", binary()], check=False).returncode:
                pytest.skip("the program cannot be executed by the user nobody")
        yield folder, prefix
    finally:
        folder.chmod(0o755)
        shutil.rmtree(folder)


@pytest.mark.parametrize("name", ["", "data"], ids=["the folder itself", "a folder in it"])
def test_a_data_folder_that_cannot_be_written_is_named(strangers_folder, name):
    folder, prefix = strangers_folder
    message = failed_start(folder / name, prefix=prefix, folder="/")
    assert str(folder / name) in message
    assert "Permission denied" in message and "write access" in message and "--data-directory" in message


def stored_database(serve, tmp_path):
    """The folder of a stopped server that has stored a token."""
    server = serve(data=tmp_path / "data")
    assert exchange(server.address, post(fresh_id(), "abc")).body == STORED
    assert server.stop() == 0
    return server.data


def alter(folder, *statements):
    """Changes the database of a stopped server."""
    with sqlite3.connect(folder / "tokens.db") as connection:
        for statement in statements:
            connection.execute(statement)
    connection.close()


DAMAGE = {
    "text": lambda database: b"this is no database, whatever its name says\n" * 100,
    "a short text": lambda database: b"no",
    "zeros": lambda database: bytes(8192),
    "another header": lambda database: b"X" * 16 + database[16:],
    "another schema page": lambda database: database[:100] + bytes(len(database) - 100),
}


@pytest.mark.parametrize("damage", DAMAGE.values(), ids=DAMAGE)
def test_a_file_that_is_no_database_is_named_and_left_alone(serve, tmp_path, damage):
    folder = stored_database(serve, tmp_path)
    file = folder / "tokens.db"
    damaged = damage(file.read_bytes())
    file.write_bytes(damaged)
    message = failed_start(folder)
    assert str(file) in message
    assert re.search("is not a usable database|is a database of another program", message)
    assert re.search("move it away|put a backup|--data-directory", message)
    assert file.read_bytes() == damaged


FOREIGN = {
    "tables": ["CREATE TABLE song (title)"],
    "tables and a version": ["CREATE TABLE song (title)", "PRAGMA user_version = 1"],
    "an application id": ["PRAGMA application_id = 4711"],
    "a token table": ["CREATE TABLE token (key BLOB PRIMARY KEY, value BLOB)", "PRAGMA user_version = 1"],
}


@pytest.mark.parametrize("statements", FOREIGN.values(), ids=FOREIGN)
def test_a_database_of_another_program_is_named_and_left_alone(tmp_path, statements):
    alter(tmp_path, *statements)
    before = (tmp_path / "tokens.db").read_bytes()
    message = failed_start(tmp_path)
    assert f"{tmp_path / 'tokens.db'} is a database of another program" in message
    assert "--data-directory" in message
    assert (tmp_path / "tokens.db").read_bytes() == before


def test_the_folder_and_its_files_are_for_their_owner_only(serve):
    server = serve({"data_directory": "above/data"}, umask=0)
    assert exchange(server.address, post(fresh_id(), "abc")).body == STORED
    folder = server.folder / "above" / "data"
    assert folder.stat().st_mode & 0o7777 == 0o700
    modes = {file.name: oct(file.stat().st_mode & 0o7777) for file in folder.iterdir()}
    assert "tokens.db" in modes and "tokens.db-wal" in modes
    assert set(modes.values()) == {"0o600"}, modes


def test_by_default_the_data_is_in_the_folder_data(tmp_path):
    process = subprocess.Popen(
        [binary(), "serve", "--listen", ADDRESS], cwd=tmp_path, env=clean_environment(NO_ADMINISTRATION), stderr=subprocess.PIPE)
    try:
        assert any(b" serves on " in line for line in process.stderr)
        assert (tmp_path / "data" / "tokens.db").exists()
    finally:
        process.kill()
        process.communicate()


@pytest.mark.parametrize("arguments, fragments", [
    (["serve", "--bogus"], ["--bogus", "Usage: token-cache serve"]),
    (["serve", "--listen"], ["--listen", "Usage: token-cache serve"]),
    (["serve", "surplus"], ["surplus", "Usage: token-cache serve"]),
    (["sevre"], ["sevre", "token-cache"]),
    (["--bogus"], ["--bogus", "Usage: token-cache"]),
    (["backup", "restore"], ["there is no command backup restore; token-cache --help shows all. For a file of that name, write ./restore."]),
], ids=["unknown flag", "flag without a value", "surplus argument", "unknown command", "unknown flag first", "command for a file"])
def test_a_mistaken_command_line_shows_how_it_is_used(tmp_path, arguments, fragments):
    done = run(*arguments, folder=tmp_path)
    # EX_USAGE of sysexits.h, which swift-argument-parser gives for these.
    assert done.returncode == 64
    assert all(fragment in done.stderr for fragment in fragments), done.stderr
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("arguments, message", [
    (["serv"], "there is no command serv; did you mean serve? token-cache --help shows all"),
    (["help", "srve"], "there is no command srve; did you mean serve? token-cache --help shows all"),
    (["start"], "there is no command start; did you mean serve? token-cache --help shows all"),
    (["keys", "--config", "a"], "there is no command keys; did you mean keyring? token-cache --help shows all"),
    (["something-else"], "there is no command something-else; token-cache --help shows all"),
    (["keyring", "ad"], "there is no command keyring ad; did you mean keyring add? token-cache keyring --help shows all"),
    (["access", "keys", "lst"], "there is no command access keys lst; did you mean access keys list? token-cache access keys --help shows all"),
])
def test_a_mistaken_command_gets_the_one_that_was_meant(arguments, message):
    done = run(*arguments)
    assert (done.returncode, done.stdout, done.stderr) == (64, "", f"token-cache: {message}\n")


@pytest.mark.parametrize("arguments", [["--help"], ["serve", "--help"], ["check-config", "--help"], ["help", "serve"]])
def test_help_has_examples(arguments):
    done = run(*arguments)
    assert done.returncode == 0
    assert "EXAMPLES" in done.stdout and "  token-cache " in done.stdout and "USAGE" in done.stdout
    assert done.stderr == ""
