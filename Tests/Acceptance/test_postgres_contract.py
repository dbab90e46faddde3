"""The golden vectors of the contract with the store on PostgreSQL, also behind PgBouncer."""
import contextlib
import os
import re
import socket
import subprocess
from pathlib import Path
from types import SimpleNamespace

import pytest

from ports import free_ports
from postgres_cluster import Database, database_url
from postgres_programs import as_owner, environment, own_folder, remove_folder, write_private
from postgres_store import PostgresStore
from server_process import until
from test_contract_vectors import CASES, check

DEPLOY = Path(__file__).parents[2] / "deploy"
PGBOUNCER = "/usr/sbin/pgbouncer"


@contextlib.contextmanager
def pooler(server):
    """The place of a PgBouncer, for all databases of a server and the roles that it has now."""
    if not os.access(PGBOUNCER, os.X_OK):
        pytest.skip("PgBouncer is not installed (Debian's package pgbouncer, which deploy/test installs)")
    room, place = own_folder("pgbouncer"), SimpleNamespace(address="127.0.0.1", port=free_ports(1)[0])
    users = write_private(room / "users", "".join(f'"{user}" "{password}"\n' for user, password in server.passwords.items()))
    text = (DEPLOY / "postgresql/pgbouncer.ini").read_text().replace("\ntokens = ", "\n* = ")
    for setting, value in (("*", f"host={server.address} port={server.port}"), ("listen_addr", place.address),
                           ("listen_port", place.port), ("auth_file", users),
                           ("client_tls_sslmode", "disable"), ("client_tls_cert_file", ""), ("client_tls_key_file", ""),
                           ("logfile", ""), ("pidfile", ""), ("unix_socket_dir", "")):
        text, count = re.subn(rf"(?m)^{re.escape(setting)} = .*", f"{setting} = {value}", text)
        assert count == 1, setting
    settings = write_private(room / "pgbouncer.ini", text)

    def is_up():
        assert process.poll() is None, f"PgBouncer ended with {process.returncode}"
        with contextlib.suppress(ConnectionRefusedError):
            socket.create_connection((place.address, place.port)).close()
            return True

    with subprocess.Popen([*as_owner(), PGBOUNCER, str(settings)], env=environment(), cwd="/") as process:
        try:
            until(is_up)
            yield place
        finally:
            process.kill()
            remove_folder(room)


@pytest.fixture(scope="module", name="server", params=["directly", "through PgBouncer"])
def shared_server(request, postgres_binary, postgres_server, tmp_path_factory):
    database = Database(postgres_server)
    with contextlib.ExitStack() as stack:
        url = None
        if request.param != "directly":
            url = database_url([stack.enter_context(pooler(postgres_server))], database.user, database.name)
        store = stack.enter_context(PostgresStore(postgres_binary, tmp_path_factory.mktemp("contract"), database, url))
        yield store.serve("server")
    postgres_server.drop_database(database.name)


@pytest.mark.parametrize("case", CASES, ids=[case["id"] for case in CASES])
def test_a_recorded_case_is_answered_as_recorded(server, case):
    check(case, server, pieces=1)
