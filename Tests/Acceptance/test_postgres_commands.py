"""Commands on a PostgreSQL database: beside servers, for copies, tables, roles and keys, and the doctor."""
import json
import re
import shutil
import signal
import subprocess
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

import psql
from access import API, bearer, fetch, session_settings, store
from contract import NOT_FOUND, STORED, found, fresh_id
from doctor import advices, examine, said
from http_client import exchange, get
from postgres_programs import SUPERUSER
from server_process import binary, clean_environment, run, until
from storage_shim import StorageShim
from test_transfer import copy


@pytest.fixture(autouse=True)
def program(postgres_binary, monkeypatch):
    """Makes all tests of this file use the program with PostgreSQL."""
    monkeypatch.setenv("TOKEN_CACHE_BINARY", postgres_binary)


@pytest.fixture
def pass_file(postgres, tmp_path, monkeypatch):
    """Gives commands and servers the passwords of all roles; a function that does so again when there are more."""
    path = tmp_path / "pass"
    monkeypatch.setenv("PGPASSFILE", postgres.pass_file(path))
    return lambda: postgres.pass_file(path)


@pytest.fixture
def url(postgres, pass_file):
    """The URL of a database with tables."""
    assert run("migrate", "--url", postgres.url()).returncode == 0
    return postgres.url()


def folder_beside(source, tmp_path, name="target"):
    """An empty data folder with the key ring of another one."""
    target = tmp_path / name
    target.mkdir(mode=0o700)
    shutil.copy(source / "keys", target / "keys")
    return target


def settings_of(url, folder):
    return {"TOKEN_CACHE_STORE_URL": url, "TOKEN_CACHE_DATA_DIRECTORY": str(folder)}


def printed(environment, *command, status=0):
    done = run(*command, environment=environment)
    assert done.returncode == status, done
    return done.stdout


def test_commands_work_beside_a_server_of_another_folder(serve, url, tmp_path):
    server = serve({"store": {"url": url}})
    elsewhere = settings_of(url, folder_beside(server.data, tmp_path))
    # With the folder of the server the command asks the server; with another one it asks the database.
    for name, environment in (("here", settings_of(url, server.data)), ("elsewhere", elsewhere)):
        assert printed(environment, "put", name, "a token") == "stored\n"
        assert server.get(name) == found("a token")
        assert printed(environment, "get", name) == "a token\n"
        assert printed(environment, "delete", name) == "removed 1 token\n"
        assert server.get(name) == NOT_FOUND
        printed(environment, "delete", name, status=1)
        assert server.post(name, "erased") == STORED
        assert "erased a token" in printed(environment, "erase", name)
        assert server.get(name) == NOT_FOUND
        assert "0 tokens checked\nthe store is sound" in printed(environment, "verify")
        assert json.loads(printed(environment, "stats", "--json"))["walk"]["last"]["tokens"] == 0
        assert "0 tokens and 0 sessions; the present one is at " in printed(environment, "stats")
        if name == "here":
            found_by_doctor = said(examine(environment=environment), "Store")
            assert re.search(r"(?m)^the last walk over all rows ended at \S+Z, with 0 tokens", found_by_doctor)


def test_a_store_moves_to_the_database_and_back_and_clients_notice_nothing(serve, url, tmp_path):
    access, key = session_settings(tmp_path / "keys")
    server = serve(access)
    session = API(server, key).session("anna")
    assert exchange(server.address, store("of anna", bearer(session))).body == STORED
    tag = exchange(server.address, fetch(bearer(session))).headers["etag"]
    for number in range(700):
        assert API(server, key).put(f"user{number}", f"info {number}").status == 200
    assert server.stop() == 0
    copied = copy(server.data, url)
    assert "701 tokens and 1 session copied and verified" in copied and f"sealed with the key ring {server.data}/keys\n" in copied
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


def test_no_server_uses_the_store_before_a_copy_is_complete_and_one_that_was_killed_continues(serve, url, postgres, tmp_path):
    access, key = session_settings(tmp_path / "keys")
    server = serve(access)
    for number in range(1_100):
        assert API(server, key).put(f"id{number}", f"info {number}").status == 200
    token = API(server, key).session("anna")
    assert server.stop() == 0
    settings = settings_of(url, server.data)
    with postgres.session() as session:
        # Holds up the copy at its second transaction, which adds the session.
        session.sql("BEGIN")
        session.sql("LOCK TABLE session IN SHARE MODE")
        process = subprocess.Popen(
            [binary(), "copy", "--from", str(server.data), "--to", url], env=clean_environment(), stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL, stdin=subprocess.DEVNULL)
        until(lambda: postgres.value("SELECT count(*) FROM token") == "1000" or process.poll() is not None)
        process.send_signal(signal.SIGKILL)
        assert process.wait() == -signal.SIGKILL
    for command in (["serve", "--listen", "127.0.0.1:0"], ["stats"], ["get", "id7"]):
        refused = run(*command, environment={**settings, "TOKEN_CACHE_ADMIN_LISTEN": "off"})
        assert refused.returncode == 1 and "token-cache copy has not filled the store completely" in refused.stderr, refused
    # The process of the database ends when its statement does.
    locked = ("SELECT count(*) FROM pg_locks JOIN pg_database ON database = pg_database.oid"
              " WHERE locktype = 'advisory' AND datname = current_database()")
    until(lambda: postgres.value(locked) == "0")
    assert "1,100 tokens and 1 session copied" in copy(server.data, url)
    moved = serve({**access, "store": {"url": url}}, data=folder_beside(server.data, tmp_path))
    assert exchange(moved.address, fetch(bearer(token))).body == NOT_FOUND
    assert printed(settings, "get", "id7") == "info 7\n"


