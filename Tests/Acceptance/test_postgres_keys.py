"""One key ring for several servers of a PostgreSQL database: a new key seals when all of them have it."""
import shutil

import pytest

from contract import NOT_FOUND, STORED, found
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


def test_a_new_key_seals_when_all_servers_have_it_and_the_old_one_goes(start, postgres):
    first = start()
    second = start(ring_of=first)
    assert stored(first, "old") and answered(second, "old") == found("token of old")

    text = printed(first, "keys", "add")
    assert "key 2 is in the key ring, and seals when all running servers have it" in text
    assert "seals when these servers have it too: " in printed(first, "keys", "list").splitlines()[1]
    assert stored(first, "waiting") and postgres.value("SELECT max(key_number) FROM token") == "1"
    assert "was added before, and does not seal yet" in refused(first, "keys", "add")

    shutil.copy(first.data / "keys", second.data / "keys")
    until(lambda: all("seals new tokens" in printed(server, "keys", "list").splitlines()[1] for server in (first, second)))
    for server in (first, second):
        assert "key 2 seals from now on, as all running servers have it" in server.log()
        assert stored(server, f"new on {server.address}")
        assert answered(server, "old") == found("token of old")
    assert postgres.sql("SELECT key_number, count(*) FROM token GROUP BY 1 ORDER BY 1") == [("1", "2"), ("2", "2")]

    assert "key 1" in refused(first, "keys", "retire", "1")
    assert printed(second, "rekey").startswith("2 tokens rekeyed, 4 tokens checked")
    # Each server says for as long as a request may take that rows may be under way that the old key has sealed.
    until(lambda: run("keys", "retire", "1", "--config", str(first.folder / "token-cache.yaml")).returncode == 0, 60, 0.5)
    assert len(printed(first, "keys", "list").splitlines()) == 1
    assert postgres.sql("SELECT number FROM sealing_key") == [("2",)]
    shutil.copy(first.data / "keys", second.data / "keys")
    until(lambda: len(printed(second, "keys", "list").splitlines()) == 1)
    assert answered(second, "old") == found("token of old")


def test_a_server_that_lacks_a_key_says_so_and_takes_it_over_without_a_restart(start):
    first = start()
    second = start(ring_of=first)
    second.stop()
    assert stored(first, "old")
    assert "key 2 seals from now on" in printed(first, "keys", "add")
    assert stored(first, "new")
    second = start(data=second.data)
    assert f"the key ring {second.data / 'keys'} lacks key 2, with which tokens of the store are sealed" in second.log()
    assert answered(second, "old") == found("token of old")
    assert answered(second, "new") == NOT_FOUND
    shutil.copy(first.data / "keys", second.data / "keys")
    until(lambda: answered(second, "new") == found("token of new"))


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
