"""Real OAuth servers refresh tokens: those that rotate refresh tokens, that end a login if one is used twice, and that do not."""
import contextlib
import json
import os
import shutil
import subprocess
import sys
import time
import urllib.error
import urllib.parse
import urllib.request
from base64 import b64encode
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from administration import ADMINISTRATION
from contract import fresh_id
from ports import free_ports
from server_process import until
from test_refresh import failures, read, refreshes, store
from token_provider import CLIENT, SECRET

PROGRAMS = Path(__file__).parent / "oauth"
PACKAGES = {
    "django": ("django-oauth-toolkit==3.4.1", "Django==5.2.19"),
    "authlib": ("Authlib==1.9.10", "Flask==3.1.3", "Flask-SQLAlchemy==3.1.1"),
    "canaille": ("canaille[oidc,sqlite]==0.3.6", "Authlib==1.9.10"),
}
# The program, its arguments, the server's refresh.provider, whether refresh tokens are replaced, and whether the former access
# token is dead at once.
PROVIDERS = {
    "django-oauth-toolkit": ("django", ["ACCESS_TOKEN_EXPIRE_SECONDS=10"], "oauth2", True, True),
    "django-oauth-toolkit, reuse ends the login": (
        "django", ["ACCESS_TOKEN_EXPIRE_SECONDS=10", "REFRESH_TOKEN_REUSE_PROTECTION=true"], "oauth2-post", True, True),
    "django-oauth-toolkit, without rotation": (
        "django", ["ACCESS_TOKEN_EXPIRE_SECONDS=10", "ROTATE_REFRESH_TOKEN=false"], "oauth2", False, True),
    "Authlib": ("authlib", [], "oauth2", False, False),
    "Authlib, rotating": ("authlib", ["rotating", "post"], "oauth2-post", True, True),
    "canaille": ("canaille", [], "oauth2", True, True),
    "glewlwyd": ("glewlwyd", [], "oauth2", False, False),
    "glewlwyd, reuse ends the login": ("glewlwyd", ['refresh-token-one-use="always"'], "oauth2-post", True, False),
}
# Where a program has its endpoints, if not at /token and so on.
FOLDERS = {"canaille": "/oauth", "glewlwyd": "/api/oidc"}


class Provider:
    """A process of an OAuth server."""

    def __init__(self, interpreter, folder, program, arguments):
        self.program = program
        [port] = free_ports(1)
        self.url = f"http://127.0.0.1:{port}{FOLDERS.get(program, '')}"
        self.log_file = folder / "provider.log"
        with open(self.log_file, "wb") as log:
            self.process = subprocess.Popen(
                [interpreter, PROGRAMS / f"{program}_provider.py", folder, str(port), *arguments],
                stdout=log, stderr=log, env={**os.environ, "AUTHLIB_INSECURE_TRANSPORT": "1"})

    def __enter__(self):
        until(lambda: "serves" in self.log_file.read_text() or self.process.poll() is not None, 120)
        assert self.process.poll() is None, self.log_file.read_text()
        until(self._answers)
        return self

    def __exit__(self, *_):
        self.process.kill()
        self.process.wait()

    def _answers(self):
        with contextlib.suppress(OSError):
            return not self.is_valid("none")

    def is_valid(self, access_token):
        if self.program in FOLDERS:
            return json.loads(self.post("introspect", token=access_token)[1])["active"]
        with urllib.request.urlopen(f"{self.url}/check?token={access_token}", timeout=20) as answer:
            return answer.read() == b"valid"

    def post(self, endpoint, method="oauth2", secret=SECRET, **fields):
        """The status and the body of its answer to the client."""
        request = urllib.request.Request(f"{self.url}/{endpoint}")
        if method == "oauth2-post":
            fields |= {"client_id": CLIENT, "client_secret": secret}
        else:
            request.add_header("Authorization", f"Basic {b64encode(f'{CLIENT}:{secret}'.encode()).decode()}")
        try:
            with urllib.request.urlopen(request, urllib.parse.urlencode(fields).encode(), timeout=20) as answer:
                return answer.status, answer.read()
        except urllib.error.HTTPError as error:
            return error.code, error.read()

    def log_in(self, method):
        """The token answer for a user who has logged in."""
        if self.program == "canaille":
            wait_for_another_second()
        status, body = self.post("token", method, grant_type="password", username="anna", password="pw", scope="read")
        assert status == 200, body
        return json.loads(body)


