"""PgBouncer between clients and a PostgreSQL server.

    with PgBouncer(tmp_path, postgres.server) as pooler:
        url = pooler.url("app", "tokens")
"""
import os
import socket
import subprocess
from pathlib import Path

import pytest

from process_tree import Closeable
from postgres_cluster import database_url
from postgres_programs import as_owner, environment, own_folder, remove_folder, write_private
from ports import free_ports
from server_process import until

PROGRAM = "/usr/sbin/pgbouncer"
SECONDS = 30


class PgBouncer(Closeable):
    """A running PgBouncer on 127.0.0.1, for all databases and all roles of a server whose passwords the server object knows.

    - server: a `Postgres` or anything else with an address, a port and passwords.
    - settings: more lines of the section [pgbouncer].
    """

    def __init__(self, folder, server, **settings):
        if not os.access(PROGRAM, os.X_OK):
            pytest.skip("PgBouncer is not installed (Debian's package pgbouncer, which deploy/test installs)")
        self.address, self.port = "127.0.0.1", free_ports(1)[0]
        self.server = server
        self.settings = {"pool_mode": "session", **settings}
        self.log_file = Path(folder) / f"pgbouncer-{self.port}.log"
        self.log_file.parent.mkdir(parents=True, exist_ok=True)
        self.room = own_folder("pgbouncer")
        self.process = None
        with self.closed_on_failure():
            self.start()

    def _write(self, name, text):
        return write_private(self.room / name, text)

    def write_configuration(self):
        """Writes the settings and the passwords, and returns the settings' file."""
        users = self._write("users", "".join(f'"{user}" "{password}"\n' for user, password in self.server.passwords.items()))
        settings = {
            "listen_addr": self.address, "listen_port": self.port, "unix_socket_dir": "", "auth_type": "scram-sha-256",
            "auth_file": users, "max_client_conn": 1000, "default_pool_size": 20,
            # It asks the server's address again at once after a failure, not after 15 s.
            "server_login_retry": 1,
            **self.settings,
        }
        return self._write("pgbouncer.ini", (
            f"[databases]\n* = host={self.server.address} port={self.server.port}\n[pgbouncer]\n"
            + "".join(f"{key} = {value}\n" for key, value in settings.items())))

    def start(self):
        """Starts it, and waits until it accepts connections."""
        configuration = self.write_configuration()
        with open(self.log_file, "ab") as log:
            self.process = subprocess.Popen(
                [*as_owner(), PROGRAM, str(configuration)], env=environment(), cwd="/", stdin=subprocess.DEVNULL,
                stdout=log, stderr=log)
        until(self._is_up, SECONDS, 0.005)

    def _is_up(self):
        if self.process.poll() is not None:
            raise AssertionError(f"PgBouncer ended with {self.process.returncode}: {self.log()[-3000:]}")
        try:
            socket.create_connection((self.address, self.port), SECONDS).close()
        except ConnectionRefusedError:
            return False
        return True

    def url(self, user, database, **parameters):
        """A URL for libpq, without a password."""
        return database_url([self], user, database, **parameters)

    def log(self):
        return self.log_file.read_text(errors="replace")

    def stop(self):
        """Kills it, which resets the connections of its clients."""
        if self.process and self.process.poll() is None:
            self.process.kill()
            self.process.wait(SECONDS)

    def close(self):
        """Kills it and removes everything but its log."""
        self.stop()
        remove_folder(self.room)
