"""A primary with synchronous standbys, the faults of the primary, and failovers.

    databases = ReplicatedPostgres(tmp_path, standbys=2, has_network=True)
    databases.create_role("app", "secret")
    databases.create_database("tokens", owner="app")
    databases.url("app", "tokens", target_session_attrs="read-write")   # names all servers, in an order that does not change
    failover = databases.failover("kill")       # or "freeze", "cut" (needs has_network), "full" (needs has_small_disks)
    failover.completed                          # time.monotonic() when the new primary acknowledged a synchronous write
    failover.old.thaw()                         # what happens if the old primary wakes up, say
    databases.repair(failover.old)              # ends the fault; the old primary becomes a standby of the new one

**What is acknowledged after a failover.** All servers have the same `synchronous_standby_names`, 'ANY 1 (*)'. A promoted server
therefore acknowledges a write only when some standby has it: a failover needs two standbys, of which the other one follows the
new primary at once.

**No acknowledged write is lost.** Before a standby is chosen, all of them stop receiving, so that the old primary, which may
only be frozen or cut off, gets no confirmation from then on. Then the one that has received most is promoted. With ANY 1 of
two standbys, it has every write that was confirmed by either.

A primary with a full disk still answers reads, hence would serve old ones after a failover. As a real cluster manager does,
`failover("full")` stops it before it promotes. The frozen one and the one that is cut off cannot be stopped by a manager;
they come back as they were when they are thawed or restored, until `repair`.
"""
import contextlib
import itertools
import os
import signal
import subprocess
import time
from dataclasses import dataclass

import pytest

import caretaker
from postgres_cluster import DatabaseServer, Postgres, database_url
from process_tree import Closeable
from psql import SQLError
from server_process import until
from small_disk import SmallDisk

SECONDS = 60
# A standby that can follow a new primary does so within a tenth of that.
PATIENCE_SECONDS = 2
FAULTS = ("kill", "freeze", "cut", "full")
SETTINGS = {
    "synchronous_commit": "on",
    # Some tests add a subscriber.
    "wal_level": "logical",
    "hot_standby": "on",
    # WAL that a standby may still need.
    "wal_keep_size": "128MB",
    # A standby asks again this soon after its primary was gone.
    "wal_retrieve_retry_interval": "100ms",
    "max_wal_senders": 10,
}
# Their synchronous_standby_names.
NAMES = "ANY 1 (*)"
# A synchronous commit that changes nothing; it is acknowledged only when a standby has it.
WRITE = "SELECT pg_logical_emit_message(true, 'test', '')"


@dataclass
class Failover:
    """One failover with its moments, as of time.monotonic()."""
    fault: str
    old: Postgres
    new: Postgres
    # When the primary was broken.
    broken: float
    # When the new primary was no standby any more.
    promoted: float
    # When it had acknowledged a synchronous write: the promotion is complete.
    completed: float


