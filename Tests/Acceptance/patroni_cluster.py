"""PostgreSQL servers that Patroni keeps alive, with etcd, on ports of 127.0.0.1: Debian's packages patroni and etcd-server.

    with PatroniCluster(tmp_path) as cluster:
        cluster.create_role("app", "secret")
        cluster.create_database("tokens", owner="app")
        url = cluster.url("app", "tokens", target_session_attrs="read-write")     # names all servers
        old = cluster.leader()
        old.kill()                                  # the whole machine: Patroni and PostgreSQL
        new = cluster.wait_for_leader(other_than=old)
        old.start()                                 # Patroni makes it a standby again
        cluster.wait_until_whole()

Replication is synchronous and strict: the leader acknowledges a write only when a standby has it, and waits while there is
none. Patroni chooses the new leader among the synchronous standbys only.

A leader whose PostgreSQL alone has crashed is replaced at once (primary_start_timeout is 0). One that is gone or frozen together
with its Patroni is replaced when its lease has expired, after `LEASE_SECONDS`.

Patroni uses version 2 of etcd's interface. With version 3, Patroni before 3.1 can keep an outdated revision of the key that
names the synchronous standbys, and then never changes that key again (https://github.com/patroni/patroni/pull/2783); it
happened here with 3.0.2 after every few failovers.

The start of a cluster takes some ten seconds, hence only tests with --long use it.
"""
import contextlib
import json
import os
import pwd
import subprocess
import urllib.error
import urllib.request
from pathlib import Path

import pytest
import yaml

import caretaker
import process_tree
from postgres_cluster import SETTINGS, DatabaseServer, database_url
from ports import free_ports
from postgres_programs import (
    SUPERUSER, as_owner, environment, give_to_owner, own_folder, owner, programs, remove_folder,
)
from psql import SQLError, run_sql
from server_process import until

DEPLOY = Path(__file__).parents[2] / "deploy"
PROGRAMS = {"patroni": "/usr/bin/patroni", "etcd": "/usr/bin/etcd"}
SECONDS = 120
LEASE_SECONDS = 10


def require_patroni():
    """Skips the test if a program is missing."""
    programs()
    for name, path in PROGRAMS.items():
        if not os.access(path, os.X_OK):
            pytest.skip(f"{name} is not installed (Debian's packages patroni and etcd-server, which deploy/test --long installs)")


