"""One key ring for several servers of a PostgreSQL database: a new key is brought to all of them, and then told to seal."""
import shutil

import pytest

from contract import NOT_FOUND, STORED, WRITE_FAILED, found
from http_client import exchange, get, post
from server_process import run, until


@pytest.fixture(autouse=True)
def program(postgres_binary, monkeypatch):
    """Has all of these tests use the program with PostgreSQL."""
    monkeypatch.setenv("TOKEN_CACHE_BINARY", postgres_binary)


@pytest.fixture
def start(postgres, serve, tmp_path, monkeypatch):
    """A function that starts a server of the test's database, with a copy of another one's key ring."""
    monkeypatch.setenv("PGPASSFILE", postgres.pass_file(tmp_path / "pass"))
    assert run("migrate", "--url", postgres.url()).returncode == 0
    numbers = iter(range(100))

    def start_it(ring_of=None, data=None):
        folder = data or tmp_path / f"data{next(numbers)}"
        if ring_of:
            folder.mkdir(mode=0o700)
            shutil.copy(ring_of.data / "keys", folder / "keys")
        return serve({"store": {"url": postgres.url()}}, data=folder)
    return start_it


def printed(server, *command):
    done = run(*command, "--config", str(server.folder / "token-cache.yaml"))
    assert (done.returncode, done.stderr) == (0, ""), done
    return done.stdout


def refused(server, *command):
    done = run(*command, "--config", str(server.folder / "token-cache.yaml"))
    assert done.returncode == 1, done
    return done.stderr


def stored(server, name):
    return exchange(server.address, post(name, f"token of {name}")).body == STORED


def answered(server, name):
    return exchange(server.address, get(name)).body


def test_a_new_key_is_brought_to_all_servers_and_told_to_seal_and_the_old_one_goes(start, postgres):
    first = start()
    second = start(ring_of=first)
    assert stored(first, "old") and answered(second, "old") == found("token of old")

    assert "key 2 is in the key ring and waits" in printed(first, "keyring", "add")
    assert "waits for keyring rotate" in printed(first, "keyring", "list").splitlines()[1]
    assert stored(first, "waiting") and postgres.value("SELECT max(key_number) FROM token") == "1"
    assert "was added before, and waits" in refused(first, "keyring", "add")
    assert "key 2 was added on another server" in refused(second, "keyring", "add")
    assert "make it with token-cache keyring add" in refused(second, "keyring", "rotate")

    shutil.copy(first.data / "keys", second.data / "keys")
    told = printed(second, "keyring", "rotate")
    assert told.startswith("key 2 seals from now on; 2 tokens encrypted with it, 2 tokens checked\nkey 1 is retired")
    assert len(printed(second, "keyring", "list").splitlines()) == 1
    assert postgres.sql("SELECT number FROM sealing_key WHERE number > 0") == [("2",)]
    for server in (first, second):
        until(lambda: "key 2 seals from now on" in server.log())
        assert stored(server, f"new on {server.address}")
        assert answered(server, "old") == found("token of old")
    assert postgres.sql("SELECT key_number, count(*) FROM token GROUP BY 1 ORDER BY 1") == [("2", "4")]
    shutil.copy(second.data / "keys", first.data / "keys")
    until(lambda: len(printed(first, "keyring", "list").splitlines()) == 1)
    assert answered(first, "old") == found("token of old")


def test_a_server_without_the_key_that_seals_says_so_and_stores_again_without_a_restart(start):
    first = start()
    second = start(ring_of=first)
    assert stored(first, "old")
    printed(first, "keyring", "add")
    printed(first, "keyring", "rotate")
    assert stored(first, "new")
    text = f"the key ring {second.data / 'keys'} lacks key 2, which seals"
    until(lambda: text in second.log())
    second.stop()
    second = start(data=second.data)
    assert text in second.log()
    assert exchange(second.address, post("mine", "a")).body == WRITE_FAILED
    assert answered(second, "old") == found("token of old")
    assert answered(second, "new") == NOT_FOUND
    shutil.copy(first.data / "keys", second.data / "keys")
    until(lambda: answered(second, "new") == found("token of new"))
    assert stored(second, "mine")


def test_a_server_with_another_ring_does_not_start(start, postgres, tmp_path):
    first = start()
    assert stored(first, "a")
    for settings, text in (
            ({}, "the store is sealed and its key ring"),
            ({"TOKEN_CACHE_SEALING_ENABLED": "off"}, "the tokens in the database are sealed, and sealing is off")):
        done = run(
            "serve", "--listen", "127.0.0.1:0", "--data-directory", str(tmp_path / "other"),
            environment={"TOKEN_CACHE_STORE_URL": postgres.url(), **settings})
        assert done.returncode == 1 and text in done.stderr, done
    first.stop()


def test_what_a_ring_seals_is_in_no_row_and_no_log_of_the_database(start, postgres):
    server = start()
    assert exchange(server.address, post("secret4711id", "secret4711info")).body == STORED
    dump = str(postgres.sql("SELECT encode(key, 'escape'), encode(value, 'escape') FROM token"))
    assert "secret4711" not in dump and "secret4711" not in postgres.server.log()
    assert answered(server, "secret4711id") == found("secret4711info")
