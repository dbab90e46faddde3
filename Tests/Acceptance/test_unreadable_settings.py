"""A settings file that root may read and the server's user may not: whoever checks as root is told whose rights are missing."""
import json
import os

from server_process import NO_FIXED_PORTS, run
from doctor import advices, examine, needs_root, only_problem, problems

pytestmark = needs_root


def settings_file(folder, mode):
    file = folder / "token-cache.yaml"
    file.write_text(json.dumps({"data_directory": str(folder / "data"), "listen": "127.0.0.1:0"}))
    file.chmod(mode)
    (folder / "data").mkdir(mode=0o700)
    os.chown(folder / "data", 65534, 65534)
    return file


def check(file, *flags):
    return run("check-config", "--config", str(file), *flags, environment=NO_FIXED_PORTS)


def test_the_doctor_and_check_config_name_the_user_and_what_to_do(public_folder):
    file = settings_file(public_folder, 0o600)
    # The user of the option, and the owner of the data folder.
    for flags in (["--user", "nobody"], []):
        report = examine("--config", str(file), *flags)
        only_problem(report, "Settings", f"^the server's user nobody may not read {file}$")
        assert advices(report)[0].startswith(f"chmod o+r {file}, or ")
        done = check(file, *flags)
        assert done.returncode == 1
        assert f"the server's user nobody may not read {file}; chmod o+r {file}, or " in done.stderr
        assert "permission denied" not in done.stderr
    file.chmod(0o644)
    assert problems(examine("--config", str(file))) == [] and check(file).returncode == 0


def test_a_closed_folder_above_it_is_named(public_folder):
    folder = public_folder / "closed"
    folder.mkdir()
    file = settings_file(folder, 0o644)
    folder.chmod(0o700)
    report = examine("--config", str(file), "--user", "nobody")
    only_problem(report, "Settings", f"^the server's user nobody may not read {file}$")
    assert advices(report) == [f"let it enter {folder}, for example with chmod go+x {folder}, or use a path elsewhere"]


def test_a_file_that_is_not_there_is_still_said_to_be_missing(public_folder):
    file = public_folder / "token-cache.yaml"
    only_problem(examine("--config", str(file), "--user", "nobody"), "Settings", "there is no such file")
