"""A backup is a copy of the store as of one moment; a restore puts it back completely or changes nothing."""
import contextlib
import json
import os
import re
import shutil
import socket
import sqlite3
import time

import pytest

from contract import NOT_FOUND, STORED, found
from http_client import Connection, post
from server_process import beside, run, until
from store_files import command, kill_with_log, printed, refused


def fill(address, count, prefix="id"):
    """Stores some tokens."""
    with Connection(address) as connection:
        for start in range(0, count, 100):
            numbers = range(start, min(start + 100, count))
            connection.send(b"".join(post(f"{prefix}{number}", f"value{number}" * 20) for number in numbers))
            assert all(connection.receive().body == STORED for _ in numbers)


def test_a_restore_for_which_the_disk_has_no_room_replaces_nothing(small_disk, serve, tmp_path):
    large = serve()
    fill(large.address, 20_000)
    printed(large.data, "backup", str(tmp_path / "backup.db"))
    data = small_disk / "data"
    data.mkdir(mode=0o700)
    shutil.copy(large.data / "keys", data / "keys")
    small = serve(data=data)
    fill(small.address, 1)
    small.stop()
    message = refused(data, "restore", str(tmp_path / "backup.db"))
    assert f"the disk of {data} has no room for a second store beside the present one; nothing was replaced" in message
    assert printed(data, "get", "id0").strip() == "value0" * 20


def test_a_backup_under_load_is_one_moment_of_the_store(serve, tmp_path):
    server = serve()
    fill(server.address, 5_000)
    written, pairs = [], []

    def write(unique_ids, over):
        # The second value is never newer than the first.
        with Connection(server.address) as connection:
            number = 0
            while not over.is_set():
                number += 1
                for unique_id in unique_ids:
                    assert connection.exchange(post(unique_id, f"{number}")).body == STORED
                written.append(number)

    with beside(write, [("first", "second")]):
        for turn in range(5):
            until(lambda: len(written) > 20 * turn)
            before = len(written)
            shown = printed(server.data, "backup", str(tmp_path / f"{turn}.db"))
            assert shown.startswith(f"{tmp_path}/{turn}.db: 5,002 tokens")
            pairs.append(before)
    assert server.stop() == 0
    for turn, before in enumerate(pairs):
        printed(server.data, "restore", str(tmp_path / f"{turn}.db"))
        first, second = (int(printed(server.data, "get", unique_id)) for unique_id in ("first", "second"))
        assert before <= second <= first <= second + 1
        assert "the store is sound" in printed(server.data, "verify")


def test_a_backup_is_one_sealed_file_for_its_owner_and_replaces_the_former(serve, tmp_path):
    server = serve()
    assert server.post("somebody4711", "secret4711") == STORED
    backup = tmp_path / "folder" / "backup.db"
    backup.parent.mkdir()
    for _ in range(2):
        printed(server.data, "backup", str(backup))
    assert os.listdir(backup.parent) == ["backup.db"]
    assert backup.stat().st_mode & 0o777 == 0o600
    content = backup.read_bytes()
    assert content.startswith(b"SQLite format 3") and b"4711" not in content


@pytest.mark.parametrize("is_running", [True, False], ids=["running", "stopped"])
def test_a_backup_that_cannot_be_written_leaves_nothing_behind(serve, tmp_path, is_running):
    server = serve()
    fill(server.address, 100)
    if not is_running:
        server.stop()
    message = refused(server.data, "backup", str(tmp_path / "none" / "backup.db"))
    assert re.search(rf"there is no folder {tmp_path / 'none'}; make it, writable for the user \S+", message)
    assert f"{server.data / 'keys'} is no folder" in refused(server.data, "backup", str(server.data / "keys" / "backup.db"))
    (tmp_path / "folder").mkdir()
    message = refused(server.data, "backup", str(tmp_path / "folder"))
    assert "is a folder; name a file in it" in message
    assert os.listdir(tmp_path / "folder") == [] and not (tmp_path / "folder.partial").exists()
    if is_running:
        # The store is unharmed.
        assert server.post("after", "x") == STORED
        assert "cannot be stored" not in server.log()


