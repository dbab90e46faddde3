"""A proxy that does to connections what bad networks do, for example between a server and its database.

    with ChaosProxy(postgres.server) as proxy:
        url = proxy.url("app", "tokens", sslmode="disable")
        proxy.delay(0.3); proxy.throttle(10_000); proxy.swallow(); proxy.freeze(); proxy.refuse()    # until proxy.heal()
        proxy.cut()                                                                # resets all connections
        lost = proxy.when(is_commit, CUT)         # the next COMMIT is done, but its answer is lost
        lost.wait()
        held = proxy.when(is_row, HOLD)           # the next row, and what follows it, waits for held.release()

Everything can be changed while it runs, and is in effect when the function returns. The conditions of `when` are functions of
the kind and the content of a message, such as those in `postgres_messages`; they see nothing of encrypted connections.

The proxy runs in one thread of its own, which alone uses the sockets; the functions hand it their work.
"""
import collections
import contextlib
import errno
import queue
import selectors
import socket
import struct
import threading
import time
from pathlib import Path

from ports import free_ports
from postgres_cluster import database_url
from postgres_messages import ClientMessages, ServerMessages

TO_SERVER, TO_CLIENT = "to the server", "to the client"
BOTH = (TO_SERVER, TO_CLIENT)
# What is done with a message and those that follow it: the connection is reset in their place, they are lost while the
# connection stays open, or they wait until they are released.
CUT, LOSE, HOLD = "cut", "lose", "hold"
# As much as a proxy buffers for a direction of a connection before it stops reading.
BUFFER = 1 << 18
# How often a throttled connection sends.
PACE_SECONDS = 0.01
SECONDS = 30


class Rule:
    """What is done with messages that fulfil a condition."""

    def __init__(self, proxy, condition, action, direction, count):
        self.proxy, self.condition, self.action, self.direction, self.left = proxy, condition, action, direction, count
        self.happened = threading.Event()
        self.is_released = False

    def applies(self, direction, kind, content):
        if self.left == 0 or direction != self.direction or not self.condition(kind, content):
            return False
        self.left -= 1
        return True

    def wait(self, seconds=SECONDS):
        """Waits until it has been applied once."""
        assert self.happened.wait(seconds), f"no message {self.direction} fulfilled the condition within {seconds} s"

    def release(self):
        """Passes on what was held, and holds nothing more."""
        def change():
            self.is_released, self.left = True, 0
        self.proxy.call(change)


class Flow:
    """One direction of a connection: what was read from one socket and is to be written to the other one."""

    def __init__(self, source, target, direction, messages):
        self.source, self.target, self.direction, self.messages = source, target, direction, messages
        # Bytes, each with the moment before which they are not sent, and the rule that holds them, if one does.
        self.waiting = collections.deque()
        self.size = 0
        self.next_send = 0.0
        # What the source has ended; what the target was told of that; what is lost; what ends with a reset.
        self.has_ended = self.is_shut = self.is_deaf = self.is_cut = False

    @property
    def is_held(self):
        """Whether the next bytes wait for the release of a rule."""
        rule = self.waiting[0][2] if self.waiting else None
        return rule is not None and not rule.is_released

    def append(self, data, moment, rule):
        self.waiting.append((moment, data, rule))
        self.size += len(data)


class Link:
    """A client's connection together with the one to the target that was made for it."""

    def __init__(self, client, server):
        self.client, self.server = client, server
        self.is_connected = False
        messages = ClientMessages()
        self.flows = (Flow(client, server, TO_SERVER, messages), Flow(server, client, TO_CLIENT, ServerMessages(messages)))

    def close(self, is_reset):
        """Closes both, possibly with a reset."""
        for end in (self.client, self.server):
            if is_reset and end.family != socket.AF_UNIX:
                with contextlib.suppress(OSError):
                    end.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
            end.close()


