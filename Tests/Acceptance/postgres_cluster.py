"""Runs PostgreSQL servers, each with its own folder, port and Unix socket.

    server = Postgres(tmp_path, settings={"log_statement": "all"})
    server.create_role("app", "secret")
    server.create_database("tokens", owner="app")
    server.sql("SELECT 1")                                  # as superuser: [("1",)]
    server.url("app", "tokens", sslmode="disable")          # postgresql://app@127.0.0.1:40123/tokens?sslmode=disable
    server.pass_file(tmp_path / "pass")                     # for libpq's parameter passfile, or PGPASSFILE
    server.kill(); server.start()                           # kill -9 of all processes
    server.close()                                          # always, also after a failure

All roles but the superuser need their passwords (scram-sha-256), over TCP and over the Unix socket alike. The superuser has
none and comes only over the Unix socket, from our own user. fsync and synchronous_commit are on, as by default.

A server's log is in the folder it was given; everything else is in a folder in memory that PostgreSQL's user can enter, which
`close()` removes.
"""
import itertools
import os
import pwd
import shutil
import signal
import subprocess
import urllib.parse
from pathlib import Path

import caretaker
import process_tree
from process_tree import Closeable
from ports import free_ports
from postgres_programs import (
    REPLICATION, REPLICATION_PASSWORD, SUPERUSER, as_owner, copy_template, environment, give_to_owner, own_folder, owner,
    programs, remove_folder, run_as_owner, write_private,
)
from psql import Session, run_sql
from server_process import until

SECONDS = 60
# Who may connect how, as in pg_hba.conf. The superuser comes over the Unix socket only, so that no test depends on its rights.
ACCESS = (
    f"local all,replication {SUPERUSER} peer map=us",
    "local all all scram-sha-256",
    "host all,replication all all scram-sha-256",
)
SETTINGS = {
    # Small, as several servers run at once.
    "shared_buffers": "32MB",
    "max_connections": 200,
    # In the data folder rather than in /dev/shm, where they would outlive a killed server.
    "dynamic_shared_memory_type": "mmap",
    "log_line_prefix": "%m [%p] %q%u@%d ",
    "logging_collector": "off",
    "timezone": "UTC",
    "password_encryption": "scram-sha-256",
    # Otherwise a checkpoint after the start of a copy would write everything again in the middle of a test.
    "max_wal_size": "256MB",
}


def quoted(value):
    """A value as an SQL literal, which is also the form of a value in a configuration file."""
    return "'" + str(value).replace("'", "''") + "'"


class DatabaseServer(Closeable):
    """One server, or several that are as one: what there is beside `sql`, which runs statements.

    - passwords: those of all roles.
    """

    def value(self, text, database="postgres", **options):
        """The first value of the first row, as text."""
        return self.sql(text, database, **options)[0][0]

    def create_role(self, name, password, options="LOGIN"):
        """Makes a role, or gives it another password and these options."""
        verb = "ALTER" if self.sql(f"SELECT 1 FROM pg_roles WHERE rolname = {quoted(name)}") else "CREATE"
        self.sql(f'{verb} ROLE "{name}" {options} PASSWORD {quoted(password)}')
        self.passwords[name] = password

    def create_database(self, name, owner=SUPERUSER):
        self.sql(f'CREATE DATABASE "{name}" OWNER "{owner}"')

    def pass_file(self, path):
        """Writes a password file of libpq for any server, which must be readable by its owner alone; returns its path."""
        with open(path, "w", opener=lambda name, flags: os.open(name, flags, 0o600), encoding="utf-8") as file:
            file.writelines(f"*:*:*:{user}:{password}\n" for user, password in self.passwords.items())
        return str(path)


