"""Servers of token-cache that keep their tokens in a PostgreSQL database.

    store = PostgresStore(postgres_binary, tmp_path / "store", postgres)     # makes the tables
    server = store.serve("server1", {"store": {"timeout": "1s"}})            # any number of servers share the tokens
    store.close()                                                            # fails if one of them has ended by itself

The servers share a key ring, as the rows of all are sealed with it.
"""
import contextlib
import itertools
import re
from pathlib import Path
from types import SimpleNamespace

from administration import ADMINISTRATION, metrics
from postgres_cluster import NamedDatabase
from server_process import Server, finish, run, until

# What a server logs if it cannot use its database.
TROUBLE = re.compile(r"the database cannot be|PostgreSQL has no usable primary")


def has_tried_to_connect(server):
    """Whether a server has all its connections, or has logged why not.

    Earlier requests wait for a connection, and fail if a busy machine makes none within store.timeout.
    """
    open_now, wanted = (metrics(server)[f'token_cache_database_connections{{state="{state}"}}'] for state in ("open", "wanted"))
    return open_now == wanted or TROUBLE.search(server.log())


class PostgresStore:
    """A database with the tables of token-cache, and servers that use it.

    - program: one that was built for PostgreSQL.
    - database: a `NamedDatabase`.
    - url: where the servers connect to, if that is not the database itself but a proxy for it, say.
    """

    def __init__(self, program, folder, database, url=None):
        self.program, self.folder, self.database = program, Path(folder), database
        self.folder.mkdir(parents=True, exist_ok=True)
        self.environment = {
            "TOKEN_CACHE_STORE_URL": url or database.url(),
            "TOKEN_CACHE_SEALING_KEY_RING": str(self.folder / "key-ring"),
            "PGPASSFILE": database.pass_file(self.folder / "passwords"),
        }
        self.servers = []
        self.migrate()

    def __enter__(self):
        return self

    def __exit__(self, *_):
        # For the report, if the test has failed.
        for server in self.servers:
            print(f"{server.folder.name}:\n{server.log()}")
        self.close()

    def migrate(self):
        """Makes the tables, as the role that owns the database."""
        done = run(
            "migrate", environment={**self.environment, "TOKEN_CACHE_STORE_URL": self.database.url()}, program=self.program)
        assert done.returncode == 0, done.stderr

    def serve(self, name, settings=None, *flags, environment=None, **options):
        """Starts a server: a `Server` with its own folder, and with administration; waits until it has tried to connect."""
        server = Server(
            self.folder / name, {**ADMINISTRATION, **(settings or {})}, *flags, environment={**self.environment, **(environment or {})},
            program=self.program, **options)
        self.servers.append(server)
        until(lambda: has_tried_to_connect(server))
        return server

    def run(self, *arguments, **options):
        """Runs a command on the database."""
        return run(*arguments, environment=self.environment, program=self.program, **options)

    def close(self):
        """Ends the servers; fails if one had ended by itself."""
        with contextlib.ExitStack() as ends:
            for server in self.servers:
                ends.callback(finish, server)


class OwnSchema(NamedDatabase):
    """A role with tables of its own in a database that it shares with others; made in a fraction of the time of a database."""
    numbers = itertools.count(1)

    def __init__(self, server):
        self.server, self.name = server, "postgres"
        self.user = f"tenant{next(self.numbers)}"
        server.create_role(self.user, f"password of {self.user}")
        # Where its search_path leads first.
        server.sql(f"CREATE SCHEMA {self.user} AUTHORIZATION {self.user}")

    def drop(self):
        self.server.sql(f"DROP SCHEMA {self.user} CASCADE")


class TablesForFolders:
    """Tables in the place of the data folders in which servers would keep their tokens.

    While it is entered, every server that a test starts uses PostgreSQL, and those with the same data folder the same
    tables: tests that were written for the store in the data folder run on PostgreSQL as they are.
    """

    def __init__(self, program, folder, postgres_server):
        self.program, self.folder, self.postgres_server = program, Path(folder), postgres_server
        self.stores = {}

    def place(self, data):
        """What a server with a data folder gets."""
        if data not in self.stores:
            tables = OwnSchema(self.postgres_server)
            self.stores[data] = PostgresStore(self.program, self.folder / tables.user, tables)
        # A key ring is in the data folder, as ever.
        environment = {
            name: value for name, value in self.stores[data].environment.items() if name != "TOKEN_CACHE_SEALING_KEY_RING"}
        return SimpleNamespace(environment=environment, program=self.program, database=self.stores[data].database)

    def __enter__(self):
        self.before = vars(Server)["place"]
        Server.place = self.place
        return self

    def __exit__(self, *_):
        Server.place = self.before
        for store in self.stores.values():
            store.database.drop()
