"""token-cache doctor: its report on sound and on broken servers, and that it shows no secret and changes nothing.

What keeps a server from starting, it finds as well (test_start_failures); how it judges is tested in OperationsTests."""
import contextlib
import json
import os
import re
import subprocess
import time

import pytest

from administration import ADMINISTRATION, metrics
from contract import STORED
from doctor import NOWHERE, advices, examine, of, only_problem, problems, said, state_of
from server_process import AS_NOBODY, NOBODY, needs_root, run
from small_disk import SmallDisk
from store_files import command, kill_with_log


# Without problems

def test_an_empty_machine_has_no_problem_and_gets_no_file(tmp_path):
    report = examine("--data-directory", str(tmp_path / "data"))
    assert problems(report) == []
    assert "the first start creates it" in said(report, "Data folder")
    assert list(tmp_path.iterdir()) == []


def test_a_stopped_server_has_no_problem_and_stays_as_it_is(stopped):
    before = state_of(stopped.folder)
    report = of(stopped)
    assert problems(report) == [] and state_of(stopped.folder) == before
    assert "1 token in " in said(report, "Store") and "schema 6" in said(report, "Store")
    assert said(report, "Key ring").endswith("/keys has 1 key, number 1")
    assert "no server uses the data folder" in said(report, "Server")


def test_a_running_server_has_no_problem_and_is_asked(serve):
    server = serve(ADMINISTRATION)
    assert server.post("canary4711", "canary4712") == STORED
    addresses = {"TOKEN_CACHE_LISTEN": f"127.0.0.1:{server.address[1]}",
                 "TOKEN_CACHE_ADMIN_LISTEN": f"127.0.0.1:{server.administration[0][1]}"}
    report = of(server, environment=addresses)
    assert problems(report) == []
    assert f"process {server.process.pid} serves on http://127.0.0.1:{server.address[1]}" in said(report, "Server")
    assert "1 token in " in said(report, "Store") and "the server has 1 key, number 1" in said(report, "Key ring")
    printed = json.dumps(report)
    key = re.search(r"^index ([0-9a-f]{64})", (server.data / "keys").read_text(), re.M)[1]
    assert "canary" not in printed and key not in printed and key[:16] not in printed
    assert server.is_running()


# Problems

def test_a_server_that_cannot_be_asked_is_a_problem(serve):
    server = serve()
    (server.data / "control.sock").unlink()
    only_problem(of(server), "Server", f"process {server.process.pid} uses the data folder but does not answer")
    reloaded = run("reload", "--config", str(server.folder / "token-cache.yaml"))
    # A command would end at the signal.
    advice = f"if it is the server, and not a command, kill -HUP {server.process.pid} makes it read its settings"
    assert reloaded.returncode == 1 and advice in reloaded.stderr, reloaded


def test_a_server_that_hangs_is_a_problem(serve):
    server = serve()
    with server.paused():
        report = examine("--data-directory", str(server.data))
    only_problem(report, "Server", f"process {server.process.pid} uses the data folder .* no answer came")


@needs_root
def test_somebody_else_is_told_to_ask_as_the_servers_user(serve):
    server = serve()
    report = examine("--data-directory", str(server.data), prefix=AS_NOBODY, folder="/",
                     environment={"TOKEN_CACHE_LISTEN": f"127.0.0.1:{server.address[1]}"})
    only_problem(report, "Start", f"the data directory {server.data} .*Permission denied")
    assert "nobody may not connect to control.sock" in said(report, "Server", "warning")


def test_what_the_running_server_warns_of_is_told(serve):
    server = serve({"https": {"mode": "off"}})
    assert said(of(server), "Server", "warning") == "https.mode is off: tokens are accepted and given over plain HTTP"


def test_an_address_in_use_is_warned_of_unless_the_server_uses_it(serve, stopped):
    server = serve()
    address = {"TOKEN_CACHE_LISTEN": "{}:{}".format(*server.address)}
    assert "is in use by another program" in warning(of(stopped, environment=address), "Start")[0]
    assert "a start finds the files and addresses" in said(of(server, environment=address), "Start")


