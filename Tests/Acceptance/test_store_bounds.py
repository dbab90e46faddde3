"""The limits of the store: by age, by expiration and by size."""
import json
import threading
import time
from urllib.parse import quote

import pytest

from contract import NOT_FOUND, STORED, WRITE_FAILED, found, fresh_id
from http_client import Connection, exchange, get, post
from server_process import UNSEALED, until
from store_files import holds, opened, printed

DATE_KEY = "com.facebook.sdk:TokenInformationExpirationDateKey"


def info(date):
    """A token info with an expiration date."""
    return f'{{"{DATE_KEY}":"{date}","com.facebook.sdk:TokenInformationTokenKey":"CAA"}}'


def test_everything_is_kept_by_default(serve):
    # Unencrypted, so that the test can change the time in the file.
    server = serve(UNSEALED)
    assert exchange(server.address, post("old", info(EXPIRED[0]))).body == STORED
    server.stop()
    with opened(server.data) as database:
        database.execute("UPDATE token SET written_at = 1")
    server = serve(UNSEALED, data=server.data)
    time.sleep(1.5)
    assert b"2013-08-14" in exchange(server.address, get("old")).body


def test_a_token_that_was_not_written_for_the_time_is_not_given_and_soon_gone(serve):
    server = serve({"retention": {"after_written": "2s"}})
    assert exchange(server.address, post("a", "1")).body == STORED
    assert exchange(server.address, get("a")).body == found("1")
    time.sleep(1.2)
    assert exchange(server.address, post("b", "2")).body == STORED
    until(lambda: exchange(server.address, get("a")).body == NOT_FOUND, seconds=5)
    assert exchange(server.address, get("b")).body == found("2")
    until(lambda: '"tokens":0' in printed(server.data, "stats", "--json"), seconds=10)
    assert "expired token" in server.log()


EXPIRED = ["2013-08-14T19:24:05.123+0000", "2013-08-14T12:24:05.123-0700", "0001-01-01T00:00:00.000+0000"]
KEPT = ["4001-01-01T00:00:00.000+0000", "2099-08-14T19:24:05.123+0000", "2013-13-14T19:24:05.123+0000", "2013-08-14", ""]


# The sample client does not percent-encode the JSON, so the plus of the time zone arrives as a blank.
@pytest.mark.parametrize("encode", [quote, str], ids=["encoded", "as the sample client sends it"])
def test_a_token_that_has_expired_by_its_own_account_is_dropped(serve, encode):
    server = serve({"retention": {"after_expired": "1s"}})
    for kind, dates in (("expired", EXPIRED), ("kept", KEPT)):
        for number, date in enumerate(dates):
            answer = exchange(server.address, post(f"{kind}{number}", encode(info(date)))).body
            assert answer == STORED, "a date refuses no write"
    for number in range(len(EXPIRED)):
        assert exchange(server.address, get(f"expired{number}")).body == NOT_FOUND, EXPIRED[number]
    until(lambda: f'"tokens":{len(KEPT)}' in printed(server.data, "stats", "--json"), seconds=10)
    for number in range(len(KEPT)):
        assert b'"status":"true"' in exchange(server.address, get(f"kept{number}")).body, KEPT[number]


def test_exactly_a_steps_worth_of_expired_tokens_leaves_the_files_as_well(serve):
    server = serve({**UNSEALED, "retention": {"after_written": "2s"}})
    with Connection(server.address) as connection:
        for number in range(256):
            assert connection.exchange(post(f"id{number}", "secret4711")).body == STORED
    assert holds(server.data, "secret4711")
    until(lambda: holds(server.data, "secret4711") == [], seconds=15)


def test_many_expired_rows_hold_up_no_answer(serve):
    count = 20_000
    server = serve(UNSEALED)
    with Connection(server.address) as connection:
        for number in range(count):
            assert connection.exchange(post(f"old{number}", "v" * 300)).body == STORED
    server.stop()
    with opened(server.data) as database:
        database.execute("UPDATE token SET written_at = 1000")
    server = serve(UNSEALED, data=server.data)
    assert exchange(server.address, get("old7")).body == found("v" * 300)
    assert exchange(server.address, post("fresh", "x")).body == STORED
    server.stop()
    server = serve({**UNSEALED, "retention": {"after_written": "30d"}}, data=server.data)
    slowest = 0
    with Connection(server.address) as connection:
        while json.loads(printed(server.data, "stats", "--json"))["tokens"] > 1:
            start = time.monotonic()
            assert connection.exchange(post("fresh", f"{start}")).body == STORED
            assert connection.exchange(get("fresh")).body == found(f"{start}")
            assert connection.exchange(get("old7")).body == NOT_FOUND
            slowest = max(slowest, time.monotonic() - start)
    # Not a measurement: one step for all rows would take longer than this, each small step far less.
    assert slowest < 5
    until(lambda: holds(server.data, "v" * 300) == [], seconds=15)


def test_beyond_the_size_new_ids_are_refused_and_known_ones_not(serve):
    server = serve({"store": {"max_bytes": "1 MiB"}})
    ids = []
    while True:
        unique_id = fresh_id()
        answer = exchange(server.address, post(unique_id, "x" * 50_000)).body
        if answer != STORED:
            break
        ids.append(unique_id)
    assert answer == WRITE_FAILED and 10 < len(ids) < 40
    for _ in range(50):
        assert exchange(server.address, post(fresh_id(), "1")).body == WRITE_FAILED
    assert exchange(server.address, post(ids[0], "small")).body == STORED
    assert exchange(server.address, get(ids[0])).body == found("small")
    assert server.log().count("store.max_bytes") == 1
    printed(server.data, "delete", *ids[1:10])
    assert exchange(server.address, post(fresh_id(), "1")).body == STORED
    assert "new ids are accepted again" in server.log()


@pytest.mark.parametrize("erase", ["delete", "overwrite"])
def test_what_is_deleted_or_replaced_is_in_no_file_any_more(serve, erase):
    server = serve(UNSEALED)
    small, large = "smallsecret4711", "largesecret4711" * 2_000
    for unique_id, value in (("small", small), ("large", large), ("other", "x" * 300)):
        assert exchange(server.address, post(unique_id, value)).body == STORED
    assert holds(server.data, "secret4711")
    if erase == "delete":
        printed(server.data, "delete", "small", "large")
    else:
        for unique_id in ("small", "large"):
            assert exchange(server.address, post(unique_id, "y")).body == STORED
    until(lambda: holds(server.data, "secret4711") == [], seconds=10)
    assert exchange(server.address, get("other")).body == found("x" * 300)


def test_the_log_stays_small_under_constant_writing_and_reading(serve):
    server = serve()
    stop = threading.Event()

    def work(number):
        with Connection(server.address) as connection:
            while not stop.is_set():
                connection.send(b"".join(post(f"id{number}-{key}", "x" * 8_000) + get("id0-0") for key in range(20)))
                for _ in range(40):
                    connection.receive()

    threads = [threading.Thread(target=work, args=(number,)) for number in range(4)]
    for thread in threads:
        thread.start()
    largest = 0
    deadline = time.monotonic() + 4
    while time.monotonic() < deadline:
        largest = max(largest, (server.data / "tokens.db-wal").stat().st_size)
        time.sleep(0.005)
    stop.set()
    for thread in threads:
        thread.join()
    # The WAL's limit of 32 MiB and one group commit.
    assert 1 << 20 < largest < 48 << 20
    until(lambda: (server.data / "tokens.db-wal").stat().st_size == 0, seconds=10)


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
