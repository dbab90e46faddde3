"""Commands beside the servers of a PostgreSQL database, and the command copy from a data folder to it and back."""
import json
import re
import signal
import subprocess

import pytest

from access import API, bearer, fetch, session_settings, store
from contract import NOT_FOUND, STORED, WRITE_FAILED, found
from http_client import exchange, get, post
from postgres_cluster import Database
from server_process import binary, clean_environment, run, until
from test_copy import copy, fill, folder_beside, refusal


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
    assert server.stop() == 0
    assert "701 tokens and 1 session copied and verified" in copy(server.data, url)
    # The database has the ring of the folder.
    moved = serve({**access, "store": {"url": url}}, data=folder_beside(server.data, tmp_path, "moved"))
    response = exchange(moved.address, fetch(bearer(session)))
    assert (response.body, response.headers["etag"]) == (found("of anna"), tag)
    assert exchange(moved.address, store("later", bearer(session), f"If-Match: {tag}")).body == STORED
    # Back, with a ring of the new folder, while the server goes on.
    settings, back = tmp_path / "back.yaml", tmp_path / "back"
    settings.write_text(json.dumps({"data_directory": str(moved.data), "store": {"url": url}}))
    text = copy(settings, back)
    assert "701 tokens and 1 session copied" in text
    assert re.search(r"as of 20[-0-9]+T[:0-9]+Z; what servers have stored since is not in the copy", text)
    API(moved, key).put("user7", "not copied", "If-Match: *")
    assert (back / "keys").read_bytes() != (server.data / "keys").read_bytes()
    again = serve(access, data=back)
    assert exchange(again.address, fetch(bearer(session))).body == found("later")
    assert json.loads(API(again, key).get("user7").body)["token_info"] == "info 7"
    tag = exchange(again.address, fetch(bearer(session))).headers["etag"]
    assert exchange(again.address, store("last", bearer(session), f"If-Match: {tag}")).body == STORED
    assert "the store is sound" in run("verify", "--data-directory", str(back)).stdout


def test_from_one_database_to_another_and_into_the_clear(url, postgres_server, tmp_path):
    """Each with a ring of its own, as its settings file says."""
    others = [Database(postgres_server) for _ in range(2)]
    postgres_server.pass_file(tmp_path / "pass")
    for name, place in zip(("first", "second", "third"), [url, *(other.url() for other in others)], strict=True):
        assert run("migrate", "--url", place).returncode == 0
        settings = {"data_directory": str(tmp_path / name), "store": {"url": place}, "sealing": {"enabled": name != "third"}}
        (tmp_path / name).mkdir()
        (tmp_path / f"{name}.yaml").write_text(json.dumps(settings))
    assert run("put", "anna", "a token", "--config", f"{tmp_path}/first.yaml").returncode == 0
    for source, target in (("first", "second"), ("second", "third")):
        assert "1 token and 0 sessions copied" in copy(tmp_path / f"{source}.yaml", tmp_path / f"{target}.yaml")
        assert run("get", "anna", "--config", f"{tmp_path}/{target}.yaml").stdout == "a token\n"
    assert (tmp_path / "first/keys").read_bytes() != (tmp_path / "second/keys").read_bytes()
    assert not (tmp_path / "third/keys").exists()
    for other in others:
        postgres_server.drop_database(other.name)


def test_a_database_that_is_used_is_no_target(serve, url, tmp_path):
    used, other = serve({"store": {"url": url}}), serve()
    fill(other, range(2))
    assert other.stop() == 0
    assert "the target: a server or another token-cache copy uses the store" in refusal(other.data, url)
    assert exchange(used.address, post("a", "b")).body == STORED
    assert exchange(used.address, get("a")).body == found("b")
    assert used.stop() == 0
    assert "the target: the store holds tokens or sessions" in refusal(other.data, url)


def test_while_a_copy_runs_no_server_uses_the_store_and_one_that_is_killed_leaves_it_empty(serve, url, postgres, tmp_path):
    server = serve()
    fill(server, range(1_200))
    assert server.stop() == 0
    with postgres.session() as session:
        # Holds it up.
        session.sql("BEGIN")
        session.sql("LOCK TABLE token IN SHARE MODE")
        process = subprocess.Popen(
            [binary(), "copy", "--from", str(server.data), "--to", url], env=clean_environment(), stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL, stdin=subprocess.DEVNULL)
        locked = ("SELECT count(*) FROM pg_locks JOIN pg_database ON database = pg_database.oid"
                  " WHERE locktype = 'advisory' AND datname = current_database()")
        until(lambda: postgres.value(locked) == "1" or process.poll() is not None)
        early = serve({"store": {"url": url, "timeout": "1s"}}, data=folder_beside(server.data, tmp_path))
        assert exchange(early.address, post("a", "b")).body == WRITE_FAILED
        until(lambda: "token-cache copy fills the store" in early.log())
        process.send_signal(signal.SIGKILL)
        assert process.wait() == -signal.SIGKILL
    until(lambda: exchange(early.address, post("a", "b")).body == STORED)
    assert printed(settings_of(url, early.data), "delete", "a") == "removed 1 token\n"
    assert early.stop() == 0
    postgres.sql("DELETE FROM token")
    until(lambda: postgres.value(locked) == "0")
    assert "1,200 tokens and 0 sessions copied" in copy(server.data, url)
    assert printed(settings_of(url, server.data), "get", "id7") == "info 7\n"
