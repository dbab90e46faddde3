"""token-cache doctor warns of a data folder whose files are another user's, where nothing else says who the server is."""
import os

from server_process import run
from doctor import examine, needs_root, said, unit_folder, with_settings

pytestmark = needs_root


def store_of_another_user(folder):
    """A data folder of root's with files of nobody's."""
    data = folder / "data"
    assert run("put", "me", "hello", "--data-directory", str(data)).returncode == 0
    for file in data.iterdir():
        os.chown(file, 65534, 65534)
    return data


def test_files_of_another_user_are_a_warning_with_who_owns_what(public_folder):
    data = store_of_another_user(public_folder)
    report = examine("--data-directory", str(data))
    found = said(report, "Data folder", "warning")
    assert f"{data} is owned by root, and lock in it by nobody" in found
    advice, = [finding["advice"] for finding in report["findings"] if finding["text"] == found]
    assert f"chown -R nobody {data}" in advice and "--user nobody" in advice and f"chown -R root {data}" in advice


def test_who_says_who_the_server_is_gets_no_such_warning(public_folder):
    data = store_of_another_user(public_folder)
    assert "is owned by root, and" not in said(examine("--data-directory", str(data), "--user", "root"), "Data folder", "warning")
    file = with_settings(public_folder, data)
    units = unit_folder(public_folder, file, "User=root")
    report = examine("--config", str(file), environment=units)
    assert "is owned by root, and" not in said(report, "Data folder", "warning")


def test_a_folder_whose_files_are_its_owners_is_fine(public_folder):
    data = store_of_another_user(public_folder)
    os.chown(data, 65534, 65534)
    assert said(examine("--data-directory", str(data)), "Data folder", "warning") == ""