class PatroniNode:
    """One PostgreSQL server with its Patroni, which can be used like a `Postgres` for SQL."""

    def __init__(self, cluster, number):
        self.cluster, self.name = cluster, f"patroni{number}"
        self.address, (self.port, self.status_port) = "127.0.0.1", free_ports(2)
        self.passwords = cluster.passwords
        self.room = cluster.room / self.name
        self.data, self.socket_folder = self.room / "data", self.room / "socket"
        for folder in (self.room, self.socket_folder):
            folder.mkdir()
            give_to_owner(folder)
        self.log_file = cluster.folder / f"{self.name}.log"
        self.process = None
        self.frozen = []

    def configuration(self):
        """The configuration of deploy/ with the places, the names and the pace of a test, in JSON, which is also YAML."""
        shipped = (DEPLOY / "postgresql/patroni.yml").read_text().replace("hostssl", "host").replace("10.0.0.0/24", "127.0.0.1/32")
        settings = yaml.safe_load(shipped)
        bootstrap, postgresql = settings["bootstrap"], settings["postgresql"]
        place = f"{self.address}:{self.port}"
        del settings["etcd3"], settings["watchdog"]
        settings |= {"name": self.name, "etcd": {"host": self.cluster.etcd_address},
                     "restapi": dict.fromkeys(("listen", "connect_address"), f"{self.address}:{self.status_port}")}
        bootstrap["initdb"].append("no-sync")
        bootstrap["dcs"] |= {"ttl": LEASE_SECONDS, "loop_wait": 1, "retry_timeout": 3, "primary_start_timeout": 0}
        cluster = bootstrap["dcs"]["postgresql"]
        cluster["parameters"] |= {key: str(value) for key, value in self.cluster.settings.items()}
        # The tests' own users and databases come last: Patroni's are let in by the lines of deploy/ only.
        own, others = cluster["pg_hba"], ",".join(user["username"] for user in postgresql["authentication"].values())
        users = {pwd.getpwuid(os.geteuid()).pw_name, owner().pw_name}
        cluster["pg_hba"] = [f"{line} map=us" if line.endswith("peer") else line for line in own]
        cluster["pg_hba"] += [f"host all,replication {others} all reject", "host all all all scram-sha-256"]
        postgresql |= {
            "listen": place, "connect_address": place, "bin_dir": str(programs()), "data_dir": str(self.data),
            "pgpass": str(self.room / "pgpass"), "parameters": {"unix_socket_directories": str(self.socket_folder)},
            "pg_ident": [f"us {user} {SUPERUSER}" for user in sorted(users)],
            "basebackup": [{"checkpoint": "fast"}, "no-sync"]}
        return settings

    def start(self):
        """Starts its Patroni, which starts PostgreSQL. Does not wait."""
        file = self.room / "patroni.json"
        with open(file, "w", opener=lambda path, flags: os.open(path, flags, 0o600), encoding="utf-8") as target:
            json.dump(self.configuration(), target)
        give_to_owner(file)
        with open(self.log_file, "ab") as log:
            self.process = subprocess.Popen(
                [*as_owner(), PROGRAMS["patroni"], str(file)], env=environment(), cwd=self.room, stdin=subprocess.DEVNULL,
                stdout=log, stderr=log)
        return self

    def postgres_process(self):
        """The id of PostgreSQL's main process, or None. It is no child of Patroni, which it must outlive."""
        try:
            process = int((self.data / "postmaster.pid").read_text(encoding="utf-8").split("\n", 1)[0])
        except (FileNotFoundError, ValueError):
            return None
        # A killed one leaves its file behind, and the number may be another process by now.
        try:
            is_own = os.readlink(f"/proc/{process}/cwd") == str(self.data)
        except FileNotFoundError:
            is_own = False
        return process if is_own else None

    def kill_postgres(self):
        """Kills PostgreSQL (kill -9) but not Patroni."""
        if process := self.postgres_process():
            process_tree.kill(process)
            caretaker.remove_shared_memory(self.data)

    def kill(self):
        """Kills Patroni and PostgreSQL at once, as if the machine had died."""
        if self.process and self.process.poll() is None:
            # First, so that it starts nothing again.
            process_tree.kill(self.process.pid)
            self.process.wait(SECONDS)
        self.kill_postgres()
        self.frozen = []

    def freeze(self):
        """Stops Patroni and PostgreSQL, as if the machine slept."""
        self.frozen = [process for process in (self.process.pid, self.postgres_process()) if process]
        for process in self.frozen:
            process_tree.freeze(process)

    def thaw(self):
        """Lets both go on. Patroni then finds that its lease has expired, and demotes PostgreSQL."""
        for process in reversed(self.frozen):
            process_tree.thaw(process)
        self.frozen = []

    def status(self):
        """What Patroni says of the cluster, or None if it does not answer."""
        try:
            with urllib.request.urlopen(f"http://{self.address}:{self.status_port}/cluster", timeout=2) as answer:
                return json.load(answer)
        except (OSError, urllib.error.URLError, ValueError):
            return None

    def log(self):
        return self.log_file.read_text(errors="replace")

    def sql(self, text, database="postgres", user=SUPERUSER, seconds=30):
        return run_sql(self, text, database, user, seconds)

    def value(self, text, database="postgres", **options):
        return self.sql(text, database, **options)[0][0]


