"""A rolling upgrade from version 1.0: servers of both versions share a database, and nothing is lost.

Needs a 1.0 that was built with PostgreSQL: TOKEN_CACHE_1_0_BINARY is its path.
"""
import os
import time

import pytest

from contract import NOT_FOUND, STORED, found
from postgres_store import PostgresStore
from registers import Load
from server_process import until

FORMER = os.environ.get("TOKEN_CACHE_1_0_BINARY")
pytestmark = pytest.mark.skipif(not FORMER, reason="TOKEN_CACHE_1_0_BINARY names no program of version 1.0")
RETENTION = {"retention": {"after_written": "1d"}}
INDEXES = "SELECT relname FROM pg_class WHERE relname IN ('token_by_removal', 'token_by_writing', 'session_by_use')"


class MixedStore(PostgresStore):
    """A store whose servers have different versions."""

    def serve_as(self, program, name, *arguments, **options):
        present, self.program = self.program, program
        try:
            return self.serve(name, *arguments, **options)
        finally:
            self.program = present

    def migrate_as(self, program):
        present, self.program = self.program, program
        self.migrate()
        self.program = present


@pytest.fixture(name="store")
def store_of_the_former_version(postgres, postgres_binary, tmp_path):
    with MixedStore(FORMER, tmp_path / "store", postgres) as store:
        yield store


def command(store, program, server, *arguments):
    present, store.program = store.program, program
    done = store.run(*arguments, "--config", str(server.folder / "token-cache.yaml"))
    store.program = present
    assert done.returncode == 0, done
    return done.stdout


def test_servers_of_both_versions_share_a_database_before_and_after_it_is_migrated(store, postgres, postgres_binary):
    postgres.sql("CREATE INDEX token_by_writing ON token (written_at)")
    former = store.serve("former", RETENTION)
    for name in ("old", "expired", "removed"):
        assert former.post(name, f"{name} token") == STORED
    command(store, FORMER, former, "delete", "removed")
    new = store.serve_as(postgres_binary, "new", RETENTION)
    until(lambda: "run token-cache migrate" in new.log())
    with Load([former, new], clients=8) as load:
        load.go_on()
        store.migrate_as(postgres_binary)
        load.go_on()
        assert postgres.sql(INDEXES) == []
        # What one server writes, the other reads.
        for one, other, name in ((former, new, "from-former"), (new, former, "from-new"), (former, new, "old")):
            assert one.post(name, f"by {one.folder.name}") == STORED
            assert other.get(name) == found(f"by {one.folder.name}")
        assert {server.get("removed") for server in (former, new)} == {NOT_FOUND}
        # The walk deletes, seals and retires beside a server of the former version.
        age = 2 * 86_400
        postgres.sql(
            f"UPDATE token SET written_at = written_at - {age} WHERE version = (SELECT min(version) FROM token WHERE value IS NOT NULL)")
        command(store, postgres_binary, new, "keyring", "add")
        until(lambda: len(command(store, FORMER, former, "keyring", "list").splitlines()) == 2)
        told = command(store, postgres_binary, new, "keyring", "rotate")
        assert "key 1 is retired" in told, told
        load.go_on()
        time.sleep(4)
        load.go_on()
    load.raise_mistakes()
    assert (load.failed_writes, load.failed_reads) == (0, 0)
    load.check()
    assert former.get("expired") == new.get("expired") == NOT_FOUND
    assert postgres.value(f"SELECT count(*) FROM token WHERE written_at < {int(time.time()) - age + 3_600}") == "0"
    assert {former.get("from-new"), new.get("from-new")} == {found("by new")}
    # The way back: a server of the former version starts on the new tables.
    assert new.stop() == 0
    again = store.serve("again", RETENTION)
    assert again.get("from-new") == found("by new")
    assert again.post("back", "token") == STORED
    assert former.get("back") == found("token")
    for server in (former, again):
        assert "error" not in server.log()
