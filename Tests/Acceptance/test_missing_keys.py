"""A key ring that lacks a key that tokens are sealed with: the start, the status, the doctor and a restore say so."""
import re
import shutil

import pytest

from administration import ADMINISTRATION, status
from contract import NOT_FOUND, STORED
from doctor import of, problems
from http_client import exchange, get, post
from store_files import command, opened, printed

MISSING = ("Key ring", "tokens are sealed with key 1, which the key ring does not have")


@pytest.fixture(name="lacking")
def server_whose_ring_lacks_a_key(serve):
    """A stopped server whose tokens are sealed with key 1; its ring has only key 2, and `whole.ring` beside it has both."""
    server = serve(ADMINISTRATION)
    for number in range(50):
        assert exchange(server.address, post(f"id{number}", "hello")).body == STORED
    assert server.stop() == 0
    printed(server.data, "keyring", "add")
    shutil.copy(server.data / "keys", server.folder / "whole.ring")
    leave_out_the_first_key(server.data / "keys")
    return server


def leave_out_the_first_key(ring):
    text = ring.read_text()
    shorter = re.sub("^1 .*\n", "", text, flags=re.MULTILINE)
    assert shorter.count("\n") == text.count("\n") - 1
    ring.write_text(shorter)


def test_the_start_logs_an_error_and_the_status_warns(serve, lacking):
    server = serve(ADMINISTRATION, data=lacking.data)
    assert exchange(server.address, get("id7")).body == NOT_FOUND
    error, = [line for line in server.log().splitlines() if MISSING[1] in line]
    assert "error" in error and "sealing.key_ring" in error
    told = status(server)
    assert any(MISSING[1] in warning["text"] for warning in told["warnings"])
    # New tokens are served, so it is ready, as on PostgreSQL.
    assert told["ready"] and exchange(server.address, post("id7", "again")).body == STORED
    assert MISSING in problems(of(server))
    assert "1  is missing, although tokens are sealed with it" in printed(server.data, "keyring", "list")


def test_the_doctor_finds_it_in_a_closed_store(lacking):
    report = of(lacking)
    assert problems(report) == [MISSING]
    advice, = [finding["advice"] for finding in report["findings"] if finding["state"] == "problem"]
    assert advice.startswith("put the key ring of that time back (sealing.key_ring)")


def test_with_the_ring_of_that_time_everything_is_well_again(serve, lacking):
    shutil.copy(lacking.folder / "whole.ring", lacking.data / "keys")
    assert problems(of(lacking)) == []
    server = serve(ADMINISTRATION, data=lacking.data)
    assert "key 1" not in server.log()
    told = status(server)
    assert not any("sealed with key" in warning["text"] for warning in told["warnings"])
    assert problems(of(server)) == []


@pytest.mark.parametrize("ring, fault", [
    ("lacking", "the key ring {path} lacks key 1, with which restored tokens are sealed"),
    ("another store's", "the key ring {path} is that of another store"),
    # It may be a credential.
    ("absent", None),
    ("whole", None),
])
def test_a_restore_with_another_ring_names_the_one_that_the_server_would_use(lacking, ring, fault):
    path, whole = lacking.data / "keys", lacking.folder / "whole.ring"
    environment = {"TOKEN_CACHE_SEALING_KEY_RING": str(whole)}
    backup = lacking.folder / "backup.db"
    printed(lacking.data, "backup", str(backup), environment=environment)
    if ring == "absent":
        path.unlink()
    if ring == "another store's":
        text = re.sub("^index .*$", "index " + "5" * 64, path.read_text(), flags=re.MULTILINE)
        path.write_text(text)
    if ring == "whole":
        shutil.copy(whole, path)
    done = command(lacking.data, "restore", str(backup), environment=environment)
    assert done.returncode == 0 and "restored 50 tokens" in done.stdout, done.stderr
    if fault is None:
        assert done.stderr == ""
    else:
        assert fault.format(path=path) in done.stderr
        assert "TOKEN_CACHE_SEALING_KEY_RING" in done.stderr and f"Put {whole} in its place" in done.stderr


def test_damaged_rows_keep_neither_the_server_from_starting_nor_the_keys_from_being_listed(serve):
    server = serve()
    for number in range(50):
        assert exchange(server.address, post(f"id{number}", "hello" * 50)).body == STORED
    assert server.stop() == 0
    with opened(server.data) as database:
        size, = database.execute("PRAGMA page_size").fetchone()
        pages = [page for page, in database.execute("SELECT pageno FROM dbstat WHERE name = 'token' AND pagetype = 'leaf'")]
    with (server.data / "tokens.db").open("r+b") as file:
        for page in pages:
            file.seek((page - 1) * size)
            file.write(b"nothing of use " * (size // 15))
    again = serve(data=server.data)
    assert "1  created" in printed(again.data, "keyring", "list")
    assert again.stop() == 0
    assert "1  created" in printed(again.data, "keyring", "list")
    assert not [text for topic, text in problems(of(again)) if topic == "Key ring"]
