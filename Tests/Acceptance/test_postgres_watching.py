"""What operators are told of a PostgreSQL database: token-cache doctor."""
import json

from postgres_cluster import Postgres
from postgres_pooler import PgBouncer
from server_process import run

NOWHERE = {"TOKEN_CACHE_LISTEN": "127.0.0.1:0", "TOKEN_CACHE_ADMIN_LISTEN": "off"}


def examine(program, url, folder, pass_file, **settings):
    """What the doctor says of the database: state, text and advice of each finding."""
    given = {f"TOKEN_CACHE_STORE_{name.upper()}": value for name, value in settings.items()}
    done = run(
        "doctor", "--json", "--data-directory", str(folder / "data"), program=program,
        environment={**NOWHERE, "TOKEN_CACHE_STORE_URL": url, "PGPASSFILE": pass_file, **given})
    assert done.stderr == "", done.stderr
    findings = json.loads(done.stdout)["findings"]
    assert all(bool(finding["advice"]) == (finding["state"] != "ok") for finding in findings)
    return [(finding["state"], finding["text"], finding["advice"]) for finding in findings if finding["topic"] == "Database"]


def found(findings, state, text, advice=""):
    return any(finding[0] == state and text in finding[1] and advice in finding[2] for finding in findings)


def test_a_database_without_tables_is_told_how_it_gets_them(postgres_binary, postgres, tmp_path):
    findings = examine(postgres_binary, postgres.url(), tmp_path, postgres.pass_file(tmp_path / "pass"))
    assert found(findings, "ok", "is the primary: PostgreSQL ")
    assert found(findings, "ok", "agrees with this machine's")
    assert found(findings, "problem", "has no tables of token-cache", "token-cache migrate")
    assert len([finding for finding in findings if finding[0] != "ok"]) == 1
    assert not (tmp_path / "data").exists()


def test_a_wrong_password_is_told_of_and_not_shown(postgres_binary, postgres, tmp_path):
    (tmp_path / "pass").write_text("*:*:*:*:canary4711\n")
    (tmp_path / "pass").chmod(0o600)
    findings = examine(postgres_binary, postgres.url(), tmp_path, str(tmp_path / "pass"))
    assert found(findings, "problem", "SQLSTATE 28P01", "check the password")
    assert found(findings, "problem", "no host of store.url takes writes")
    assert "canary" not in json.dumps(findings)


def test_a_host_that_is_down_is_named(postgres_binary, replicated_postgres, tmp_path):
    databases = replicated_postgres(1)
    databases.create_role("app", "secret")
    databases.create_database("tokens", "app")
    pass_file, url = databases.pass_file(tmp_path / "pass"), databases.url("app", "tokens")
    standby, = databases.standbys
    databases.wait_until_equal(standby)
    findings = examine(postgres_binary, url, tmp_path, pass_file)
    assert found(findings, "ok", f":{standby.port} is a standby: PostgreSQL ")
    assert found(findings, "ok", "1 standby is connected to ")
    # As roles.sql says.
    databases.sql("GRANT pg_read_all_stats TO app")
    primary = f"{databases.primary.address}:{databases.primary.port}"
    findings = examine(postgres_binary, url, tmp_path, pass_file)
    assert found(findings, "ok", f"1 standby is connected to {primary}: {standby.name}")
    standby.kill()
    findings = examine(postgres_binary, url, tmp_path, pass_file)
    assert found(findings, "warning", f":{standby.port} is of no use", "can be reached from this machine")
    assert found(findings, "problem", "no standby is connected", "attach a standby")


def test_what_would_lose_tokens_is_a_problem(postgres_binary, tmp_path):
    with Postgres(tmp_path / "postgres", settings={"fsync": "off"}) as server:
        server.create_role("app", "secret")
        server.create_database("tokens", "app")
        pass_file, url = server.pass_file(tmp_path / "pass"), server.url("app", "tokens")
        findings = examine(postgres_binary, url, tmp_path, pass_file, durability="synchronous")
        assert found(findings, "problem", "fsync is off", "set it to on")
        assert found(findings, "problem", "synchronous_standby_names is empty", "store.durability: local")
        assert found(examine(postgres_binary, url, tmp_path, pass_file), "warning", "fsync is off", "set it to on")


def test_a_pooler_is_recognized(postgres_binary, postgres, tmp_path):
    with PgBouncer(tmp_path, postgres.server) as pooler:
        url = pooler.url(postgres.user, postgres.name)
        findings = examine(postgres_binary, url, tmp_path, postgres.pass_file(tmp_path / "pass"))
        assert found(findings, "ok", "is a pooler, such as PgBouncer; its pool_mode has to be session")
