"""Commands beside the servers of a PostgreSQL database, and the command copy from a data folder to it and back."""
import json
import shutil

import pytest

from access import API, bearer, fetch, session_settings, store
from contract import NOT_FOUND, STORED, found
from http_client import exchange, get, post
from server_process import run, until
from test_copy import copy, counts, fill, folder_beside, refusal


@pytest.fixture(autouse=True)
def program(postgres_binary, monkeypatch):
    """Has all of these tests use the program with PostgreSQL."""
    monkeypatch.setenv("TOKEN_CACHE_BINARY", postgres_binary)


@pytest.fixture
def url(postgres, tmp_path, monkeypatch):
    """The URL of a database with tables."""
    monkeypatch.setenv("PGPASSFILE", postgres.pass_file(tmp_path / "pass"))
    assert run("migrate", "--url", postgres.url()).returncode == 0
    return postgres.url()


def settings_of(url, folder):
    return {"TOKEN_CACHE_STORE_URL": url, "TOKEN_CACHE_DATA_DIRECTORY": str(folder)}


def printed(environment, *command, status=0):
    done = run(*command, environment=environment)
    assert done.returncode == status, done
    return done.stdout


def test_commands_work_beside_a_server_of_another_folder(serve, url, tmp_path):
    server = serve({"store": {"url": url}})
    elsewhere = settings_of(url, folder_beside(server.data, tmp_path))
    # The folder in which the server runs, whose server is asked, and one without a server.
    for name, environment in (("here", settings_of(url, server.data)), ("elsewhere", elsewhere)):
        assert printed(environment, "put", name, "a token") == "stored\n"
        assert exchange(server.address, get(name)).body == found("a token")
        assert printed(environment, "get", name) == "a token\n"
        assert printed(environment, "delete", name) == "removed 1 token\n"
        assert exchange(server.address, get(name)).body == NOT_FOUND
        printed(environment, "delete", name, status=1)
        assert exchange(server.address, post(name, "erased")).body == STORED
        assert "erased a token" in printed(environment, "erase", name)
        assert exchange(server.address, get(name)).body == NOT_FOUND
        assert "0 tokens checked\nthe store is sound" in printed(environment, "verify")
        assert json.loads(printed(environment, "stats", "--exact", "--json"))["tokens"] == 0


def test_a_command_without_a_server_in_its_folder_writes_the_audit_log_itself(serve, url, tmp_path):
    server = serve({"store": {"url": url}})
    folder, log, key = folder_beside(server.data, tmp_path), tmp_path / "audit", tmp_path / "first.key"
    environment = {**settings_of(url, folder), "TOKEN_CACHE_AUDIT_FILE": str(log), "TOKEN_CACHE_AUDIT_EVENTS": "all"}
    printed(environment, "audit", "key", str(key))
    printed(environment, "put", "anna", "secret4711")
    printed(environment, "get", "anna")
    lines = [json.loads(line) for line in log.read_text().splitlines()]
    assert [line["action"] for line in lines if line["actor"] == "operator"] == ["store_token", "read_token"]
    printed(environment, "audit", "verify", str(log), "--key", str(key))
    assert "secret4711" not in log.read_text() and "anna" not in log.read_text()


def test_a_store_moves_to_the_database_and_back_and_clients_notice_nothing(serve, url, tmp_path):
    access, key = session_settings(tmp_path / "keys")
    server = serve(access)
    session = API(server, key).session("anna")
    assert exchange(server.address, store("of anna", bearer(session))).body == STORED
    tag = exchange(server.address, fetch(bearer(session))).headers["etag"]
    for number in range(700):
        assert API(server, key).put(f"user{number}", f"info {number}").status == 200
    assert copy(server.data, url).endswith("verified: everything is in the target\n")
    API(server, key).erase("user3")
    API(server, key).put("user4", "changed", "If-Match: *")
    assert server.stop() == 0
    text = copy(server.data, url, "--remove-others")
    assert "1 token copied" in text and "1 token and 0 sessions removed" in text
    moved = serve({**access, "store": {"url": url}}, data=folder_beside(server.data, tmp_path, "moved"))
    response = exchange(moved.address, fetch(bearer(session)))
    assert (response.body, response.headers["etag"]) == (found("of anna"), tag)
    assert API(moved, key).get("user3").body == NOT_FOUND
    API(moved, key).erase("user5")
    assert exchange(moved.address, store("later", bearer(session), f"If-Match: {tag}")).body == STORED
    assert moved.stop() == 0
    # Back into the same folder.
    text = copy(url, server.data, "--remove-others")
    assert "1 token copied" in text and "1 token and 0 sessions removed" in text
    back = serve(access, data=server.data)
    assert exchange(back.address, fetch(bearer(session))).body == found("later")
    tag = exchange(back.address, fetch(bearer(session))).headers["etag"]
    assert exchange(back.address, store("last", bearer(session), f"If-Match: {tag}")).body == STORED
    done = run("verify", "--data-directory", str(server.data))
    assert "the store is sound" in done.stdout


def test_a_database_of_another_key_ring_is_refused(serve, url, tmp_path):
    first = serve({"store": {"url": url}})
    assert exchange(first.address, post("a", "b")).body == STORED
    other = serve()
    fill(other, range(2))
    message = refusal(other.data, url)
    assert message.startswith("token-cache: the target: ") and "key ring" in message
    until(lambda: exchange(first.address, get("a")).body == found("b"))


def test_the_ring_may_be_named(serve, url, tmp_path):
    server = serve()
    fill(server, range(3))
    ring = tmp_path / "ring"
    shutil.copy(server.data / "keys", ring)
    environment = {"TOKEN_CACHE_SEALING_KEY_RING": str(ring)}
    assert "3 tokens copied" in copy(server.data, url, environment=environment)
    back = tmp_path / "back"
    assert "3 tokens copied" in copy(url, back, environment=environment)
    done = run("get", "id1", "--data-directory", str(back), environment=environment)
    assert done.stdout == "info 1\n"