# The command

def test_the_text_has_a_line_a_finding_and_what_to_do(stopped):
    stopped.data.chmod(0o755)
    done = run("doctor", "--config", str(stopped.folder / "token-cache.yaml"), environment=NOWHERE)
    assert done.returncode == 1 and done.stdout.endswith("warnings\n") and "\n1 problem, " in done.stdout
    assert f"  problem  others may enter {stopped.data} (mode 0755)\n           -> chmod 700" in done.stdout
    assert "\x1b" not in done.stdout


# The data folder and the store

@pytest.mark.parametrize("name, mode, topic, text", [
    ("data", 0o755, "Data folder", "others may enter .*0755"), ("data/tokens.db", 0o640, "Data folder", "tokens.db .*0640"),
    ("data/keys", 0o644, "Key ring", "keys can be read by others .*0644"),
    ("token-cache.yaml", 0o666, "Settings", "others may write .*0666"),
])
def test_wrong_permissions_are_problems_as_long_as_they_are_wrong(stopped, name, mode, topic, text):
    path = stopped.folder / name
    path.chmod(mode)
    report = of(stopped)
    only_problem(report, topic, text)
    (advice,) = advices(report)
    subprocess.run(advice.partition(",")[0].split(), check=True)
    assert problems(of(stopped)) == []


def test_a_full_disk_is_a_problem(small_disk, serve):
    only_problem(of(serve(data=small_disk / "data")), "Data folder", "MiB are free on the disk")


@needs_root
def test_a_disk_without_free_inodes_is_a_problem(serve):
    with contextlib.closing(SmallDisk()) as disk:
        server = serve(data=disk.folder / "data")
        assert problems(of(server)) == []
        used = os.statvfs(disk.folder)
        files = f"remount,nr_inodes={used.f_files - used.f_ffree + 2}"
        subprocess.run(["mount", "-o", files, str(disk.folder)], check=True)
        only_problem(of(server), "Data folder", r"has room for 2 further files \(inodes\)")
        assert server.stop() == 0


# The memory that a container's control group allows.
FEW = "mount --bind {groups} /sys/fs/cgroup && exec \"$@\""


@needs_root
def test_less_memory_than_the_settings_allow_is_warned_of(serve, tmp_path):
    groups = tmp_path / "groups"
    groups.mkdir()
    (groups / "memory.max").write_text(f"{256 << 20}\n")
    prefix = ["unshare", "--mount", "sh", "-c", FEW.format(groups=groups), "sh"]
    if subprocess.run([*prefix, "true"], capture_output=True, check=False).returncode != 0:
        pytest.skip("there is no mount namespace")
    text = "the system allows 256 MiB of memory, and the settings 448 MiB"
    server = serve({"listen": "127.0.0.1:0"}, prefix=prefix)
    assert f"warning: {text}" in server.log()
    assert text in said(of(server), "Server", "warning")
    assert server.stop() == 0
    assert text in said(of(server, prefix=prefix), "Memory", "warning") and problems(of(server, prefix=prefix)) == []
    roomy = serve({"limits": {"buffers": "64 MiB"}}, prefix=prefix)
    assert "of memory" not in roomy.log()


@needs_root
def test_a_service_that_sees_only_processes_in_proc_knows_its_start_and_its_kernel(serve):
    """As with ProcSubset=pid in the unit."""
    prefix = ["unshare", "--mount", "sh", "-c", "mount -t proc -o subset=pid proc /proc && exec \"$@\"", "sh"]
    if subprocess.run([*prefix, "true"], capture_output=True, check=False).returncode != 0:
        pytest.skip("there is no mount namespace")
    server = serve(ADMINISTRATION, prefix=prefix)
    # Not since the machine's own start.
    assert abs(metrics(server)["process_start_time_seconds"] - time.time()) < 3_600
    assert f"Linux {os.uname().release}" in said(of(server, prefix=prefix), "Versions").splitlines()


