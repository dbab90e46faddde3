"""Three servers on one database behind HAProxy: they are restarted one after the other, and no request fails."""
import contextlib

import pytest

from administration import metrics
from contract import STORED
from ports import free_ports
from proxies import HAProxyForSeveral
from registers import SECONDS, Load
from server_process import until
from test_page import figure, opened

SERVERS = 3
CLIENTS = 32
# Many values are longer than HAProxy's buffer (tune.bufsize): such a request cannot be sent again to another server.
LONGEST_VALUE = 60_000


class Fleet:
    """Servers that share a database, behind a proxy."""

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
        # `Load` uses these of a server.
        self.address, self.folder = ("127.0.0.1", self.proxy.https_port), self.proxy.folder

    def start(self, number):
        port, administration = self.places[number]
        self.starts[number] += 1
        self.servers[number] = self.store.serve(
            f"server{number}-{self.starts[number]}",
            # A database that is slow on a busy machine fails no request.
            {"listen": f"127.0.0.1:{port}", "admin": {"listen": f"127.0.0.1:{administration}"}, "store": {"timeout": "30s"}})

    def is_used(self, number):
        """Whether the proxy has sent a server a request since the server started."""
        return any(
            value for name, value in metrics(self.servers[number]).items() if name.startswith("token_cache_requests_total{"))

    def load(self):
        """Clients that use the proxy."""
        def connect(_):
            return self.certificate.connect(self.proxy.https_port, timeout=SECONDS)
        return Load([self], CLIENTS, longest=LONGEST_VALUE, connect=connect)

    def restart(self, load, number):
        """Restarts a server as an operator does, while clients go on; returns when it is used again."""
        assert self.servers[number].stop() == 0
        load.go_on()
        self.start(number)
        until(lambda: self.is_used(number), SECONDS)

    def close(self):
        is_running = self.proxy.is_running()
        self.proxy.close()
        assert is_running, f"the proxy ended by itself: {self.proxy.log()[-2000:]}"


@pytest.fixture
def fleet(direct, tmp_path, proxy_certificate):
    with contextlib.closing(Fleet(direct, tmp_path, proxy_certificate)) as servers:
        yield servers


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


@pytest.fixture(name="databases")
def primary_with_two_standbys(replicated_postgres):
    return replicated_postgres(standbys=2)


@pytest.fixture(name="server")
def server_of_the_databases(databases, store_on, five_loops):
    server = store_on(databases).serve("server", environment=five_loops)
    assert server.post("me", "first") == STORED
    return server


@pytest.fixture(name="page")
def page_in_a_browser(server, tmp_path):
    with opened(server, tmp_path / "browser", 1280, 800, "light") as browser:
        yield browser


def shown(page):
    """The visible rows of facts on the page, by their labels."""
    return dict(page.evaluate(
        "[...document.querySelectorAll('.fact:not([hidden]) .row:not([hidden]) dt')]"
        ".map(term => [term.textContent, term.nextElementSibling.textContent])"))


def panels(page):
    return page.evaluate("[...document.querySelectorAll('.panel:not([hidden]) h2')].map(title => title.textContent)")


def test_the_page_shows_the_database_and_its_failover(databases, server, page):
    old = databases.primary
    assert [title for title in panels(page) if "atabase" in title] == [
        "POST, until the database has it", "To the database and back", "Waiting for the database"]
    # Panels of a store on this machine.
    assert not {"Shares of GET", "Commit to the disk", "Tokens stored"} & set(panels(page))
    assert "5 loops" in server.log()
    until(lambda: shown(page)["connections, of wanted"] == "4 of 4")
    rows = shown(page)
    assert (rows["primary"], rows["software"].partition(" ")[0]) == (f"{old.address}:{old.port}", "PostgreSQL")
    assert rows["waiting, of at most"] == "0 of 10,000"
    assert (rows["durability"], rows["TLS"], rows["failovers"]) == ("synchronous", "off", "0")
    assert not {"WAL", "tokens", "last failover"} & set(rows)
    with Load([server], clients=8) as load:
        load.go_on()
        until(lambda: all(figure(page, name) for name in ("get", "post", "read_p50", "read_p99", "commit_p99")))
        databases.promote()
        new = databases.primary
        until(lambda: shown(page)["primary"] == f"{new.address}:{new.port}")
        load.go_on()
    load.check()
    rows = shown(page)
    assert (rows["failovers"], "last failover" in rows) == ("1", True)
    for node in databases.standbys:
        assert f"{node.address}:{node.port}, " in rows["other hosts"]
    page.size(360, 800)
    assert page.evaluate("document.documentElement.scrollWidth") <= 360
    assert page.problems == []
