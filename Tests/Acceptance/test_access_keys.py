"""API keys are made, listed and removed by commands that need no server; a key is shown once, and only its hash is kept."""
import hashlib
import json
import os
import re
import stat
import time

import pytest

from server_process import run

SECRET = re.compile(r"tck_[A-Za-z0-9_-]{43}")


@pytest.fixture
def keys(tmp_path):
    """Runs `token-cache access keys` with a file of its own."""
    file = tmp_path / "api-keys"

    def command(*arguments):
        return run("access", "keys", *arguments, environment={"TOKEN_CACHE_ACCESS_API_KEYS_FILE": str(file)})

    command.file = file
    return command


def listed(keys):
    done = keys("list", "--json")
    assert done.returncode == 0, done
    return {key["name"]: key for key in json.loads(done.stdout)["keys"]}


def test_a_key_is_alone_on_standard_output_and_only_its_hash_in_the_file(keys):
    done = keys("add", "backend", "--scope", "sessions", "--scope", "tokens:read")
    assert done.returncode == 0 and SECRET.fullmatch(done.stdout.removesuffix("\n")), done
    secret = done.stdout.strip()
    assert "backend" in done.stderr and secret not in done.stderr and "not shown again" in done.stderr
    [line] = keys.file.read_text().splitlines()
    assert json.loads(line).items() >= {
        "name": "backend", "scopes": ["sessions", "tokens:read"], "sha256": hashlib.sha256(secret.encode()).hexdigest(),
    }.items()
    assert secret[4:] not in line
    assert stat.S_IMODE(os.stat(keys.file).st_mode) == 0o600
    assert secret not in keys("list").stdout + keys("list", "--json").stdout


def test_keys_are_listed_and_removed_by_name(keys):
    assert keys("list").stdout == f"there are no API keys in {keys.file}\n"
    for name in ("one", "two"):
        assert keys("add", name, "--scope", "erase").returncode == 0
    assert list(listed(keys)) == ["one", "two"]
    again = keys("add", "one", "--scope", "erase")
    assert (again.returncode, again.stdout) == (1, "") and "there is a key one already" in again.stderr
    assert keys("remove", "one").returncode == 0
    assert list(listed(keys)) == ["two"]
    missing = keys("remove", "one")
    assert missing.returncode == 1 and "there is no API key one" in missing.stderr


@pytest.mark.parametrize("when, date", [
    ("2100-01-31", 4105036800), ("2100-01-31T12:00:00Z", 4105080000), ("2100-01-31T12:00:00+02:00", 4105072800),
])
def test_a_key_may_expire_on_a_date(keys, when, date):
    assert keys("add", "a", "--scope", "erase", "--expires", when).returncode == 0
    assert listed(keys)["a"]["expires_at"] == date
    assert not listed(keys)["a"]["expired"]


def test_a_key_may_expire_after_a_time(keys):
    assert keys("add", "a", "--scope", "erase", "--expires", "90d").returncode == 0
    assert keys("add", "b", "--scope", "erase").returncode == 0
    assert abs(listed(keys)["a"]["expires_at"] - time.time() - 90 * 86400) < 60
    assert "expires_at" not in listed(keys)["b"]
    text = keys.file.read_text()
    keys.file.write_text(re.sub(r'"expires":[0-9]+', '"expires":7', text))
    assert listed(keys)["a"]["expired"] and "has expired 1970-01-01" in keys("list").stdout


@pytest.mark.parametrize("arguments, fragment", [
    (["a"], "--scope"), (["a", "--scope", "all"], "tokens:read"), (["a b", "--scope", "erase"], "name of a key"),
    (["", "--scope", "erase"], "name of a key"), (["a" * 65, "--scope", "erase"], "name of a key"),
    (["a", "--scope", "erase", "--expires", "2020-01-31"], "in the past"),
    (["a", "--scope", "erase", "--expires", "2100-02-30"], "--expires"),
    (["a", "--scope", "erase", "--expires", "90"], "--expires"), (["a", "--scope", "erase", "--expires", "0s"], "--expires"),
])
def test_a_key_that_cannot_be_meant_is_not_made(keys, arguments, fragment):
    done = keys("add", *arguments)
    assert done.returncode != 0 and done.stdout == "" and fragment in done.stderr, done
    assert not keys.file.exists()


def test_a_key_that_cannot_be_shown_is_not_kept(keys, tmp_path):
    done = run("access", "keys", "add", "a", "--scope", "erase", prefix=["sh", "-c", 'exec "$@" > /dev/full', "sh"],
               environment={"TOKEN_CACHE_ACCESS_API_KEYS_FILE": str(keys.file)})
    assert done.returncode == 1 and "standard output cannot be written" in done.stderr
    assert listed(keys) == {}


def test_mistakes_in_the_file_and_its_place_are_named(keys, tmp_path):
    done = run("access", "keys", "list")
    assert done.returncode == 1 and "access.api.keys_file is not set" in done.stderr
    assert "/var/lib/token-cache/api-keys" in done.stderr
    keys.file.write_text("# a comment\n{}\n")
    os.chmod(keys.file, 0o600)
    assert f"{keys.file}, line 2: a key needs name, scopes, sha256 and created" in keys("list").stderr
    added = keys("add", "a", "--scope", "erase")
    assert (added.returncode, added.stdout) == (1, "") and keys.file.read_text() == "# a comment\n{}\n"
    os.chmod(keys.file, 0o622)
    assert "can be changed by other users" in keys("list").stderr
    missing = run("access", "keys", "add", "a", "--scope", "erase",
                  environment={"TOKEN_CACHE_ACCESS_API_KEYS_FILE": str(tmp_path / "none" / "keys")})
    assert (missing.returncode, missing.stdout) == (1, "") and "the folder has to exist" in missing.stderr