@needs_root
def test_the_advice_about_a_folder_of_another_user_lets_the_servers_user_in(public_folder):
    data = public_folder / "data"
    data.mkdir()
    data.chmod(0o777)
    report = examine("--data-directory", str(data), prefix=AS_NOBODY, folder="/")
    only_problem(report, "Data folder", "others may enter")
    advice, = advices(report)
    subprocess.run(["sh", "-c", advice.removeprefix("as root: ")], check=True)
    assert problems(examine("--data-directory", str(data), prefix=AS_NOBODY, folder="/")) == []


def test_an_empty_store_beside_a_key_ring_is_warned_of(stopped, serve):
    database = stopped.data / "tokens.db"
    for is_there in (False, True):
        for file in stopped.data.glob("tokens.db*"):
            file.unlink()
        if is_there:
            database.touch(mode=0o600)
        report = of(stopped)
        assert problems(report) == []
        assert re.search("there is none, although its key ring .* is there", said(report, "Store", "warning")), report
        again = serve(data=stopped.data)
        text = f"made an empty store {database}, although its key ring {stopped.data / 'keys'} was there already"
        assert re.search(f"warning.*{text}", again.log()), again.log()
        assert again.stop() == 0
    again = serve(data=stopped.data)
    assert "made an empty store" not in again.log()


def test_a_log_that_a_crash_left_is_told_of_and_a_database_that_is_gone_from_beside_it(serve):
    server = serve()
    kill_with_log(server, lambda: server.post("a", "b"))
    before = state_of(server.folder)
    report = of(server)
    assert problems(report) == [] and re.search(r"WAL of \d+ bytes", said(report, "Store"))
    assert state_of(server.folder) == before
    (server.data / "tokens.db").unlink()
    report = of(server)
    only_problem(report, "Store", "tokens.db is empty or missing, but .* it had tokens")
    assert advices(report)[0].startswith("put it back")


# The user with whose rights it looks

def of_nobody(*paths):
    for path in paths:
        os.chown(path, NOBODY, NOBODY)


def warning(report, topic):
    """The only warning of a topic, with what to do about it."""
    found, = [finding for finding in report["findings"] if finding["topic"] == topic and finding["state"] == "warning"]
    return found["text"], found["advice"]


@needs_root
def test_root_is_told_to_look_as_the_owner_of_the_data_folder_or_through_the_unit(public_folder):
    data = public_folder / "data"
    data.mkdir(mode=0o700)
    of_nobody(data)
    text, advice = warning(examine("--data-directory", str(data)), "User")
    assert f"{data} is owned by nobody" in text and "rights of root" in text and "runuser -u nobody" in advice
    units = public_folder / "units"
    units.mkdir()
    (units / "token-cache-doctor.service").touch()
    report = examine("--data-directory", str(data), environment={"SYSTEMD_UNIT_PATH": str(units)})
    assert "systemctl start token-cache-doctor" in warning(report, "User")[1]
    assert "systemctl start token-cache-doctor" in said(report, "Service")
    # In the unit itself; and as the owner.
    inside = {"SYSTEMD_UNIT_PATH": str(units), "INVOCATION_ID": "0" * 32}
    report = examine("--data-directory", str(data), environment=inside, prefix=AS_NOBODY, folder="/")
    assert said(report, "Service") == said(report, "User", "warning") == "" and problems(report) == []


@pytest.mark.parametrize("after, told", [("false", "the last backup failed at 20"), ("true", "the last backup succeeded at 20")])
def test_the_last_backup_is_told_of_running_or_not(serve, after, told):
    server = serve()
    assert server.post("me", "hello") == STORED
    done = command(server.data, "backup", str(server.folder / "backup.db"), "--after", after)
    assert (done.returncode == 0) == (after == "true")
    for is_running in (True, False):
        if not is_running:
            assert server.stop() == 0
        assert told in said(of(server), "Store", "warning" if after == "false" else "ok")
