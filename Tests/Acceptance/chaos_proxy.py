"""A proxy that does to connections what bad networks do, for example between a server and its database.

    with ChaosProxy(postgres.server) as proxy:
        url = proxy.url("app", "tokens", sslmode="disable")
        proxy.delay(0.3); proxy.throttle(10_000); proxy.swallow(); proxy.freeze(); proxy.refuse()    # until proxy.heal()
        proxy.cut()                                                                # resets all connections
        lost = proxy.cut_at(rb"INSERT.*?(Z)")     # what was asked is done, but the connection is reset in the place of the answer
        lost.wait()

Everything can be changed while it runs, and is in effect when the function returns. The patterns of `cut_at` see nothing of
encrypted connections.

The proxy runs in one thread of its own, which alone uses the sockets; the functions hand it their work.
"""
import collections
import contextlib
import errno
import queue
import re
import selectors
import socket
import struct
import threading
import time

from ports import free_ports
from postgres_cluster import database_url
from process_tree import Closeable

# As much as a proxy buffers for a direction of a connection before it stops reading.
BUFFER = 1 << 18
# How often a throttled connection sends.
PACE_SECONDS = 0.01
SECONDS = 30


class Cut:
    """Resets the connection on which the server completes what matches a pattern, in the place of the pattern's group."""

    def __init__(self, pattern):
        self.pattern, self.seen = re.compile(pattern, re.DOTALL), b""
        self.happened = threading.Event()

    def find(self, data):
        """How many of these bytes from the server come before that place; None if it is still to come."""
        before, self.seen = len(self.seen), self.seen + data
        match = self.pattern.search(self.seen)
        return match and max(0, match.start(1) - before)

    def wait(self, seconds=SECONDS):
        """Waits until it has happened."""
        assert self.happened.wait(seconds), f"nothing matched the pattern within {seconds} s"


class Flow:
    """One direction of a connection: what was read from one socket and is to be written to the other one."""

    def __init__(self, source, target, is_answer):
        self.source, self.target, self.is_answer = source, target, is_answer
        # Bytes, each with the moment before which they are not sent.
        self.waiting = collections.deque()
        self.size = 0
        self.next_send = 0.0
        # What the source has ended; what the target was told of that; what is lost; what ends with a reset.
        self.has_ended = self.is_shut = self.is_deaf = self.is_cut = False

    def append(self, data, moment):
        self.waiting.append((moment, data))
        self.size += len(data)


class Link:
    """A client's connection together with the one to the target that was made for it."""

    def __init__(self, client, server):
        self.client, self.server = client, server
        self.is_connected = False
        self.flows = (Flow(client, server, is_answer=False), Flow(server, client, is_answer=True))

    def close(self, is_reset):
        """Closes both, possibly with a reset."""
        for end in (self.client, self.server):
            if is_reset:
                with contextlib.suppress(OSError):
                    end.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
            end.close()


class ChaosProxy(Closeable):
    """A proxy for a server with `address` and `port`, on an address and a port, which is a free one if it is not given."""

    def __init__(self, target, address="127.0.0.1", port=None):
        self.target = target.address, target.port
        self.address, self.port = address, port or free_ports(1)[0]
        self.links, self.cuts = [], []
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

    def url(self, user, database, **parameters):
        """A URL for libpq that leads here."""
        return database_url([self], user, database, **parameters)

    # Faults

    def delay(self, seconds):
        """Passes on what arrives from now on only after a time."""
        self.call(lambda: setattr(self, "seconds_of_delay", seconds))

    def throttle(self, bytes_per_second):
        """Lets each connection pass this much in each direction."""
        self.call(lambda: setattr(self, "rate", bytes_per_second))

    def swallow(self):
        """Loses what is sent. A connection that has lost something loses everything afterwards, also when it is healed."""
        self.call(lambda: setattr(self, "is_swallowing", True))

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

    def cut_at(self, pattern):
        """Resets a connection in the place of something that the server sends, as the pattern's group says: a `Cut`."""
        cut = Cut(pattern)
        self.call(lambda: self.cuts.append(cut))
        return cut

    def heal(self):
        """Ends all faults but those that a connection does not survive."""
        def change():
            self._set_whole()
            self.cuts.clear()
            if not self.listener:
                self._listen()
        self.call(change)

    def _set_whole(self):
        self.seconds_of_delay, self.rate = 0.0, None
        self.is_swallowing = self.is_frozen = False

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
        self.listener = socket.create_server((self.address, self.port), backlog=128)
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
                if flow.waiting:
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
            server = socket.socket()
            for end in (client, server):
                end.setblocking(False)
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
        if self.is_swallowing and data:
            flow.is_deaf = True
        if flow.is_deaf or flow.is_cut:
            return
        for cut in list(self.cuts) if flow.is_answer else ():
            if (place := cut.find(data)) is not None:
                # What was read before is still passed on.
                flow.is_cut, data = True, data[:place]
                self.cuts.remove(cut)
                cut.happened.set()
        if data:
            flow.append(data, time.monotonic() + self.seconds_of_delay)

    def _write(self, flow):
        """Sends what may be sent by now."""
        while flow.waiting:
            now = time.monotonic()
            moment, data = flow.waiting[0]
            if max(moment, flow.next_send) > now:
                return
            part = data[:max(1, int(self.rate * PACE_SECONDS))] if self.rate else data
            try:
                sent = flow.target.send(part)
            except BlockingIOError:
                return
            flow.size -= sent
            flow.waiting.popleft()
            if sent < len(data):
                flow.waiting.appendleft((moment, data[sent:]))
            if self.rate:
                flow.next_send = now + sent / self.rate
        if flow.has_ended and not flow.waiting and not flow.is_shut:
            flow.is_shut = True
            # A client that has lost something must not learn from the end that it has.
            if not flow.is_deaf:
                with contextlib.suppress(OSError):
                    flow.target.shutdown(socket.SHUT_WR)