def wait_for_another_second():
    """Waits until canaille can give a user another token: those of one second are equal, and it fails if it has one already."""
    now = int(time.time())
    until(lambda: int(time.time()) > now)


@pytest.fixture
def start_provider(python_package, tmp_path):
    """A function that starts a provider, by its program and the arguments of that."""
    with contextlib.ExitStack() as stack:
        def start(program, arguments):
            if program in PACKAGES:
                interpreter = python_package(*PACKAGES[program]) / "bin/python"
            elif shutil.which("glewlwyd"):
                interpreter = sys.executable
            else:
                pytest.skip("glewlwyd is not installed (Debian's package glewlwyd, which deploy/test --long installs)")
            return stack.enter_context(Provider(interpreter, tmp_path, program, arguments))
        yield start


@pytest.fixture
def refresh_at(refresh_binary, serve, tmp_path):
    """A function that starts servers that refresh tokens at a provider: `refresh_at(provider, "oauth2", secret="another")`."""
    def start(provider, method, secret=SECRET):
        (tmp_path / "secret").write_text(secret)
        return serve({**ADMINISTRATION, "refresh": {
            "provider": method, "url": f"{provider.url}/token", "client_id": CLIENT,
            "client_secret_file": str(tmp_path / "secret"), "wait": "15s"}}, program=refresh_binary, data=tmp_path / "data")
    return start


def expired(tokens):
    """What a device stores that has kept tokens for long."""
    return json.dumps({**tokens, "expires_in": 0})


@pytest.mark.parametrize("name", PROVIDERS)
def test_devices_share_the_tokens_of_a_real_server(name, start_provider, refresh_at):
    program, arguments, method, is_rotating, is_dead_at_once = PROVIDERS[name]
    provider = start_provider(program, arguments)
    server = refresh_at(provider, method)
    unique_id, tokens = fresh_id(), {**provider.log_in(method), "of the app": [1, None]}
    seen = [tokens["access_token"]]
    for number in range(3):
        if program == "canaille":
            wait_for_another_second()
        store(server, unique_id, expired(tokens))
        with ThreadPoolExecutor(20) as pool:
            [(found, advice)] = set(pool.map(lambda _: read(server, unique_id), range(40)))
        refreshed = json.loads(found)
        assert advice is None and refreshed["of the app"] == [1, None] and refreshed["scope"] == "read", found
        assert refreshed["access_token"] not in seen and provider.is_valid(refreshed["access_token"])
        assert (refreshed["refresh_token"] != tokens["refresh_token"]) == is_rotating
        assert provider.is_valid(seen[-1]) == (not is_dead_at_once)
        assert refreshes(server, "refreshed") == number + 1
        seen.append(refreshed["access_token"])
        tokens = refreshed
    if program == "django":
        # It gives tokens ten seconds; a device that asks then gets another one.
        until(lambda: read(server, unique_id)[1] is None and json.loads(read(server, unique_id)[0])["access_token"] not in seen)
    # The login ends at the provider.
    store(server, unique_id, expired({**tokens, "refresh_token": "unknown"}))
    advice = read(server, unique_id)[1]
    if program == "glewlwyd":
        # Its answer would be the same if only the client's secret were wrong.
        assert advice == "later" and refreshes(server, "refused") == 0 and failures(server, "rejected") == 1
    else:
        assert advice == "login" and refreshes(server, "refused") == 1


@pytest.mark.parametrize("name", ["django-oauth-toolkit", "Authlib", "canaille", "glewlwyd"])
def test_a_wrong_secret_costs_no_login(name, start_provider, refresh_at, tmp_path):
    program, arguments, method, *_ = PROVIDERS[name]
    provider = start_provider(program, arguments)
    server = refresh_at(provider, method, secret="wrong")
    tokens = provider.log_in(method)
    unique_id = fresh_id()
    store(server, unique_id, expired(tokens))
    assert read(server, unique_id) == (expired(tokens), "later")
    assert failures(server, "rejected" if program == "glewlwyd" else "client") == 1 and refreshes(server, "refused") == 0
    (tmp_path / "secret").write_text(SECRET)
    if program == "glewlwyd":
        # It does not say what is wrong, so this token alone is left alone for a minute. A server that starts knows nothing of that.
        another_id = fresh_id()
        store(server, another_id, expired(provider.log_in(method)))
        assert read(server, another_id)[1] is None
        assert read(server, unique_id) == (expired(tokens), "later")
        assert server.stop() == 0
        server = refresh_at(provider, method)
    found = until(lambda: accepted(read(server, unique_id)))
    assert provider.is_valid(found["access_token"]) and found["access_token"] != tokens["access_token"]


