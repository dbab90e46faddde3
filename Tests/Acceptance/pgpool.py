"""pgpool-II before a primary and its standbys: Debian's package pgpool2.

    with Pgpool(tmp_path, databases, "app") as pool:
        pool.url("app", "tokens")
"""
import os
import subprocess
from pathlib import Path

import pytest

from ports import free_ports
from postgres_cluster import database_url, quoted
from postgres_programs import as_owner, own_folder, remove_folder, write_private
from process_tree import Closeable
from psql import SQLError, run_sql
from server_process import until

PROGRAM = "/usr/sbin/pgpool"
SECONDS = 60


class Pgpool(Closeable):
    """One pgpool that sends as many reads as it can to the standbys.

    - user: the role with which it looks for the primary.
    - settings: more lines of pgpool.conf, as a dictionary.
    """

    def __init__(self, folder, databases, user, **settings):
        if not os.access(PROGRAM, os.X_OK):
            pytest.skip("pgpool-II is not installed (Debian's package pgpool2, which deploy/test installs)")
        self.address, self.passwords = "127.0.0.1", databases.passwords
        self.port, control = free_ports(2)
        self.log_file = Path(folder) / "pgpool.log"
        self.process = None
        self.room = own_folder("pgpool")
        with self.closed_on_failure():
            values = {
                "backend_clustering_mode": "streaming_replication", "listen_addresses": self.address, "port": self.port,
                "unix_socket_directories": self.room, "pcp_socket_dir": self.room, "pcp_port": control,
                "pcp_listen_addresses": self.address, "pid_file_name": self.room / "pid", "logdir": self.room,
                "num_init_children": 24, "max_pool": 1, "load_balance_mode": "on", "enable_pool_hba": "off",
                "allow_clear_text_frontend_auth": "on", "sr_check_user": user, "sr_check_password": databases.passwords[user],
                "sr_check_database": "postgres", "sr_check_period": 1, **settings,
            }
            for number, node in enumerate(databases.nodes):
                values |= {
                    f"backend_hostname{number}": node.address, f"backend_port{number}": node.port,
                    f"backend_weight{number}": 0 if node is databases.primary else 1}
            text = "".join(f"{name} = {quoted(value)}\n" for name, value in values.items())
            configuration = write_private(self.room / "pgpool.conf", text)
            with open(self.log_file, "ab") as log:
                self.process = subprocess.Popen(
                    [*as_owner(), PROGRAM, "-n", "-f", str(configuration)], cwd="/", stdin=subprocess.DEVNULL, stdout=log, stderr=log)
            until(lambda: self.reads_from_standby(databases, user), SECONDS)

    def reads_from_standby(self, databases, user):
        """Whether a plain read is sent to a standby."""
        assert self.process.poll() is None, self.log_file.read_text(encoding="utf-8")[-3000:]
        try:
            return run_sql(self, "SHOW transaction_read_only", "postgres", user, SECONDS) == [("on",)]
        except SQLError:
            return False

    def url(self, user, database, **parameters):
        """A URL for libpq."""
        return database_url([self], user, database, **parameters)

    def close(self):
        if self.process and self.process.poll() is None:
            self.process.terminate()
            self.process.wait(SECONDS)
        remove_folder(self.room)
