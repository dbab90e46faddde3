"""Ports for programs that cannot be asked which port the system gave them, and for servers that come back on the same one."""
import contextlib
import errno
import itertools
import random
import socket
from pathlib import Path

# Below the ports that the system gives to outgoing connections and to listeners on port 0 (net.ipv4.ip_local_port_range), one of
# which could otherwise take a port between the moment it is found free and the start of the program that is to have it.
_GIVEN_FROM = int(Path("/proc/sys/net/ipv4/ip_local_port_range").read_text(encoding="ascii").split()[0])
# Above 10080, which browsers refuse. A machine that gives out nearly all ports leaves no better choice than to share them.
_FIRST, _END = 11_000, max(_GIVEN_FROM, 20_000)

# Each process of the tests starts elsewhere and uses each port once, so that a program that ends late does not meet the next one.
_candidates = itertools.cycle(random.sample(range(_FIRST, _END), _END - _FIRST))
# Open until the process ends.
_reservations = []


def free_ports(count):
    """Different ports on which nobody listens, on any address; no other process of the tests gets them while this one runs."""
    found = []
    for port in itertools.islice(_candidates, _END - _FIRST):
        if len(found) == count:
            return found
        if _reserve(port):
            found.append(port)
    raise RuntimeError(f"{count} ports are not free between {_FIRST} and {_END}")


def _reserve(port):
    with contextlib.ExitStack() as probes:
        reservation = socket.socket(socket.AF_UNIX)
        try:
            # An abstract name is as far-reaching as a port: a network namespace has its own, and it ends with its process.
            reservation.bind(f"\0token-cache-test-port-{port}")
            probes.enter_context(socket.create_server(("", port)))
            if socket.has_ipv6:
                probes.enter_context(_ipv6_probe(port))
        except OSError:
            reservation.close()
            return False
    _reservations.append(reservation)
    return True


def _ipv6_probe(port):
    try:
        return socket.create_server(("::", port), family=socket.AF_INET6)
    except OSError as error:
        # A machine can have the protocol and no address.
        if error.errno not in (errno.EADDRNOTAVAIL, errno.EAFNOSUPPORT):
            raise
        return contextlib.nullcontext()
