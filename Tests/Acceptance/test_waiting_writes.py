"""Writes that wait for a slow or stopped disk take limited memory and time, and reads continue meanwhile."""
import contextlib
import json
import signal
from concurrent.futures import ThreadPoolExecutor

import pytest

from administration import ADMINISTRATION, is_ready
from contract import NOT_FOUND, STORED, WRITE_FAILED, found
from http_client import Connection, ProtocolError, get, post
from server_process import until
from store_files import command, printed, refused
from test_reload import reload

STOPPED = 600_000_000
MEBIBYTE = 1 << 20
LARGE = "x" * 1_000_000


@pytest.fixture(name="start")
def started(shim, tmp_path):
    """A function that starts a server on the disk, which can be stopped."""
    return lambda settings: shim.serve(tmp_path / "server", {"loops": 1, **ADMINISTRATION, **settings})


def answer_to(name, client):
    """The answer to a large POST; None if there was none."""
    client.send_while_possible(post(name, LARGE))
    # A 503 may be lost to a reset, because the server does not read the whole request. A test that fails closes the
    # connections, which must not hide why it failed.
    with contextlib.suppress(OSError, ProtocolError):
        return client.receive().body


def test_large_writes_that_wait_for_the_disk_are_bounded_and_told_apart(start, shim, connect):
    limits = {"limits": {"buffers": "32 MiB"}, "store": {"timeout": "60s"}}
    server = start(limits)
    assert server.post("known", "kept") == STORED
    assert server.get("known") == found("kept")
    before = server.resident_bytes()
    shim.set(sync_delay_microseconds=STOPPED)
    clients = {f"id{number}": connect(server.address, timeout=60) for number in range(120)}
    with ThreadPoolExecutor(len(clients)) as pool:
        calls = {name: pool.submit(answer_to, name, client) for name, client in clients.items()}

        def answers():
            """Those that have come so far."""
            return {name: call.result() for name, call in calls.items() if call.done()}

        # While the disk is stopped, all POSTs that exceed the queue end.
        until(lambda: len(answers()) >= 120 - 16)
        assert STORED not in answers().values()
        # Others are refused before they are read, by limits.buffers.
        assert WRITE_FAILED in answers().values()
        assert server.resident_bytes() - before < 120 * MEBIBYTE
        # Reads are answered from the cache and from the disk.
        for _ in range(50):
            assert server.get("known") == found("kept")
            assert server.get("nobody") == NOT_FOUND
        shim.set(sync_delay_microseconds=0)
        until(lambda: len(answers()) == 120)
        assert 8 <= list(answers().values()).count(STORED) <= 16
        # The answer matches the outcome.
        for name, answer in answers().items():
            if answer:
                assert server.get(name) == (found(LARGE) if answer == STORED else NOT_FOUND)
        assert server.post("later", "x") == STORED


def begin_write(shim, client):
    """Sends a POST, and waits until its commit waits for the disk; the server must not have written anything else."""
    wal = shim.data / "tokens.db-wal"
    before = wal.read_bytes()
    client.send(post("first", "1"))
    until(lambda: wal.read_bytes() != before)


def test_answers_that_are_ready_leave_while_a_later_one_waits_for_the_disk(start, shim, connect, tmp_path):
    socket = tmp_path / "http.sock"
    server = start({"listen": ["127.0.0.1:0", f"unix:{socket}"], "store": {"timeout": "60s"}})
    assert server.post("known", "x" * 4_000) == STORED
    shim.set(sync_delay_microseconds=STOPPED)
    # Nothing is read yet, so the sockets take a part of the answers. How much is not known (some 200 KiB), so each asks for more.
    clients = {count: connect(socket) for count in range(1, 80, 2)}
    for count, client in clients.items():
        client.send(get("known") * count + post(f"id{count}", "x"))
    # By then the server has read them all.
    for _ in range(5):
        assert server.get("known") == found("x" * 4_000)
    for count, client in clients.items():
        for _ in range(count):
            assert client.receive().body == found("x" * 4_000)
    shim.set(sync_delay_microseconds=0)
    for client in clients.values():
        assert client.receive().body == STORED


def test_writes_behind_one_that_does_not_end_fail_in_time_and_further_ones_at_once(start, shim, connect):
    server = start({"store": {"timeout": "1s"}})
    shim.set(sync_delay_microseconds=STOPPED)
    first = connect(server.address, timeout=60)
    begin_write(shim, first)
    second = connect(server.address, timeout=60)
    assert second.exchange(post("second", "2")).body == WRITE_FAILED
    assert not is_ready(server)
    assert server.post("third", "3") == WRITE_FAILED
    until(lambda: "store.timeout" in server.log())
    shim.set(sync_delay_microseconds=0)
    assert first.receive().body == STORED
    until(lambda: is_ready(server))
    assert server.post("fourth", "4") == STORED
    assert server.get("first") == found("1")
    for name in ("second", "third"):
        assert server.get(name) == NOT_FOUND


