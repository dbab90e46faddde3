"""Backups by the time: each is verified before it counts, earlier ones are rotated, and nothing else is touched."""
import json
import os
import re
import shutil
import subprocess
from datetime import datetime, timedelta, timezone

import pytest

from administration import ADMINISTRATION, metrics
from contract import STORED
from http_client import Connection, post
from server_process import run
from small_disk import SmallDisk
from store_files import command, opened, printed, refused

NAME = re.compile(r"tokens-\d{8}T\d{6}Z\.db")


def fill(address, count, size=100):
    with Connection(address) as connection:
        for number in range(count):
            assert connection.exchange(post(f"id{number}", "x" * size)).body == STORED


def name(moment):
    return moment.strftime("tokens-%Y%m%dT%H%M%SZ.db")


@pytest.fixture(name="folder")
def backup_folder(tmp_path):
    folder = tmp_path / "backups"
    folder.mkdir()
    return folder


@pytest.mark.parametrize("is_running", [True, False], ids=["running", "stopped"])
def test_a_backup_into_a_folder_is_named_by_the_time_verified_and_private(serve, folder, is_running):
    server = serve()
    fill(server.address, 20)
    if not is_running:
        server.stop()
    before = datetime.now(timezone.utc).replace(microsecond=0)
    shown = json.loads(printed(server.data, "backup", "--into", str(folder), "--json"))
    [written] = os.listdir(folder)
    assert shown["path"] == str(folder / written) and (shown["tokens"], shown["removed"]) == (20, [])
    assert before <= datetime.strptime(written, "tokens-%Y%m%dT%H%M%SZ.db").replace(tzinfo=timezone.utc)
    assert (folder / written).stat().st_mode & 0o777 == 0o600
    found = json.loads(printed(server.data, "verify", str(folder / written), "--json"))
    assert (found["tokens"], found["unreadable"], found["damages"]) == (20, {}, [])


def test_rotation_removes_superfluous_backups_and_nothing_else(serve, folder):
    server = serve()
    fill(server.address, 3)
    printed(server.data, "backup", str(folder / "good.db"))
    now = datetime.now(timezone.utc).replace(minute=30, second=0, microsecond=0)
    # Three a day for ten days, and one that was made while the clock was wrong.
    backups = [now - timedelta(days=day, hours=hour) for day in range(1, 11) for hour in (0, 1, 2)] + [now + timedelta(days=400)]
    for moment in backups:
        shutil.copy(folder / "good.db", folder / name(moment))
    strangers = {
        # Named as a backup, and none; a backup with another name; a link; a folder.
        name(now - timedelta(days=40)): "not to be lost", "tokens-20200101T000000Z.db.gz": "another program's",
        "tokens-20200101T000000Z.db-wal": "", "notes": "mine",
    }
    for stranger, text in strangers.items():
        (folder / stranger).write_text(text)
    (folder / name(now - timedelta(days=41))).symlink_to(folder / "good.db")
    (folder / name(now - timedelta(days=42))).mkdir()
    untouched = set(os.listdir(folder)) - {name(moment) for moment in backups[:-1]}
    shown = json.loads(printed(server.data, "backup", "--into", str(folder), "--keep", "daily=3,weekly=2", "--json"))
    left = set(os.listdir(folder))
    assert untouched <= left and os.path.basename(shown["path"]) in left
    kept = left - untouched - {os.path.basename(shown["path"])}
    # Of today, the last two days and the week before that.
    assert len(kept) in (2, 3) and all(NAME.fullmatch(file) for file in kept), kept
    assert len(shown["removed"]) == 30 - len(kept)
    assert all((folder / stranger).read_text() == text for stranger, text in strangers.items())


def test_a_backup_that_cannot_be_verified_replaces_no_good_one(serve, folder):
    server, other = serve(), serve()
    fill(server.address, 10)
    good = json.loads(printed(server.data, "backup", "--into", str(folder), "--json"))["path"]
    for _ in range(2):
        message = refused(
            server.data, "backup", "--into", str(folder), "--keep", "last=1",
            environment={"TOKEN_CACHE_SEALING_KEY_RING": str(other.data / "keys")})
        assert "is not the one that the store was sealed with" in message
        assert sorted(os.listdir(folder)) == [os.path.basename(good), "unverified.db"]
    printed(server.data, "backup", "--into", str(folder), "--keep", "last=1")
    [left] = os.listdir(folder)
    assert left != os.path.basename(good)


def test_a_backup_of_a_damaged_store_replaces_no_good_one(serve, folder):
    server = serve()
    fill(server.address, 300)
    good = json.loads(printed(server.data, "backup", "--into", str(folder), "--json"))["path"]
    server.stop()
    with opened(server.data) as store:
        store.execute("DROP INDEX session_by_user")
    message = refused(server.data, "backup", "--into", str(folder), "--keep", "last=1")
    assert "the backup cannot be restored" in message and "the definitions of its tables are damaged" in message
    assert sorted(os.listdir(folder)) == [os.path.basename(good), "unverified.db"]