ROLES = Path(__file__).parents[2] / "deploy" / "postgresql" / "roles.sql"


# Tables and roles

def settings(url):
    return {"store": {"url": url}}


def failure(*command):
    done = run(*command)
    assert (done.returncode, done.stdout) == (1, ""), done
    return done.stderr


def served(server):
    """Whether a server stores a token and then finds it."""
    name = fresh_id()
    stored = server.post(name, "token")
    return stored == STORED and server.get(name) == found("token")


@pytest.mark.usefixtures("pass_file")
def test_a_start_without_tables_says_how_to_make_them_and_makes_none(postgres, serve, tmp_path):
    def migrate(*arguments):
        done = run("migrate", "--url", postgres.url(), "--data-directory", str(tmp_path / "none"), *arguments)
        assert (done.returncode, done.stderr) == (0, ""), done
        return done.stdout

    message = failure("serve", "--listen", "127.0.0.1:0", "--config", write(tmp_path, settings(postgres.url())))
    assert "has no tables of token-cache" in message and "make them with token-cache migrate" in message
    assert postgres.sql("SELECT 1 FROM pg_class WHERE relname IN ('store', 'token')") == []
    assert migrate() == "the tables are made, with schema 4\n"
    assert migrate() == "the tables have schema 4, as this version needs\n"
    assert json.loads(migrate("--json")) == {"is_new": False, "version": 4}
    assert served(serve(settings(postgres.url())))


def write(folder, values):
    path = folder / "settings.yaml"
    path.write_text(json.dumps({"data_directory": str(folder / "data"), "admin": {"listen": "off"}, **values}))
    return str(path)


def test_the_roles_have_what_they_need_and_nothing_else(postgres, pass_file, serve, tmp_path):
    database, owner, server = (f"{postgres.name}_{part}" for part in ("tokens", "owner", "server"))
    arguments, variables = psql.command(postgres.server, "postgres", SUPERUSER)
    names = [f"--set={name}={value}" for name, value in (("database", database), ("owner", owner), ("server", server))]
    try:
        for _ in range(2):
            done = subprocess.run(
                [*arguments, *names, f"--file={ROLES}"], env=variables, cwd="/", capture_output=True, text=True, timeout=60,
                check=False)
            assert done.returncode == 0, done
        for role in (owner, server):
            postgres.server.create_role(role, f"password of {role}")
        pass_file()
        url = postgres.server.url(server, database)
        config = write(tmp_path, settings(url))

        message = failure("migrate", "--config", config)
        assert f"the role {server} may not make the tables (permission denied for schema {server}" in message
        assert "roles.sql" in message
        owner_url = postgres.server.url(owner, database)
        done = run("migrate", "--url", owner_url)
        assert done.stdout == "the tables are made, with schema 4\n", done
        postgres.server.sql(f'REVOKE INSERT ON token FROM "{server}"', database, owner)
        message = failure("serve", "--listen", "127.0.0.1:0", "--config", config)
        assert f"the role {server} lacks privileges (INSERT on token): " in message
        remedy = message[message.index("GRANT"):message.index("; for tables")]
        postgres.server.sql(remedy, database, owner)
        running = serve(settings(url))
        assert served(running)
        for statement in (
                "DROP TABLE token", "TRUNCATE token", "ALTER TABLE token ADD COLUMN a int",
                "CREATE TABLE a (a int)", "CREATE SCHEMA a",
                f"ALTER ROLE {server} CREATEROLE"):
            with pytest.raises(psql.SQLError, match="42501"):
                postgres.server.sql(statement, database, server)
        # No other role may connect.
        with pytest.raises(psql.SQLError, match="permission denied for database"):
            postgres.server.sql("SELECT 1", database, postgres.user)
        running.stop()
    finally:
        postgres.server.drop_database(database)


