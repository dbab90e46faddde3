"""A request is found by one id in the log of the proxy and in that of the server, and no client chooses that id."""
import re

import pytest

from http_client import lines
from proxies import HOST
from server_process import until

CHOSEN = "chosen-by-a-client"
CLAIMS = {
    "nothing": [],
    "an id": [f"X-Request-Id: {CHOSEN}"],
    "two ids": [f"X-Request-Id: {CHOSEN}", f"X-Request-Id: {CHOSEN}2"],
    "lower case": [f"x-request-id: {CHOSEN}"],
    "empty": ["X-Request-Id:"],
    # Some proxies do not forward headers that Connection names, even if they set them themselves.
    "named by Connection": ["Connection: X-Request-Id", f"X-Request-Id: {CHOSEN}"],
    "named by Connection in lower case": ["Connection: keep-alive, x-request-id", f"X-Request-Id: {CHOSEN}"],
    "beside another header": [f"X-Correlation-Id: {CHOSEN}", f"X-Request-Id: {CHOSEN}"],
}
# What the server makes itself if it gets no id.
MADE_HERE = re.compile(r"[0-9a-f]{16}")


@pytest.mark.parametrize("claim", CLAIMS)
def test_the_same_id_is_in_the_answer_and_in_both_logs(site, claim):
    with site.secure() as connection:
        connection.send(lines("GET /token?unique_id=nobody HTTP/1.1", f"Host: {HOST}", *CLAIMS[claim]))
        given = connection.receive().headers["x-request-id"]
    assert CHOSEN not in given and not MADE_HERE.fullmatch(given), "the proxy made the id"
    mine = until(lambda: [line for line in site.server.output().splitlines() if f" {given} " in line])
    theirs = until(lambda: [line for line in site.proxy.log().splitlines() if given in line])
    assert len(mine) == 1 and '"GET /token ' in mine[0]
    assert len(theirs) == 1 and "/token" in theirs[0] and "GET" in theirs[0]
    assert CHOSEN not in site.server.output() + site.proxy.log()


def test_each_request_of_a_connection_has_an_id_of_its_own(site):
    with site.secure() as connection:
        ids = {
            site.exchange(connection, "GET", "/token?unique_id=nobody").headers["x-request-id"] for _ in range(5)}
    assert len(ids) == 5


def test_an_answer_of_the_proxy_itself_has_an_id_in_its_log(site):
    before = len(site.proxy.log().splitlines())
    for status, path, open_connection in (302, "/token", site.plain), (404, "/other", site.secure):
        answer = site.request("GET", path, headers={"X-Request-Id": CHOSEN}, open_connection=open_connection)
        assert answer.status == status
        entry = until(lambda: [
            line for line in site.proxy.log().splitlines()[before:] if re.search(rf"\b{status}\b", line)])[-1]  # noqa: B023
        assert re.search(site.proxy.request_id, entry), entry
        assert CHOSEN not in entry


def test_a_proxy_that_passes_on_what_clients_send_lets_them_choose(careless):
    """Which is why the configurations set the header."""
    answer = careless.request("GET", "/scheme/token?unique_id=nobody", headers={"X-Request-Id": CHOSEN})
    assert answer.headers["x-request-id"] == CHOSEN
