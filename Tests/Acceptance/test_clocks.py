"""The server's clock is wrong, or is set while it runs."""
import json
import time
import urllib.request

import pytest

from access import bearer, bearer_settings, session_settings
from administration import ADMINISTRATION, metrics
from contract import NOT_FOUND, STORED, found
from failing_calls import FailingCalls
from issuer import Issuer
from server_process import until
from store_files import command, printed

HOUR, DAY = 3600, 86_400


@pytest.fixture
def clock(failing_calls_library, tmp_path):
    """The clock of the servers that run in its environment."""
    calls = FailingCalls(failing_calls_library, tmp_path / "clock")
    yield calls
    calls.close()


@pytest.fixture
def serve_by(clock, serve, tmp_path):
    """Starts servers by that clock, one after the other, on the same data."""
    return lambda settings: serve(settings, data=tmp_path / "data", environment=clock.environment)


def body(server, path, data=None, **headers):
    """The body of an answer, whatever date that has."""
    request = urllib.request.Request(server.base + path, data=data, headers=headers)
    with urllib.request.urlopen(request, timeout=20) as response:
        return response.read()


def test_a_token_that_was_not_written_for_the_time_is_not_given_and_then_deleted(clock, serve_by):
    server = serve_by({**ADMINISTRATION, "retention": {"after_written": "30s"}})
    for seconds, unique_id in ((0, "a"), (15, "b")):
        clock.set_clock(seconds)
        assert body(server, "/token", f"unique_id={unique_id}&token_info=1".encode()) == STORED
        assert body(server, "/token?unique_id=a") == found("1")
    clock.set_clock(32)
    until(lambda: body(server, "/token?unique_id=a") == NOT_FOUND)
    assert body(server, "/token?unique_id=b") == found("1")
    # A round over all rows, which otherwise begins within minutes.
    printed(server.data, "verify")
    assert metrics(server)["token_cache_store_expired_tokens_total"] == 1
    # What was deleted while the clock was ahead stays away, although it was read before.
    clock.set_clock(16)
    assert body(server, "/token?unique_id=a") == NOT_FOUND
    assert body(server, "/token?unique_id=b") == found("1")
    clock.set_clock(HOUR)
    printed(server.data, "verify")
    assert metrics(server)["token_cache_store_expired_tokens_total"] == 2
    assert "expired token" in server.log()


@pytest.mark.parametrize("restarts", [False, True])
def test_what_is_written_by_a_clock_that_is_behind_stays(clock, serve_by, restarts):
    settings = {**ADMINISTRATION, "retention": {"after_written": "90d"}}
    server = serve_by(settings)
    assert server.post("other", "token") == STORED
    if restarts:
        server.stop()
    clock.set_clock(-400 * DAY)
    if restarts:
        server = serve_by(settings)
    assert body(server, "/token", b"unique_id=id&token_info=token") == STORED
    clock.set_clock(0)
    assert server.get("id") == found("token")


# At the start and when the token is read, in seconds by which the clock is ahead: 1970, ten years ago, right, in the far future.
WRONG = {"1970": (-int(time.time()) + DAY, 0), "2016": (-3650 * DAY, 0), "ahead": (0, 400 * DAY)}


@pytest.mark.parametrize("start, end", WRONG.values(), ids=WRONG)
def test_a_clock_that_is_set_hides_no_token(clock, serve_by, start, end):
    clock.set_clock(start)
    server = serve_by({**ADMINISTRATION, "retention": {"after_written": "90d"}})
    assert body(server, "/token", b"unique_id=id&token_info=token") == STORED
    clock.set_clock(end)
    assert body(server, "/token?unique_id=id") == found("token")


def test_a_session_that_the_command_makes_by_a_clock_that_is_behind_is_valid(clock, serve_by, tmp_path):
    settings, _ = session_settings(tmp_path / "keys", max_age="1d")
    server = serve_by(settings)
    clock.set_clock(-400 * DAY)
    made = command(server.data, "access", "sessions", "add", "anna")
    assert body(server, f"/token?unique_id={made.stdout.strip()}", b"token_info=token") == STORED, made.stderr


def test_a_session_that_was_made_by_a_clock_that_is_ahead_ends_with_that(clock, serve_by, tmp_path):
    settings, key = session_settings(tmp_path / "keys", max_age="1d")
    server = serve_by(settings)

    def make():
        made = body(server, "/v1/sessions", b'{"user":"anna"}', Authorization=f"Bearer {key}", **{"Content-Type": "application/json"})
        return json.loads(made)["session"]

    early = make()
    assert body(server, f"/token?unique_id={early}", b"token_info=token") == STORED
    clock.set_clock(400 * DAY)
    late = make()
    assert body(server, f"/token?unique_id={late}") == found("token")
    clock.set_clock(0)
    assert body(server, f"/token?unique_id={late}") == NOT_FOUND
    assert body(server, f"/token?unique_id={early}") == found("token")
    # One that is behind ends none.
    clock.set_clock(-400 * DAY)
    assert body(server, f"/token?unique_id={early}") == found("token")


def test_a_token_of_an_issuer_is_valid_by_the_clock_that_was_put_right(clock, serve_by, tmp_path):
    issuer = Issuer()
    # The store's clock stays ahead for hours.
    clock.set_clock(3 * DAY)
    server = serve_by(bearer_settings(tmp_path / "jwks.json", issuer))
    clock.set_clock(0)
    name, value = bearer(issuer.token("anna")).split(": ")
    assert body(server, "/token", b"token_info=token", **{name: value}) == STORED


def test_a_session_that_is_made_after_the_clock_was_put_right_is_dated_by_it(clock, serve_by, tmp_path):
    clock.set_clock(3 * DAY)
    settings, key = session_settings(tmp_path / "keys", max_age="1d")
    server = serve_by(settings)
    clock.set_clock(0)
    of_backend = {"Authorization": f"Bearer {key}", "Content-Type": "application/json"}
    session = json.loads(body(server, "/v1/sessions", b'{"user":"anna"}', **of_backend))["session"]
    assert body(server, f"/token?unique_id={session}", b"token_info=token") == STORED
    [found] = json.loads(body(server, "/v1/users/anna/sessions", **of_backend))["sessions"]
    assert abs(found["created_at"] - time.time()) < HOUR
