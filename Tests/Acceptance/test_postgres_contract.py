"""The golden vectors of the contract with the store on PostgreSQL, also behind PgBouncer."""
import re

import pytest

from contract import WRITE_FAILED
from http_client import exchange, post
from postgres_cluster import Database
from postgres_pooler import PgBouncer, pooler_version
from postgres_store import PostgresStore
from server_process import until
from test_contract_vectors import CASES, check


@pytest.fixture(scope="module", name="server", params=["directly", "through PgBouncer"])
def shared_server(request, postgres_binary, postgres_server, tmp_path_factory):
    folder, database = tmp_path_factory.mktemp("contract"), Database(postgres_server)
    if request.param == "directly":
        with PostgresStore(postgres_binary, folder, database) as store:
            yield store.serve("server")
    else:
        with (
            PgBouncer(folder, postgres_server, pool_mode="session") as pooler,
            PostgresStore(postgres_binary, folder, database, pooler.url(database.user, database.name)) as store,
        ):
            yield store.serve("server")
    postgres_server.drop_database(database.name)


@pytest.mark.parametrize("case", CASES, ids=[case["id"] for case in CASES])
def test_a_recorded_case_is_answered_as_recorded(server, case):
    check(case, server, pieces=1)


def test_a_pooler_that_does_not_know_prepared_statements_is_named(postgres_binary, postgres, tmp_path):
    """It lends each transaction any of its connections, so statements are missing on some and there already on others."""
    if pooler_version() >= (1, 21):
        pytest.skip("this PgBouncer knows the prepared statements of its clients")
    with (
        PgBouncer(tmp_path, postgres.server, pool_mode="transaction") as pooler,
        PostgresStore(postgres_binary, tmp_path, postgres, pooler.url(postgres.user, postgres.name)) as store,
    ):
        server = store.serve("server", {"store": {"timeout": "1s"}})
        until(lambda: re.search(
            r"error: PostgreSQL has no primary.* \(SQLSTATE 26000\); a pooler in between shares connections among clients "
            r"without knowing of their prepared statements: use PgBouncer 1\.21 or later with max_prepared_statements above 0, "
            r"or pool_mode=session", server.log()))
        assert exchange(server.address, post("me", "x")).body == WRITE_FAILED
