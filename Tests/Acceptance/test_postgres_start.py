"""Starts with a PostgreSQL URL: while the database cannot be used, without the trait, and with passwords from everywhere."""
import os
import subprocess
from pathlib import Path

import pytest

from administration import readiness
from contract import NOT_FOUND, STORED, WRITE_FAILED, found
from postgres_cluster import Postgres
from postgres_programs import SUPERUSER
from server_process import run, until
from service_manager import Messages
from test_postgres_faults import troubles

UNREACHABLE = "error: the database cannot be reached, and clients are told that tokens can be neither stored nor read"
UNUSABLE = "error: the database cannot be used, and clients are told that tokens can be neither stored nor read"


@pytest.fixture(name="database")
def own_server(tmp_path):
    with Postgres(tmp_path) as server:
        yield server


@pytest.fixture(name="store")
def store_of_a_stopped_database(database, store_on):
    store = store_on(database)
    database.stop()
    return store


def answers(server):
    """What a POST and a GET are answered."""
    return server.post("me", "x"), server.get("me")


def reasons(server):
    """Why the server is not ready; empty if it is."""
    status, answer = readiness(server)
    assert (status == 200) == (not answer["reasons"])
    return " ".join(answer["reasons"])


def test_a_server_that_starts_before_its_database_serves_as_soon_as_it_is_there(store, database, tmp_path):
    with Messages(f"@token-cache-test-{os.getpid()}-{tmp_path.name}") as messages:
        servers = [
            store.serve(name, environment={"NOTIFY_SOCKET": messages.address} if name == "first" else None)
            for name in ("first", "second")]
        messages.wait("READY")
        for server in servers:
            assert answers(server) == (WRITE_FAILED, NOT_FOUND)
            until(lambda server=server: "Connection refused" in reasons(server))
            # On a busy machine an attempt may fail for another reason first; a later line then names this one.
            assert troubles(server) and all(line.startswith(UNREACHABLE) for line in troubles(server))
        # Only the database knows whether there is one.
        assert not (store.folder / "key-ring").exists()
        refused = store.run("get", "me", "--data-directory", str(servers[0].data))
        assert refused.returncode == 1 and "Connection refused" in refused.stderr

        database.start()
        for server in servers:
            until(lambda server=server: not reasons(server))
    assert servers[0].post("me", "first") == STORED
    assert servers[1].get("me") == found("first")
    assert store.run("get", "me", "--data-directory", str(servers[0].data)).stdout == "first\n"
    assert sum("made the key ring" in server.log() for server in servers) == 1
    for server in servers:
        assert all(line.startswith(UNREACHABLE) for line in troubles(server)), troubles(server)
        assert "notice: connected to PostgreSQL" in server.log()


FAULTS = {
    "a wrong password": (
        lambda store, database: Path(store.environment["PGPASSFILE"]).write_text("*:*:*:app:wrong\n"),
        "SQLSTATE 28P01); check the password", lambda store, database: database.pass_file(store.environment["PGPASSFILE"])),
    "missing tables": (
        lambda store, database: database.sql("DROP TABLE store, token, session, sealing_key", "tokens", SUPERUSER),
        "has no tables of token-cache", lambda store, database: store.migrate()),
}


@pytest.mark.parametrize("spoil, text, mend", FAULTS.values(), ids=FAULTS)
def test_what_is_wrong_with_a_database_that_comes_later_is_said_and_can_be_mended(store, database, spoil, text, mend):
    database.start()
    spoil(store, database)
    database.stop()
    server = store.serve("server")
    until(lambda: "Connection refused" in reasons(server))
    database.start()
    until(lambda: text in reasons(server))
    assert answers(server) == (WRITE_FAILED, NOT_FOUND)
    until(lambda: UNUSABLE in server.log())
    *unreachable, line = troubles(server)
    assert all(earlier.startswith(UNREACHABLE) for earlier in unreachable)
    assert line.startswith(UNUSABLE) and text in line
    mend(store, database)
    until(lambda: not reasons(server))
    assert answers(server) == (STORED, found("x"))
    assert server.log().count(UNUSABLE) == 1


def test_a_server_that_waits_for_its_database_ends_when_it_is_told_to(store):
    server = store.serve("server")
    server.stop()
    assert "token-cache has stopped: SIGTERM received" in server.log()


DEPLOY = Path(__file__).parents[2] / "deploy"
URL = "postgresql://token_cache@db1.example,db2.example/tokens?sslmode=verify-full"
SECRET = "s3cret"


def environment(**values):
    return {f"TOKEN_CACHE_STORE_{name.upper()}": value for name, value in values.items()}


def refusal(*command, program=None, **options):
    """The error message of a command that must fail."""
    done = run(*command, program=program, **options)
    assert (done.returncode, done.stdout) == (1, ""), done
    assert done.stderr.startswith("token-cache: ") and done.stderr.count("\n") == 1, done.stderr
    return done.stderr


@pytest.mark.parametrize("script", ["build", "run"])
def test_a_trait_that_there_is_not_is_named(script):
    done = subprocess.run([str(DEPLOY / script), "--traits", "Postgres"], capture_output=True, text=True, timeout=60, check=False)
    assert (done.returncode, done.stdout) == (2, "")
    assert "there are --reproducible and --traits PostgreSQL" in done.stderr


