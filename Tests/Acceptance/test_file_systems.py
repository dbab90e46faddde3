"""File systems that do not keep what the store needs."""
import shutil
import subprocess

import pytest

from server_process import needs_root, run, until


@pytest.fixture
def careless(tmp_path):
    """A folder on FUSE where everybody may do everything, whatever the mode of a file, as on exFAT."""
    if shutil.which("bindfs") is None:
        pytest.skip("bindfs is not installed")
    source, mounted = tmp_path / "source", tmp_path / "mounted"
    for folder in (source, mounted):
        folder.mkdir()
    done = subprocess.run(
        ["bindfs", "--perms=0777", "--chmod-ignore", source, mounted], capture_output=True, text=True, check=False)
    if done.returncode != 0:
        pytest.skip(f"bindfs cannot mount here: {done.stderr.strip()}")
    yield mounted
    until(lambda: subprocess.run(["umount", mounted], capture_output=True, check=False).returncode == 0)


@needs_root
def test_the_first_start_refuses_a_file_system_that_shows_the_key_ring_to_others(careless):
    for _ in range(2):
        refusal = run("serve", "--data-directory", str(careless / "data"), "--listen", "127.0.0.1:0")
        assert refusal.returncode == 1 and "no key ring was made" in refusal.stderr and "umask=077" in refusal.stderr, refusal.stderr
        assert not (careless / "data/keys").exists()


@needs_root
def test_a_server_warns_of_fuse(serve, careless, tmp_path):
    server = serve({"sealing": {"key_ring": str(tmp_path / "keys")}}, data=careless / "data")
    [line] = [line for line in server.log().splitlines() if " is on FUSE, " in line]
    assert " warning: " in line and "set data_directory" in line
    # Before the folder is unmounted.
    assert server.stop() == 0


@needs_root
def test_a_command_beside_a_server_without_a_socket_says_why(serve, tmp_path):
    """As on sshfs, where no socket can be made."""
    server = serve()
    (server.data / "control.sock").unlink()
    for command in (("doctor",), ("backup", str(tmp_path / "backup"))):
        done = run(*command, "--data-directory", str(server.data))
        text = done.stdout + done.stderr
        assert done.returncode == 1 and "it could not make one" in text and "no server listens" not in text, text
