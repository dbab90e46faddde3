"""Accidents of devices with the client library, in each mode of access: a sign-out that was acknowledged is never undone."""
import errno
import os
import random
import shutil
import time

import pytest

from contract import fresh_id
from devices import MODES
from failing_calls import IMPOSSIBLE, KILLED, NOT_REACHED, STRUCK, FailingCalls, Point, chosen, named
from server_process import finish, until
from small_disk import SmallDisk
from storage_shim import ALWAYS, StorageShim

HOUR = 3600
# What a device does; the calls before which it is killed, and those that fail as on a full disk.
ACTS = {"login": ["login", "token"], "refresh": ["refresh"], "logout": ["logout"]}
KILLING, FULL = ("open", "write", "fdatasync", "rename", "send", "recv"), ("open", "write", "fdatasync", "rename")


@pytest.mark.parametrize("act", ACTS)
@pytest.mark.parametrize("mode", MODES)
def test_a_device_may_be_killed_or_have_a_full_disk_at_each_step(mode, act, serve, tmp_path, failing_calls_library, is_long, fault):
    server = serve(MODES[mode].settings(tmp_path))
    devices = MODES[mode](tmp_path / "devices", server, fresh_id())
    calls = FailingCalls(failing_calls_library, tmp_path / "calls")

    def prepare():
        """The token of A before the act. A may have a refresh that was killed, for which others would wait a minute; B, which
        knows nothing, waits for the server however long it takes.
        """
        for name in "AB":
            shutil.rmtree(devices.folder / name, ignore_errors=True)
        return devices.run("A", "logout", *(["fetch"] if act == "login" else ["login", "token"]))[-1]

    prepare()
    calls.count()
    devices.run("A", *ACTS[act], environment=calls.environment)
    counts = calls.calls()
    points = [Point(act, kind, number, action) for kinds, action in ((KILLING, KILLED), (FULL, errno.ENOSPC))
              for kind in kinds for number in range(1, counts[kind] + 1)]
    struck = set()
    for point in named(fault, act) if fault else points if is_long else chosen(points, 12):
        before = prepare()
        calls.arm(point)
        printed, error = devices.attempt("A", *ACTS[act], environment=calls.environment)
        outcome = calls.disarm().outcome
        if outcome == STRUCK:
            struck.add(point.action)
        found = devices.run("A", "synchronize", "fetch")[-1]
        assert devices.run("B", "fetch") == [found], (str(point), before, printed, error)
        assert not devices.waits("A"), str(point)
        if act == "logout":
            # As the server can be reached, a device that could not store the sign-out has sent it.
            is_done = printed == ["signed out"] or point.action == errno.ENOSPC
            assert found == "no token" or found == before and not is_done, (str(point), printed, error)
        elif point.action == errno.ENOSPC and outcome != NOT_REACHED:
            assert [found] == printed[-1:], (str(point), printed, error)
        else:
            # Killed before it could print the token of the login, a device may have it.
            is_whole = len(printed) == len(ACTS[act])
            assert found in {before, *printed} or not is_whole or outcome == IMPOSSIBLE, (str(point), printed, error)
    assert fault or struck == {KILLED, errno.ENOSPC}


