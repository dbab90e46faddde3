"""What the status page and /status tell of a PostgreSQL database, in a real browser."""
import pytest

from administration import status
from contract import STORED
from http_client import exchange, post
from postgres_store import NamedDatabase, PostgresStore
from registers import Load
from server_process import until
from test_page import figure, opened


@pytest.fixture(name="databases")
def primary_with_two_standbys(replicated_postgres):
    return replicated_postgres(standbys=2)


@pytest.fixture(name="server")
def server_of_the_databases(databases, postgres_binary, tmp_path):
    with PostgresStore(postgres_binary, tmp_path / "store", NamedDatabase(databases)) as store:
        server = store.serve("server")
        assert exchange(server.address, post("me", "first")).body == STORED
        yield server


@pytest.fixture(name="page")
def page_in_a_browser(server, tmp_path):
    with opened(server, tmp_path / "browser", 1280, 800, "light") as browser:
        yield browser


def shown(page):
    """The rows of all facts, by their labels; those that do not concern this server are not there."""
    return dict(page.evaluate(
        "[...document.querySelectorAll('.fact:not([hidden]) .row:not([hidden]) dt')]"
        ".map(term => [term.textContent, term.nextElementSibling.textContent])"))


def panels(page):
    return page.evaluate("[...document.querySelectorAll('.panel:not([hidden]) h2')].map(title => title.textContent)")


def test_the_page_shows_the_database_and_its_failover(databases, server, page, tmp_path):
    old = databases.primary
    assert [title for title in panels(page) if "atabase" in title] == [
        "POST, until the database has it", "To the database and back", "Waiting for the database"]
    # What a store on this machine has.
    assert not {"Shares of GET", "Commit to the disk", "Tokens stored"} & set(panels(page))
    rows = shown(page)
    assert (rows["primary"], rows["software"].partition(" ")[0]) == (f"{old.address}:{old.port}", "PostgreSQL")
    assert (rows["connections, of wanted"], rows["waiting, of at most"]) == ("4 of 4", "0 of 10,000")
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
    assert status(server)["database"]["timeline"] == 2
    page.size(360, 800)
    assert page.evaluate("document.documentElement.scrollWidth") <= 360
    assert page.problems == []