# Without PostgreSQL

# Some commands check the ports of the settings; the default ones may be in use.
FREE_PORTS = {"TOKEN_CACHE_LISTEN": "127.0.0.1:0", "TOKEN_CACHE_ADMIN_LISTEN": "127.0.0.1:0"}


def test_a_program_without_postgresql_says_so(tmp_path):
    if "libpq" in run("doctor", "--data-directory", str(tmp_path / "data")).stdout:
        pytest.skip("this program was built with PostgreSQL")
    data = tmp_path / "data"
    for command in ("check-config", "serve", "stats", "restore backup.db"):
        message = refusal(*command.split(), "--data-directory", str(data), environment={**environment(url=URL), **FREE_PORTS})
        assert "TOKEN_CACHE_STORE_URL names a PostgreSQL database, and this token-cache was built without PostgreSQL" in message
        assert "deploy/build --traits PostgreSQL" in message
    report = run("doctor", "--data-directory", str(data), environment=environment(url=URL))
    assert report.returncode == 1 and "built without PostgreSQL" in report.stdout
    assert not (data / "tokens.db").exists()


# With PostgreSQL

def values(program, *, given=None, **settings):
    """What check-config prints, by key."""
    done = run("check-config", environment={**environment(**settings), **(given or {})}, program=program)
    assert (done.returncode, done.stderr) == (0, ""), done
    return dict(line.split(": ", 1) for line in done.stdout.splitlines())


def test_what_the_database_does_itself_is_told_with_its_tools(postgres_binary, tmp_path):
    message = refusal(
        "restore", "backup.db", "--data-directory", str(tmp_path / "data"), environment=environment(url=URL),
        program=postgres_binary)
    assert "this store cannot be restored by token-cache; use the tools of its database, for PostgreSQL pgBackRest" in message


CREDENTIALS = {
    "two lines": (b"a\nb\n", "is not one line of UTF-8 text"), "a folder": (None, "cannot be read"),
}


@pytest.mark.parametrize("content, text", CREDENTIALS.values(), ids=CREDENTIALS)
def test_a_credential_that_is_no_password_is_named(postgres_binary, tmp_path, content, text):
    file = tmp_path / "token-cache.postgresql-password"
    if content is None:
        file.mkdir()
    else:
        file.write_bytes(content)
    message = refusal(
        "check-config", environment={**environment(url=URL), "CREDENTIALS_DIRECTORY": str(tmp_path)},
        program=postgres_binary)
    assert f"the credential {file}, which has the password of the database, {text}" in message
    file.rmdir() if content is None else file.write_bytes(f"{SECRET}\n".encode())
    if content is not None:
        shown = values(postgres_binary, url=URL, given={"CREDENTIALS_DIRECTORY": str(tmp_path)})
        assert SECRET not in str(shown)


@pytest.mark.parametrize("source", ["credential", "PGPASSWORD", "PGPASSFILE", "passfile"])
def test_the_password_comes_from_where_it_is_not_shown(postgres_binary, postgres, serve, tmp_path, source):
    file = postgres.pass_file(tmp_path / "passwords")
    (tmp_path / "credentials").mkdir()
    (tmp_path / "credentials" / "token-cache.postgresql-password").write_text(f"{postgres.password}\n")
    given = {
        # It goes before all others.
        "credential": {"CREDENTIALS_DIRECTORY": str(tmp_path / "credentials"), "PGPASSWORD": "wrong"},
        "PGPASSWORD": {"PGPASSWORD": postgres.password, "PGPASSFILE": "/none"}, "PGPASSFILE": {"PGPASSFILE": str(file)},
        "passfile": {},
    }[source]
    url = postgres.url(passfile=str(file)) if source == "passfile" else postgres.url()
    assert run("migrate", "--url", postgres.url(passfile=str(file)), program=postgres_binary).returncode == 0
    server = serve({"store": {"url": url}, "log_level": "trace"}, program=postgres_binary, environment=given)
    until(lambda: server.post("me", "x") == STORED)
    assert postgres.password not in server.log() + server.output()
    assert postgres.password not in Path(f"/proc/{server.process.pid}/cmdline").read_text()


def test_a_credential_is_read_again_for_each_connection(postgres_binary, postgres, serve, tmp_path):
    file = tmp_path / "token-cache.postgresql-password"
    passwords = postgres.pass_file(tmp_path / "passwords")
    assert run("migrate", "--url", postgres.url(passfile=passwords), program=postgres_binary).returncode == 0
    file.write_text(postgres.password)
    server = serve(
        {"store": {"url": postgres.url()}}, program=postgres_binary, environment={"CREDENTIALS_DIRECTORY": str(tmp_path)})
    former = postgres.password
    postgres.server.create_role(postgres.user, SECRET)
    until(lambda: postgres.server.terminate(f"usename = '{postgres.user}'") == 0)
    until(lambda: "password authentication failed" in server.log())
    file.write_text(SECRET)
    until(lambda: server.post("me", "x") == STORED)
    assert SECRET not in server.log() and former not in server.log()
