"""The log reports start, stop and faults, the access log requests, each by its id; test_canaries checks that neither has secrets."""
import contextlib
import json
import os
import re
import resource
import shutil
import signal
import stat
import subprocess
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from administration import ADMINISTRATION, metrics
from certificates import make_certificate
from contract import NOT_FOUND, STORED, fresh_id
from http_client import HOST, Connection, exchange, get, lines, post
from server_process import beside, run, until
from store_files import opened, printed
from test_reload import hang_up
from test_tls import tls_settings

JSON = {"access_log": "json"}
TIME = r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z"


def log_lines(server):
    """The lines of the log, without the one about a new key ring."""
    return [line for line in server.log().splitlines() if " made the key ring " not in line]


def test_one_line_at_the_start_and_one_at_the_stop(serve):
    server = serve({"listen": ["127.0.0.1:0", "127.0.0.1:0"], "loops": 2})
    assert server.post("a", "b") == STORED
    assert server.stop() == 0
    first, last = log_lines(server)
    version = run("--version").stdout.strip()
    for fragment in (f"token-cache {version} serves on", *(f":{port}" for _, port in server.addresses),
                     "SQLite ", str(server.data), "2 loops"):
        assert fragment in first
    assert "token-cache has stopped" in last
    assert all(re.fullmatch(rf"{TIME} (info|notice): .+", line) for line in (first, last))
    # Without an access log, which has to be asked for.
    assert server.output() == ""


# A request, its method, and its entry in the access log: method, path, protocol, status
LOGGED = [
    (get("nobody"), "GET", ("GET", "/token", "HTTP/1.1", 200)),
    (get("nobody", path="/token.php"), "GET", ("GET", "/token.php", "HTTP/1.1", 200)),
    (lines("HEAD /token HTTP/1.0", "Connection: keep-alive"), "HEAD", ("HEAD", "/token", "HTTP/1.0", 200)),
    (post("a", "b"), "GET", ("POST", "/token", "HTTP/1.1", 200)),
    (lines("PUT /token HTTP/1.1", HOST), "GET", ("PUT", "/token", "HTTP/1.1", 200)),
    (get("a", path="/other"), "GET", ("GET", None, "HTTP/1.1", 404)),
    (lines("GET /token HTTP/1.1", HOST, HOST), "GET", ("GET", "/token", "HTTP/1.1", 400)),
    # Scanners send this, and programs that read logs want a word as the method.
    (lines("PROPFIND / HTTP/1.1", HOST), "GET", ("other", None, "HTTP/1.1", 404)),
    (b"\x03\x00\x00\x2f\r\n\r\n", "GET", ("other", None, "HTTP/1.1", 400)),
]


def logged_requests(server):
    """Sends the requests and returns the answers; the log is complete when the server has stopped."""
    responses = [exchange(server.address, data, method) for data, method, _ in LOGGED]
    assert server.stop() == 0
    return responses


def test_the_combined_access_log_has_a_line_for_each_request(serve):
    server = serve({"access_log": "combined"})
    responses = logged_requests(server)
    entries = server.output().splitlines()
    assert len(entries) == len(LOGGED)
    for entry, response, (_, _, (method, path, protocol, status)) in zip(entries, responses, LOGGED):
        found_fields = re.fullmatch(
            r'127\.0\.0\.1 - - \[\d\d/[A-Z][a-z]{2}/\d{4}:\d\d:\d\d:\d\d \+0000\] '
            r'"(\S+) (\S+) (\S+)" (\d+) (\d+) "-" "-" \d+ [0-9a-f]{16} (\d{5}|-) http://127\.0\.0\.1:\d+ -', entry)
        assert found_fields, entry
        assert found_fields[1] == method and found_fields[3] == protocol
        assert path is None or found_fields[2] == path
        assert (int(found_fields[4]), int(found_fields[5])) == (status, len(response.body))


