"""The limits of the store: its size, what is left in its files, and the memory for reading all of it."""
import pytest

from contract import STORED, WRITE_FAILED, found, fresh_id
from http_client import Connection, post
from sealed_rows import KeyRing
from server_process import until
from store_files import holds, opened, printed


def test_beyond_the_size_new_ids_are_refused_and_known_ones_not(serve):
    server = serve({"store": {"max_bytes": "1 MiB"}})
    ids = []
    while True:
        unique_id = fresh_id()
        answer = server.post(unique_id, "x" * 50_000)
        if answer != STORED:
            break
        ids.append(unique_id)
    assert answer == WRITE_FAILED and 10 < len(ids) < 40
    for _ in range(50):
        assert server.post(fresh_id(), "1") == WRITE_FAILED
    assert server.post(ids[0], "small") == STORED
    assert server.get(ids[0]) == found("small")
    assert server.log().count("store.max_bytes") == 1
    printed(server.data, "delete", *ids[1:10])
    assert server.post(fresh_id(), "1") == STORED
    assert "new ids are accepted again" in server.log()


@pytest.mark.parametrize("erase", ["delete", "overwrite"])
def test_what_is_deleted_or_replaced_is_in_no_file_any_more(serve, erase):
    server = serve()
    for unique_id, value in (("small", "secret"), ("large", "secret" * 5_000), ("other", "x" * 300)):
        assert server.post(unique_id, value) == STORED
    keys = [KeyRing(server.data / "keys").row_key(unique_id) for unique_id in ("small", "large")]
    assert server.stop() == 0
    with opened(server.data) as database:
        values = [database.execute("SELECT value FROM token WHERE key = ?", (key,)).fetchone()[0] for key in keys]
    # Of the large one, something of each page; a part on two pages is nowhere as a whole.
    parts = [value[start:start + 24] for value in values for start in range(0, len(value) - 23, 1_000)]
    parts = [part for part in parts if holds(server.data, part)]
    assert len(parts) > 20
    server = serve(data=server.data)
    if erase == "delete":
        printed(server.data, "delete", "small", "large")
    else:
        for unique_id in ("small", "large"):
            assert server.post(unique_id, "y") == STORED
    until(lambda: holds(server.data, *parts) == [])
    assert server.get("other") == found("x" * 300)


def test_what_reads_the_whole_store_takes_little_memory_however_large_tokens_are(serve, tmp_path):
    """With pages limited by the number of tokens only, listing these took 130 MiB more, and exporting 400."""
    server = serve()
    count = 120
    with Connection(server.address) as connection:
        for number in range(count):
            assert connection.exchange(post(f"id{number}", f"{number:08}" * 125_000)).body == STORED
    before = server.peak_resident_bytes()
    assert f"{count} tokens" in printed(server.data, "list")
    printed(server.data, "verify")
    printed(server.data, "keyring", "rotate")
    printed(server.data, "export", str(tmp_path))
    assert server.peak_resident_bytes() - before < 80 << 20
    for number in (0, 77, count - 1):
        assert f"{number:08}" * 125_000 in (tmp_path / f"id{number}.txt").read_text()
