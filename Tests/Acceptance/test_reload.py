"""SIGHUP changes what can change, names what cannot, and changes nothing if the configuration is wrong."""
import json
import random
import shutil
import signal
import socket
import time
from pathlib import Path

import pytest

from administration import ADMINISTRATION, metrics
from certificates import make_pair
from contract import NOT_FOUND, STORED, found
from http_client import TRUSTING, Connection, exchange, get, post
from server_process import beside, run, until
from test_tls import certificate_client, is_answered, serial, tls_settings


def rewrite(server, **changes):
    """Changes settings in the server's file; None removes one."""
    file = server.folder / "token-cache.yaml"
    merged = {**json.loads(file.read_text()), **changes}
    file.write_text(json.dumps({key: value for key, value in merged.items() if value is not None}))


def hang_up(server):
    """Sends SIGHUP and returns the line about it in the log."""
    start = len(server.log())
    server.process.send_signal(signal.SIGHUP)
    until(lambda: "SIGHUP received" in server.log()[start:] and server.log().endswith("\n"))
    # A warning about settings that need a restart may follow.
    until(lambda: answers(server))
    return server.log()[start:]


def answers(server):
    """Whether it accepts connections."""
    with socket.create_connection(server.address, 5):
        return True


def reload(server, **changes):
    rewrite(server, **changes)
    return hang_up(server)


def status(server, data, **options):
    return exchange(server.address, data, **options).status


# Settings before and after, and a request with its status before and after
EFFECTS = {
    "paths": ({}, {"paths": ["/other"]}, get("a", path="/other"), (404, 200)),
    "https.mode": ({"https": {"mode": "off"}}, {"https": {"mode": "strict"}}, get("a", "X-Forwarded-Proto: http"), (200, 302)),
    "trusted_proxies": ({}, {"trusted_proxies": "none"}, get("a", "X-Forwarded-Proto: https"), (200, 302)),
    "limits.body": ({}, {"limits": {"body": "1 KiB"}}, post("a", "x" * 2000), (200, 413)),
    "limits.head": ({"limits": {"head": "9 KiB"}}, {"limits": {"head": "16 KiB"}}, get("a", f"X: {'x' * 9500}"), (431, 200)),
}


@pytest.mark.parametrize("key", EFFECTS)
def test_a_changed_setting_takes_effect_for_new_and_for_open_connections(serve, key):
    before, after, request, (old, new) = EFFECTS[key]
    # One loop, as a reload reaches one after the other.
    server = serve({"loops": 1, **before})
    with Connection(server.address) as idle, Connection(server.address) as used:
        assert used.exchange(get("a")).body == NOT_FOUND
        assert status(server, request) == old
        log = reload(server, **after)
        assert f"SIGHUP received: changed {key} from " in log and "restart" not in log, log
        until(lambda: status(server, request) == new)
        assert idle.exchange(request).status == new
        assert used.exchange(request).status == new


def test_a_request_under_way_keeps_what_it_began_with(serve):
    server = serve({"loops": 1})
    data = post("a", "x" * 5000)
    with Connection(server.address) as connection:
        # Once the first request is answered, the beginning of the second one has been received with it.
        connection.send(get("b") + data[:200])
        assert connection.receive().status == 200
        until(lambda: "received" in reload(server, limits={"body": "1 KiB"}))
        until(lambda: status(server, data) == 413)
        connection.send(data[200:])
        assert connection.receive().body == STORED
        assert connection.exchange(data).status == 413


def test_the_level_and_the_format_of_the_log_change(serve):
    server = serve({"log_level": "info"})
    reload(server, log_level="debug")
    with socket.create_connection(server.address) as client:
        client.sendall(b"\x16\x03\x01\x02\x00\x01\x00")
        until(lambda: "TLS on a plain HTTP port" in server.log())
    log = reload(server, log_level="info", log_format="json")
    assert "log_format from text to json" in json.loads(log.splitlines()[0])["message"]


def test_the_access_log_can_be_turned_on_moved_and_off(serve, tmp_path):
    server = serve({"loops": 1})
    file = tmp_path / "access.log"
    reload(server, access_log="json")
    until(lambda: server.get("a") and server.output())
    reload(server, access_log=f"json {file}")
    until(lambda: server.get("a") and file.exists() and file.read_text())
    reload(server, access_log="off")
    # The loop may begin to answer the first of them before the reload has reached it.
    _, last = (exchange(server.address, get("a")).headers["x-request-id"] for _ in range(2))
    assert server.stop() == 0 and last not in file.read_text()


def test_retention_can_be_turned_on_changed_and_off(serve):
    """The new time also applies to answers that are already in the cache."""
    server = serve({"cache": {"max_bytes": "1 MiB"}})
    server.post("a", "old")
    assert server.get("a") == server.get("a") == found("old")
    time.sleep(2.1)
    log = reload(server, retention={"after_written": "1s"})
    assert "retention.after_written from off to 1s" in log
    until(lambda: server.get("a") == NOT_FOUND)
    until(lambda: "expired token" in server.log())
    reload(server, retention={"after_written": "1h"})
    server.post("a", "kept")
    time.sleep(2.1)
    assert server.get("a") == found("kept")
    reload(server, retention=None)
    assert server.get("a") == found("kept")


def test_a_setting_that_needs_a_restart_is_named_each_time(serve):
    server, key = serve(), "cache.max_bytes"
    for _ in range(2):
        log = reload(server, cache={"max_bytes": 0})
        until(lambda: f"only a restart changes {key} from " in server.log())
        assert "no setting has changed yet" in log
    until(lambda: server.log().count(f"only a restart changes {key} from ") == 2)
    assert server.post("a", "b") == STORED


