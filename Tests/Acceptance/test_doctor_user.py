"""token-cache doctor tries everything with its own rights: it says whose they are, and how to look as the server's user."""
import json
import os
import subprocess

import pytest

from doctor import AS_SOMEBODY, NOWHERE, advices, examine, needs_root, of, only_problem, problems, said, with_settings
from server_process import Server, run

pytestmark = needs_root


def of_nobody(*paths):
    for path in paths:
        os.chown(path, 65534, 65534)


def warning(report, topic):
    """The only warning of a topic, with what to do about it."""
    found, = [finding for finding in report["findings"] if finding["topic"] == topic and finding["state"] == "warning"]
    return found["text"], found["advice"]


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
    report = examine("--data-directory", str(data), environment=inside, prefix=AS_SOMEBODY, folder="/")
    assert said(report, "Service") == said(report, "User", "warning") == "" and problems(report) == []


def test_what_the_owner_of_the_data_folder_may_not_do_is_a_problem_with_its_remedy(public_folder):
    of_nobody(public_folder)
    server = Server(public_folder / "server", prefix=AS_SOMEBODY, data=public_folder / "data")
    file = server.data / "tokens.db"
    try:
        address = {"TOKEN_CACHE_LISTEN": f"127.0.0.1:{server.address[1]}"}
        os.chown(file, 0, 0)
        report = of(server, environment=address, prefix=AS_SOMEBODY, folder="/")
        only_problem(report, "Data folder", "^the user nobody may not read and write .*/tokens.db$")
        (advice,) = advices(report)
        subprocess.run(advice.split(), check=True)
        # It is its own now, but that is not enough.
        file.chmod(0)
        report = of(server, environment=address, prefix=AS_SOMEBODY, folder="/")
        assert advices(report) == [f"chmod u+rw {file}"]
    finally:
        server.kill()


def test_a_user_who_exists_only_while_the_service_runs_is_not_named_to_chown(public_folder):
    data = public_folder / "data"
    data.mkdir(mode=0o700)
    (data / "tokens.db").touch(mode=0o600)
    os.chown(data, 62000, 62000)
    key = public_folder / "pair.pem"
    key.touch(mode=0o600)
    file = with_settings(public_folder, data, tls={"certificate": str(key), "private_key": str(key)})
    report = examine("--config", str(file), prefix=["setpriv", "--reuid=62000", "--regid=62000", "--clear-groups"], folder="/")
    # A file that is certificate and key is reported once.
    assert [text for topic, text in problems(report) if topic == "Certificates"] == [f"the user 62000 may not read {key}"]
    assert f"chown --reference={data}/ {data}/tokens.db" in advices(report)
    assert any("LoadCredential=" in advice for advice in advices(report))


def test_a_closed_folder_above_a_file_is_named(public_folder):
    closed = public_folder / "closed"
    closed.mkdir(mode=0o700)
    data = public_folder / "data"
    data.mkdir(mode=0o700)
    of_nobody(data)
    pair = str(closed / "pair.pem")
    file = with_settings(public_folder, data, tls={"certificate": pair, "private_key": pair})
    report = examine("--config", str(file), prefix=AS_SOMEBODY, folder="/")
    only_problem(report, "Certificates", f"may not read {pair}$")
    assert advices(report) == [f"let it enter {closed}, for example with chmod go+x {closed}, or use a path elsewhere"]


def test_files_of_another_user_in_the_data_folder_are_a_warning(public_folder):
    data = public_folder / "data"
    assert run("put", "me", "hello", "--data-directory", str(data)).returncode == 0
    of_nobody(*data.iterdir())
    text, advice = warning(examine("--data-directory", str(data)), "Data folder")
    assert f"{data} is owned by root, and lock in it by nobody" in text
    assert f"chown -R nobody {data}" in advice and f"chown -R root {data}" in advice
    of_nobody(data)
    report = examine("--data-directory", str(data), prefix=AS_SOMEBODY, folder="/")
    assert said(report, "Data folder", "warning") == ""


def test_credentials_of_a_service_that_does_not_run_are_not_checked(public_folder):
    """Of a unit with LoadCredential=tls.pem:..., whose file systemd makes at the start (systemd.exec(5))."""
    pair = "/run/credentials/token-cache-absent.service/tls.pem"
    file = with_settings(public_folder, public_folder / "data", tls={"certificate": pair, "private_key": pair})
    ring = pair.replace("tls.pem", "token-cache.keys")
    done = run("check-config", "--config", str(file), environment={**NOWHERE, "TOKEN_CACHE_SEALING_KEY_RING": ring})
    assert done.returncode == 0 and "data_directory: " in done.stdout, done
    assert [line.split()[1] for line in done.stderr.splitlines()] == [pair, ring], done
    assert f"{pair} is a credential" in warning(examine("--config", str(file)), "Certificates")[0]
