"""Real OAuth servers from PyPI refresh tokens: those that rotate refresh tokens, that end a login if one is used twice, and that do not."""
import contextlib
import json
import os
import subprocess
import time
import urllib.parse
import urllib.request
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from administration import ADMINISTRATION
from contract import fresh_id
from ports import free_ports
from server_process import until
from test_refresh import read, refreshes, store
from token_provider import CLIENT, SECRET

PROGRAMS = Path(__file__).parent / "oauth"
PACKAGES = {
    "django": ("django-oauth-toolkit==3.4.1", "Django==5.2.19"),
    "authlib": ("Authlib==1.9.10", "Flask==3.1.3", "Flask-SQLAlchemy==3.1.1"),
}
# The program, its arguments, the server's refresh.provider, whether refresh tokens are replaced, and whether the former access token is
# dead at once.
PROVIDERS = {
    "django-oauth-toolkit": ("django", ["ACCESS_TOKEN_EXPIRE_SECONDS=2"], "oauth2", True, True),
    "django-oauth-toolkit, reuse ends the login": (
        "django", ["ACCESS_TOKEN_EXPIRE_SECONDS=2", "REFRESH_TOKEN_REUSE_PROTECTION=true"], "oauth2-post", True, True),
    "django-oauth-toolkit, without rotation": (
        "django", ["ACCESS_TOKEN_EXPIRE_SECONDS=2", "ROTATE_REFRESH_TOKEN=false"], "oauth2", False, True),
    "Authlib": ("authlib", [], "oauth2", False, False),
    "Authlib, rotating": ("authlib", ["rotating", "post"], "oauth2-post", True, True),
}


class Provider:
    """A process of an OAuth server."""

    def __init__(self, environment, folder, program, arguments):
        [self.port] = free_ports(1)
        self.log_file = folder / "provider.log"
        with open(self.log_file, "wb") as log:
            self.process = subprocess.Popen(
                [environment / "bin/python", PROGRAMS / f"{program}_provider.py", folder, str(self.port), *arguments],
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
            return self.check("none") == "invalid"

    def check(self, access_token):
        with urllib.request.urlopen(f"http://127.0.0.1:{self.port}/check?token={access_token}", timeout=20) as answer:
            return answer.read().decode()

    def log_in(self, method):
        """The JSON of a token answer."""
        fields = {"grant_type": "password", "username": "anna", "password": "pw", "scope": "read"}
        request = urllib.request.Request(f"http://127.0.0.1:{self.port}/token")
        if method == "oauth2-post":
            fields |= {"client_id": CLIENT, "client_secret": SECRET}
        else:
            request.add_header("Authorization", "Basic YXBwOnMzY3JldA==")
        with urllib.request.urlopen(request, urllib.parse.urlencode(fields).encode(), timeout=20) as answer:
            return answer.read().decode()


@pytest.mark.parametrize("name", PROVIDERS)
def test_devices_share_the_tokens_of_a_real_server(name, refresh_binary, serve, python_package, tmp_path):
    program, arguments, method, is_rotating, is_dead_at_once = PROVIDERS[name]
    (tmp_path / "secret").write_text(SECRET)
    with Provider(python_package(*PACKAGES[program]), tmp_path, program, arguments) as provider:
        server = serve({**ADMINISTRATION, "refresh": {
            "provider": method, "url": f"http://127.0.0.1:{provider.port}/token", "client_id": CLIENT,
            "client_secret_file": str(tmp_path / "secret"), "wait": "15s"}}, program=refresh_binary)
        unique_id, login = fresh_id(), json.loads(provider.log_in(method))
        seen = [login["access_token"]]
        token_info = json.dumps({**login, "expires_in": 0, "of the app": [1, None]})
        for number in range(3):
            # As a device that has kept the tokens stores them: they have expired.
            store(server, unique_id, token_info)
            with ThreadPoolExecutor(20) as pool:
                [(found, advice)] = set(pool.map(lambda _: read(server, unique_id), range(40)))
            tokens = json.loads(found)
            assert advice is None and tokens["of the app"] == [1, None] and tokens["scope"] == "read", found
            assert tokens["access_token"] not in seen and provider.check(tokens["access_token"]) == "valid"
            assert (tokens["refresh_token"] != json.loads(token_info)["refresh_token"]) == is_rotating
            assert (provider.check(seen[-1]) == "invalid") == is_dead_at_once
            assert refreshes(server, "refreshed") == number + 1
            seen.append(tokens["access_token"])
            token_info = json.dumps({**tokens, "expires_in": 0})
        if program == "django":
            # It gives tokens two seconds; a device that asks then gets another one.
            time.sleep(2.1)
            until(lambda: read(server, unique_id)[1] is None and json.loads(read(server, unique_id)[0])["access_token"] not in seen)
        # The login ends at the provider.
        store(server, unique_id, json.dumps({**json.loads(token_info), "refresh_token": "unknown"}))
        advice = read(server, unique_id)[1]
        assert advice == "login" and refreshes(server, "refused") == 1
