"""The table of tokens is divided into parts while servers use it, and serves on as before."""
import json
import subprocess
from pathlib import Path

import psql
from contract import NOT_FOUND, STORED, found
from postgres_store import PostgresStore
from registers import Load
from test_postgres_walk import command
from test_transfer import fill

SCRIPT = Path(__file__).parents[2] / "deploy" / "postgresql" / "partitions.sql"
PARTS = 16
TOKENS, TEXT = 3_000, "x" * 1_200
MISSING = "SELECT count(*) FROM token WHERE ctid < '({},0)' AND NOT EXISTS (SELECT FROM token_divided WHERE key = token.key)"
# What the script's head says to give it up.
GIVING_UP = ("SET LOCAL lock_timeout = '2s'", "DROP FUNCTION divide_token CASCADE", "DROP TABLE token_divided")
# Stops after a page of the old table.
STEP = "        COMMIT;\n"
STOP = STEP + "        IF page >= {} THEN RAISE EXCEPTION 'stopped'; END IF;\n"


def divide(postgres, script=SCRIPT):
    arguments, variables = psql.command(postgres.server, postgres.name, postgres.user)
    return subprocess.run(
        [*arguments, f"--set=parts={PARTS}", f"--file={script}"], env=variables, cwd="/", capture_output=True,
        text=True, timeout=120, check=False)


def test_a_table_is_divided_beside_servers_that_write(postgres, postgres_binary, tmp_path):
    with PostgresStore(postgres_binary, tmp_path / "store", postgres) as store:
        servers = [store.serve(name) for name in ("first", "second")]
        first, second = servers
        fill(first, range(TOKENS), TEXT)
        command(store, first, "delete", "id7")
        command(store, first, "keyring", "add")
        postgres.server.create_role(reader := f"{postgres.name}_reader", "unused")
        postgres.sql(f'GRANT SELECT, INSERT ON token TO "{reader}"')
        for tables in ("TABLE token", "ALL TABLES"):
            postgres.sql(f"CREATE PUBLICATION published FOR {tables}")
            assert "a publication has the table token" in divide(postgres).stderr
            postgres.sql("DROP PUBLICATION published")
        with Load(servers, clients=16) as load:
            load.go_on()
            # It is stopped in the middle: each time, servers go on, and what was copied is kept.
            for page in (100, 100, 300):
                stopped = tmp_path / "stopped.sql"
                stopped.write_text(SCRIPT.read_text().replace(STEP, STOP.format(page)))
                done = divide(postgres, stopped)
                assert "stopped" in done.stderr and done.returncode != 0, done
                assert postgres.value(MISSING.format(page)) == "0"
                load.go_on()
            # It is given up, and, at another time, only by half: then servers have written what the new table lacks.
            assert all(statement in SCRIPT.read_text() for statement in GIVING_UP)
            postgres.sql("BEGIN; " + "; ".join(GIVING_UP) + "; COMMIT", user=postgres.user)
            load.go_on()
            assert "stopped" in divide(postgres, stopped).stderr
            postgres.sql(GIVING_UP[1], user=postgres.user)
            assert first.post("id3", "later") == STORED
            done = divide(postgres)
            assert done.returncode == 0, done
            load.go_on()
            assert postgres.value("SELECT count(*) FROM pg_partition_tree('token') WHERE isleaf") == str(PARTS)
            # What servers wrote in the meantime, on their open connections too, is in the new table.
            command(store, first, "keyring", "rotate")
            load.go_on()
        load.raise_mistakes()
        load.check()
        assert load.failed_writes == 0
        privileges = "SELECT has_table_privilege('{}', 'token', privilege) FROM unnest(ARRAY['INSERT', 'DELETE']) AS privilege"
        assert postgres.sql(privileges.format(reader)) == [("t",), ("f",)]
        assert postgres.sql("SELECT relname FROM pg_class WHERE relname LIKE 'token\\_%divided%'") == []
        assert postgres.sql("SELECT tgname FROM pg_trigger WHERE tgrelid = 'token'::regclass AND NOT tgisinternal ORDER BY 1") \
            == [("check_key",), ("check_new_key",)]
        assert postgres.sql("SELECT DISTINCT key_number FROM token WHERE value IS NOT NULL") == [("2",)]
        assert second.get("id3") == found("later")
        for number in range(0, TOKENS, 97):
            assert second.get(f"id{number}") == found(f"{TEXT} {number}")
        assert second.get("id7") == NOT_FOUND
        assert "the store is sound" in command(store, second, "verify")
        # The program finds the parts where it looks for the table.
        store.migrate()
        told = json.loads(command(store, second, "stats", "--json"))
        assert TOKENS <= told["tokens"] and told["database_bytes"] > TOKENS * len(TEXT), told
        assert second.post("id7", "again") == STORED
        third = store.serve("third")
        assert third.get("id7") == found("again")
        done = divide(postgres)
        assert done.returncode == 0 and "divided already" in done.stdout
