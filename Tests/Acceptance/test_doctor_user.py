"""token-cache doctor finds out who the server's user is and examines with that user's rights."""
import json
import os
import socket
import struct
import subprocess
import sys
from pathlib import Path

import pytest

from doctor import (
    AS_SOMEBODY, NOWHERE, advices, examine, needs_root, of, only_problem, problems, said, unit_folder, with_settings)
from server_process import Server, binary, clean_environment, run


@needs_root
@pytest.mark.parametrize("lines, by_drop_in", [(["User=nobody"], ""), (["User=root"], "[Service]\nUser=nobody\n")])
def test_the_user_of_the_unit_decides(public_folder, lines, by_drop_in):
    data = public_folder / "data"
    data.mkdir(mode=0o700)
    file = with_settings(public_folder, data)
    units = unit_folder(public_folder, file, *lines)
    if by_drop_in:
        (public_folder / "units" / "token-cache.service.d").mkdir()
        (public_folder / "units" / "token-cache.service.d" / "user.conf").write_text(by_drop_in)
    report = examine("--config", str(file), environment=units)
    assert "rights of nobody, the user of" in said(report, "User")
    only_problem(report, "Data folder", f"^the server's user nobody may not access {data}$")
    (advice,) = advices(report)
    subprocess.run(advice.split(), check=True)
    assert problems(examine("--config", str(file), environment=units)) == []
    # A unit for another data folder says nothing about this one.
    other = examine("--data-directory", str(public_folder), environment=units)
    assert "rights of root, the owner of" in said(other, "User")


@needs_root
def test_a_user_of_the_unit_who_does_not_exist_is_told_of(public_folder):
    file = with_settings(public_folder, public_folder / "data")
    units = unit_folder(public_folder, file, "User=nobody-of-that-name")
    done = run("doctor", "--config", str(file), environment={**NOWHERE, **units})
    assert done.returncode == 1 and "there is no user nobody-of-that-name, as which" in done.stderr
    done = run("doctor", "--config", str(file), "--user", "nor-this-one", environment={**NOWHERE, **units})
    assert done.returncode == 1 and "there is no user nor-this-one" in done.stderr
    report = examine("--config", str(file), "--user", "nobody", environment=units)
    only_problem(report, "Data folder", "the server's user nobody may not create")


@needs_root
def test_the_user_of_a_running_server_decides(public_folder):
    os.chown(public_folder, 65534, 65534)
    server = Server(public_folder / "server", prefix=AS_SOMEBODY, data=public_folder / "data")
    try:
        os.chown(server.data / "tokens.db", 0, 0)
        elsewhere = {"TOKEN_CACHE_LISTEN": f"127.0.0.1:{server.address[1]}"}
        report = of(server, environment=elsewhere)
        assert f"the user of the running server, process {server.process.pid}" in said(report, "User")
        only_problem(report, "Data folder", "may not read and write .*/tokens.db")
        assert advices(report)[0] == f"chown nobody {server.data}/tokens.db"
        # It is its own now, but that is not enough.
        os.chown(server.data / "tokens.db", 65534, 65534)
        (server.data / "tokens.db").chmod(0)
        report = of(server, environment=elsewhere)
        assert advices(report)[0] == f"chmod u+rw {server.data}/tokens.db"
    finally:
        server.kill()


@needs_root
def test_the_user_of_a_process_that_cannot_have_locked_the_folder_does_not_decide(public_folder):
    data = public_folder / "data"
    data.mkdir(mode=0o700)
    (data / "lock").touch(mode=0o600)
    for path in data, data / "lock":
        os.chown(path, 65534, 65534)
    with open(data / "lock", "r+b") as lock:
        script = f"import fcntl; fcntl.flock({lock.fileno()}, fcntl.LOCK_EX); print('locked', flush=True); input()"
        # "serve" is there as if it were a server's command line.
        stranger = subprocess.Popen([sys.executable, "-c", script, "serve"], user=1, group=1, extra_groups=[], cwd="/",
                                    pass_fds=[lock.fileno()], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    with stranger:
        assert stranger.stdout.readline() == "locked\n"
        report = examine("--data-directory", str(data))
        stranger.stdin.close()
    assert f"rights of nobody, the owner of {data}" in said(report, "User")


@needs_root
def test_root_who_may_not_look_into_the_data_folder_is_told_to_name_the_user(public_folder):
    closed = public_folder / "closed"
    (closed / "data").mkdir(parents=True)
    closed.chmod(0o700)
    os.chown(closed, 65534, 65534)
    # As on a network file system that takes root for nobody.
    report = examine("--data-directory", str(closed / "data"), folder="/",
                     prefix=["setpriv", "--bounding-set=-dac_override,-dac_read_search"])
    (finding,) = [finding for finding in report["findings"] if finding["topic"] == "User"]
    assert "a user that root may not find out" in finding["text"] and "--user" in finding["advice"]


@needs_root
def test_the_process_with_the_rights_of_the_servers_user_gets_nothing_of_roots(public_folder):
    data = public_folder / "data"
    data.mkdir(mode=0o700)
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(str(data / "control.sock"))
        listener.listen()
        listener.settimeout(30)
        for path in data, data / "control.sock":
            os.chown(path, 65534, 65534)
        secrets = {"PGPASSWORD": "canary", "AWS_SECRET_ACCESS_KEY": "canary"}
        doctor = subprocess.Popen(
            [binary(), "doctor", "--json", "--data-directory", str(data)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, cwd="/",
            env=clean_environment({**NOWHERE, **secrets, "PGHOST": "/nowhere", "LC_ALL": "C.UTF-8"}))
        try:
            # It waits for the answer of what it takes for the server.
            connection, _ = listener.accept()
            with connection:
                credentials = connection.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, struct.calcsize("3i"))
                process, user, _ = struct.unpack("3i", credentials)
                variables = Path(f"/proc/{process}/environ").read_text().split("\0")
                assert user == 65534 and process != doctor.pid
                assert os.getsid(process) == process and os.readlink(f"/proc/{process}/fd/0") == "/dev/null"
            listener.close()
            assert json.loads(doctor.communicate(timeout=60)[0])["findings"]
        finally:
            doctor.kill()
            doctor.wait()
    names = {variable.split("=")[0] for variable in variables}
    assert {"PATH", "LC_ALL", "PGHOST", "TOKEN_CACHE_LISTEN"} <= names
    assert not names & {*secrets, "HOME"}