class ChaosProxy:
    """A proxy for a server: for one with `address` and `port`, or for the path of a Unix socket.

    It listens on an address and a free port, or in a folder on a Unix socket that has the name which libpq expects.
    """

    def __init__(self, target, address="127.0.0.1", port=None, socket_folder=None):
        self.target = self.place(target)
        if socket_folder:
            self.address, self.port = str(socket_folder), port or 5432
            self.listening_at = str(Path(socket_folder) / f".s.PGSQL.{self.port}")
        else:
            self.address, self.port = address, port or free_ports(1)[0]
            self.listening_at = self.address, self.port
        self.links, self.rules = [], []
        # Connections that clients have made so far.
        self.connections = 0
        self._set_whole()
        self.selector = selectors.DefaultSelector()
        self.listener = None
        self._listen()
        self.calls = queue.Queue()
        self.alarm, self.bell = socket.socketpair()
        self.selector.register(self.alarm, selectors.EVENT_READ)
        self.is_closing = False
        self.thread = threading.Thread(target=self._run, name="chaos proxy", daemon=True)
        self.thread.start()

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.close()

    @staticmethod
    def place(target):
        """Where to connect to."""
        return (target.address, target.port) if hasattr(target, "port") else str(target)

    def url(self, user, database, **parameters):
        """A URL for libpq that leads here."""
        return database_url([self], user, database, **parameters)

    # Faults

    def delay(self, seconds, directions=BOTH):
        """Passes on what arrives from now on only after a time."""
        self.call(lambda: self.delays.update(dict.fromkeys(directions, seconds)))

    def throttle(self, bytes_per_second, directions=BOTH):
        """Lets each connection pass this much."""
        self.call(lambda: self.rates.update(dict.fromkeys(directions, bytes_per_second)))

    def swallow(self, directions=BOTH):
        """Loses what is sent. A connection that has lost something loses everything afterwards, also when it is healed."""
        self.call(lambda: self.swallowed.update(directions))

    def freeze(self):
        """Neither reads nor writes nor accepts. The kernel goes on taking connections and some data."""
        self.call(lambda: setattr(self, "is_frozen", True))

    def refuse(self):
        """Refuses new connections."""
        def change():
            if self.listener:
                self._watch(self.listener, 0)
                self.listener.close()
                self.listener = None
        self.call(change)

    def cut(self):
        """Resets all connections."""
        def change():
            for link in list(self.links):
                self._drop(link)
        self.call(change)

    def when(self, condition, action, direction=TO_CLIENT, count=1):
        """Does something with the next message that fulfils a condition: a `Rule`. count: the same to so many connections."""
        rule = Rule(self, condition, action, direction, count)
        self.call(lambda: self.rules.append(rule))
        return rule

    def redirect(self, target):
        """Connects new connections to another target."""
        self.call(lambda: setattr(self, "target", self.place(target)))

    def heal(self):
        """Ends all faults but those that a connection does not survive."""
        def change():
            self._set_whole()
            for rule in self.rules:
                rule.is_released, rule.left = True, 0
            self.rules.clear()
            if not self.listener:
                self._listen()
        self.call(change)

    def _set_whole(self):
        self.delays, self.rates = dict.fromkeys(BOTH, 0.0), dict.fromkeys(BOTH)
        self.swallowed, self.is_frozen = set(), False

    # The thread

    def call(self, function):
        """Runs a function in the thread, and waits for it."""
        done = threading.Event()
        self.calls.put((function, done))
        self.bell.send(b"!")
        assert done.wait(SECONDS), "the proxy's thread has ended"

    def close(self):
        """Ends the thread and resets all connections."""
        self.call(lambda: setattr(self, "is_closing", True))
        self.thread.join(SECONDS)
        for link in list(self.links):
            self._drop(link)
        if self.listener:
            self.listener.close()
        self.selector.close()
        self.alarm.close()
        self.bell.close()

    def _listen(self):
        if isinstance(self.listening_at, str):
            Path(self.listening_at).unlink(missing_ok=True)
            self.listener = socket.socket(socket.AF_UNIX)
            self.listener.bind(self.listening_at)
            self.listener.listen(128)
        else:
            self.listener = socket.create_server(self.listening_at, backlog=128)
        self.listener.setblocking(False)
        self.selector.register(self.listener, selectors.EVENT_READ)

    def _run(self):
        while not self.is_closing:
            ready = {key.fileobj: events for key, events in self.selector.select(self._patience())}
            if self.alarm in ready:
                self.alarm.recv(4096)
            while not self.calls.empty():
                function, done = self.calls.get()
                function()
                done.set()
            if self.is_frozen:
                continue
            if self.listener and self.listener in ready:
                self._accept()
            for link in list(self.links):
                self._serve(link, ready)

    def _patience(self):
        """Watches the sockets that can go on; the seconds until something else can, or None."""
        now = time.monotonic()
        moments = []
        if self.listener:
            self._watch(self.listener, 0 if self.is_frozen else selectors.EVENT_READ)
        for link in self.links:
            wanted = dict.fromkeys((link.client, link.server), 0)
            if not link.is_connected:
                wanted[link.server] = selectors.EVENT_WRITE
            for flow in link.flows if link.is_connected and not self.is_frozen else ():
                if flow.size < BUFFER and not flow.has_ended:
                    wanted[flow.source] |= selectors.EVENT_READ
                if flow.waiting and not flow.is_held:
                    moment = max(flow.waiting[0][0], flow.next_send)
                    if moment <= now:
                        wanted[flow.target] |= selectors.EVENT_WRITE
                    else:
                        moments.append(moment)
            for end, events in wanted.items():
                self._watch(end, 0 if self.is_frozen else events)
        return max(0.0, min(moments) - now) if moments else None

    def _watch(self, end, events):
        known = self.selector.get_map().get(end)
        if known and not events:
            self.selector.unregister(end)
        elif known and known.events != events:
            self.selector.modify(end, events)
        elif events and not known:
            self.selector.register(end, events)

    def _accept(self):
        with contextlib.suppress(BlockingIOError):
            client, _ = self.listener.accept()
            self.connections += 1
            server = socket.socket(socket.AF_UNIX if isinstance(self.target, str) else socket.AF_INET)
            for end in (client, server):
                end.setblocking(False)
                if end.family != socket.AF_UNIX:
                    end.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            link = Link(client, server)
            self.links.append(link)
            if server.connect_ex(self.target) not in (0, errno.EINPROGRESS):
                self._drop(link)

    def _drop(self, link, is_reset=True):
        for end in (link.client, link.server):
            self._watch(end, 0)
        link.close(is_reset)
        self.links.remove(link)

    def _serve(self, link, ready):
        try:
            if not link.is_connected:
                if link.server not in ready:
                    return
                failure = link.server.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR)
                if failure:
                    raise OSError(failure, "connect")
                link.is_connected = True
            for flow in link.flows:
                if ready.get(flow.source, 0) & selectors.EVENT_READ:
                    self._read(flow)
                self._write(flow)
        except OSError:
            self._drop(link)
            return
        if any(flow.is_cut and not flow.waiting for flow in link.flows):
            self._drop(link)
        elif all(flow.is_shut for flow in link.flows):
            self._drop(link, is_reset=False)

    def _read(self, flow):
        try:
            data = flow.source.recv(1 << 16)
        except BlockingIOError:
            return
        flow.has_ended = not data
        if flow.direction in self.swallowed and data:
            flow.is_deaf = True
        moment = time.monotonic() + self.delays[flow.direction]
        for kind, content, message in flow.messages.take(data):
            rule = next((rule for rule in self.rules if rule.applies(flow.direction, kind, content)), None)
            if rule:
                # What was read before is still passed on.
                flow.is_cut |= rule.action == CUT
                flow.is_deaf |= rule.action == LOSE
                rule.happened.set()
            if not (flow.is_deaf or flow.is_cut):
                flow.append(message, moment, rule)

    def _write(self, flow):
        """Sends what may be sent by now."""
        while flow.waiting and not flow.is_held:
            now = time.monotonic()
            moment, data, _ = flow.waiting[0]
            if max(moment, flow.next_send) > now:
                return
            rate = self.rates[flow.direction]
            part = data[:max(1, int(rate * PACE_SECONDS))] if rate else data
            try:
                sent = flow.target.send(part)
            except BlockingIOError:
                return
            flow.size -= sent
            flow.waiting.popleft()
            if sent < len(data):
                flow.waiting.appendleft((moment, data[sent:], None))
            if rate:
                flow.next_send = now + sent / rate
        if flow.has_ended and not flow.waiting and not flow.is_shut:
            flow.is_shut = True
            # A client that has lost something must not learn from the end that it has.
            if not flow.is_deaf:
                with contextlib.suppress(OSError):
                    flow.target.shutdown(socket.SHUT_WR)
