"""The walk over all rows of a database: servers and primaries that end in the middle of a round lose and skip nothing."""
import threading

from contract import found
from postgres_store import PostgresStore
from server_process import run, until
from test_transfer import fill

# So long that a step has not more than 512 of them.
TOKENS, TEXT = 2_000, "x" * 8_192
# Holds up each step that seals rows again.
SLOW = ("CREATE FUNCTION wait() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN PERFORM pg_sleep(0.5); RETURN NULL; END $$",
        "CREATE TRIGGER wait AFTER UPDATE ON token FOR EACH STATEMENT EXECUTE FUNCTION wait()")
SEALED_AGAIN = "SELECT count(*) FROM token WHERE key_number = 2"


class Rotation(threading.Thread):
    """A `keyring rotate` that a server carries out."""

    def __init__(self, store, server):
        super().__init__()
        self.store, self.server, self.done = store, server, None
        self.start()

    def run(self):
        self.done = run(
            "keyring", "rotate", "--config", str(self.server.folder / "token-cache.yaml"), environment=self.store.environment,
            program=self.store.program)


def command(store, server, *arguments):
    done = run(
        *arguments, "--config", str(server.folder / "token-cache.yaml"), environment=store.environment, program=store.program)
    assert done.returncode == 0, done
    return done.stdout


def begin(store, server, sql):
    """Lets a server rotate its keys, until it has sealed some rows again."""
    fill(server, range(TOKENS), TEXT)
    command(store, server, "keyring", "add")
    for statement in SLOW:
        sql(statement)
    rotation = Rotation(store, server)
    until(lambda: 0 < int(sql(SEALED_AGAIN)[0][0]) < TOKENS)
    return rotation


def check(server, sql):
    """All rows are sealed with the new key, the old one is retired, and every token is found."""
    assert sql(SEALED_AGAIN) == [(str(TOKENS),)]
    assert sql("SELECT number FROM sealing_key WHERE number > 0") == [("2",)]
    for number in range(0, TOKENS, 97):
        assert server.get(f"id{number}") == found(f"{TEXT} {number}")


def test_a_server_that_is_killed_in_the_middle_of_a_rotation_leaves_the_rest_to_another_one(postgres, postgres_binary, tmp_path):
    with PostgresStore(postgres_binary, tmp_path / "store", postgres) as store:
        first, second = store.serve("first"), store.serve("second")
        rotation = begin(store, first, postgres.sql)
        first.kill()
        rotation.join()
        assert rotation.done.returncode != 0
        assert 0 < int(postgres.value(SEALED_AGAIN)) < TOKENS
        command(store, second, "keyring", "rotate")
        check(second, postgres.sql)
        assert "the store is sound" in command(store, second, "verify")


def test_a_rotation_goes_on_after_a_failover(replicated_postgres, store_on):
    databases = replicated_postgres(standbys=2)
    store = store_on(databases)
    server = store.serve("server")

    def sql(text):
        return databases.primary.sql(text, "tokens")

    rotation = begin(store, server, sql)
    databases.failover("kill")
    rotation.join()
    assert rotation.done.returncode == 0, rotation.done
    check(server, sql)