class PatroniCluster(DatabaseServer):
    """Some servers and one etcd. settings: more of PostgreSQL's settings, for all servers."""

    def __init__(self, folder, nodes=3, settings=None):
        require_patroni()
        self.folder = Path(folder)
        self.folder.mkdir(parents=True, exist_ok=True)
        # Patroni sets those that are needed for replication.
        self.settings = {**SETTINGS, "wal_retrieve_retry_interval": "100ms", **(settings or {})}
        self.passwords = {SUPERUSER: "of the superuser"}
        self.etcd, self.nodes = None, []
        self.room = own_folder("patroni")
        with self.closed_on_failure():
            self._start_etcd()
            self.nodes = [PatroniNode(self, number) for number in range(nodes)]
            for node in self.nodes:
                node.start()
            self.wait_until_whole()

    def _start_etcd(self):
        client, peer = free_ports(2)
        self.etcd_address = f"127.0.0.1:{client}"
        with open(self.folder / "etcd.log", "ab") as log:
            self.etcd = subprocess.Popen(
                [*as_owner(), PROGRAMS["etcd"], f"--data-dir={self.room}/etcd", "--enable-v2",
                 f"--listen-client-urls=http://{self.etcd_address}",
                 f"--advertise-client-urls=http://{self.etcd_address}", f"--listen-peer-urls=http://127.0.0.1:{peer}",
                 f"--initial-advertise-peer-urls=http://127.0.0.1:{peer}", f"--initial-cluster=default=http://127.0.0.1:{peer}"],
                env=environment(), cwd="/", stdin=subprocess.DEVNULL, stdout=log, stderr=log)

        def is_healthy():
            assert self.etcd.poll() is None, (self.folder / "etcd.log").read_text(errors="replace")[-3000:]
            try:
                with urllib.request.urlopen(f"http://{self.etcd_address}/health", timeout=2) as answer:
                    return b"true" in answer.read()
            except (OSError, urllib.error.URLError):
                return False

        until(is_healthy, SECONDS)

    def close(self):
        """Kills everything, and removes all but the logs."""
        with contextlib.ExitStack() as ends:
            # In reverse order, each also if another fails.
            ends.callback(remove_folder, self.room)
            ends.callback(self._stop_etcd)
            for node in self.nodes:
                ends.callback(node.kill)

    def _stop_etcd(self):
        if self.etcd and self.etcd.poll() is None:
            self.etcd.kill()
            self.etcd.wait(SECONDS)

    # State

    def members(self):
        """What the first Patroni that answers says of all servers: a dictionary of each by its name."""
        for node in self.nodes:
            if not node.frozen and (status := node.status()):
                return {member["name"]: member for member in status["members"]}
        return {}

    def leader(self):
        """The server that is the primary, or None."""
        members = self.members()
        return next((node for node in self.nodes if members.get(node.name, {}).get("role") == "leader"
                     and members[node.name].get("state") == "running"), None)

    def wait_for_leader(self, other_than=None):
        """Waits until there is a leader that is another one and acknowledges writes; returns it."""
        def found():
            leader = self.leader()
            if not leader or leader is other_than:
                return None
            try:
                leader.sql("SELECT pg_logical_emit_message(true, 'test', '')", seconds=SECONDS)
            except SQLError:
                # It has the lease but is not promoted yet, or has lost it again.
                return None
            return leader
        return until(found, SECONDS)

    def wait_until_whole(self):
        """Waits until there is a leader, and all others follow it, one of them synchronously."""
        def is_whole():
            members = self.members()
            roles = sorted(member["role"] for member in members.values() if member.get("state") in ("running", "streaming"))
            return roles == sorted(["leader", "sync_standby"] + ["replica"] * (len(self.nodes) - 2))
        try:
            until(is_whole, SECONDS, 0.1)
        except AssertionError:
            raise AssertionError(f"{self.members()}\n" + "\n".join(node.log()[-2000:] for node in self.nodes)) from None
        return self.wait_for_leader()

    @staticmethod
    def ask_to_switch(leader):
        """Asks Patroni to replace a leader in an orderly way."""
        request = urllib.request.Request(
            f"http://{leader.address}:{leader.status_port}/switchover", method="POST",
            data=json.dumps({"leader": leader.name}).encode())
        with urllib.request.urlopen(request, timeout=SECONDS):
            pass

    # As of one server

    def sql(self, text, database="postgres", **options):
        """Runs statements on the leader."""
        return self.wait_for_leader().sql(text, database, **options)

    def url(self, user, database, **parameters):
        """A URL for libpq that names all servers."""
        return database_url(self.nodes, user, database, **parameters)