def test_rows_that_do_not_open_are_named_and_stay_and_stop_no_command(serve, folder):
    server = serve()
    fill(server.address, 10)
    printed(server.data, "access", "sessions", "add", "anna")
    [session] = json.loads(printed(server.data, "access", "sessions", "list", "anna", "--json"))["sessions"]
    server.stop()

    def damaged():
        with opened(server.data) as store:
            rows = store.execute("SELECT slot, key, key_number, value FROM token WHERE key_number = 1").fetchall()
            return rows, store.execute("SELECT * FROM session WHERE key_number = 1").fetchall()

    with opened(server.data) as store:
        store.execute("UPDATE token SET value = zeroblob(60) WHERE slot = (SELECT min(slot) FROM token)")
        store.execute("UPDATE session SET user = zeroblob(100)")
        [(slot,)] = store.execute("SELECT min(slot) FROM token").fetchall()
    server = serve(data=server.data)
    names = f"the token in slot {slot}, the session {session['id']}"
    done = command(server.data, "backup", "--into", str(folder), "--keep", "last=1", "--json")
    assert done.returncode == 0 and f"not opened: {names}" in done.stderr, done.stderr
    shown = json.loads(done.stdout)
    assert (shown["tokens"], shown["sessions"], shown["unreadable"]) == (10, 1, 2)
    assert [os.path.join(folder, name) for name in os.listdir(folder)] == [shown["path"]]
    done = command(server.data, "verify", shown["path"])
    assert done.returncode == 1 and "but for the rows that do not open" in done.stdout
    for is_running in (True, False):
        done = command(server.data, "verify")
        assert done.returncode == 1 and f"not opened: {names}" in done.stdout
        rotated = printed(server.data, "keyring", "rotate")
        assert "2 rows cannot be opened and stayed as before" in rotated
        assert f"key {1 if is_running else 2} is retired" in rotated
        # Once the key has gone, the next round finds that the rows carry the number of a missing one.
        assert len(printed(server.data, "keyring", "list").splitlines()) == (1 if is_running else 2)
        if is_running:
            server.stop()
            before = damaged()
            assert [len(rows) for rows in before] == [1, 1] and before[0][0][0] == slot
        assert damaged() == before
    with open(server.data / "keys", "a", encoding="utf-8") as ring:
        [kept] = server.data.glob("keys.retired-1-*")
        ring.write(re.search(r"^1 .*\n", kept.read_text(), re.M)[0])
    assert "2 rows cannot be opened" in printed(server.data, "restore", "--keep-sessions", shown["path"])
    assert [len(rows) for rows in damaged()] == [10, 1]
    assert [command(server.data, "get", f"id{number}").returncode for number in range(10)].count(0) == 9


def test_the_command_after_a_backup_gets_the_path_as_data(serve, tmp_path):
    folder = tmp_path / "a folder; $(touch injected) 'with' \"signs\""
    folder.mkdir()
    server = serve()
    fill(server.address, 1)
    copies = tmp_path / "copies"
    copies.mkdir()
    after = f'cp "$BACKUP_FILE" {copies}/variable; cp "$1" {copies}/argument; echo printed'
    shown = json.loads(printed(server.data, "backup", "--into", str(folder), "--after", after, "--json", folder=tmp_path))
    content = (folder / os.path.basename(shown["path"])).read_bytes()
    assert (copies / "variable").read_bytes() == (copies / "argument").read_bytes() == content
    assert not (tmp_path / "injected").exists()
    printed(server.data, "backup", str(tmp_path / "one.db"), "--after", 'test "$BACKUP_FILE" = "$1"')


def test_a_command_that_fails_makes_the_backup_fail_and_keeps_it(serve, folder):
    server = serve()
    fill(server.address, 1)
    message = refused(server.data, "backup", "--into", str(folder), "--after", "exit 7")
    [written] = os.listdir(folder)
    assert f"the backup is written to {folder / written}, but the command of --after ended with status 7" in message
    printed(server.data, "verify", str(folder / written))
    assert "was killed by signal 9" in refused(server.data, "backup", "--into", str(folder), "--after", "kill -9 $$")


def test_a_command_that_never_ends_stops_no_rotation_and_counts_as_a_failure(serve, folder):
    server = serve(ADMINISTRATION)
    fill(server.address, 1)
    earlier = json.loads(printed(server.data, "backup", "--into", str(folder), "--after", "true", "--json"))["path"]
    # In the end, systemd terminates the whole unit, and kills what does not end.
    for after, status in (("kill -9 $PPID", -9), ("kill $PPID $$", 1)):
        done = command(server.data, "backup", "--into", str(folder), "--keep", "last=1", "--after", after)
        [left] = os.listdir(folder)
        assert done.returncode == status and left != os.path.basename(earlier), done
    assert "but the command of --after was killed by signal 15" in done.stderr
    assert metrics(server)["token_cache_last_backup_successful"] == 0


