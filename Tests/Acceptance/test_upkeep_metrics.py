"""What operators have to look after, in metrics and status: the disk, reloads, backups, listeners, keys."""
import json
import os
import shutil
import subprocess
import time
import urllib.request

import pytest

from contract import NOT_FOUND, STORED
from http_client import exchange, get, post
from server_process import run, until
from test_metrics import ADMINISTRATION, metrics
from test_reload import rewrite
from test_tls import make_pair, tls_settings

FREE = "token_cache_data_directory_free_bytes"
RELOADED = "token_cache_last_reload_successful"
RELOAD_TIME = "token_cache_last_reload_success_timestamp_seconds"
BACKED_UP = "token_cache_last_backup_successful"
BACKUP_TIME = "token_cache_last_backup_success_timestamp_seconds"


def status(server):
    host, port = server.administration[0]
    with urllib.request.urlopen(f"http://{host}:{port}/status", timeout=20) as response:
        return json.load(response)


def backup(server, target, *options):
    return run("backup", target, *options, "--data-directory", server.data)


def test_the_disk_is_that_of_the_data_folder(serve):
    server = serve(ADMINISTRATION)
    disk, after, told = os.statvfs(server.data), metrics(server), status(server)["disk"]
    size = disk.f_blocks * disk.f_frsize
    assert after["token_cache_data_directory_size_bytes"] == told["bytes"] == size
    # Other programs write to the same disk.
    assert abs(after[FREE] - disk.f_bavail * disk.f_frsize) < size / 10 and after[FREE] == told["free_bytes"]
    if disk.f_files:
        assert after["token_cache_data_directory_inodes"] == told["inodes"] == disk.f_files
        assert abs(after["token_cache_data_directory_free_inodes"] - disk.f_favail) < disk.f_files / 10


@pytest.fixture(name="small_disk")
def a_small_disk(tmp_path):
    """A file system of its own; only root can mount one."""
    folder = tmp_path / "disk"
    folder.mkdir()
    mounted = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", "size=32m,mode=0700", "tmpfs", folder], capture_output=True, text=True, check=False)
    if mounted.returncode != 0:
        pytest.skip(f"nothing can be mounted here: {mounted.stderr}")
    yield folder
    subprocess.run(["umount", "--lazy", folder], check=True)


def test_what_fills_the_disk_is_seen(serve, small_disk):
    server = serve(ADMINISTRATION, data=small_disk / "data")
    before = metrics(server)[FREE]
    assert before < 32 << 20
    small_disk.joinpath("other").write_bytes(bytes(8 << 20))
    until(lambda: metrics(server)[FREE] <= before - (8 << 20), 30)


def test_a_reload_is_told_of_with_its_time(serve):
    began = int(time.time())
    server = serve(ADMINISTRATION)
    started = metrics(server)
    assert started[RELOADED] == 1 and began <= started[RELOAD_TIME] <= time.time()
    rewrite(server, json_bodies="perhaps")
    assert run("reload", "--data-directory", server.data).returncode != 0
    failed = metrics(server)
    assert (failed[RELOADED], failed[RELOAD_TIME]) == (0, started[RELOAD_TIME])
    assert status(server)["reload"] == {"successful": False, "last_success": started[RELOAD_TIME]}
    rewrite(server, json_bodies="on")
    until(lambda: time.time() >= started[RELOAD_TIME] + 1)
    assert run("reload", "--data-directory", server.data).returncode == 0
    mended = metrics(server)
    assert mended[RELOADED] == 1 and mended[RELOAD_TIME] > started[RELOAD_TIME]
    assert status(server)["reload"] == {"successful": True, "last_success": mended[RELOAD_TIME]}


def test_renewed_certificates_that_cannot_be_used_are_a_failed_reload(serve, tmp_path):
    pair, other = make_pair(tmp_path, "pair"), make_pair(tmp_path, "other")
    renewed = make_pair(tmp_path, "renewed")
    server = serve({**ADMINISTRATION, **tls_settings(pair)})
    started = metrics(server)
    until(lambda: time.time() >= started[RELOAD_TIME] + 1)
    shutil.copy(other[1], pair[1])
    until(lambda: metrics(server)[RELOADED] == 0, 30)
    told = status(server)
    assert told["reload"] == {"successful": False, "last_success": started[RELOAD_TIME]}
    assert "the next start would fail" in told["warnings"][0]["text"] and "does not belong to" in told["warnings"][0]["text"]
    # A reload of the settings alone does not make up for it.
    rewrite(server, json_bodies="on")
    assert run("reload", "--data-directory", server.data).returncode != 0
    for source, target in zip(renewed, pair):
        shutil.copy(source, target)
    # The settings that were refused are still not in force.
    until(lambda: not any("next start would fail" in warning["text"] for warning in status(server)["warnings"]), 30)
    assert metrics(server)[RELOADED] == 0
    assert run("reload", "--data-directory", server.data).returncode == 0
    mended = metrics(server)
    assert mended[RELOADED] == 1 and mended[RELOAD_TIME] > started[RELOAD_TIME]


