"""A WAL that the disk returns damaged: no acknowledged write is dropped without a message."""
import json
import stat

import pytest

from contract import NOT_FOUND, STORED, WRITE_FAILED, found
from http_client import Connection, post
from server_process import run, until
from storage_shim import ALWAYS
from store_files import command, printed, refused

FRAME = 2_048 + 24
HEAD = 32


@pytest.fixture
def crashed(serve):
    """The folder of a server that was killed with ten commits in the WAL."""

    def attempt():
        server = serve()
        with Connection(server.address) as connection:
            for number in range(10):
                assert connection.exchange(post(f"id{number}", "x" * 5_000)).body == STORED
        server.kill()
        # A checkpoint follows a second after the last commit, which may have been just before.
        size = (server.data / "tokens.db-wal").stat().st_size
        return server.data if size > HEAD + 20 * FRAME else None

    return until(attempt)


def flip(data, offset):
    """Flips a bit of the WAL and returns its new contents."""
    log = data / "tokens.db-wal"
    content = bytearray(log.read_bytes())
    content[offset] ^= 4
    log.write_bytes(content)
    return bytes(content)


def start(data, *flags, **options):
    """Starts a server that must refuse to start, and returns its error message."""
    done = run("serve", "--data-directory", str(data), "--listen", "127.0.0.1:0", *flags, **options)
    assert done.returncode == 1, (done.stdout, done.stderr)
    return done.stderr


def kept_log(data):
    return data / "tokens.db-wal.damaged"


def test_neither_a_start_nor_a_command_drops_the_end_of_a_damaged_log(crashed, tmp_path):
    content = flip(crashed, HEAD + 3 * FRAME + 1_000)
    assert "--accept-damaged-wal" in start(crashed)
    for arguments in (["get", "id0"], ["put", "a", "b"], ["copy", "--from", str(crashed), "--to", str(tmp_path / "copy")],
                      ["backup", str(tmp_path / "backup.db")]):
        assert "tokens.db-wal is damaged" in refused(crashed, *arguments)
    assert (crashed / "tokens.db-wal").read_bytes() == content


def findings(data):
    done = command(data, "doctor", "--json")
    return [finding["text"] for finding in json.loads(done.stdout)["findings"]]


def test_the_doctor_tells_of_it_and_of_what_is_kept(crashed):
    flip(crashed, HEAD + 3 * FRAME + 1_000)
    assert any("tokens.db-wal is damaged" in text for text in findings(crashed))
    assert not kept_log(crashed).exists(), "the doctor changes nothing"
    kept_log(crashed).write_bytes(b"")
    assert any(f"{kept_log(crashed)} is a copy of a damaged WAL" in text for text in findings(crashed))


def test_it_is_dropped_when_that_is_accepted(serve, crashed):
    content = flip(crashed, HEAD + 12 * FRAME + 1_000)
    server = serve({}, "--accept-damaged-wal", data=crashed)
    told = next(line for line in server.log().splitlines() if "tokens.db-wal is damaged" in line)
    assert "error" in told and "frame 13" in told
    kept = kept_log(crashed)
    assert kept.read_bytes() == content
    assert stat.S_IMODE(kept.stat().st_mode) == 0o600
    assert server.get("id0") == found("x" * 5_000)
    assert server.get("id9") == NOT_FOUND
    assert server.post("id9", "new") == STORED
    assert f"{kept} is a copy of a damaged WAL" in printed(crashed, "verify")
    server.kill()
    again = serve(data=crashed)
    assert again.get("id9") == found("new")
    assert kept.read_bytes() == content


def test_a_restore_takes_the_place_of_a_store_with_a_damaged_log(serve, crashed, tmp_path):
    other = serve()
    assert other.post("other", "1") == STORED
    printed(other.data, "backup", str(tmp_path / "backup.db"))
    other.stop()
    flip(crashed, HEAD + 3 * FRAME + 1_000)
    (crashed / "keys").write_bytes((other.data / "keys").read_bytes())
    printed(crashed, "restore", str(tmp_path / "backup.db"))
    assert serve(data=crashed).get("other") == found("1")


def test_nothing_is_left_in_the_log_of_what_has_failed(shim, tmp_path):
    """Its frames end with the mark of a commit that was never acknowledged; after a later commit they would look like damage."""
    server = shim.serve(tmp_path / "server")
    log = shim.data / "tokens.db-wal"
    assert server.post("id0", "x" * 5_000) == STORED
    size = log.stat().st_size
    shim.set(sync_failures=ALWAYS)
    for _ in range(3):
        assert server.post("id1", "x" * 50_000) == WRITE_FAILED
        assert log.stat().st_size <= size
    server.kill()
    shim.heal()
    server = shim.serve(tmp_path / "server")
    assert server.get("id0") == found("x" * 5_000)
    assert server.stop() == 0
