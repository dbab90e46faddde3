"""The commands on a store, with and without a running server."""
import json
import os
import re
import shutil
import socket
import stat
import subprocess
import time
from concurrent.futures import ThreadPoolExecutor

import pytest

from administration import impostor
from contract import STORED, found
from http_client import exchange, post
from server_process import AS_NOBODY, NOBODY, binary, clean_environment, needs_root
from store_files import command, opened, printed, refused

SECRET = "secret4711"


@pytest.fixture(params=["running", "stopped"])
def data(request, serve):
    """The data folder of a server with three tokens, which keeps running or not."""
    server = serve()
    for number in range(3):
        assert server.post(f"{SECRET}-{number}", f"info {number}") == STORED
    if request.param == "stopped":
        assert server.stop() == 0
    return server.data


def test_get_prints_the_token_info(data):
    assert printed(data, "get", f"{SECRET}-1") == "info 1\n"
    assert printed(data, "get", "-", input=f"{SECRET}-2\n") == "info 2\n"
    assert json.loads(printed(data, "get", f"{SECRET}-1", "--json")) == {"token_info": "info 1"}
    # Tags are removed from the id, as in a client's request.
    assert printed(data, "get", f"<b>{SECRET}</b>-1") == "info 1\n"


def test_get_of_an_unknown_id_fails_without_repeating_it(data):
    message = refused(data, "get", f"{SECRET}-9")
    assert "nothing is stored under this id" in message and SECRET not in message


def test_only_a_server_deletes_what_has_expired(serve, tmp_path):
    server = serve({"retention": {"after_written": "3650d"}})
    (tmp_path / "old").mkdir()
    (tmp_path / "old" / "old.txt").write_text('"token"')
    os.utime(tmp_path / "old" / "old.txt", (time.time() - 100 * 86_400,) * 2)
    printed(server.data, "import", str(tmp_path / "old"))
    printed(server.data, "access", "sessions", "add", "anna")
    assert server.stop() == 0
    with opened(server.data) as store:
        store.execute("UPDATE session SET used_at = 1")

    def content():
        with opened(server.data) as store:
            return [store.execute(f"SELECT count(*) FROM {table}").fetchone()[0] for table in ("token", "session")]

    before = content()
    assert before == [1, 1]
    backup = tmp_path / "backup.db"
    other = {
        "TOKEN_CACHE_RETENTION_AFTER_WRITTEN": "1d", "TOKEN_CACHE_RETENTION_AFTER_EXPIRED": "1d",
        "TOKEN_CACHE_ACCESS_SESSION_IDLE_TIMEOUT": "1d",
    }
    for retention in ({}, other):
        for arguments in (["stats"], ["verify"], ["keyring", "rotate"], ["backup", str(backup)]):
            printed(server.data, *arguments, environment=retention)
            assert content() == before, (arguments, retention)
    printed(server.data, "restore", "--keep-sessions", str(backup), environment=other)
    assert content() == before
    server = serve({"retention": {"after_expired": "1d"}, "access": {"session": {"idle_timeout": "1d"}}}, data=server.data)
    assert "no session" in printed(server.data, "access", "sessions", "list", "anna")
    printed(server.data, "verify")
    assert server.stop() == 0
    assert content() == [1, 0]


def test_put_stores_as_a_post_does(data):
    assert printed(data, "put", "new", "a<b>c") == "stored\n"
    assert printed(data, "get", "new") == "ac\n"
    printed(data, "put", "new", input="from input\n")
    assert printed(data, "get", "new") == "from input\n"
    printed(data, "put", "-", input="other\nfirst\nsecond")
    assert printed(data, "get", "other") == "first\nsecond\n"
    assert json.loads(printed(data, "put", "new", "x", "--json"))["stored"] == 1


@pytest.mark.parametrize("unique_id", ["", "<b>", "i" * 1025], ids=["empty", "a tag", "long"])
def test_an_id_that_no_client_could_have_is_refused(data, unique_id):
    assert "the id is empty, longer than 1024 bytes, or contains a NUL" in refused(data, "put", unique_id, "x")


def test_delete_removes_tokens(data):
    assert printed(data, "delete", f"{SECRET}-0", "nobody") == "removed 1 token\n"
    assert printed(data, "delete", "-", input=f"{SECRET}-1\n{SECRET}-2\n") == "removed 2 tokens\n"
    assert command(data, "delete", f"{SECRET}-0").returncode == 1
    assert "0 tokens" in printed(data, "list")