BAD = {
    "a value": ({"limits": {"body": "huge"}}, ["token-cache.yaml, line 1", 'limits.body is "huge"', "from 1 KiB to 64 MiB"]),
    "a file that cannot be opened": ({"access_log": "json /nowhere/access.log"}, ["/nowhere/access.log", "No such file"]),
}


@pytest.mark.parametrize("what", BAD)
def test_a_bad_configuration_changes_nothing_and_says_why(serve, what):
    server = serve()
    change, reasons = BAD[what]
    # The path is right, and must not change either.
    log = reload(server, paths=["/other"], **change)
    assert "SIGHUP received, and no setting changes: " in log and " error: " in log
    assert all(reason in log for reason in reasons), log
    assert (status(server, get("a", path="/other")), status(server, get("a"))) == (404, 200)
    log = reload(server, **{key: None for key in change})
    assert "paths from " in log
    until(lambda: status(server, get("a", path="/other")) == 200)


def test_the_command_lets_the_server_tell_what_is_wrong_and_a_ready_server_is_ready(serve):
    server = serve(ADMINISTRATION)
    file = str(server.folder / "token-cache.yaml")
    settings = json.loads(Path(file).read_text())
    Path(file).write_text(json.dumps({**settings, "frobnicate": 1}))
    done = run("reload", "--config", file)
    assert done.returncode == 1 and "there is no setting frobnicate" in done.stdout, done
    assert metrics(server)["token_cache_last_reload_successful"] == 0
    assert run("health", "--config", file).stdout == "ready\n"
    # Without the folder's setting, the server in the default folder would be asked, which may be another one.
    settings["data_dir"] = settings.pop("data_directory")
    Path(file).write_text(json.dumps(settings))
    for command in ("reload", "health"):
        done = run(command, "--config", file)
        assert (done.returncode, done.stdout) == (1, "") and "there is no setting data_dir" in done.stderr, done


def test_a_bad_certificate_leaves_the_other_settings_alone(serve, tmp_path):
    pair, other = make_pair(tmp_path, "pair"), make_pair(tmp_path, "other")
    server = serve(tls_settings(pair))
    before = serial(server)
    log = reload(server, log_level="debug", tls=tls_settings((pair[0], other[1]))["tls"])
    assert "no setting changes, the certificates in use stay" in log and "does not belong to" in log
    assert serial(server) == before


def test_a_first_authority_ends_kept_connections_that_have_shown_no_certificate(serve, tmp_path):
    pair, authority = make_pair(tmp_path, "server"), make_pair(tmp_path, "authority", "authority")
    known = make_pair(tmp_path, "known", "client", issuer=authority)
    server = serve(tls_settings(pair))
    with certificate_client(server, known) as kept:
        assert is_answered(kept)
        assert "changed tls.client_ca" in reload(server, tls=tls_settings(pair, client_ca=str(authority[0]))["tls"])
        assert not is_answered(kept)
    with certificate_client(server, known) as shown:
        assert is_answered(shown)


def test_a_storm_of_reloads_under_load_fails_no_request(serve, tmp_path):
    """Alternates good and bad configurations and certificates, with clients on open and on new connections."""
    pairs = [make_pair(tmp_path, f"pair{number}") for number in range(3)]
    server = serve({
        **tls_settings(pairs[0]), "listen": ["https://127.0.0.1:0", "127.0.0.1:0"], "access_log": f"json {tmp_path}/access.log",
    })
    counts = [0] * 4
    secure, plain = server.addresses

    def connect(is_secure):
        return Connection(secure, context=TRUSTING) if is_secure else Connection(plain)

    def ask(number, over):
        with connect(number % 2) as kept:
            while not over.is_set():
                with connect(number % 2) as fresh:
                    for connection in (kept, fresh):
                        value = f"{number}-{counts[number]}"
                        assert connection.exchange(post(f"id{number}", value)).body == STORED
                        assert connection.exchange(get(f"id{number}")).body == found(value)
                        counts[number] += 1

    chance = random.Random(6)
    good = [{"limits": {"body": "2 MiB"}}, {"timeouts": {"idle": "60s"}}, {"log_level": "debug"},
            {"json_bodies": "on"}, {"access_log": "off"}, {"paths": ["/token", "/other"]}, {"https": {"public_host": "a.example"}},
            {"limits": {"connections": 500}}, {"cache": {"max_bytes": 0}}]
    bad = [{"limits": {"body": "huge"}}, {"nothing": 1}, {"https": {"mode": "sometimes"}}, {"tls": {"certificate": ["/no"]}}]
    original = json.loads((server.folder / "token-cache.yaml").read_text())
    with beside(ask, range(4)):
        for number in range(100):
            change = chance.choice(bad if number % 3 == 2 else good)
            pair = chance.choice(pairs)
            if number % 10 == 9:
                pair = (pair[0], chance.choice(pairs)[1])
            rewritten = {**original, **tls_settings(pair), "listen": original["listen"], **change}
            draft = server.folder / "draft"
            draft.write_text(json.dumps(rewritten))
            draft.rename(server.folder / "token-cache.yaml")
            if number % 5 == 4:
                (tmp_path / "access.log").exists() and shutil.move(tmp_path / "access.log", tmp_path / f"access.{number}")
            server.process.send_signal(signal.SIGHUP)
            # Every second reload is requested before the previous one is done.
            if number % 2:
                before = list(counts)
                until(lambda: all(now > count for now, count in zip(counts, before)))
    assert min(counts) > 20, counts
    (server.folder / "token-cache.yaml").write_text(json.dumps(original))
    reload(server)
    assert server.stop() == 0
    # Signals that come before the previous one is served are one.
    assert server.log().count("SIGHUP received") > 5
