"""Admin keys are made, replaced, removed and expire, by commands and by changes of their file, while a server runs."""
import json
import re
import shutil

from access import bearer, make_key
from administration import HOST
from http_client import exchange, lines
from operators import SECRET, admin_keys, make_admin_key
from server_process import run, until


# The command admin keys

def test_keys_are_made_listed_and_removed_by_name(tmp_path):
    file = tmp_path / "admin-keys"
    assert admin_keys(file).stdout == f"there are no admin keys in {file}\n"
    done = admin_keys(file, "add", "anna", "--scope", "steer")
    assert done.returncode == 0 and SECRET.fullmatch(done.stdout.removesuffix("\n")), done
    secret = done.stdout.strip()
    assert secret not in done.stderr and "not shown again" in done.stderr
    assert secret[4:] not in file.read_text() and file.stat().st_mode & 0o777 == 0o600
    assert admin_keys(file, "add", "prometheus", "--scope", "read", "--expires", "90d").returncode == 0
    listed = {key["name"]: key["scopes"] for key in json.loads(admin_keys(file, "list", "--json").stdout)["keys"]}
    assert listed == {"anna": ["steer"], "prometheus": ["read"]}
    again = admin_keys(file, "add", "anna", "--scope", "read")
    assert (again.returncode, again.stdout) == (1, "") and "there is a key anna already" in again.stderr
    assert admin_keys(file, "remove", "anna").returncode == 0
    assert "there is no admin key anna" in admin_keys(file, "remove", "anna").stderr
    wrong = admin_keys(file, "add", "a", "--scope", "sessions")
    assert wrong.returncode != 0 and "'read' and 'steer'" in wrong.stderr
    unset = run("admin", "keys")
    assert unset.returncode == 1 and "admin.keys_file is not set" in unset.stderr
    # There the service's user may read what root has made, which gets the owner of its folder.
    assert "/var/lib/token-cache/admin-keys" in unset.stderr


def status_of(operators, key):
    return operators.ask("GET", "/key", bearer(key)).status


def test_a_key_of_one_kind_is_none_of_the_other(operators, tmp_path):
    api_key = make_key(tmp_path / "api-keys", "backend")
    assert status_of(operators, api_key) == 401
    mixed = tmp_path / "mixed"
    shutil.copy(tmp_path / "api-keys", mixed)
    done = admin_keys(mixed, "list")
    assert done.returncode == 1 and "unknown scope or none; allowed are read, steer" in done.stderr


# While a server runs

def test_keys_come_and_go_without_a_restart(operators):
    key = make_admin_key(operators.file, "anna", "steer")
    until(lambda: status_of(operators, key) == 200)
    until(lambda: "the admin keys have changed: added anna; there are 3 now" in operators.server.log())
    assert admin_keys(operators.file, "remove", "anna").returncode == 0
    until(lambda: status_of(operators, key) == 401)
    until(lambda: "the admin keys have changed: removed anna; there are 2 now" in operators.server.log())
    assert status_of(operators, operators.keys["steer"]) == 200


def test_a_key_expires(operators):
    key = make_admin_key(operators.file, "anna", "steer", "--expires", "2100-01-01")
    operators.ask("POST", "/reload", at=operators.control)
    assert status_of(operators, key) == 200
    operators.file.write_text(re.sub(r'"expires":[0-9]+', '"expires":7', operators.file.read_text()))
    operators.ask("POST", "/reload", at=operators.control)
    response = operators.ask("GET", "/key", bearer(key))
    assert response.status == 401 and "has expired" in json.loads(response.body)["error"]


def test_a_file_that_cannot_be_used_leaves_the_keys_in_use(operators):
    good = operators.file.read_text()
    for text, mode, fault in (("nonsense", 0o600, "line 1: it is no admin key as token-cache admin keys add writes one"),
                              (good, 0o622, "can be changed by other users")):
        operators.file.write_text(text)
        operators.file.chmod(mode)
        # Each reload says so, also if the log has it already.
        for _ in range(2):
            outcome = json.loads(operators.with_key("steer", "POST", "/reload").body)
            assert outcome["reloaded"] and "the file of admin keys cannot be used, so the previous keys stay in use: " in outcome["outcome"]
            assert fault in outcome["outcome"], outcome
        assert fault in operators.server.log()
    operators.file.unlink()
    outcome = json.loads(operators.with_key("steer", "POST", "/reload").body)["outcome"]
    assert "token-cache admin keys add" in outcome
    operators.file.write_text(good)
    operators.file.chmod(0o600)
    assert json.loads(operators.with_key("steer", "POST", "/reload").body)["outcome"] == "no setting has changed"


def test_a_reload_turns_keys_on_and_off(serve, tmp_path):
    server = serve({"admin": {"listen": "127.0.0.1:0"}})
    file, configuration = tmp_path / "admin-keys", server.folder / "token-cache.yaml"
    settings = json.loads(configuration.read_text())

    def reload(**admin):
        configuration.write_text(json.dumps({**settings, "admin": {**settings["admin"], **admin}}))
        response = exchange(server.data / "control.sock", lines("POST /reload HTTP/1.1", HOST))
        return response.status, json.loads(response.body)["outcome"]

    def status(path, *fields):
        return exchange(server.administration[0], lines(f"GET {path} HTTP/1.1", HOST, *fields)).status

    refused, outcome = reload(read="key")
    assert refused == 500 and "admin.read is key, and admin.keys_file is not set" in outcome
    refused, outcome = reload(keys_file=str(file))
    assert refused == 500 and f"the file {file} of admin.keys_file does not exist" in outcome
    key = make_admin_key(file, "anna", "read")
    assert reload(read="key", keys_file=str(file))[0] == 200
    assert (status("/status"), status("/status", bearer(key))) == (401, 200)
    assert reload()[0] == 200
    assert (status("/status"), status("/key", bearer(key))) == (200, 401)


# Starts

def test_a_start_says_what_is_missing(tmp_path):
    environment = {"TOKEN_CACHE_LISTEN": "127.0.0.1:0", "TOKEN_CACHE_ADMIN_LISTEN": "127.0.0.1:0",
                   "TOKEN_CACHE_DATA_DIRECTORY": str(tmp_path / "data"), "TOKEN_CACHE_ADMIN_READ": "key"}
    for command in ("check-config", "serve"):
        done = run(command, environment=environment)
        assert done.returncode == 1 and "admin.read is key, and admin.keys_file is not set" in done.stderr, done
        assert "token-cache admin keys add NAME --scope read" in done.stderr
    file = tmp_path / "admin-keys"
    environment["TOKEN_CACHE_ADMIN_KEYS_FILE"] = str(file)
    done = run("serve", environment=environment)
    assert done.returncode == 1 and f"the file {file} of admin.keys_file does not exist" in done.stderr
    make_admin_key(file, "anna", "read")
    file.chmod(0o620)
    done = run("serve", environment=environment)
    assert done.returncode == 1 and "of admin keys can be changed by other users" in done.stderr


def test_the_warning_about_other_machines_knows_of_keys(serve, tmp_path):
    file = tmp_path / "admin-keys"
    make_admin_key(file, "anna", "read")
    for admin, fragment in (({}, "set admin.read to key"),
                            ({"keys_file": str(file), "read": "key"}, "in plain HTTP")):
        server = serve({"admin": {"listen": "0.0.0.0:0", **admin}})
        until(lambda fragment=fragment, server=server: fragment in server.log() and "admin.listen" in server.log())