def test_list_shows_ages_and_sizes(data):
    lines = printed(data, "list").splitlines()
    assert len(lines) == 4 and lines[3] == "3 tokens, 18 bytes"
    assert all(re.fullmatch(r"written \d+s ago  6 bytes", line) for line in lines[:3])
    printed(data, "delete", f"{SECRET}-0", f"{SECRET}-1")
    printed(data, "put", f"{SECRET}-2", "x")
    assert printed(data, "list").splitlines()[-1] == "1 token, 1 byte"


def test_ids_are_shown_only_when_asked(data):
    shown = printed(data, "list", "--show-ids")
    assert all(f"{SECRET}-{number}" in shown for number in range(3)) and "info" not in shown
    entries = [json.loads(line) for line in printed(data, "list", "--json").splitlines()]
    assert [entry["size"] for entry in entries] == [6, 6, 6] and all("id" not in entry for entry in entries)


def test_an_id_cannot_forge_a_line_or_steer_the_terminal(data):
    forged = "evil\x1b[31m\x9b\nwritten 1s ago\u2028\u202e"
    printed(data, "put", forged, "x")
    shown = printed(data, "list", "--show-ids")
    assert len(shown.splitlines()) == 5, shown
    assert r"evil\u{1B}[31m\u{009B}\nwritten 1s ago\u{2028}\u{202E}" in shown
    ids = [json.loads(line)["id"] for line in printed(data, "list", "--show-ids", "--json").split("\n") if line]
    assert forged in ids


@pytest.mark.parametrize("input_from", ["/tmp", None], ids=["a folder", "closed"])
def test_what_cannot_be_read_is_no_empty_token(data, input_from):
    source = "<&-" if input_from is None else f"< {input_from}"
    for arguments in (f"put {SECRET}-1", "put -", "delete -", "get -"):
        done = subprocess.run(
            ["sh", "-c", f'"$0" {arguments} --data-directory "$1" {source}', binary(), str(data)],
            capture_output=True, text=True, timeout=20, check=False)
        assert done.returncode == 1 and "cannot be read from standard input" in done.stderr, done
    assert printed(data, "get", f"{SECRET}-1") == "info 1\n"


PRINTING = ["get secret4711-1", "list", "list --json", "stats", "keyring list", "verify", "check-config", "put new x",
            "delete secret4711-0", "keyring rotate"]


@pytest.mark.parametrize("target, reason", [("> /dev/full", "No space left on device"), (">&-", "Bad file descriptor")])
def test_output_that_cannot_be_written_is_a_fault(data, target, reason):
    for arguments in PRINTING:
        done = subprocess.run(
            ["sh", "-c", f'"$0" {arguments} --data-directory "$1" {target}', binary(), str(data)], env=clean_environment(),
            capture_output=True, text=True, timeout=20, check=False)
        assert done.returncode == 1, done
        assert f"token-cache: standard output cannot be written: {reason}\n" in done.stderr, done
    assert printed(data, "get", f"{SECRET}-1") == "info 1\n"


def test_a_reader_that_has_read_enough_hears_nothing(data):
    for arguments in PRINTING:
        done = subprocess.run(
            ["sh", "-c", f'"$0" {arguments} --data-directory "$1" | true', binary(), str(data)], env=clean_environment(),
            capture_output=True, text=True, timeout=20, check=False)
        assert (done.stdout, done.stderr) == ("", ""), done


def test_verify_looks_at_everything(data):
    assert printed(data, "verify").startswith("3 tokens checked\nthe store is sound, last written at 20")
    assert json.loads(printed(data, "verify", "--json"))["is_sound"] is True


def test_what_a_command_stores_a_client_gets_at_once(serve):
    server = serve()
    for number in range(20):
        printed(server.data, "put", "me", f"value{number}")
        for _ in range(3):
            assert server.get("me") == found(f"value{number}")
    printed(server.data, "delete", "me")
    assert b"50002" in server.get("me")


@pytest.mark.parametrize("arguments", [
    ["get", "x"], ["delete", "x"], ["list"], ["stats"], ["verify"], ["backup", "/tmp/never"], ["keyring", "rotate"], ["keyring", "list"],
    ["export", "/tmp/never"],
], ids=lambda arguments: arguments[0])
@pytest.mark.parametrize("is_there", [False, True], ids=["no file", "an empty file"])
def test_without_a_store_a_command_says_so_and_makes_none(tmp_path, arguments, is_there):
    data = tmp_path / "none"
    if is_there:
        data.mkdir(mode=0o700)
        (data / "tokens.db").touch(0o600)
    message = refused(data, *arguments)
    assert "there is no store at" in message and "--data-directory" in message
    assert [(file.name, file.stat().st_size) for file in data.glob("tokens.db*")] == [("tokens.db", 0)] * is_there


