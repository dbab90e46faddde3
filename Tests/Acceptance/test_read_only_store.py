"""Commands on a store whose disk has become read-only, as Linux makes it when it fails: what to do, and that it works."""
import shutil
import subprocess

import pytest

from server_process import run
from store_files import printed, refused


@pytest.fixture(name="disk")
def mounted_disk(tmp_path):
    """A file system of its own."""
    folder = tmp_path / "disk"
    folder.mkdir()
    if subprocess.run(["mount", "-t", "tmpfs", "-o", "size=64m", "none", folder], capture_output=True, check=False).returncode:
        pytest.skip("nothing can be mounted here")
    yield folder
    subprocess.run(["umount", folder], check=True)


def test_commands_say_how_to_rescue_the_tokens_and_that_works(disk, tmp_path):
    data = disk / "data"
    assert run("put", "me", "hello", "--data-directory", str(data)).returncode == 0
    subprocess.run(["mount", "-o", "remount,ro", disk], check=True)
    for arguments in (["stats"], ["get", "me"], ["backup", str(tmp_path / "backup.db")], ["restore", str(tmp_path / "x.db")]):
        message = refused(data, *arguments)
        assert f"the data directory {data} cannot be used" in message and "Read-only file system" in message
        assert "copy tokens.db, tokens.db-wal and keys to another disk" in message and "--data-directory" in message
        assert "ProtectSystem" not in message
    rescued = tmp_path / "rescued"
    rescued.mkdir(mode=0o700)
    for name in ("tokens.db", "tokens.db-wal", "keys"):
        if (data / name).exists():
            shutil.copy(data / name, rescued)
    assert printed(rescued, "get", "me") == "hello\n"
