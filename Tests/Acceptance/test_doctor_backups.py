"""token-cache doctor warns of backups that have failed, are old, or were never made; and tells of the last one otherwise."""
import time

import pytest

from contract import STORED
from http_client import exchange, post
from server_process import NO_FIXED_PORTS, run
from store_files import command, printed
from doctor import of, said


@pytest.fixture(name="server")
def server_with_a_token(serve):
    server = serve()
    assert exchange(server.address, post("me", "hello")).body == STORED
    return server


def details(report):
    """What --verbose adds about the store."""
    return "\n".join(finding.get("detail") or "" for finding in report["findings"] if finding["topic"] == "Store")


def advice(report):
    return "\n".join(finding["advice"] for finding in report["findings"] if finding["topic"] == "Store")


def note(server, outcome, ended, succeeded=None):
    """Writes the record of a backup."""
    (server.data / "last-backup").write_text(
        f"ended {int(ended)}\noutcome {outcome}\n" + (f"succeeded {int(succeeded)}\n" if succeeded else ""))


def test_a_backup_that_failed_is_a_warning_with_its_time_running_or_not(server):
    done = command(server.data, "backup", str(server.folder / "backup.db"), "--after", "false")
    assert done.returncode == 1
    for is_running in (True, False):
        if not is_running:
            assert server.stop() == 0
        report = of(server)
        assert "the last backup failed at 20" in said(report, "Store", "warning")
        assert "none has succeeded" in said(report, "Store", "warning")
        assert "journalctl -u token-cache-backup" in advice(report)
        assert "the last backup failed at" in details(report)


def test_after_a_backup_that_succeeded_only_verbose_tells_of_it(server):
    printed(server.data, "backup", str(server.folder / "backup.db"))
    for is_running in (True, False):
        if not is_running:
            assert server.stop() == 0
        report = of(server)
        assert said(report, "Store", "warning") == ""
        assert "the last backup succeeded at 20" in details(report)


def test_without_any_backup_verbose_says_so(server):
    report = of(server)
    assert said(report, "Store", "warning") == ""
    assert "no backup of it is recorded" in details(report)
    short, long = (
        run("doctor", "--config", str(server.folder / "token-cache.yaml"), *flags, environment=NO_FIXED_PORTS).stdout
        for flags in ([], ["--verbose"]))
    assert "the last backup" not in short and "no backup" not in short and "no backup of it is recorded" in long


@pytest.mark.parametrize("hours, warned", [(25, None), (27, "is 27 hours old"), (100, "is 4 days old")])
def test_a_backup_that_the_alerts_call_too_old_is_a_warning(server, hours, warned):
    assert server.stop() == 0
    ended = time.time() - hours * 3600
    note(server, "succeeded", ended, ended)
    found = said(of(server), "Store", "warning")
    assert warned in found if warned else found == ""


def test_a_failure_after_a_success_names_both(server):
    assert server.stop() == 0
    note(server, "failed", 1795000000, 1794996400)
    assert said(of(server), "Store", "warning") == (
        "the last backup failed at 2026-11-18T11:06:40Z; the last one that succeeded ended at 2026-11-18T10:06:40Z")
