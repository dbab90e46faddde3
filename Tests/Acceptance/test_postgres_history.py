"""Users are registers, as in `test_access_history`, for servers that share a database: each request goes to any of them."""
from access import session_settings
from postgres_store import PostgresStore
from test_access_history import History


def test_what_one_server_has_acknowledged_is_so_on_all(postgres_binary, postgres, tmp_path, is_long):
    settings, key = session_settings(tmp_path / "keys")
    with PostgresStore(postgres_binary, tmp_path, postgres) as store:
        servers = [store.serve(f"server{number}", settings) for number in range(3)]
        History(servers, key, users=4, rounds=600 if is_long else 80).run()