@needs_root
@pytest.mark.parametrize("is_restored", [True, False], ids=["restored", "made"])
def test_what_root_makes_in_somebody_elses_folder_is_theirs(serve, tmp_path, is_restored):
    data = tmp_path / "data"
    data.mkdir(mode=0o700)
    if is_restored:
        server = serve()
        assert server.post("me", "hello") == STORED
        printed(server.data, "backup", str(tmp_path / "backup.db"))
        shutil.copy(server.data / "keys", data / "keys")
        os.chown(data / "keys", NOBODY, NOBODY)
    os.chown(data, NOBODY, NOBODY)
    if is_restored:
        printed(data, "restore", str(tmp_path / "backup.db"))
    else:
        printed(data, "put", "me", "hello")
    owners = {path.name: (path.stat().st_uid, path.stat().st_gid) for path in data.iterdir()}
    assert owners.keys() >= {"keys", "lock", "tokens.db"} and set(owners.values()) == {(NOBODY, NOBODY)}, owners


@needs_root
@pytest.mark.parametrize("arguments", [["stats"], ["put", "a", "b"], ["restore", "/etc/hostname"]],
                         ids=lambda arguments: arguments[0])
def test_a_folder_of_somebody_elses_is_for_root_or_the_server(of_root, arguments):
    done = command(f"{of_root}/data", *arguments, prefix=AS_NOBODY, folder="/")
    assert done.returncode == 1 and "run this as root or as the server's user" in done.stderr, done.stderr
    assert "give the server's user" not in done.stderr


@pytest.fixture(name="of_root")
def folder_of_root(public_folder):
    """A folder with the data of root's server that other users may enter."""
    assert printed(public_folder / "data", "put", "me", "x") == "stored\n"
    return public_folder


def test_the_control_socket_is_the_servers_own(serve):
    server = serve()
    mode = (server.data / "control.sock").stat().st_mode
    assert stat.S_ISSOCK(mode) and mode & 0o777 == 0o600
    server.stop()
    assert not (server.data / "control.sock").exists()


@pytest.mark.parametrize("answer, fault", [
    (b'HTTP/1.1 200 OK\r\n\r\n{"reply":{"count":1}}\n', "another version of it"), (b"220 mail\r\n", "is not token-cache"),
    (b"", "no answer came")], ids=["of another version", "of another program", "none"])
def test_an_answer_that_cannot_be_read_is_not_called_missing(serve, answer, fault):
    server = serve()
    path = server.data / "control.sock"
    path.unlink()

    def reply(connection):
        connection.recv(1 << 16)
        connection.sendall(answer)

    with impostor(path, reply):
        done = command(server.data, "delete", "anna")
    assert done.returncode == 1 and fault in done.stderr, done


def test_commands_that_run_at_once_wait_for_each_other(data):
    """More than eight, which is what a server answers at a time; one that was killed has left its socket behind."""
    if not (data / "control.sock").exists():
        with socket.socket(socket.AF_UNIX) as left_behind:
            left_behind.bind(str(data / "control.sock"))
    with ThreadPoolExecutor(12) as threads:
        stored = threads.map(lambda number: command(data, "put", f"at-once-{number}", f"info {number}"), range(12))
        assert [done.stderr for done in stored if done.returncode != 0] == []
    assert [printed(data, "get", f"at-once-{number}") for number in range(12)] == [f"info {number}\n" for number in range(12)]


@needs_root
def test_a_command_that_may_not_write_asks_the_server(serve, tmp_path):
    server, place = serve(), tmp_path / "read-only"
    assert server.post("me", "hello") == STORED
    place.mkdir()
    for arguments in (["--bind", server.data, place], ["-o", "remount,bind,ro", place]):
        subprocess.run(["mount", *arguments], check=True)
    try:
        assert printed(place, "get", "me") == "hello\n"
        printed(place, "put", "me", "again")
        assert server.get("me") == found("again")
        assert server.stop() == 0
        assert "Read-only file system" in refused(place, "get", "me")
    finally:
        subprocess.run(["umount", place], check=True)