class ReplicatedPostgres(DatabaseServer):
    """A primary and its standbys, which are `Postgres` servers: `primary`, `standbys`, and `nodes` with all of them.

    The servers are called node0, node1 and so on.

    - has_network: each has a network namespace of its own and can be cut off.
    - has_small_disks: each has a disk of its own, in memory, which can be filled.
    """

    def __init__(self, folder, standbys, has_network=False, has_small_disks=False):
        self.folder, self.has_small_disks = folder, has_small_disks
        self.nodes, self.machines = [], {}
        self.network = Network() if has_network else None
        with self.closed_on_failure():
            # Not synchronous before there is a standby: nothing could be written.
            self.primary = self._add_node(synchronous_standby_names="")
            for _ in range(standbys):
                self._add_node(self.primary, synchronous_standby_names=NAMES)
            self.wait_until_synchronous()

    def close(self):
        """Ends everything, and removes all but the logs."""
        with contextlib.ExitStack() as ends:
            # In reverse order, each also if another fails.
            if self.network:
                ends.callback(self.network.close)
            for node in self.nodes:
                ends.callback(node.close)

    def _add_node(self, source=None, **settings):
        name, place = f"node{len(self.nodes)}", {}
        if self.network:
            machine = self.machines[name] = self.network.machine()
            place |= {"address": machine.address, "prefix": machine.prefix, "port": 5432}
        if self.has_small_disks:
            place["disk"] = SmallDisk()
        node = Postgres(self.folder, name, settings={**SETTINGS, **settings}, source=source, **place)
        self.nodes.append(node)
        return node

    # Servers

    @property
    def standbys(self):
        """All servers but the primary, whatever their state; after a failover also the old primary."""
        return [node for node in self.nodes if node is not self.primary]

    def wait_until_synchronous(self, standbys=None):
        """Waits until these standbys, or all, follow the primary, and writes are acknowledged only with them."""
        expected = {node.name for node in (self.standbys if standbys is None else standbys)}
        if self.primary.settings.get("synchronous_standby_names") != NAMES:
            self.primary.configure(synchronous_standby_names=NAMES)
        until(lambda: expected <= self.followers(), SECONDS)
        until(lambda: self.followers("AND sync_state <> 'async'"), SECONDS)
        self.primary.sql(WRITE)

    def followers(self, condition=""):
        """The names of the standbys that receive WAL from the primary."""
        return {name for name, in self.primary.sql(
            f"SELECT application_name FROM pg_stat_replication WHERE state = 'streaming' {condition}")}

    # Faults

    def fill_disk(self):
        """Fills the primary's disk, and writes until a write fails; the server may end by that."""
        self.primary.disk.fill()
        until(lambda: not self.writes_without_standby(), SECONDS, 0.001)

    def writes_without_standby(self):
        """Whether the primary can still write; uses up its current WAL file, so that it needs room for another one."""
        try:
            self.primary.sql(f"SET synchronous_commit = local; {WRITE}; SELECT pg_switch_wal()")
            return True
        except SQLError:
            return False

    def end_fault(self, node):
        """Ends whatever fault a server has, without starting it."""
        if self.network:
            self.machines[node.name].restore()
        if node.disk:
            node.disk.empty()
        node.thaw()

    # Failover

    def promote(self):
        """Makes a standby the primary: of those that run the one that has received most; the others follow it.

        Returns the moments at which it was no standby any more, and at which it had acknowledged a write.
        """
        running = [node for node in self.standbys if node.is_running() and not node.is_frozen]
        for node in running:
            self.detach(node)
        chosen = max(running, key=self.received)
        assert chosen.value("SELECT pg_promote(true, 60)") == "t", chosen.log()[-3000:]
        promoted = time.monotonic()
        self.primary = chosen
        for node in running:
            if node is not chosen:
                node.follow(chosen)
                self._wait_until_following(node)
        chosen.sql(WRITE)
        return promoted, time.monotonic()

    def _wait_until_following(self, standby):
        """Waits until a standby receives from a new primary, and makes one that cannot a copy of it.

        If the old primary ended in the middle of a record, and its WAL up to the border of a file had been sent, then a standby
        asks the new primary for the next file, which that never had, again and again, also after a restart.
        """
        try:
            until(lambda: standby.name in self.followers(), PATIENCE_SECONDS, 0.005)
        except AssertionError:
            self.repair(standby)

    @staticmethod
    def detach(standby):
        """Lets a standby receive nothing more, until it follows a server again."""
        standby.follow(None)
        until(lambda: not standby.sql("SELECT 1 FROM pg_stat_wal_receiver"), SECONDS, 0.005)

    @staticmethod
    def received(standby):
        """How far a standby has received WAL, in bytes."""
        return int(standby.value(
            "SELECT pg_wal_lsn_diff(greatest(pg_last_wal_receive_lsn(), pg_last_wal_replay_lsn()), '0/0')"))

    def failover(self, fault):
        """One whole failover: breaks the primary, promotes a standby, and returns a `Failover`."""
        old = self.primary
        {"kill": old.kill, "freeze": old.freeze, "cut": lambda: self.machines[old.name].cut(), "full": self.fill_disk}[fault]()
        broken = time.monotonic()
        if fault == "full":
            old.stop(signal.SIGQUIT)
        promoted, completed = self.promote()
        return Failover(fault, old, self.primary, broken, promoted, completed)

    def repair(self, node):
        """Ends a server's fault and makes it a standby of the primary, as a copy of it; waits until it is synchronous."""
        node.kill()
        self.end_fault(node)
        node.copy_from(self.primary)
        node.configure(synchronous_standby_names=NAMES)
        node.follow(self.primary)
        node.start()
        self.wait_until_synchronous([node])

    # As of one server

    def sql(self, text, database="postgres", **options):
        """Runs statements on the primary."""
        return self.primary.sql(text, database, **options)

    @property
    def passwords(self):
        return self.primary.passwords

    def url(self, user, database, **parameters):
        """A URL for libpq that names all servers."""
        return database_url(self.nodes, user, database, **parameters)