def accepted(answer):
    """The tokens in an answer of the server, if they are not expired."""
    token_info, advice = answer
    return json.loads(token_info) if advice is None else None


def test_an_error_of_canaille_costs_no_login(start_provider, refresh_at):
    provider = start_provider("canaille", [])
    server = refresh_at(provider, "oauth2")
    devices = {fresh_id(): provider.log_in("oauth2") for _ in range(2)}

    def has_failed():
        """Refreshes both logins of the user, and returns whether canaille failed because that was in one second."""
        for unique_id, tokens in devices.items():
            store(server, unique_id, expired(tokens))
        wait_for_another_second()
        with ThreadPoolExecutor() as pool:
            advices = {advice for _, advice in pool.map(lambda unique_id: read(server, unique_id), devices)}
        assert advices <= {None, "later"}
        for unique_id, tokens in devices.items():
            # The one that failed is tried again, with the same refresh token, which is not used up.
            devices[unique_id] = until(lambda: accepted(read(server, unique_id)))
            assert provider.is_valid(devices[unique_id]["access_token"]) and not provider.is_valid(tokens["access_token"])
        return "later" in advices

    until(has_failed)
    assert failures(server, "unavailable") >= 1 and refreshes(server, "refused") == refreshes(server, "lost") == 0
    assert "tokens cannot be refreshed (unavailable)" in server.log() and "tokens are refreshed again" in server.log()


def test_a_login_at_canaille_lasts_as_long_as_its_access_token(start_provider, refresh_at):
    provider = start_provider("canaille", ["1"])
    server = refresh_at(provider, "oauth2")
    unique_id, login = fresh_id(), provider.log_in("oauth2")
    due = json.dumps({**login, "expires_in": 10_000, "expires_at": int(time.time()) + 900})
    store(server, unique_id, due)
    assert read(server, unique_id) == (due, None)
    # It is refreshed behind that answer; the new tokens end after a second, and nobody asks for them in time.
    found = until(lambda: another_than(login, read(server, unique_id)))
    until(lambda: not provider.is_valid(found["access_token"]))
    until(lambda: read(server, unique_id)[1] == "login")
    assert refreshes(server, "refused") == 1


def another_than(tokens, answer):
    """The tokens in an answer of the server, if they are not these ones."""
    found = json.loads(answer[0])
    return found if found["access_token"] != tokens["access_token"] else None


@pytest.mark.parametrize(("name", "end"), [
    ("glewlwyd", "revocation"), ("glewlwyd, reuse ends the login", "second use"),
    ("glewlwyd, reuse ends the login", "wrong secret"),
])
def test_a_login_that_glewlwyd_has_ended_is_kept(name, end, start_provider, refresh_at):
    program, arguments, method, *_ = PROVIDERS[name]
    provider = start_provider(program, arguments)
    server = refresh_at(provider, method)
    unique_id, login = fresh_id(), provider.log_in(method)
    store(server, unique_id, expired(login))
    tokens = accepted(read(server, unique_id))

    def use(refresh_token, secret=SECRET):
        return provider.post("token", method, secret, grant_type="refresh_token", refresh_token=refresh_token)

    if end == "revocation":
        assert provider.post("revoke", method, token=tokens["refresh_token"])[0] == 200
    elif end == "second use":
        # Somebody has kept the first refresh token.
        assert use(login["refresh_token"]) == (400, b"")
    else:
        # The request is refused, but glewlwyd replaces the refresh token all the same, and tells nobody the new one.
        assert use(tokens["refresh_token"], "wrong") == (400, b"")
    assert use(tokens["refresh_token"]) == (400, b"")
    # As that answer may have any cause, no device is told to ask its user for a login, not even by a server that starts anew.
    store(server, unique_id, expired(tokens))
    for _ in range(2):
        for _ in range(3):
            assert read(server, unique_id) == (expired(tokens), "later")
        assert failures(server, "rejected") == 1 and refreshes(server, "refused") == refreshes(server, "lost") == 0
        assert server.stop() == 0
        server = refresh_at(provider, method)
    # The user logs in again.
    login = json.dumps(provider.log_in(method))
    store(server, unique_id, login)
    assert read(server, unique_id) == (login, None)