def test_renewed_certificates_that_are_used_are_a_reload_with_its_time(serve, tmp_path):
    pair, renewed = make_pair(tmp_path, "pair"), make_pair(tmp_path, "renewed")
    server = serve({**ADMINISTRATION, **tls_settings(pair)})
    started = metrics(server)
    until(lambda: time.time() >= started[RELOAD_TIME] + 1)
    for source, target in zip(renewed, pair):
        shutil.copy(source, target)
    until(lambda: metrics(server)[RELOADED] == 1 and metrics(server)[RELOAD_TIME] > started[RELOAD_TIME], 30)


def test_without_a_backup_nothing_is_said_of_one(serve):
    server = serve(ADMINISTRATION)
    assert not {BACKED_UP, BACKUP_TIME} & metrics(server).keys()
    assert "backup" not in status(server)


def test_a_backup_is_remembered_over_restarts(serve, tmp_path):
    server = serve(ADMINISTRATION)
    began = int(time.time())
    assert backup(server, tmp_path / "tokens.db").returncode == 0
    made = metrics(server)
    assert made[BACKED_UP] == 1 and began <= made[BACKUP_TIME] <= time.time()
    assert server.stop() == 0
    again = serve(ADMINISTRATION, data=server.data)
    assert metrics(again)[BACKUP_TIME] == made[BACKUP_TIME] and metrics(again)[BACKED_UP] == 1
    # One that fails leaves the time of the last good one.
    assert backup(again, tmp_path / "tokens.db", "--after", "false").returncode != 0
    failed = metrics(again)
    assert (failed[BACKED_UP], failed[BACKUP_TIME]) == (0, made[BACKUP_TIME])
    told = status(again)["backup"]
    assert (told["successful"], told["last_success"]) == (False, made[BACKUP_TIME]) and told["last_end"] >= began
    assert again.stop() == 0
    third = serve(ADMINISTRATION, data=server.data)
    assert (metrics(third)[BACKED_UP], metrics(third)[BACKUP_TIME]) == (0, made[BACKUP_TIME])


def test_a_backup_of_a_stopped_servers_store_counts_too(serve, tmp_path):
    first = serve(ADMINISTRATION)
    assert first.stop() == 0
    assert backup(first, tmp_path / "tokens.db").returncode == 0
    record = first.data / "last-backup"
    assert record.stat().st_mode & 0o777 == 0o600 and record.stat().st_uid == first.data.stat().st_uid
    assert metrics(serve(ADMINISTRATION, data=first.data))[BACKED_UP] == 1


@pytest.mark.parametrize("text", ["", "ended soon\n", "ended 1\n", "\0\xff", "ended 1 2\noutcome succeeded\n"])
def test_a_record_that_is_none_is_no_backup(serve, text):
    first = serve()
    assert first.stop() == 0
    first.data.joinpath("last-backup").write_text(text, encoding="latin-1")
    server = serve(ADMINISTRATION, data=first.data)
    assert not {BACKED_UP, BACKUP_TIME} & metrics(server).keys()


def test_requests_are_counted_by_listener(serve, tmp_path):
    path = tmp_path / "http.sock"
    server = serve({**ADMINISTRATION, "listen": ["127.0.0.1:0", f"unix:{path}"]})
    host, port = server.address
    for _ in range(3):
        assert exchange(server.address, post("a", "b")).body == STORED
    subprocess.run(
        ["curl", "-sS", "--unix-socket", path, "http://localhost/token?unique_id=a"], capture_output=True, timeout=20,
        check=True)
    expected = {f"http://{host}:{port}": 3, f"unix:{path}": 1}
    after = metrics(server)
    assert {name: after[f'token_cache_listener_requests_total{{listener="{name}"}}'] for name in expected} == expected
    assert {entry["name"]: entry["requests"] for entry in status(server)["requests"]["by_listener"]} == expected


def test_ids_that_are_not_there_are_told_by_themselves(serve):
    server = serve(ADMINISTRATION)
    for unique_id in ("a", "b"):
        assert exchange(server.address, get(unique_id)).body == NOT_FOUND
    exchange(server.address, get("a", path="/elsewhere"))
    told = status(server)["requests"]
    assert (told["not_found"], told["errors"]) == (2, 1)


def test_the_key_in_use_is_told(serve):
    server = serve(ADMINISTRATION)
    assert metrics(server)["token_cache_store_sealing_key"] == 1
    exchange(server.address, post("a", "b"))
    assert run("keys", "add", "--data-directory", server.data).returncode == 0
    exchange(server.address, post("b", "c"))
    assert metrics(server)["token_cache_store_sealing_key"] == 2