class Postgres(DatabaseServer):
    """One server.

    - folder: where its log is written, as `<name>.log`.
    - settings: more lines of postgresql.conf, as a dictionary.
    - certificate: paths of a certificate and its key, for TLS.
    - address, port: where it listens. The port is a free one if not given.
    - prefix: a command under which the server runs, such as that of a network namespace. It must become the server's
      process (`exec`), not its parent.
    - disk: a `SmallDisk` for its data; otherwise the data is in the server's own folder.
    - source: a running server of which this is a standby, a copy made by pg_basebackup, instead of an empty one.
    """

    def __init__(self, folder, name="postgres", *, settings=None, certificate=None, address="127.0.0.1",
                 port=None, prefix=(), disk=None, source=None):
        self.name, self.address, self.port = name, address, port or free_ports(1)[0]
        self.settings = {**SETTINGS, **(settings or {})}
        self.prefix, self.disk = list(prefix), disk
        self.log_file = Path(folder) / f"{name}.log"
        self.log_file.parent.mkdir(parents=True, exist_ok=True)
        self.process = None
        self.is_frozen = False
        self.passwords = {REPLICATION: REPLICATION_PASSWORD}
        self.room = own_folder(name)
        with self.closed_on_failure():
            self.data = (disk.folder if disk else self.room) / "data"
            self.socket_folder = self.room / "socket"
            self.socket_folder.mkdir()
            give_to_owner(self.socket_folder)
            if certificate:
                self.use_certificate(*certificate)
            if source:
                # They share their roles from now on.
                self.passwords = source.passwords
                self.copy_from(source)
                self.follow(source)
            else:
                copy_template(self.data)
            self.start()

    # Configuration

    def write(self, name, text):
        """Writes a file of the server's folder that only PostgreSQL's user can read."""
        return write_private(self.room / name, text)

    def write_configuration(self):
        """Writes the configuration, which is outside of the data folder, so that copies of that are not configured alike."""
        users = {pwd.getpwuid(os.geteuid()).pw_name, owner().pw_name}
        own = {
            **self.settings,
            "data_directory": self.data,
            "hba_file": self.write("pg_hba.conf", "\n".join(ACCESS) + "\n"),
            "ident_file": self.write("pg_ident.conf", "".join(f"us {user} {SUPERUSER}\n" for user in users)),
            "listen_addresses": self.address,
            "port": self.port,
            "unix_socket_directories": self.socket_folder,
            "cluster_name": self.name,
        }
        return self.write("postgresql.conf", "".join(f"{key} = {quoted(value)}\n" for key, value in own.items()))

    def configure(self, **settings):
        """Changes settings; None takes one back to PostgreSQL's default.

        A running server reads them at once: new connections have them, others after their current statement. Settings that
        need a restart do not change before the next start. Fails if the server does not accept the new configuration.
        """
        self.settings = {key: value for key, value in {**self.settings, **settings}.items() if value is not None}
        self.reload()

    def reload(self):
        """Writes the configuration again, and lets a running server read it. A frozen one reads it when it is thawed."""
        self.write_configuration()
        if not self.is_running():
            return
        if self.is_frozen:
            self.process.send_signal(signal.SIGHUP)
            return
        before = self.value("SELECT pg_conf_load_time()")
        self.process.send_signal(signal.SIGHUP)
        until(lambda: self.value("SELECT pg_conf_load_time()") != before, SECONDS)
        mistakes = self.sql(
            "SELECT error FROM pg_hba_file_rules WHERE error IS NOT NULL UNION ALL SELECT name || ': ' || error FROM pg_file_settings"
            " WHERE error IS NOT NULL AND name NOT IN (SELECT name FROM pg_settings WHERE context = 'postmaster')")
        assert not mistakes, mistakes

    def use_certificate(self, certificate, key):
        """Turns TLS on with this certificate. A running server uses it for new connections."""
        self.write("server.crt", Path(certificate).read_text(encoding="ascii"))
        self.write("server.key", Path(key).read_text(encoding="ascii"))
        self.settings |= {"ssl": "on", "ssl_cert_file": self.room / "server.crt", "ssl_key_file": self.room / "server.key"}
        if self.process:
            self.reload()

    # Standbys

    def copy_from(self, source):
        """Makes the data folder a copy of a running server's."""
        shutil.rmtree(self.data, ignore_errors=True)
        run_as_owner(
            "pg_basebackup", f"--pgdata={self.data}", f"--host={source.socket_folder}", f"--port={source.port}",
            f"--username={SUPERUSER}", "--wal-method=stream", "--checkpoint=fast", "--no-sync")

    def follow(self, primary):
        """Makes it a standby of a server from its next start on, or lets a running standby follow another primary.

        None: a standby that follows nobody.
        """
        link = "" if primary is None else (
            f"host={primary.address} port={primary.port} user={REPLICATION} password={REPLICATION_PASSWORD} "
            f"application_name={self.name} connect_timeout=2 tcp_user_timeout=5000")
        mark = self.data / "standby.signal"
        mark.touch()
        give_to_owner(mark)
        self.settings["primary_conninfo"] = link
        self.reload()

    # Processes

    def start(self):
        """Starts it, and waits until it accepts connections."""
        assert not self.is_running(), f"{self.name} runs already"
        configuration = self.write_configuration()
        with open(self.log_file, "ab") as log:
            self.process = subprocess.Popen(
                [*self.prefix, *as_owner(), str(programs() / "postgres"), "-c", f"config_file={configuration}"],
                env=environment(), cwd="/", stdin=subprocess.DEVNULL, stdout=log, stderr=log)
        self.is_frozen = False
        until(self.is_ready, SECONDS, 0.005)
        return self

    def is_ready(self):
        """Whether it accepts connections, as pg_ctl finds it out; fails if the process has ended."""
        if self.process.poll() is not None:
            raise AssertionError(f"{self.name} ended with {self.process.returncode}: {self.log()[-3000:]}")
        try:
            lines = (self.data / "postmaster.pid").read_text(encoding="utf-8").splitlines()
        except FileNotFoundError:
            return False
        return len(lines) >= 8 and lines[0] == str(self.process.pid) and lines[7].strip() == "ready"

    def is_running(self):
        """Whether its main process runs, or is frozen."""
        return self.process is not None and self.process.poll() is None

    def stop(self, number=signal.SIGINT):
        """Shuts it down as pg_ctl does: with SIGINT `fast`, or with SIGQUIT `immediate`, without a checkpoint.

        Only SIGQUIT ends a server that may have crashed just now. One that is told to stop in another way while it ends its
        recovery waits without an end for its checkpointer, which it does not tell to stop (seen with PostgreSQL 15.18).
        """
        if self.is_running():
            self.thaw()
            self.process.send_signal(number)
            self.process.wait(SECONDS)

    def kill(self):
        """Kills all its processes at once (kill -9)."""
        if self.is_running():
            process_tree.kill(self.process.pid)
            self.process.wait(SECONDS)
            caretaker.remove_shared_memory(self.data)
        self.is_frozen = False

    def freeze(self):
        """Stops all its processes (SIGSTOP). Its connections stay open, and the kernel accepts new ones for it."""
        process_tree.freeze(self.process.pid)
        self.is_frozen = True

    def thaw(self):
        """Lets a frozen server go on."""
        if self.is_frozen:
            process_tree.thaw(self.process.pid)
            self.is_frozen = False

    def close(self):
        """Kills it and removes everything but its log."""
        self.kill()
        if self.disk:
            self.disk.close()
        remove_folder(self.room)

    def log(self):
        """What it has logged."""
        return self.log_file.read_text(encoding="utf-8", errors="replace")

    # SQL

    def sql(self, text, database="postgres", user=SUPERUSER, seconds=30):
        """Runs statements one by one through psql and returns the rows of all, with values as text; raises `SQLError`."""
        return run_sql(self, text, database, user, seconds)

    def session(self, database="postgres", user=SUPERUSER):
        """A connection that stays open: a `Session`."""
        return Session(self, database, user)

    def drop_database(self, name):
        """Removes a database with all connections to it."""
        self.sql(f'DROP DATABASE IF EXISTS "{name}" WITH (FORCE)')

    def terminate(self, where="usename <> current_user"):
        """Ends connections of clients (pg_terminate_backend) that fulfil a condition on pg_stat_activity; returns how many."""
        return int(self.value(
            "SELECT count(pg_terminate_backend(pid)) FROM pg_stat_activity WHERE backend_type = 'client backend' "
            f"AND pid <> pg_backend_pid() AND ({where})"))

    def cancel(self, where):
        """Cancels the statements of such connections (pg_cancel_backend); returns how many.

        A commit that waits for a standby is then done with a warning (01000) instead.
        """
        return int(self.value(
            f"SELECT count(pg_cancel_backend(pid)) FROM pg_stat_activity WHERE pid <> pg_backend_pid() AND ({where})"))

    # For clients

    def url(self, user=SUPERUSER, database="postgres", **parameters):
        """A URL for libpq, without a password; parameters are added to it."""
        return database_url([self], user, database, **parameters)