def test_a_backup_replaces_nothing_but_a_backup(serve, tmp_path):
    server = serve()
    assert server.post("me", "hello") == STORED
    (tmp_path / "letter").write_text("not to be lost")
    contents = {name: (server.data / name).read_bytes() for name in ("keys", "lock")}
    names = ("keys", "lock", "tokens.db", "tokens.db-wal", "erasures", "audit-key", "keys.retired-1")
    for path in (tmp_path / "letter", *(server.data / name for name in names)):
        message = refused(server.data, "backup", str(path))
        assert "is a file of the store itself" in message or "is there and is no backup" in message
    assert (tmp_path / "letter").read_text() == "not to be lost"
    assert "is a file of the store itself" in refused(server.data, "backup", str(server.data / "." / "control.sock"))
    printed(server.data, "backup", str(server.data / "keys-backup.db"))
    (tmp_path / "link").symlink_to(tmp_path / "letter")
    os.mkfifo(tmp_path / "pipe")
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(str(tmp_path / "socket"))
        for name in ("link", "pipe", "socket"):
            kind = (tmp_path / name).lstat().st_mode
            assert "is there and is no backup" in refused(server.data, "backup", str(tmp_path / name))
            assert (tmp_path / name).lstat().st_mode == kind
    assert contents == {name: (server.data / name).read_bytes() for name in contents}
    assert server.post("me", "again") == STORED
    assert server.stop() == 0
    for file in server.data / "tokens.db", server.data / "tokens.db.new":
        file.touch()
        assert "is a file of the store itself" in refused(server.data, "restore", str(file))
        assert file.exists()
    assert printed(server.data, "get", "me") == "again\n"


def test_a_restore_leaves_nothing_of_the_former_log(serve, tmp_path):
    server = serve()
    fill(server.address, 50)
    printed(server.data, "backup", str(tmp_path / "backup.db"))
    kill_with_log(server, lambda: fill(server.address, 500, "later"))
    backed_up = json.loads(printed(server.data, "verify", str(tmp_path / "backup.db"), "--json"))["last_written_at"]
    restored, replaced, lost = printed(server.data, "restore", str(tmp_path / "backup.db")).splitlines()
    assert restored.startswith("restored 50 tokens, ")
    # Also those that only the log had.
    assert replaced == "replaced a store of 550 tokens"
    assert re.fullmatch(r"lost what was stored after \S+Z; the replaced store was last written before \S+Z", lost)
    again = json.loads(printed(server.data, "restore", str(tmp_path / "backup.db"), "--json"))
    assert backed_up == again["lost_after"] <= time.time() < again["lost_before"] + 1 < time.time() + 120
    assert sorted(os.listdir(server.data)) == ["control.sock", "keys", "last-backup", "lock", "tokens.db"]
    server = serve(data=server.data)
    assert server.get("id49") == found("value49" * 20)
    assert server.get("later0") == NOT_FOUND
    assert "the store is sound" in printed(server.data, "verify")


def test_a_restore_takes_the_place_of_a_store_that_has_lost_its_database(serve, tmp_path):
    server = serve()
    fill(server.address, 50)
    printed(server.data, "backup", str(tmp_path / "backup.db"))
    assert server.post("id7", "later") == STORED
    kill_with_log(server, lambda: fill(server.address, 500, "later"))
    # What the message about a damaged database advises.
    (server.data / "tokens.db").rename(tmp_path / "moved away")
    assert "restored 50 tokens" in printed(server.data, "restore", str(tmp_path / "backup.db"))
    assert printed(server.data, "get", "id7") == "value7" * 20 + "\n"
    assert "50 tokens checked\nthe store is sound" in printed(server.data, "verify")


def test_a_backup_can_be_restored_into_an_empty_folder_with_its_key_ring(serve, tmp_path):
    server = serve()
    fill(server.address, 10)
    printed(server.data, "backup", str(tmp_path / "backup.db"))
    target = tmp_path / "elsewhere"
    target.mkdir()
    message = refused(target, "restore", str(tmp_path / "backup.db"))
    assert "is sealed and its key ring" in message and "is missing" in message
    assert not (target / "tokens.db").exists()
    shutil.copy(server.data / "keys", target / "keys")
    assert "restored 10 tokens" in printed(target, "restore", str(tmp_path / "backup.db"))
    assert printed(target, "get", "id3") == "value3" * 20 + "\n"


