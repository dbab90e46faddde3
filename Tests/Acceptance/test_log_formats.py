"""The formats of the logs: text for people, JSON for programs."""
import json
import re

import pytest

from http_client import exchange, get
from server_process import run

TIME = r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z"


def test_the_log_is_text_with_times_in_utc(serve):
    server = serve({"log_level": "debug"})
    assert server.stop() == 0
    for line in server.log().splitlines():
        assert re.fullmatch(rf"{TIME} (debug|info|notice|warning): .+", line), line


@pytest.mark.parametrize("access_log", ["combined", "json"])
def test_with_the_format_json_every_line_of_both_logs_is_an_object(serve, access_log):
    server = serve({"log_format": "json", "access_log": access_log, "log_level": "debug", "https": {"mode": "off"}})
    exchange(server.address, get("nobody"))
    assert server.stop() == 0
    entries = [json.loads(line) for line in server.log().splitlines()]
    assert any(" serves on " in entry["message"] for entry in entries)
    for entry in entries:
        assert re.fullmatch(TIME, entry["time"])
    assert {entry["level"] for entry in entries} >= {"debug", "info", "warning"}
    access, = map(json.loads, server.output().splitlines())
    assert (access["method"], access["path"], access["status"]) == ("GET", "/token", 200)


def test_the_format_json_alone_asks_for_no_access_log(serve):
    server = serve({"log_format": "json"})
    exchange(server.address, get("nobody"))
    assert server.stop() == 0
    assert server.output() == ""


def test_an_unknown_format_is_named_with_what_is_allowed():
    done = run("check-config", environment={"TOKEN_CACHE_LOG_FORMAT": "xml"})
    assert done.returncode == 1 and 'TOKEN_CACHE_LOG_FORMAT is "xml"; allowed is text, json' in done.stderr
