"""token-cache doctor examines the data folder, the store in it and its key ring."""
import re
import subprocess
import tempfile
from pathlib import Path

import pytest

from contract import STORED
from doctor import AS_SOMEBODY, advices, examine, needs_root, of, only_problem, problems, said, state_of
from http_client import exchange, post
from server_process import Server, run


@pytest.mark.parametrize("name, mode, topic, text", [
    ("data", 0o755, "Data folder", "others may enter .*0755"), ("data/tokens.db", 0o640, "Data folder", "tokens.db .*0640"),
    ("data/keys", 0o644, "Key ring", "others may read .*keys .*0644"),
    ("token-cache.yaml", 0o666, "Settings", "others may write .*0666"),
])
def test_wrong_permissions_are_problems_as_long_as_they_are_wrong(stopped, name, mode, topic, text):
    path = stopped.folder / name
    path.chmod(mode)
    report = of(stopped)
    only_problem(report, topic, text)
    (advice,) = advices(report)
    subprocess.run(advice.split(), check=True)
    assert problems(of(stopped)) == []


# The data folder

@needs_root
@pytest.mark.parametrize("name", ["", "data"])
def test_a_disk_that_is_read_only_is_a_problem(tmp_path, name):
    folder = tmp_path / "disk"
    folder.mkdir()
    done = subprocess.run(["mount", "-t", "tmpfs", "-o", "ro,mode=0700", "none", folder], capture_output=True, check=False)
    if done.returncode:
        pytest.skip("nothing can be mounted here")
    try:
        report = examine("--data-directory", str(folder / name))
    finally:
        subprocess.run(["umount", folder], check=True)
    only_problem(report, "Data folder", "is on a file system that is read-only")


def test_a_full_disk_is_a_problem(small_disk, tmp_path):
    server = Server(tmp_path / "server", data=small_disk / "data")
    try:
        report = of(server)
    finally:
        server.kill()
    only_problem(report, "Data folder", "MiB are free on the disk")


@needs_root
def test_a_folder_behind_a_closed_one_is_not_said_to_be_missing():
    with tempfile.TemporaryDirectory() as folder:
        data = Path(folder) / "private" / "token-cache"
        data.mkdir(parents=True)
        data.parent.chmod(0o700)
        Path(folder).chmod(0o755)
        report = examine("--data-directory", str(data), prefix=AS_SOMEBODY, folder="/")
    only_problem(report, "Data folder", f"^the user nobody may not access {data}$")


def test_a_path_too_long_for_the_control_socket_is_nobodys_server(tmp_path):
    data = tmp_path / ("long" * 30)
    data.mkdir(mode=0o700)
    report = examine("--data-directory", str(data))
    assert problems(report) == [] and "no server uses the data folder" in said(report, "Server")
    assert "more than 107 bytes" in said(report, "Data folder", "warning")


# The store

def test_a_store_that_does_not_open_is_a_problem(stopped):
    only_problem(of(stopped, environment={"TOKEN_CACHE_SEALING_ENABLED": "off"}), "Store", "is sealed, and sealing is off")
    database = stopped.data / "tokens.db"
    database.write_bytes(b"no database, but long enough to be taken for one " * 100)
    only_problem(of(stopped), "Store", "not a usable database")


def test_an_empty_store_beside_a_key_ring_is_warned_of(stopped, serve):
    database = stopped.data / "tokens.db"
    for found in ("there is none, although its key ring .* is there", "tokens.db is an empty file without a WAL"):
        for file in stopped.data.glob("tokens.db*"):
            file.unlink()
        if "empty file" in found:
            database.touch(mode=0o600)
        report = of(stopped)
        assert problems(report) == [] and re.search(found, said(report, "Store", "warning")), report
        again = serve(data=stopped.data)
        text = f"made an empty store {database}, although its key ring {stopped.data / 'keys'} was there already"
        assert re.search(f"warning.*{text}", again.log()), again.log()
        assert again.stop() == 0
    again = serve(data=stopped.data)
    assert "made an empty store" not in again.log()


def test_a_log_that_a_crash_left_is_told_of(serve):
    server = serve()
    assert exchange(server.address, post("a", "b")).body == STORED
    server.kill()
    before = state_of(server.folder)
    report = of(server)
    assert problems(report) == [] and re.search(r"WAL of \d+ bytes", said(report, "Store"))
    assert state_of(server.folder) == before


# The key ring

def test_the_key_ring_has_to_be_there_and_the_right_one(stopped, serve):
    ring = stopped.data / "keys"
    own = ring.read_bytes()
    ring.unlink()
    only_problem(of(stopped), "Key ring", "is missing")
    ring.write_text("index 12\n")
    ring.chmod(0o600)
    only_problem(of(stopped), "Key ring", "line 1")
    other = serve()
    ring.write_bytes((other.data / "keys").read_bytes())
    only_problem(of(stopped), "Key ring", "not the one that the store was sealed with")
    ring.write_bytes(own)
    assert problems(of(stopped)) == []


def test_a_key_ring_whose_folder_is_missing_is_told_of_as_the_start_does(tmp_path):
    ring = tmp_path / "none" / "keys"
    environment = {"TOKEN_CACHE_SEALING_KEY_RING": str(ring)}
    inside = {"TOKEN_CACHE_SEALING_KEY_RING": "./data/keys"}
    assert problems(examine("--data-directory", "data", environment=inside, folder=tmp_path)) == []
    text = f"the key ring {ring} cannot be made, as its folder does not exist"
    only_problem(examine("--data-directory", str(tmp_path / "data"), environment=environment), "Key ring", text)
    done = run("serve", "--listen", "127.0.0.1:0", "--data-directory", str(tmp_path / "data"), environment=environment)
    assert done.returncode == 1 and text in done.stderr, done.stderr