@pytest.mark.parametrize("is_running", [True, False], ids=["running", "stopped"])
def test_a_backup_takes_the_keys_along_with_which_it_is_restored_anywhere(serve, tmp_path, is_running):
    server = serve()
    for name in ("anna", "berta"):
        assert server.post(name, "x") == STORED
    printed(server.data, "backup", str(tmp_path / "early.db"))
    printed(server.data, "erase", "anna")
    if not is_running:
        server.stop()
    safe = tmp_path / "safe"
    safe.mkdir()
    for _ in range(2):
        shown = json.loads(printed(server.data, "backup", str(tmp_path / "late.db"), "--keys", str(safe), "--json"))
    ring, erasures = shown["keys"]
    assert erasures == f"{ring}.erasures" and (safe / ring).read_bytes() == (server.data / "keys").read_bytes()
    # Earlier backups need a key that is retired.
    printed(server.data, "keyring", "rotate")
    printed(server.data, "erase", "carla")
    (tmp_path / "folder").mkdir()
    text = printed(server.data, "backup", "--into", str(tmp_path / "folder"), "--keys", str(safe))
    [copied] = re.findall(r"copied (.+); keep them apart from the backups", text)
    # An earlier backup is restored with the earlier ring, and must not bring later erased users back.
    new_ring, *recorded = copied.split(" and ")
    assert sorted(recorded) == sorted([erasures, f"{new_ring}.erasures"])
    assert sorted(map(str, safe.iterdir())) == sorted([ring, new_ring, *recorded])
    assert {file.stat().st_mode & 0o777 for file in safe.iterdir()} == {0o600}
    assert {(safe / file).read_bytes() for file in recorded} == {(server.data / "erasures").read_bytes()}
    [late] = (tmp_path / "folder").iterdir()
    for key_ring, backup, told in (
        (ring, tmp_path / "early.db", "left out 1 user that had been erased"), (new_ring, late, "restored 1 token"),
    ):
        target = tmp_path / backup.stem
        target.mkdir()
        environment = {"TOKEN_CACHE_SEALING_KEY_RING": key_ring}
        assert told in printed(target, "restore", str(backup), environment=environment)
        assert printed(target, "get", "berta", environment=environment) == "x\n"


def test_the_copies_of_keys_replace_nothing_but_earlier_copies(serve, tmp_path):
    server, other = serve(), serve()
    for running in (server, other):
        assert running.post("me", "x") == STORED
        printed(running.data, "erase", "me")
    backup, safe = str(tmp_path / "backup.db"), tmp_path / "safe"
    assert "its folder does not exist" in refused(server.data, "backup", backup, "--keys", str(safe))
    assert not os.path.exists(backup)
    safe.mkdir()
    ring, erasures = json.loads(printed(server.data, "backup", backup, "--keys", str(safe), "--json"))["keys"]
    # Erasures that the store's own file lacks.
    recorded = (server.data / "erasures").read_bytes()
    (server.data / "erasures").write_bytes((other.data / "erasures").read_bytes())
    assert "unless that is an earlier copy" in refused(server.data, "backup", backup, "--keys", str(safe))
    assert (safe / erasures).read_bytes() == recorded
    # Beside an earlier ring they stop no backup.
    printed(server.data, "keyring", "rotate")
    assert erasures not in json.loads(printed(server.data, "backup", backup, "--keys", str(safe), "--json"))["keys"]
    assert (safe / erasures).read_bytes() == recorded
    ring, _ = json.loads(printed(server.data, "backup", backup, "--keys", str(safe), "--json"))["keys"]
    (safe / ring).write_text("not to be lost")
    refused(server.data, "backup", backup, "--keys", str(safe))
    assert (safe / ring).read_text() == "not to be lost"


def test_keys_that_are_a_credential_are_not_copied(serve, tmp_path):
    source = tmp_path / "credentials" / "token-cache.keys"
    source.parent.mkdir()
    assert run("keyring", "create", str(source)).returncode == 0
    server = serve(environment={"CREDENTIALS_DIRECTORY": str(source.parent)})
    before = os.listdir(tmp_path)
    message = refused(server.data, "backup", str(tmp_path / "backup.db"), "--keys", str(tmp_path))
    assert "is a credential, and is not copied" in message
    assert os.listdir(tmp_path) == before