def database_url(servers, user, database, **parameters):
    """A URL for libpq that names several servers, or proxies for them, at addresses or in folders with a Unix socket."""
    hosts = ",".join(f"{urllib.parse.quote(str(server.address), safe='')}:{server.port}" for server in servers)
    query = "?" + urllib.parse.urlencode(parameters) if parameters else ""
    return f"postgresql://{user}@{hosts}/{database}{query}"


class NamedDatabase:
    """A database on servers that are replicated, or that a test has of its own; `user` owns it and has a password."""

    def __init__(self, server, name="tokens", user="app"):
        self.server, self.name, self.user = server, name, user
        server.create_role(user, f"password of {user}")
        server.create_database(name, user)

    def url(self, user=None, **parameters):
        return self.server.url(user or self.user, self.name, **parameters)

    def pass_file(self, path):
        return self.server.pass_file(path)


class Database(NamedDatabase):
    """A database of its own for a test, on a server that other tests use too.

    Roles that a test makes itself are those of the whole server: give them names that begin with `name`.
    """
    numbers = itertools.count(1)

    def __init__(self, server):
        name = f"test{next(self.numbers)}"
        super().__init__(server, name, name)

    @property
    def password(self):
        return self.server.passwords[self.user]

    def sql(self, text, user=SUPERUSER, **options):
        return self.server.sql(text, self.name, user, **options)

    def value(self, text, **options):
        return self.sql(text, **options)[0][0]

    def session(self, user=SUPERUSER):
        return self.server.session(self.name, user)
