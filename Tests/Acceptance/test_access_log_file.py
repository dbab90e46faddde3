"""The access log in a file that logrotate renames, after which the server reopens it."""
import json
import os
import signal
import stat
import subprocess
import threading

import pytest

from http_client import Connection, exchange, get
from server_process import run, until

LOGROTATE = "/usr/sbin/logrotate"


def test_an_access_log_that_leads_nowhere_is_made_nowhere(tmp_path):
    (tmp_path / "access.log").symlink_to(tmp_path / "made.log")
    done = run("serve", "--listen", "127.0.0.1:0", "--data-directory", str(tmp_path / "data"), environment={
        "TOKEN_CACHE_ACCESS_LOG": "json", "TOKEN_CACHE_ACCESS_LOG_FILE": str(tmp_path / "access.log")})
    assert done.returncode == 1 and f"{tmp_path}/access.log" in done.stderr
    assert not (tmp_path / "made.log").exists()


def reload(server):
    """Makes the server reload and waits for the end."""
    count = server.log().count("SIGHUP received")
    server.process.send_signal(signal.SIGHUP)
    until(lambda: server.log().count("SIGHUP received") > count)


def test_lines_are_appended_to_a_file_that_others_do_not_read(serve, tmp_path):
    file = tmp_path / "access.log"
    file.write_text("before\n")
    new = tmp_path / "new.log"
    for path in file, new:
        server = serve({"access_log": "json", "access_log_file": str(path)})
        exchange(server.address, get("a"))
        assert server.stop() == 0 and server.output() == ""
    first, line = file.read_text().splitlines()
    assert first == "before" and json.loads(line)["status"] == 200
    assert stat.S_IMODE(new.stat().st_mode) & 0o137 == 0


def test_without_an_access_log_there_is_no_file(serve, tmp_path):
    server = serve({"access_log_file": str(tmp_path / "access.log")})
    exchange(server.address, get("a"))
    assert server.stop() == 0 and not (tmp_path / "access.log").exists()


def test_a_file_that_cannot_be_opened_stops_the_start(tmp_path, serve):
    path = tmp_path / "missing" / "access.log"
    with pytest.raises(AssertionError, match="access_log_file cannot be opened: .*No such file or directory; its folder has to exist"):
        serve({"access_log": "json", "access_log_file": str(path)})


def test_a_renamed_file_is_left_on_sighup_and_no_line_is_lost(serve, tmp_path):
    file = tmp_path / "access.log"
    server = serve({"access_log": "json", "access_log_file": str(file), "request_ids": "on"})
    ends, asked = threading.Event(), [[] for _ in range(4)]

    def ask(ids):
        with Connection(server.address) as connection:
            while not ends.is_set():
                ids.append(connection.exchange(get("a")).headers["x-request-id"])

    threads = [threading.Thread(target=ask, args=(ids,)) for ids in asked]
    for thread in threads:
        thread.start()
    for number in range(20):
        enough = sum(map(len, asked)) + 50
        until(lambda: sum(map(len, asked)) >= enough)
        file.rename(tmp_path / f"access.log.{number}")
        reload(server)
        until(file.exists)
    ends.set()
    for thread in threads:
        thread.join(20)
    assert server.stop() == 0
    files = list(tmp_path.glob("access.log*"))
    lines = [json.loads(line)["request_id"] for path in files for line in path.read_text().splitlines()]
    assert len(files) == 21 and sorted(lines) == sorted(sum(asked, []))


@pytest.mark.skipif(not os.access(LOGROTATE, os.X_OK), reason="there is no logrotate")
def test_logrotate_rotates_it(serve, tmp_path):
    logs = tmp_path / "logs"
    logs.mkdir(mode=0o755)
    server = serve({"access_log": "json", "access_log_file": str(logs / "access.log")})
    exchange(server.address, get("a"))
    until(lambda: (logs / "access.log").read_text())
    rules = tmp_path / "rules"
    rules.write_text(f"""{logs}/*.log {{
        rotate 3
        nocreate
        postrotate
            kill -HUP {server.process.pid}
        endscript
    }}""")
    rules.chmod(0o644)
    subprocess.run([LOGROTATE, "--force", "--state", tmp_path / "state", rules], check=True, timeout=30)
    until((logs / "access.log").exists)
    exchange(server.address, get("a"))
    assert server.stop() == 0
    for name in "access.log", "access.log.1":
        assert len((logs / name).read_text().splitlines()) == 1, name


def test_a_full_disk_is_told_and_requests_are_answered(serve):
    server = serve({"access_log": "combined", "access_log_file": "/dev/full"})
    for _ in range(3):
        assert exchange(server.address, get("a")).status == 200
    until(lambda: "lines of the access log are lost, as /dev/full cannot be written to" in server.log())