# For measurements of networks (RFC 2544), hence in nobody's way: a network of 254 addresses for each `Network`.
PREFIX = "198.18"


def ip(*arguments):
    """Runs ip(8)."""
    subprocess.run(["ip", *arguments], check=True, capture_output=True, text=True, timeout=SECONDS)


class Machine:
    """A network namespace with one address."""

    def __init__(self, network, number):
        self.network, self.number = network, number
        self.address = f"{network.prefix}.{number}"
        self.hardware = network.hardware(number)
        self.namespace = f"{network.name}-{number}"
        # The end of the cable at the bridge; a name has at most 15 characters.
        self.cable = f"{network.name}-{number}"
        # nsenter becomes the command that follows it, which keeps its process id.
        self.prefix = ["nsenter", f"--net=/run/netns/{self.namespace}", "--"]
        # The cable goes with the namespace, as soon as no process is left in it.
        self.removal = ["ip", "netns", "delete", self.namespace]
        caretaker.remember(command=self.removal)
        ip("netns", "add", self.namespace)
        ip("link", "add", self.cable, "type", "veth", "peer", "name", "cable", "address", self.hardware, "netns", self.namespace)
        ip("link", "set", self.cable, "master", network.name, "up")
        ip("-n", self.namespace, "address", "add", f"{self.address}/24", "dev", "cable")
        ip("-n", self.namespace, "link", "set", "cable", "up")
        ip("-n", self.namespace, "link", "set", "lo", "up")

    def knows(self, address, hardware):
        """Enters the hardware address of another machine."""
        ip("-n", self.namespace, "neighbour", "replace", address, "lladdr", hardware, "dev", "cable", "nud", "permanent")

    def cut(self):
        """Loses every packet from and to the machine from now on."""
        ip("link", "set", self.cable, "nomaster")

    def restore(self):
        """Ends the fault."""
        ip("link", "set", self.cable, "master", self.network.name)

    def close(self):
        """Removes the namespace, and with it the cable."""
        subprocess.run(self.removal, capture_output=True, check=False, timeout=SECONDS)
        caretaker.forget(command=self.removal)
        subprocess.run(["ip", "link", "delete", self.cable], capture_output=True, check=False, timeout=SECONDS)


class Network(Closeable):
    """A bridge and the machines at it. Only root can make one, so the test is skipped for others."""
    counter = itertools.count()

    def __init__(self):
        if os.geteuid() != 0:
            pytest.skip("only root can make networks")
        self.machines = []
        # The name exists once, so that of several test runs at the same time each gets a network of its own.
        for attempt in itertools.count():
            number = (os.getpid() + next(self.counter)) % 250 + 1
            self.name, self.prefix = f"tokens{number}", f"{PREFIX}.{number}"
            done = subprocess.run(
                ["ip", "link", "add", self.name, "address", self.hardware(1), "type", "bridge"],
                capture_output=True, text=True, check=False, timeout=SECONDS)
            if done.returncode == 0:
                break
            if "File exists" not in done.stderr or attempt == 250:
                pytest.skip(f"no network can be made here: {done.stderr.strip()}")
        self.removal = ["ip", "link", "delete", self.name]
        caretaker.remember(command=self.removal)
        with self.closed_on_failure():
            ip("address", "add", f"{self.prefix}.1/24", "dev", self.name)
            ip("link", "set", self.name, "up")

    def hardware(self, number):
        """The hardware address of a machine."""
        return f"02:00:{int(self.prefix.split('.')[-1]):02x}:00:00:{number:02x}"

    def machine(self):
        """A new machine that can reach this one and the others."""
        machine = Machine(self, len(self.machines) + 2)
        ip("neighbour", "replace", machine.address, "lladdr", machine.hardware, "dev", self.name, "nud", "permanent")
        machine.knows(f"{self.prefix}.1", self.hardware(1))
        for other in self.machines:
            other.knows(machine.address, machine.hardware)
            machine.knows(other.address, other.hardware)
        self.machines.append(machine)
        return machine

    def close(self):
        """Removes the machines and the bridge; processes in the namespaces must have ended."""
        for machine in self.machines:
            machine.close()
        subprocess.run(self.removal, capture_output=True, check=False, timeout=SECONDS)
        caretaker.forget(command=self.removal)
