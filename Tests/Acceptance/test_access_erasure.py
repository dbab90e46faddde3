"""After a user was erased, nothing of the user is left, and no backup brings it back."""
import json

import pytest

from access import API, bearer, fetch, session_settings, store
from contract import NOT_FOUND, STORED, check_http_error, found
from http_client import exchange, get, post
from server_process import run


@pytest.fixture(name="api")
def server_with_api(serve, tmp_path):
    settings, key = session_settings(tmp_path / "keys")
    return API(serve(settings), key)


def test_an_erased_user_is_gone(api):
    session, other = api.session("anna"), api.session("ben")
    for one in (session, other):
        assert exchange(api.server.address, store("hello", bearer(one))).body == STORED
    answer = json.loads(api.call("DELETE", "/v1/users/anna").body)
    assert answer == {"status": "true", "had_token": True, "sessions": 1}
    check_http_error(exchange(api.server.address, fetch(bearer(session))), 401)
    assert api.get("anna").body == NOT_FOUND
    assert exchange(api.server.address, fetch(bearer(other))).body == found("hello")
    answer = json.loads(api.call("DELETE", "/v1/users/anna").body)
    assert answer == {"status": "true", "had_token": False, "sessions": 0}
    # The user may come back, and has nothing then.
    assert exchange(api.server.address, fetch(bearer(api.session("anna")))).body == NOT_FOUND


def test_a_restored_backup_does_not_bring_an_erased_user_back(api, serve, tmp_path):
    sessions = {user: api.session(user) for user in ("anna", "ben")}
    for session in sessions.values():
        assert exchange(api.server.address, store("hello", bearer(session))).body == STORED
    backup = tmp_path / "backup.db"
    flags = ["--config", str(api.server.folder / "token-cache.yaml")]
    done = run("backup", str(backup), *flags)
    assert done.returncode == 0, done.stderr
    done = run("erase", "-", *flags, input="anna\n")
    assert done.returncode == 0, done.stderr
    assert api.server.stop() == 0
    done = run("restore", str(backup), *flags)
    assert done.returncode == 0 and "eras" in done.stdout + done.stderr, (done.stdout, done.stderr)
    server = serve(json.loads((api.server.folder / "token-cache.yaml").read_text()))
    again = API(server, api.key)
    assert again.get("anna").body == NOT_FOUND
    assert again.get("ben").body == found("hello")
    # Sessions that were revoked after the backup must not come back either, so none does.
    for session in sessions.values():
        check_http_error(exchange(server.address, fetch(bearer(session))), 401)


def test_a_restore_by_the_source_of_a_credential_follows_the_erasures_of_the_service(serve, tmp_path):
    source = tmp_path / "credentials" / "token-cache.keys"
    source.parent.mkdir()
    done = run("keyring", "create", str(source))
    assert done.returncode == 0, done.stderr
    as_a_service = {"CREDENTIALS_DIRECTORY": str(source.parent)}
    server = serve(environment=as_a_service)
    for user in ("anna", "ben"):
        assert exchange(server.address, post(user, "hello")).body == STORED
    backup = tmp_path / "backup.db"
    folder = ["--data-directory", str(server.data)]
    for command in (["backup", str(backup)], ["erase", "anna"]):
        done = run(*command, *folder)
        assert done.returncode == 0, done.stderr
    assert server.stop() == 0
    assert (server.data / "erasures").exists()
    done = run("restore", str(backup), *folder, environment={"TOKEN_CACHE_SEALING_KEY_RING": str(source)})
    assert done.returncode == 0, done.stderr
    server = serve(data=server.data, environment=as_a_service)
    assert exchange(server.address, get("anna")).body == NOT_FOUND
    assert exchange(server.address, get("ben")).body == found("hello")
