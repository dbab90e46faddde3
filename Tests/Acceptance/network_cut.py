"""A network of machines whose cables a test can pull: packets vanish in both directions, and nobody gets a reset.

    with Network() as network:
        machine = network.machine()
        server = Postgres(tmp_path, address=machine.address, prefix=machine.prefix)
        machine.cut()
        machine.restore()

Each machine is a network namespace with one cable (a veth pair) to a bridge, on which this machine has an address too. A cable
is cut by taking its end off the bridge. Nobody notices at once, neither by a lost carrier nor by a failed question for a
hardware address, because all of them are entered beforehand: it is as if a switch in the middle had died.
"""
import itertools
import os
import subprocess

import pytest

import caretaker
from closeable import Closeable

SECONDS = 60
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