class Ledger:
    """Devices that act at random, and for each of them the logins whose sign-out was acknowledged."""

    def __init__(self, devices, chance, disk, store):
        self.devices, self.chance, self.disk, self.store = devices, chance, disk, store
        self.ended = {name: set() for name in "ABC"}
        self.log = []
        self.is_full = False

    def step(self):
        name, is_online = self.chance.choice("ABC"), self.chance.random() < 0.7
        act = self.chance.choice(self.ACTS)
        self.log.append((name, is_online, act.__name__))
        act(self, name, is_online)
        shown, _ = self.devices.attempt(name, "id", is_online=is_online)
        assert not self.ended[name].intersection(shown), self.log

    def log_in(self, name, is_online):
        self.devices.attempt(name, "login", is_online=is_online)

    def log_out(self, name, is_online):
        printed, _ = self.devices.attempt(name, "id", "logout", is_online=is_online)
        if printed[-1:] == ["signed out"]:
            self.ended[name].update({*printed[:-1]} - {"no login"})

    def use(self, name, is_online):
        self.devices.attempt(name, self.chance.choice(("refresh", "fetch", "reload", "synchronize")), is_online=is_online)

    def use_with_a_widget(self, name, is_online):
        """Two processes of the app and a widget with the same folder."""
        running = [self.devices.start(name, *commands, is_online=is_online)
                   for commands in (["refresh", "reload"], ["token", "refresh"], ["fetch", "synchronize"])]
        for process in running:
            self.devices.finish(name, process)

    def log_out_with_a_widget(self, name, is_online):
        widget = self.devices.start(name, "refresh", "refresh", is_online=is_online)
        self.log_out(name, is_online)
        self.devices.finish(name, widget)

    def be_killed(self, name, is_online):
        # Not during a refresh, for which others would wait a minute.
        process = self.devices.start(name, self.chance.choice(("login", "logout")), is_online=is_online)
        time.sleep(self.chance.random() * 0.1)
        process.kill()
        self.devices.finish(name, process)

    def fill_or_empty_the_disk(self, name, is_online):
        if self.disk:
            self.disk.empty() if self.is_full else self.disk.fill()
            self.is_full = not self.is_full

    def break_or_mend_the_store(self, name, is_online):
        if self.store.get("write_failures"):
            self.store.heal()
        else:
            self.store.set(write_failures=ALWAYS, sync_failures=ALWAYS)

    ACTS = 4 * [log_in] + 5 * [log_out] + 6 * [use] + 3 * [use_with_a_widget] + 2 * [log_out_with_a_widget] + 3 * [be_killed] + [
        fill_or_empty_the_disk, break_or_mend_the_store]

    def settle(self):
        """What all devices show once nothing fails any more."""
        self.store.heal()
        if self.is_full:
            self.fill_or_empty_the_disk(None, True)
        for name in "ABCABC":
            until(lambda name=name: self.devices.attempt(name, "synchronize") == (["nothing waits"], ""))
        shown = {tuple(self.devices.run(name, "id", "fetch")) for name in "ABC"}
        assert len(shown) == 1, (shown, self.log)
        assert not any(self.devices.waits(name) for name in "ABC"), self.log
        return shown.pop()


@pytest.mark.parametrize("mode", MODES)
def test_no_sign_out_that_was_acknowledged_comes_back(mode, tmp_path, shim_library, failing_calls_library, is_long, request):
    """A device with an app, its widget and a second process of it, and two devices whose clocks are an hour off."""
    for seed in [request.config.getoption("--seed") or 1] if not is_long else range(1, 31):
        folder = tmp_path / str(seed)
        folder.mkdir()
        disk = SmallDisk() if os.geteuid() == 0 else None
        with StorageShim(shim_library, folder / "storage") as store:
            place = disk.folder if disk else folder
            server = store.serve(folder / "server", MODES[mode].settings(place))
            try:
                devices = MODES[mode](place / "devices", server, fresh_id())
                for name, ahead in (("A", 0), ("B", HOUR), ("C", -HOUR)):
                    clock = FailingCalls(failing_calls_library, folder / f"clock{name}")
                    clock.set_clock(ahead)
                    devices.environments[name] = clock.environment
                    # Before the store fails.
                    devices.identity(name)
                ledger = Ledger(devices, random.Random(seed), disk, store)
                ledger.log_in("A", True)
                ledger.log_out("A", True)
                assert ledger.ended["A"]
                for _ in range(20):
                    ledger.step()
                login, _ = ledger.settle()
                assert not any(login in ended for ended in ledger.ended.values()), (seed, login, ledger.log)
                # All devices have a login that nobody has ended.
                devices.run("B", "logout", "login")
                assert ledger.settle()[1] == devices.run("B", "fetch")[0] != "no token"
            finally:
                finish(server)
                if disk:
                    disk.close()