def test_rows_that_row_level_security_hides_are_not_taken_for_none(serve, url, postgres, tmp_path):
    server = serve({"store": {"url": url}, "cache": {"max_bytes": 0}})
    assert server.post("me", "hello") == STORED
    elsewhere = settings_of(url, folder_beside(server.data, tmp_path))
    postgres.sql("ALTER TABLE token ENABLE ROW LEVEL SECURITY; ALTER TABLE token FORCE ROW LEVEL SECURITY")
    assert "retry-after" in exchange(server.address, get("me")).headers
    for command in (["verify"], ["get", "me"], ["keyring", "add"]):
        done = run(*command, environment=elsewhere)
        assert done.returncode == 1 and "row-level security may hide rows of token" in done.stderr, done
    postgres.sql("ALTER TABLE token DISABLE ROW LEVEL SECURITY")
    until(lambda: server.get("me") == found("hello"))
    printed(elsewhere, "verify")


def test_servers_that_are_stopped_while_they_connect_end_well(url, serve, tmp_path):
    # Threads that dial are then inside libpq or OpenSSL, and the end of the process does not wait for them.
    values = {**settings(url), "sealing": {"key_ring": str(tmp_path / "keys")}}
    assert serve(values).stop() == 0
    with ThreadPoolExecutor(4) as threads:
        assert list(threads.map(lambda _: serve(values).stop(), range(8))) == [0] * 8


# Keys

def test_commands_that_add_a_key_at_once_do_not_undo_each_other(url, postgres, shim_library, tmp_path):
    with StorageShim(shim_library, tmp_path / "simulated") as disk:
        disk.data.mkdir(mode=0o700)
        disk.set(sync_delay_microseconds=20_000)
        environment = {**settings_of(url, disk.data), **disk.environment}
        printed(environment, "put", "a", "b")
        for _ in range(3):
            with ThreadPoolExecutor(3) as threads:
                ended = list(threads.map(lambda _: run("keyring", "add", environment=environment).returncode, range(3)))
            assert sorted(ended) == [0, 1, 1], "the others are told that a key waits"
            in_file = re.findall(r"(?m)^\d+(?= )", (disk.data / "keys").read_text())
            assert in_file == [number for number, in postgres.sql("SELECT number FROM sealing_key WHERE number > 0 ORDER BY number")]
            printed(environment, "keyring", "rotate")


def of_server(server, *command):
    done = run(*command, "--config", str(server.folder / "token-cache.yaml"))
    assert (done.returncode, done.stderr) == (0, ""), done
    return done.stdout


def refused_by(server, *command):
    done = run(*command, "--config", str(server.folder / "token-cache.yaml"))
    assert done.returncode == 1, done
    return done.stderr


def stored(server, name):
    return server.post(name, f"token of {name}") == STORED


def test_a_new_key_is_brought_to_all_servers_and_told_to_seal_and_the_old_one_goes(url, postgres, serve, tmp_path):
    first = serve(settings(url))
    second = serve(settings(url), data=folder_beside(first.data, tmp_path))
    assert stored(first, "old") and second.get("old") == found("token of old")

    assert "key 2 is in the key ring and waits" in of_server(first, "keyring", "add")
    assert "waits for keyring rotate" in of_server(first, "keyring", "list").splitlines()[1]
    assert stored(first, "waiting") and postgres.value("SELECT max(key_number) FROM token") == "1"
    assert "was added before, and waits" in refused_by(first, "keyring", "add")
    assert "key 2 was added on another server" in refused_by(second, "keyring", "add")
    assert "make it with token-cache keyring add" in refused_by(second, "keyring", "rotate")

    shutil.copy(first.data / "keys", second.data / "keys")
    told = of_server(second, "keyring", "rotate")
    assert told.startswith("key 2 seals from now on; 2 tokens checked, all encrypted with it\nkey 1 is retired")
    assert len(of_server(second, "keyring", "list").splitlines()) == 1
    assert postgres.sql("SELECT number FROM sealing_key WHERE number > 0") == [("2",)]
    for server in (first, second):
        until(lambda: "key 2 seals from now on" in server.log())
        assert stored(server, f"new on {server.address}")
        assert server.get("old") == found("token of old")
    assert postgres.sql("SELECT key_number, count(*) FROM token GROUP BY 1 ORDER BY 1") == [("2", "4")]
    shutil.copy(second.data / "keys", first.data / "keys")
    until(lambda: len(of_server(first, "keyring", "list").splitlines()) == 1)
    assert first.get("old") == found("token of old")


# The doctor

@pytest.mark.usefixtures("pass_file")
def test_a_database_without_tables_is_told_how_it_gets_them(postgres, tmp_path):
    report = examine(environment=settings_of(postgres.url(), tmp_path / "data"))
    fine, problem = said(report, "Database"), said(report, "Database", "problem")
    assert "is the primary: PostgreSQL " in fine and "agrees with this machine's" in fine
    assert "has no tables of token-cache" in problem and "\n" not in problem and said(report, "Database", "warning") == ""
    assert any("token-cache migrate" in advice for advice in advices(report))
    assert not (tmp_path / "data").exists()