def test_programs_read_every_line_of_the_combined_access_log(serve, tmp_path):
    """Not only those of requests that make sense."""
    programs = [name for name in ("goaccess", "lnav") if shutil.which(name)]
    if not programs:
        pytest.skip("there is neither goaccess nor lnav")
    server = serve({"access_log": "combined"})
    logged_requests(server)
    log = tmp_path / "access.log"
    # goaccess decides by the first lines whether it knows the format.
    log.write_text("".join(server.output().splitlines(keepends=True)[-2:] * 10))
    if "goaccess" in programs:
        report = tmp_path / "report.json"
        subprocess.run(
            ["goaccess", str(log), "--log-format=COMBINED", "--no-global-config", "--no-progress", "-o", str(report)],
            capture_output=True, timeout=60, check=True)
        general = json.loads(report.read_text())["general"]
        assert (general["valid_requests"], general["failed_requests"]) == (20, 0)
    if "lnav" in programs:
        query = ";SELECT count(*) FROM access_log WHERE cs_method = 'other'"
        done = subprocess.run(
            ["lnav", "-n", "-c", query, "-c", ":write-csv-to -", str(log)], capture_output=True, text=True, timeout=60,
            env={**os.environ, "HOME": str(tmp_path)}, check=True)
        assert "20" in done.stdout.splitlines(), done.stdout + done.stderr


MADE = re.compile(r"[0-9a-f]{16}")