def test_an_erasure_and_a_reload_do_not_wait_for_a_stopped_disk(start, shim, connect):
    server = start({"store": {"timeout": "1s"}, "drain_timeout": "1s", "cache": {"max_bytes": 0}})
    assert server.post("anna", "kept") == STORED
    shim.set(sync_delay_microseconds=STOPPED)
    first = connect(server.address, timeout=60)
    begin_write(shim, first)
    # The first erasure is queued before the disk counts as stopped, the second one is refused at once.
    for _ in range(2):
        assert "store.timeout" in refused(server.data, "erase", "anna")
    for time in "3600s", "1s":
        assert f"to {time}" in reload(server, retention={"after_written": time})
    assert server.get("anna") == found("kept"), "the retention changes when the disk answers"
    shim.set(sync_delay_microseconds=0)
    assert first.receive().body == STORED
    until(lambda: server.get("anna") == NOT_FOUND)
    assert "erased" in printed(server.data, "erase", "anna")
    shim.set(sync_delay_microseconds=STOPPED)
    begin_write(shim, connect(server.address, timeout=60))
    with ThreadPoolExecutor() as pool:
        erasure = pool.submit(command, server.data, "erase", "anna")
        server.send_signal(signal.SIGTERM)
        assert server.process.wait(60) == 1 and erasure.result().returncode != 0


def test_nobody_waits_for_a_backup_whose_disk_has_stopped(serve, shim):
    # Only the backup is on the disk that stops.
    server = serve({"store": {"timeout": "1s"}}, environment=shim.environment)
    backup = shim.disk / "backup.db"
    # More than SQLite keeps in memory for a copy.
    for number in range(8):
        assert server.post(f"large{number}", LARGE) == STORED
    shim.set(write_delay_microseconds=STOPPED)
    with ThreadPoolExecutor() as pool:
        done = pool.submit(command, server.data, "backup", str(backup))
        until(lambda: shim.get("delayed_writes") > 0)
        with Connection(server.address, timeout=60) as client:
            for number in range(100):
                assert client.exchange(post(f"large{number % 8}" if number < 8 else f"id{number}", str(number))).body == STORED
        assert json.loads(printed(server.data, "stats", "--json"))["tokens"] == 100
        assert not done.done()
        shim.set(write_delay_microseconds=0)
        assert done.result().returncode == 0, done.result().stderr
    assert "a write to the disk" not in server.log()
    # One moment of the store: the last one.
    assert "100 tokens checked" in printed(server.data, "verify", str(backup))


def test_a_stop_that_a_stopped_disk_cuts_short_says_what_asked_for_it(start, shim):
    server = start({"drain_timeout": "1s"})
    with Connection(server.address, timeout=60) as client:
        shim.set(sync_delay_microseconds=STOPPED)
        begin_write(shim, client)
        server.send_signal(signal.SIGTERM)
        assert server.process.wait(60) == 1
        assert "a disk seems to hang; ending without it: SIGTERM received" in server.log()


def test_requests_behind_a_write_that_waits_are_answered_in_their_order(start, shim):
    server = start({"access_log": "combined"})
    with Connection(server.address) as client:
        shim.set(sync_delay_microseconds=300_000)
        client.send(get("nobody") + post("a", "1") + get("a") + post("a", LARGE) + get("a") + post("a", "3") + get("a"))
        expected = [NOT_FOUND, STORED, found("1"), STORED, found(LARGE), STORED, found("3")]
        assert [client.receive().body for _ in expected] == expected
        lines = until(lambda: len(server.output().splitlines()) == 7 and server.output().splitlines())
        assert [line.split('"')[1].split()[0] for line in lines] == ["GET", "POST", "GET", "POST", "GET", "POST", "GET"]
        assert [int(line.split('"')[2].split()[1]) for line in lines] == [len(body) for body in expected]


def test_answers_do_not_wait_for_a_write_behind_them(start, shim):
    server = start({})
    with Connection(server.address) as client:
        shim.set(sync_delay_microseconds=STOPPED)
        client.send(get("nobody") + post("a", "1") + get("a"))
        assert client.receive().body == NOT_FOUND
        assert client.is_silent(0.2)
        shim.set(sync_delay_microseconds=0)
        assert client.receive().body == STORED
        assert client.receive().body == found("1")


def test_memory_of_large_requests_goes_back_to_the_system(serve):
    server = serve({"loops": 1})
    assert server.get("nobody") == NOT_FOUND
    before = server.resident_bytes()
    # The C library keeps memory that the first round freed for the second.
    for _ in range(2):
        with contextlib.ExitStack() as stack:
            # Incomplete bodies, each in a buffer of one or two MiB.
            clients = [stack.enter_context(Connection(server.address)) for _ in range(100)]
            for number, client in enumerate(clients):
                client.send(post(f"id{number}", LARGE)[:-1])
            until(lambda: server.resident_bytes() - before > 80 * MEBIBYTE)
            for client in clients:
                client.send(b"x")
                assert client.receive().body == STORED
    until(lambda: server.resident_bytes() - before < 24 * MEBIBYTE)
