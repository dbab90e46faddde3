"""The history of the server's figures, which the status page draws."""
import json
import time

import pytest

from http_client import exchange, get, post
from server_process import run, until
from store_files import failing_writes
from test_page import ADMINISTRATION, CANARY, ask


def history(server, query=""):
    """The answer of /history."""
    response = ask(server, f"/history{query}")
    assert (response.status, response.headers["content-type"]) == (200, "application/json")
    return json.loads(response.body)


def uptime():
    return time.clock_gettime(time.CLOCK_BOOTTIME)


@pytest.fixture(name="server")
def watched_server(serve):
    return serve(ADMINISTRATION)


def test_requests_are_in_the_history_with_their_times(server):
    for request in (post("a", "b"), get("a"), get("a"), get("a", path="/nowhere"), get(CANARY)):
        exchange(server.address, request)
    # Before the first ten seconds are over.
    until(lambda: any(history(server)["figures"]["get_p99"]) and any(history(server)["figures"]["commit_p99"]))
    now = history(server)
    assert (now["step"], now["rows"]) == (10, 360)
    assert all(len(values) == len(now["positions"]) for values in now["figures"].values())
    assert now["positions"] == sorted(set(now["positions"])) and now["positions"][-1] <= now["now"]["position"]
    assert sum(now["figures"]["post"]) > 0 and sum(now["figures"]["errors"]) > 0 and sum(now["figures"]["failures"]) == 0
    assert now["figures"]["tokens"][-1] == 1 and now["figures"]["memory"][-1] > 1 << 20
    assert not {"waiting", "read_p99"} & set(now["figures"])
    assert CANARY not in json.dumps(now)
    (event,) = now["events"]
    assert event["kind"] == "start" and event["position"] <= now["positions"][0]


def test_only_what_is_new_is_asked_for(server):
    def full():
        return [position for position in history(server)["positions"] if position % 10 == 0]

    until(full)
    last = full()[-1]
    assert history(server, f"?since={last}")["positions"][0] == last
    until(lambda: history(server, f"?since={last + 1}")["positions"])
    later = history(server, f"?since={last + 1}")
    assert later["positions"][0] > last and later["events"] == []


def test_reloads_and_faults_are_events(server):
    with failing_writes(server):
        until(lambda: "fault" in kinds(server))
    until(lambda: "recovery" in kinds(server))
    assert run("reload", "--data-directory", str(server.data)).returncode == 0
    until(lambda: "reload" in kinds(server))
    events = {event["kind"]: event["text"] for event in history(server)["events"]}
    assert events["fault"].startswith("not ready: tokens cannot be stored")
    assert events["reload"].startswith("reload requested by ")


def kinds(server):
    return {event["kind"] for event in history(server)["events"]}
