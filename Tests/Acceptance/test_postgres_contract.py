"""The golden vectors of the contract with the store on PostgreSQL, also behind PgBouncer."""
import pytest

from postgres_cluster import Database
from postgres_pooler import PgBouncer
from postgres_store import PostgresStore
from test_contract_vectors import CASES, check


@pytest.fixture(scope="module", name="server", params=["directly", "through PgBouncer"])
def shared_server(request, postgres_binary, postgres_server, tmp_path_factory):
    folder, database = tmp_path_factory.mktemp("contract"), Database(postgres_server)
    if request.param == "directly":
        with PostgresStore(postgres_binary, folder, database) as store:
            yield store.serve("server")
    else:
        with (
            PgBouncer(folder, postgres_server) as pooler,
            PostgresStore(postgres_binary, folder, database, pooler.url(database.user, database.name)) as store,
        ):
            yield store.serve("server")
    postgres_server.drop_database(database.name)


@pytest.mark.parametrize("case", CASES, ids=[case["id"] for case in CASES])
def test_a_recorded_case_is_answered_as_recorded(server, case):
    check(case, server, pieces=1)
