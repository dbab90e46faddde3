"""The first start of a new version converts the store of an earlier one, whatever interrupts it."""
import itertools
import shutil
import subprocess
import time

import pytest

import earlier_form
from contract import STORED, found
from http_client import Connection, get, post
from server_process import UNSEALED, binary, clean_environment
from service_manager import Messages
from store_files import command, opened, printed, refused

TABLES_OF_VERSION_2 = """
    CREATE TABLE token_2 (
        key BLOB NOT NULL PRIMARY KEY,
        written_at INTEGER NOT NULL,
        expires_at INTEGER,
        key_number INTEGER NOT NULL,
        value BLOB NOT NULL
    ) STRICT;
    INSERT INTO token_2 SELECT key, written_at, expires_at, key_number, value FROM token ORDER BY random();
    DROP TABLE token;
    ALTER TABLE token_2 RENAME TO token;
    ALTER TABLE store DROP COLUMN slot_key;
    ALTER TABLE store DROP COLUMN version_limit;
    ALTER TABLE store DROP COLUMN sessions;
    DROP TABLE session;
    ALTER TABLE store DROP COLUMN looked_at;
    DROP TABLE seal;
    PRAGMA user_version = 2;
"""


CHANGES_TO_VERSION_4 = """
    ALTER TABLE token DROP COLUMN version; ALTER TABLE store DROP COLUMN version_limit;
    ALTER TABLE store DROP COLUMN sessions; DROP TABLE session; PRAGMA user_version = 4;
"""
CHANGES_TO_VERSION_3 = CHANGES_TO_VERSION_4 + "ALTER TABLE store DROP COLUMN looked_at; DROP TABLE seal; PRAGMA user_version = 3"


@pytest.fixture(params=["sealed", "in the clear"])
def settings(request):
    return {} if request.param == "sealed" else UNSEALED


def fill(server, count):
    with Connection(server.address) as connection:
        for number in range(count):
            assert connection.exchange(post(f"id{number}", f"info{number}")).body == STORED


def environment(settings):
    """The flags for a command on the store of a stopped server."""
    return {"TOKEN_CACHE_SEALING_ENABLED": "off" if settings else "on"}


def set_back(data, changes=TABLES_OF_VERSION_2):
    """Makes the store of a stopped server one of an earlier version."""
    with opened(data) as database:
        earlier_form.set_back(database, data / "keys")
        database.executescript(changes)


def killed_conversions(data, folder, settings, pause):
    """Copies of a store whose conversion was killed, each `pause` seconds later than the one before, until one ended by itself."""
    for number in itertools.count():
        copy = folder / f"data{number}"
        shutil.copytree(data, copy)
        process = subprocess.Popen(
            [binary(), "stats", "--data-directory", str(copy)], env=clean_environment(environment(settings)),
            stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        time.sleep(pause * number)
        has_ended = process.poll() is not None
        process.kill()
        process.wait()
        yield copy
        if has_ended:
            return


def check(server, count):
    with Connection(server.address) as connection:
        for number in range(count):
            assert connection.exchange(get(f"id{number}")).body == found(f"info{number}")
        assert connection.exchange(post("id1", "new")).body == STORED
        assert connection.exchange(get("id1")).body == found("new")
        assert connection.exchange(post("id1", "info1")).body == STORED
    assert "the store is sound" in printed(server.data, "verify")


def test_a_store_of_the_second_version_is_converted_once(serve, settings):
    server = serve(settings)
    fill(server, 500)
    server.stop()
    set_back(server.data)
    report = command(server.data, "doctor", environment=environment(settings)).stdout
    assert "schema 2, which the next start converts to 5" in report
    for is_first in (True, False):
        server = serve(settings, data=server.data)
        assert (f"converting the store {server.data}/tokens.db" in server.log()) == is_first
        check(server, 500)
        server.stop()
    assert not list(server.data.glob("*new*"))


def test_a_store_of_the_third_version_is_changed_in_its_place(serve, settings):
    server = serve(settings)
    fill(server, 50)
    server.stop()
    set_back(server.data, CHANGES_TO_VERSION_3)
    inode = (server.data / "tokens.db").stat().st_ino
    report = command(server.data, "doctor", environment=environment(settings)).stdout
    assert "schema 3, which the next start converts to 5" in report
    for is_first in (True, False):
        server = serve(settings, data=server.data)
        assert ("had schema 3 and has schema 5 now" in server.log()) == is_first
        check(server, 50)
        report = command(server.data, "doctor").stdout
        # Only for an encrypted store.
        assert ("warning  key 1 is of an earlier version" in report) == (is_first and not settings)
        if is_first and not settings:
            assert "of an earlier version: replace it" in printed(server.data, "keys", "list")
            for step in (["keys", "add"], ["rekey"], ["keys", "retire", "1"]):
                printed(server.data, *step)
            assert "earlier version" not in printed(server.data, "keys", "list")
        server.stop()
    assert (server.data / "tokens.db").stat().st_ino == inode


def test_a_service_manager_is_told_to_wait_for_a_conversion(serve, settings, tmp_path):
    server = serve(settings)
    fill(server, 10)
    server.stop()
    set_back(server.data)
    with Messages(str(tmp_path / "notify")) as messages:
        server = serve(settings, data=server.data, environment={"NOTIFY_SOCKET": messages.address})
        messages.wait("STATUS", f"serves on {server.base}")
        assert messages.all()[0] == {"EXTEND_TIMEOUT_USEC": "600000000", "STATUS": "converting the store"}


def test_a_conversion_that_is_killed_leaves_the_one_or_the_other_store(serve, settings, tmp_path):
    count = 3_000
    server = serve(settings)
    fill(server, count)
    server.stop()
    set_back(server.data)
    cut_off = 0
    for data in killed_conversions(server.data, tmp_path, settings, 0.001):
        cut_off += (data / "tokens.db.new").exists()
        assert f"{count:,} tokens checked" in printed(data, "verify", environment=environment(settings))
        assert not (data / "tokens.db.new").exists()
    assert cut_off > 0
    server = serve(settings, data=data)
    check(server, count)


def test_a_change_in_its_place_may_be_killed_at_any_moment(serve, settings, tmp_path):
    server = serve(settings)
    fill(server, 20)
    server.stop()
    set_back(server.data, CHANGES_TO_VERSION_3)
    for data in killed_conversions(server.data, tmp_path, settings, 0.002):
        found_sound = printed(data, "verify", environment=environment(settings))
        assert "20 tokens checked" in found_sound and "the store is sound" in found_sound


def test_a_store_that_cannot_be_converted_stays_as_it_is(serve, settings):
    server = serve(settings)
    fill(server, 10)
    server.stop()
    set_back(server.data)
    before = (server.data / "tokens.db").read_bytes()
    obstacle = server.data / "tokens.db.new"
    obstacle.mkdir()
    message = refused(server.data, "serve", "--listen", "127.0.0.1:0", environment=environment(settings))
    assert f"{server.data}/tokens.db was written by an earlier version and cannot be converted" in message
    assert f"{obstacle} cannot be written" in message
    assert (server.data / "tokens.db").read_bytes() == before
    obstacle.rmdir()
    check(serve(settings, data=server.data), 10)
