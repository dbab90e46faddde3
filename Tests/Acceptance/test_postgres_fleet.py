"""Three servers on one database behind HAProxy: they are restarted one after the other, and no request fails."""
import pytest

from administration import metrics
from ports import free_ports
from postgres_store import PostgresStore
from proxies import HAProxyForSeveral, TLSConnection
from registers import SECONDS, Load
from server_process import until

SERVERS = 3
CLIENTS = 32
# Many are longer than what HAProxy can send to another server once it has sent it to one (tune.bufsize).
LONGEST_VALUE = 60_000


class Fleet:
    """Servers that share a database, and the proxy before them."""

    def __init__(self, store, folder, certificate):
        self.store, self.certificate = store, certificate
        ports = free_ports(2 * SERVERS)
        self.places = list(zip(ports[:SERVERS], ports[SERVERS:]))
        self.starts = [0] * SERVERS
        self.servers = [None] * SERVERS
        for number in range(SERVERS):
            self.start(number)
        self.proxy = HAProxyForSeveral(
            folder / "proxy", [(f"127.0.0.1:{port}", administration) for port, administration in self.places], certificate)
        # What `Load` takes for a server.
        self.address, self.folder = ("127.0.0.1", self.proxy.https_port), self.proxy.folder

    def start(self, number):
        port, administration = self.places[number]
        self.starts[number] += 1
        self.servers[number] = self.store.serve(
            f"server{number}-{self.starts[number]}",
            {"listen": f"127.0.0.1:{port}", "admin": {"listen": f"127.0.0.1:{administration}"}})

    def is_used(self, number):
        """Whether the proxy has sent it a request since it started."""
        return any(
            value for name, value in metrics(self.servers[number]).items() if name.startswith("token_cache_requests_total{"))

    def load(self):
        """Clients that use the proxy."""
        def connect(_):
            return TLSConnection(self.address, self.certificate.context, timeout=SECONDS)
        return Load([self], CLIENTS, longest=LONGEST_VALUE, connect=connect)

    def restart(self, load, number):
        """Restarts a server as an operator does, while clients go on; the next one may follow."""
        assert self.servers[number].stop() == 0
        load.go_on()
        self.start(number)
        until(lambda: self.is_used(number), SECONDS)

    def close(self):
        is_running = self.proxy.is_running()
        self.proxy.stop()
        assert is_running, f"the proxy ended by itself: {self.proxy.log()[-2000:]}"


@pytest.fixture
def fleet(postgres, postgres_binary, tmp_path, proxy_certificate):
    with PostgresStore(postgres_binary, tmp_path / "store", postgres) as store:
        servers = Fleet(store, tmp_path, proxy_certificate)
        try:
            yield servers
        finally:
            servers.close()


def check(load):
    """No request has failed, and what was acknowledged is there."""
    load.raise_mistakes()
    assert (load.failed_writes, load.failed_reads) == (0, 0)
    load.check()


def test_a_rolling_restart_lets_no_request_fail(fleet, is_long):
    with fleet.load() as load:
        for number in list(range(SERVERS)) * (20 if is_long else 2):
            load.go_on()
            fleet.restart(load, number)
        load.go_on()
    check(load)