def test_a_folder_that_is_not_there_counts_as_a_failure_and_a_mistyped_file_does_not(serve, folder):
    server = serve(ADMINISTRATION)
    fill(server.address, 1)
    gone = folder / "not mounted"
    for failing, successful in (([str(gone / "a.db")], 1), (["--into", str(gone)], 0)):
        printed(server.data, "backup", "--into", str(folder))
        assert command(server.data, "backup", *failing).returncode == 1
        assert metrics(server)["token_cache_last_backup_successful"] == successful


def test_a_backup_is_being_copied_while_no_other_process_can_rotate_the_folder(serve, folder):
    server = serve()
    fill(server.address, 1)
    # The command tries to take the lock that each backup into the folder takes.
    after = f'if flock --exclusive --nonblock {folder} true; then exit 3; fi'
    printed(server.data, "backup", "--into", str(folder), "--after", after)
    printed(server.data, "backup", "--into", str(folder), "--keep", "last=1", "--after", after)
    printed(server.data, "backup", "--into", str(folder), "--keep", "last=1")


def test_an_earlier_backup_that_cannot_be_removed_keeps_nothing_from_being_copied_or_removed(serve, folder, tmp_path):
    server = serve(ADMINISTRATION)
    fill(server.address, 1)
    stuck, other = (json.loads(printed(server.data, "backup", "--into", str(folder), "--json"))["path"] for _ in range(2))
    if subprocess.run(["chattr", "+i", stuck], capture_output=True, check=False).returncode != 0:
        pytest.skip("no file can be made immutable here")
    copy = tmp_path / "copy.db"
    try:
        failed = command(server.data, "backup", "--into", str(folder), "--keep", "last=1", "--after", "false")
        done = command(server.data, "backup", "--into", str(folder), "--keep", "last=1", "--after", f'cp "$BACKUP_FILE" {copy}')
    finally:
        subprocess.run(["chattr", "-i", stuck], check=True)
    assert failed.returncode == 1 and "the command of --after ended with status 1" in failed.stderr
    assert f"earlier backups were not all removed: {stuck}" in failed.stderr
    written = folder / max(os.listdir(folder))
    assert copy.read_bytes() == written.read_bytes()
    # Only the removal has failed, which has a status and a message of its own.
    assert done.returncode == 2 and done.stdout.startswith(f"{written}: 1 token")
    assert f"the backup is complete, but earlier ones were not all removed and go on filling the disk: {stuck}" in done.stderr
    assert metrics(server)["token_cache_last_backup_successful"] == 1
    assert sorted(os.listdir(folder)) == [os.path.basename(stuck), written.name] and not os.path.exists(other)


def test_a_full_disk_is_noticed_before_it_is_full_and_nothing_is_left(serve):
    server = serve()
    fill(server.address, 300, 10_000)
    with SmallDisk(megabytes=2) as disk:
        message = refused(server.data, "backup", "--into", str(disk.folder))
        assert re.search(r"the backup needs \d+ MiB, but only \d+ MiB are free in ", message), message
        assert os.listdir(disk.folder) == []


def test_the_stores_own_disk_keeps_room_for_the_store(serve):
    # The backup has 2 MiB, and the store not much more once its log is empty.
    with SmallDisk(megabytes=19) as disk:
        server = serve(data=disk.folder / "data")
        fill(server.address, 200, 10_000)
        (disk.folder / "backups").mkdir()
        assert "MiB, and 16 MiB must stay free for the store on the same disk, but only" in refused(
            server.data, "backup", "--into", str(disk.folder / "backups"))
        assert os.listdir(disk.folder / "backups") == []
        assert server.post("me", "x") == STORED
        server.stop()


def test_verifying_changes_nothing_and_needs_neither_a_store_nor_write_access(serve, folder, tmp_path):
    server = serve()
    fill(server.address, 5)
    printed(server.data, "backup", str(folder / "tokens.db"))
    ring = tmp_path / "ring"
    shutil.copy(server.data / "keys", ring)
    server.stop()
    elsewhere = tmp_path / "elsewhere"
    before = {file: (file.stat().st_mtime_ns, file.read_bytes()) for file in (folder / "tokens.db", ring)}
    os.chmod(folder, 0o500)
    done = command(elsewhere, "verify", str(folder / "tokens.db"), environment={"TOKEN_CACHE_SEALING_KEY_RING": str(ring)})
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.splitlines()[-1] == f"{folder}/tokens.db can be restored with this key ring"
    assert before == {file: (file.stat().st_mtime_ns, file.read_bytes()) for file in before}
    assert os.listdir(folder) == ["tokens.db"] and not elsewhere.exists()
    assert "its key ring" in refused(elsewhere, "verify", str(folder / "tokens.db"))
    assert not elsewhere.exists()


@pytest.mark.parametrize("arguments, fragment", [
    ([], "name a <file>, or a folder with --into"), (["--into", ".", "--keep", "yearly=1"], '"yearly=1" is not one of'),
])
def test_a_mistake_on_the_command_line_is_said(arguments, fragment):
    done = run("backup", *arguments)
    assert done.returncode == 64 and fragment in done.stderr