def damage(path):
    """Overwrites a page in the middle."""
    with open(path, "r+b") as file:
        file.seek(4096 * 4)
        file.write(b"\xff" * 4096)


def bad_backups(folder, other):
    """Files that are not backups of this store, each with a part of its error message."""
    good = folder / "good.db"
    shutil.copy(good, folder / "damaged.db")
    damage(folder / "damaged.db")
    (folder / "short.db").write_bytes(good.read_bytes()[:8192])
    (folder / "text.db").write_text("no database at all" * 1000)
    (folder / "empty.db").touch()
    (folder / "byte.db").write_bytes(good.read_bytes()[:1])
    (folder / "folder.db").mkdir()
    with contextlib.closing(sqlite3.connect(folder / "without-tables.db")) as database:
        database.execute("VACUUM")
    with contextlib.closing(sqlite3.connect(folder / "foreign.db")) as database:
        database.execute("CREATE TABLE other (a)")
    printed(other, "backup", str(folder / "other.db"))
    shutil.copy(other / "tokens.db", folder / "copied.db")
    return {
        "copied.db": "is no backup, but the database of a running server",
        "damaged.db": "is damaged", "short.db": "is damaged", "empty.db": "is empty", "none.db": "there is no file",
        "folder.db": "is no file", "other.db": "is not the one that the store was sealed with",
    } | dict.fromkeys(("text.db", "foreign.db", "byte.db", "without-tables.db"), "is no backup that token-cache has written")


def test_a_backup_with_a_retired_key_is_restored_when_the_keys_line_is_back(serve, tmp_path):
    """As deploy/backups.md says it."""
    server = serve()
    backup, later = tmp_path / "backup.db", tmp_path / "later.db"
    assert server.post("before", "x") == STORED
    printed(server.data, "backup", str(backup))
    keys = server.data / "keys"
    printed(server.data, "keyring", "rotate")
    [kept] = server.data.glob("keys.retired-1-*")
    [line] = re.findall(r"^1 .*\n", kept.read_text(), re.M)
    assert server.post("later", "x") == STORED
    printed(server.data, "backup", str(later))
    server.stop()
    assert "sealed with key 1, which the key ring does not have" in command(server.data, "verify", str(backup)).stdout
    assert "nothing was replaced" in refused(server.data, "restore", str(backup))
    assert "1 row cannot be opened and stayed as before" in printed(server.data, "restore", "--lacks-keys", str(backup))
    with keys.open("a") as file:
        file.write(line)
    printed(server.data, "verify", str(backup))
    printed(server.data, "restore", str(backup))
    server = serve(data=server.data)
    assert server.get("before") == found("x")
    printed(server.data, "keyring", "rotate")
    assert len(printed(server.data, "keyring", "list").splitlines()) == 1
    assert server.get("before") == found("x")
    # No key that a later backup needs was lost.
    printed(server.data, "verify", str(later))


def test_what_is_no_backup_of_this_store_replaces_nothing(serve, tmp_path):
    server, other = serve(), serve()
    for running in (server, other):
        fill(running.address, 300)
    printed(server.data, "backup", str(tmp_path / "good.db"))
    assert server.post("now", "here") == STORED
    server.stop()
    for name, fragment in bad_backups(tmp_path, other.data).items():
        message = refused(server.data, "restore", str(tmp_path / name))
        assert fragment in message, (name, message)
        assert printed(server.data, "get", "now") == "here\n", name
    assert "301 tokens checked\nthe store is sound" in printed(server.data, "verify")
    assert not [name for name in os.listdir(server.data) if ".new" in name]


def test_a_backup_of_a_damaged_store_says_so_with_what_to_do(serve, tmp_path):
    server = serve()
    fill(server.address, 300)
    server.stop()
    database = server.data / "tokens.db"
    size = database.stat().st_size
    with database.open("r+b") as file:
        file.seek(size // 2)
        file.write(b"nothing of use " * (size // 60))
    message = refused(server.data, "backup", str(tmp_path / "backup.db"))
    assert "the copy is damaged, and so most probably is the store" in message and "token-cache restore" in message
    assert "***" not in message and message.count("\n") == 1
    assert list(tmp_path.glob("backup.db*")) == []