def test_the_json_access_log_has_an_object_for_each_request_with_the_id_of_its_answer(serve):
    server = serve({**JSON, "log_format": "json", "log_level": "debug", "https": {"mode": "off"}})
    responses = logged_requests(server)
    lines_of_log = [json.loads(line) for line in server.log().splitlines()]
    assert all(re.fullmatch(TIME, entry["time"]) for entry in lines_of_log)
    assert {entry["level"] for entry in lines_of_log} >= {"debug", "info", "warning"}
    entries = [json.loads(line) for line in server.output().splitlines()]
    assert len({entry["request_id"] for entry in entries}) == len(entries) == len(LOGGED)
    for entry, response, (_, _, (method, path, protocol, status)) in zip(entries, responses, LOGGED):
        assert (entry["method"], entry["protocol"], entry["status"]) == (method, protocol, status)
        assert path is None or entry["path"] == path
        assert entry["bytes"] == len(response.body)
        assert entry["client"] == "127.0.0.1" and entry["microseconds"] >= 0
        assert re.fullmatch(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ", entry["time"])
        assert entry["request_id"] == response.headers["x-request-id"] and MADE.fullmatch(entry["request_id"])


def entries(server):
    """The entries of the access log, after the server has ended."""
    assert server.stop() == 0
    return [json.loads(line) for line in server.output().splitlines()]


# Requests, their status and their errorCode
CODES = [
    (post("a", "b"), 200, None),
    (get("a"), 200, None),
    (get("nobody"), 200, "50002"),
    (lines("GET /token HTTP/1.1", HOST), 200, "30001"),
    (lines("DELETE /token HTTP/1.1", HOST), 200, "50003"),
    (get("a", path="/other"), 404, "40400"),
    (get("a", "X-Forwarded-Proto: http"), 302, None),
    (get("a" * 17_000), 414, "41400"),
]


def test_the_error_code_is_that_of_the_answer(serve):
    server = serve(JSON)
    for data, status, code in CODES:
        answer = exchange(server.address, data)
        assert answer.status == status
        if answer.body:
            assert json.loads(answer.body).get("errorCode") == code
    assert [(entry["status"], entry.get("errorCode")) for entry in entries(server)] == [
        (status, code) for _, status, code in CODES]


def test_the_listener_and_the_version_of_tls_are_told(serve, tmp_path):
    socket = tmp_path / 'a "b" c.sock'
    listen = ["127.0.0.1:0", "https://127.0.0.1:0", f"unix:{socket}"]
    server = serve({**JSON, **tls_settings(make_certificate(tmp_path)), "listen": listen})
    plain, secure = server.addresses[:2]
    exchange(plain, get("a"))
    for version in "1.2", "1.3":
        subprocess.run(
            ["curl", "-sSk", f"--tlsv{version}", "--tls-max", version, f"https://{secure[0]}:{secure[1]}/token"],
            capture_output=True, timeout=20, check=True)
    subprocess.run(
        ["curl", "-sS", "--unix-socket", socket, "http://localhost/token"], capture_output=True, timeout=20, check=True)
    names = [f"http://127.0.0.1:{plain[1]}", *[f"https://127.0.0.1:{secure[1]}"] * 2, f"unix:{socket}"]
    versions = [None, "TLSv1.2", "TLSv1.3", None]
    assert [(entry["listener"], entry.get("tls")) for entry in entries(server)] == list(zip(names, versions))


# Ids of requests that others have made

TAKEN = ["a", "0", "A-z_0.9", "ag@JwFG-3kpQzXNvvmFe@gAAAAM", "6f1c2a3e-0b1d-4c5e-8f90-a1b2c3d4e5f6", "x" * 64]
REPLACED = ["", "x" * 65, "a b", "a;b", "a,b", 'a"b', "a\\b", "é", "a/b", "<a>", "a\tb"]


def test_a_trusted_proxys_id_is_taken_over_and_what_is_no_id_is_replaced(plain):
    def given(*ids):
        return exchange(plain.address, get("a", *(f"X-Request-Id: {text}" for text in ids))).headers["x-request-id"]

    assert [given(text) for text in TAKEN] == TAKEN
    assert all(MADE.fullmatch(given(text)) for text in REPLACED)
    # The proxy's comes last.
    assert given("client", "proxy") == "proxy"
    with Connection(plain.address) as connection:
        connection.send(get("a", "X-Request-Id: one") + get("a") + post(fresh_id(), "b", "X-Request-Id: three"))
        first, second, third = (connection.receive().headers["x-request-id"] for _ in range(3))
    assert (first, third) == ("one", "three") and MADE.fullmatch(second)


def serve_unreadable_token(serve, settings):
    """A server whose only token, that of the id `a`, cannot be decrypted."""
    first = serve()
    assert first.post("a", "b") == STORED
    assert first.stop() == 0
    with opened(first.data) as database:
        database.execute("UPDATE token SET value = x''")
    return serve(settings, data=first.data)


def test_a_fault_of_the_store_is_logged_with_the_requests_id(serve):
    server = serve_unreadable_token(serve, {"log_format": "json"})
    assert server.get("a", "X-Request-Id: mine") == NOT_FOUND
    assert server.stop() == 0
    fault, = (entry for entry in map(json.loads, server.log().splitlines()) if entry["level"] == "error")
    assert fault["request_id"] == "mine" and "the store failed" in fault["message"]


# A process that stops reading the logs must not stop the server.

@pytest.fixture
def pipe():
    """The two ends of a pipe, which are closed afterwards."""
    ends = list(os.pipe())
    yield ends
    for end in ends:
        if end is not None:
            os.close(end)


def test_a_reader_of_the_access_log_that_goes_away_does_not_end_the_server(serve, pipe):
    server = serve({"access_log": "combined"}, output=pipe[1])
    with Connection(server.address) as connection:
        assert connection.exchange(get("nobody")).body == NOT_FOUND
        until(lambda: os.read(pipe[0], 65536))
        os.close(pipe[0])
        pipe[0] = None
        for _ in range(20):
            assert connection.exchange(get("nobody")).body == NOT_FOUND
    assert server.stop() == 0


def test_a_reader_of_the_access_log_that_does_not_read_stalls_no_request_and_no_stop(serve, pipe):
    server = serve({"access_log": "combined", "drain_timeout": "500ms"}, output=pipe[1])
    with Connection(server.address) as connection:
        connection.send(get("nobody") * 2000)
        assert all(connection.receive().body == NOT_FOUND for _ in range(2000))
    assert server.post("a", "b") == STORED
    server.send_signal()
    assert server.wait(20) == 0
    assert "the last lines of the access log are lost" in server.log()


def test_a_named_pipe_with_a_reader_takes_the_access_log(serve, tmp_path):
    path = tmp_path / "access.pipe"
    os.mkfifo(path)
    with open(os.open(path, os.O_RDWR), encoding="utf-8") as reader:
        server = serve({"access_log": f"json {path}"})
        server.get("a")
        assert json.loads(reader.readline())["status"] == 200


# Runs the server with a pipe as standard error, and a reader that copies the pipe into the server's log file.
READ_BY_CAT = ["sh", "-c", 'mkfifo pipe; cat pipe >&2 & echo $! > reader; exec "$0" "$@" 2> pipe']


def reader_of(server):
    """The reader's process."""
    return int((server.folder / "reader").read_text())


def test_a_reader_of_the_log_that_goes_away_does_not_end_the_server(serve):
    server = serve({"log_level": "trace"}, prefix=READ_BY_CAT)
    os.kill(reader_of(server), signal.SIGKILL)
    assert server.post("a", "b") == STORED
    assert server.stop() == 0


def stop_reading(server):
    """Stops the reader, and fills the pipe, so that whoever writes to it waits; returns the reader's process."""
    reader = reader_of(server)
    os.kill(reader, signal.SIGSTOP)
    until(lambda: ") T " in Path(f"/proc/{reader}/stat").read_text())
    end = os.open(server.folder / "pipe", os.O_WRONLY | os.O_NONBLOCK)
    for count in 65536, 1:
        with contextlib.suppress(BlockingIOError):
            while True:
                os.write(end, b"x" * count)
    os.close(end)
    return reader


def test_a_reader_of_the_log_that_does_not_read_stalls_no_request_and_no_stop(serve):
    settings = {"loops": 1, **ADMINISTRATION, "retention": {"after_written": "1s"}, "drain_timeout": "500ms"}
    server = serve(settings, prefix=READ_BY_CAT)
    with Connection(server.address) as connection:
        assert connection.exchange(get("nobody")).body == NOT_FOUND
        reader = stop_reading(server)
        try:
            # A line of the loop, as the new connection gets no descriptor, and one of the walk over all rows.
            process, files = server.process.pid, resource.RLIMIT_NOFILE
            before = resource.prlimit(process, files, (3, resource.getrlimit(files)[1]))
            with Connection(server.address):
                # The loop tries to accept between the two answers at the latest.
                for _ in range(2):
                    assert connection.exchange(get("nobody")).body == NOT_FOUND
            resource.prlimit(process, files, before)
            assert connection.exchange(post("a", "b")).body == STORED
            until(lambda: printed(server.data, "verify") and metrics(server)["token_cache_store_expired_tokens_total"] == 1)
            assert connection.exchange(post("c", "d")).body == STORED
            os.kill(reader, signal.SIGCONT)
            until(lambda: "accepts no connections" in server.log() and "expired token" in server.log())
            stop_reading(server)
            server.send_signal()
            assert server.wait(20) == 0
        finally:
            os.kill(reader, signal.SIGCONT)


def test_lines_for_which_there_is_no_room_are_counted(serve):
    server = serve({"log_level": "debug"}, prefix=READ_BY_CAT)
    # The last line of the start, which a busy machine writes after the one with the addresses.
    until(lambda: "has the database in its memory" in server.log())
    reader = stop_reading(server)
    try:
        for _ in range(10_200):
            with Connection(server.address) as connection:
                # Two bytes of a TLS handshake, which this port does not speak; each is logged.
                connection.send(b"\x16\x03")
                connection.expect_end()
    finally:
        os.kill(reader, signal.SIGCONT)
    until(lambda: server.log().count("TLS on a plain HTTP port") == 10_000)
    assert server.stop() == 0
    assert re.search(r" error: 20\d lines of the log were dropped, as its reader or its disk was too slow\n", server.log())


def test_an_access_log_on_a_pipe_that_does_not_block_is_whole(serve):
    reading, writing = os.pipe()
    os.set_blocking(writing, False)
    server = serve({"access_log": "json"}, output=writing)
    os.close(writing)
    with Connection(server.address) as connection:
        # More than the pipe takes.
        for _ in range(2_000):
            connection.exchange(get("nobody"))
    with open(reading, encoding="utf-8") as reader, ThreadPoolExecutor(1) as thread:
        read = thread.submit(reader.read)
        assert server.stop() == 0
        assert len(read.result().splitlines()) == 2_000


def test_a_second_signal_ends_the_server_also_if_nobody_reads_the_log(serve):
    server = serve({"drain_timeout": "3600s"}, prefix=READ_BY_CAT)
    reader = stop_reading(server)
    try:
        server.send_signal(signal.SIGTERM)
        # It waits for room for its last lines, for a second, and ends without writing them.
        assert server.stop(signal.SIGINT) == 0
    finally:
        os.kill(reader, signal.SIGCONT)


# The file

def test_lines_are_appended_to_a_file_that_others_do_not_read(serve, tmp_path):
    file = tmp_path / "access.log"
    file.write_text("before\n")
    new = tmp_path / "new.log"
    for path in file, new:
        server = serve({"access_log": f"json {path}"})
        server.get("a")
        assert server.stop() == 0 and server.output() == ""
    first, line = file.read_text().splitlines()
    assert first == "before" and json.loads(line)["status"] == 200
    assert stat.S_IMODE(new.stat().st_mode) & 0o137 == 0


def test_a_renamed_file_is_left_on_sighup_and_no_line_is_lost(serve, tmp_path):
    file = tmp_path / "access.log"
    server = serve({"access_log": f"json {file}"})
    asked = [[] for _ in range(4)]

    def ask(ids, over):
        with Connection(server.address) as connection:
            while not over.is_set():
                ids.append(connection.exchange(get("a")).headers["x-request-id"])

    with beside(ask, asked):
        for number in range(20):
            enough = sum(map(len, asked)) + 50
            until(lambda: sum(map(len, asked)) >= enough)
            file.rename(tmp_path / f"access.log.{number}")
            hang_up(server)
            until(file.exists)
    assert server.stop() == 0
    files = list(tmp_path.glob("access.log*"))
    lines = [json.loads(line)["request_id"] for path in files for line in path.read_text().splitlines()]
    assert len(files) == 21 and sorted(lines) == sorted(sum(asked, []))


@pytest.mark.parametrize("number", [signal.SIGHUP, signal.SIGUSR1], ids=str)
def test_a_renamed_file_is_left_although_the_settings_have_a_fault(serve, tmp_path, number):
    file = tmp_path / "access.log"
    server = serve({"access_log": f"json {file}"})
    with open(server.folder / "token-cache.yaml", "a", encoding="utf-8") as settings:
        settings.write("\nunknown: 1\n")
    file.rename(tmp_path / "access.log.1")
    server.send_signal(number)
    until(lambda: "no setting changes" in server.log())
    exchange(server.address, get("a"))
    assert server.stop() == 0
    assert json.loads(file.read_text())["status"] == 200


def test_a_full_disk_is_told_and_requests_are_answered(serve):
    server = serve({"access_log": "combined /dev/full"})
    for _ in range(3):
        assert exchange(server.address, get("a")).status == 200
    until(lambda: "lines of the access log are lost, as /dev/full cannot be written to" in server.log())


def test_a_reader_of_standard_output_that_has_ended_is_told(serve):
    reading, writing = os.pipe()
    server = serve({"access_log": "combined"}, output=writing)
    os.close(writing)
    os.close(reading)
    assert exchange(server.address, get("a")).status == 200
    until(lambda: "lines of the access log are lost, as standard output cannot be written to" in server.log())


@pytest.mark.parametrize("trusted, fields, told", [
    ("none", ["X-Forwarded-Proto: https"], "as 127.0.0.1 is not in trusted_proxies"),
    ("127.0.0.1", ["Forwarded: for=192.0.2.1;proto=https"], "127.0.0.1, a trusted proxy, is redirected"),
    ("127.0.0.1", ["X-Forwarded-Proto: https, http"], "127.0.0.1, a trusted proxy, is redirected"),
])
def test_a_proxy_whose_requests_are_redirected_again_and_again_is_named(serve, trusted, fields, told):
    server = serve({"trusted_proxies": trusted})
    with Connection(server.address) as connection:
        for sent in (["X-Forwarded-Proto: http"], fields, fields):
            connection.send(get("a", *sent))
            assert connection.receive().status == 302
    until(lambda: told in server.log())
    assert server.log().count("is redirected, as") == 1