def test_what_cannot_be_read_is_not_left_out_unnoticed(stopped, tmp_path):
    for number in range(2):
        printed(stopped.data, "put", f"id{number}", "hello")
    with opened(stopped.data) as database:
        database.execute("UPDATE token SET value = zeroblob(length(value)) WHERE slot = (SELECT min(slot) FROM token)")
    done = command(stopped.data, "list")
    assert done.returncode == 1 and "2 tokens, " in done.stdout and "not all tokens could be read" in done.stderr
    done = command(stopped.data, "export", str(tmp_path / "out"))
    assert done.returncode == 1 and "1 skipped: rows that cannot be decrypted" in done.stdout
    assert len(list((tmp_path / "out").iterdir())) == 2


def test_a_server_says_that_it_works_as_long_as_it_does(shim, tmp_path):
    """A command gives up a server of which it hears nothing for a minute."""
    server = shim.serve(tmp_path / "server", {"store": {"timeout": "1h"}})
    shim.set(sync_delay_microseconds=1 << 31)
    arguments = ["curl", "-sN", "--unix-socket", str(server.data / "control.sock"), "http://localhost/store/put",
                 "-d", '{"tokens": [{"id": "me", "token_info": "hello"}]}']
    with subprocess.Popen(arguments, stdout=subprocess.PIPE, text=True) as curl:
        assert curl.stdout.readline() == "{}\n"
        shim.set(sync_delay_microseconds=0)
        assert curl.stdout.read().splitlines()[-1].startswith('{"reply":{')


def test_an_argument_that_is_not_utf_8_is_refused(data):
    """In place of its bytes, Swift puts other characters, which are another user's name."""
    for arguments in (["erase", b"M\xfcller"], ["put", SECRET, b"\xff"], [b"\xff"]):
        done = command(data, *arguments)
        assert (done.returncode, done.stdout) == (64, "") and "is not UTF-8" in done.stderr, done
    assert printed(data, "get", f"{SECRET}-1") == "info 1\n"


def test_curl_can_ask_as_well(serve):
    server = serve()
    assert server.post("me", "hello") == STORED

    def ask(path, *arguments):
        return subprocess.run(
            ["curl", "-s", "--unix-socket", str(server.data / "control.sock"), *arguments, f"http://localhost{path}"],
            capture_output=True, text=True, check=True, timeout=30).stdout

    assert ask("/store/get", "-d", '{"id": "me"}') == '{"reply":{"token_info":"hello"}}\n'
    assert "id is missing" in ask("/store/get", "-d", "{}")
    assert "cannot be read" in ask("/store/get", "-d", "{")
    assert "there is nothing at this path; there are /store/get" in ask("/nothing")
    assert "allowed is POST" in ask("/store/stats")
    # The address for clients does not serve these requests.
    assert exchange(server.address, post("me", "x", path="/store/get")).status == 404


def test_commands_say_how_to_rescue_the_tokens_and_that_works(small_disk, tmp_path):
    data = small_disk / "data"
    printed(data, "put", "me", "hello")
    subprocess.run(["mount", "-o", "remount,ro", small_disk], check=True)
    for arguments in (["stats"], ["get", "me"], ["backup", str(tmp_path / "backup.db")], ["restore", str(tmp_path / "x.db")]):
        message = refused(data, *arguments)
        assert f"the data directory {data} cannot be used" in message and "Read-only file system" in message
        assert "copy tokens.db, tokens.db-wal, keys and erasures to another disk" in message and "--data-directory" in message
        assert "ProtectSystem" not in message
    rescued = tmp_path / "rescued"
    rescued.mkdir(mode=0o700)
    for name in ("tokens.db", "tokens.db-wal", "keys", "erasures"):
        if (data / name).exists():
            shutil.copy(data / name, rescued)
    assert printed(rescued, "get", "me") == "hello\n"


def test_an_erasure_is_recorded_in_an_empty_file_and_in_no_foreign_one(serve):
    server = serve()
    erasures = server.data / "erasures"
    for content, is_recorded in (("", True), ("something else\n", False)):
        assert server.post("anna", "hello") == STORED
        erasures.write_text(content)
        done = command(server.data, "erase", "anna")
        assert (done.returncode == 0) == is_recorded, done.stderr
        assert is_recorded or "put a copy of the file in its place" in done.stderr
        assert len(erasures.read_text().splitlines()) == (4 if is_recorded else 1)
