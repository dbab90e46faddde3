"""The tables in PostgreSQL: who makes them, and what a server says of them."""
import json
import subprocess
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

import psql
from contract import STORED, WRITE_FAILED, found, fresh_id
from http_client import exchange, get, post
from postgres_programs import SUPERUSER
from server_process import run, until

ROLES = Path(__file__).parents[2] / "deploy" / "postgresql" / "roles.sql"


@pytest.fixture(autouse=True)
def program(postgres_binary, monkeypatch):
    """Has all of these tests use the program with PostgreSQL."""
    monkeypatch.setenv("TOKEN_CACHE_BINARY", postgres_binary)


@pytest.fixture
def pass_file(postgres, tmp_path, monkeypatch):
    """Gives commands and servers the passwords of all roles there are."""
    path = tmp_path / "pass"
    monkeypatch.setenv("PGPASSFILE", str(path))
    postgres.server.pass_file(path)
    return lambda: postgres.server.pass_file(path)


@pytest.fixture
def migrate(postgres, pass_file, tmp_path):
    """A function that runs the command for the test's database, and returns what it prints."""
    def run_it(*arguments, url=None):
        done = run("migrate", "--url", url or postgres.url(), "--data-directory", str(tmp_path / "none"), *arguments)
        assert (done.returncode, done.stderr) == (0, ""), done
        return done.stdout
    return run_it


def settings(url):
    return {"store": {"url": url}}


def refusal(*command):
    done = run(*command)
    assert (done.returncode, done.stdout) == (1, ""), done
    return done.stderr


def served(server):
    """Whether a server stores a token and finds it."""
    name = fresh_id()
    stored = exchange(server.address, post(name, "token")).body
    return stored == STORED and exchange(server.address, get(name)).body == found("token")


def test_a_start_without_tables_says_how_to_make_them_and_makes_none(postgres, migrate, serve, tmp_path):
    message = refusal("serve", "--listen", "127.0.0.1:0", "--config", write(tmp_path, settings(postgres.url())))
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

        message = refusal("migrate", "--config", config)
        assert f"the role {server} may not make the tables (permission denied for schema {server}" in message
        assert "roles.sql" in message
        owner_url = postgres.server.url(owner, database)
        done = run("migrate", "--url", owner_url)
        assert done.stdout == "the tables are made, with schema 4\n", done
        message = refusal("serve", "--listen", "127.0.0.1:0", "--config", config)
        assert f"the role {server} lacks privileges: SELECT on token, INSERT on token, " in message
        assert f"token-cache migrate --server-role {server}" in message

        # The servers' role is that of their settings.
        done = run("migrate", "--url", owner_url, "--config", config)
        assert done.stdout.endswith(f"the role {server} has what servers need\n"), done
        running = serve(settings(url))
        assert served(running)
        for statement in (
                "DROP TABLE token", "TRUNCATE token", "ALTER TABLE token ADD COLUMN a int", "DELETE FROM store",
                "INSERT INTO store VALUES (1, 2, NULL, true, NULL)", "CREATE TABLE a (a int)", "CREATE SCHEMA a",
                f"ALTER ROLE {server} CREATEROLE"):
            with pytest.raises(psql.SQLError, match="42501"):
                postgres.server.sql(statement, database, server)
        # Nobody else comes in.
        with pytest.raises(psql.SQLError, match="permission denied for database"):
            postgres.server.sql("SELECT 1", database, postgres.user)
        running.stop()
    finally:
        postgres.server.drop_database(database)


def test_tables_of_another_version_are_refused_by_all_and_left_alone(postgres, migrate, serve):
    migrate()
    server = serve(settings(postgres.url()))
    assert served(server)
    postgres.sql("UPDATE store SET schema_version = 1")
    text = "the database has schema 1, and this version of token-cache reads and writes schema 4 only: run the version that made it"
    until(lambda: text in server.log())
    server.stop()
    config = str(server.folder / "token-cache.yaml")
    for command in (("migrate", "--url", postgres.url()), ("stats", "--config", config), ("serve", "--config", config)):
        assert text in refusal(*command)
    assert postgres.value("SELECT schema_version FROM store") == "1"


def test_servers_that_are_stopped_while_they_connect_end_well(postgres, migrate, serve, tmp_path):
    # Threads that dial are in the middle of libpq and OpenSSL then, and nobody waits for them.
    migrate()
    values = {**settings(postgres.url()), "sealing": {"key_ring": str(tmp_path / "keys")}}
    assert serve(values).stop() == 0
    with ThreadPoolExecutor(6) as threads:
        assert list(threads.map(lambda _: serve(values).stop(), range(30))) == [0] * 30


def test_migrate_makes_the_indexes_that_the_retention_needs(postgres, migrate, tmp_path):
    def indexes():
        return postgres.sql("SELECT indexname FROM pg_indexes WHERE indexname IN ('token_by_writing', 'token_by_expiration')")

    migrate()
    assert indexes() == []
    migrate("--config", write(tmp_path, {**settings(postgres.url()), "retention": {"after_written": "30d"}}))
    assert indexes() == [("token_by_writing",)]


def test_migrate_says_what_is_wrong_with_its_arguments(tmp_path, postgres, pass_file):
    message = refusal("migrate", "--data-directory", str(tmp_path))
    assert "this store needs no migration" in message and "store.url" in message
    message = refusal("migrate", "--url", "postgresql://owner:s3cret@db/tokens")
    assert "the URL of --url has a password in it" in message and "s3cret" not in message
    message = refusal("migrate", "--url", postgres.url(), "--server-role", "nobody at all")
    assert "there is no role nobody at all" in message
