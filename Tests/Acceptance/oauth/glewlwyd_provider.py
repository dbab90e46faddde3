"""glewlwyd's OpenID Connect plugin as a provider: python3 glewlwyd_provider.py FOLDER PORT [NAME=VALUE ...]

Prints a line when it is set up, and becomes the server. NAME=VALUE: parameters of the plugin, with values in JSON.
"""
import contextlib
import json
import os
import socket
import sqlite3
import subprocess
import sys
import time
import urllib.error
import urllib.request
from http.cookiejar import CookieJar
from pathlib import Path

folder, port = Path(sys.argv[1]), int(sys.argv[2])
given = {name: json.loads(value) for name, value in (argument.split("=", 1) for argument in sys.argv[3:])}
TABLES = Path("/usr/share/dbconfig-common/data/glewlwyd/install/sqlite3")
COMMAND = ["glewlwyd", f"--config-file={folder}/glewlwyd.conf"]
CONFIGURATION = f"""
port = {port}
bind_address = "127.0.0.1"
external_url = "http://127.0.0.1:{port}/"
api_prefix = "api"
# At this level it says why it refuses something, which its answers do not.
log_mode = "console"
log_level = "DEBUG"
session_key = "session"
admin_scope = "g_admin"
profile_scope = "g_profile"
user_module_path = "/usr/lib/glewlwyd/user"
client_module_path = "/usr/lib/glewlwyd/client"
user_auth_scheme_module_path = "/usr/lib/glewlwyd/scheme"
plugin_module_path = "/usr/lib/glewlwyd/plugin"
hash_algorithm = "SHA512"
database = {{ type = "sqlite3"; path = "{folder}/db.sqlite"; }};
"""
PLUGIN = {
    "module": "oidc", "name": "oidc", "display_name": "oidc", "parameters": {
        "iss": f"http://127.0.0.1:{port}/", "jwt-type": "sha", "jwt-key-size": "256", "key": "x" * 40,
        "access-token-duration": 3600, "refresh-token-duration": 86_400, "code-duration": 600,
        "allow-non-oidc": True, "auth-type-password-enabled": True, "auth-type-refresh-enabled": True,
        "auth-type-client-enabled": True, "introspection-revocation-allowed": True,
        "introspection-revocation-allow-target-client": True, **given}}
CLIENT = {
    "client_id": "app", "password": "s3cret", "confidential": True, "enabled": True,
    "token_endpoint_auth_method": ["client_secret_basic", "client_secret_post"],
    # The last one, because only such clients may introspect and revoke tokens.
    "authorization_type": ["password", "refresh_token", "client_credentials"]}

opener = urllib.request.build_opener(urllib.request.HTTPCookieProcessor(CookieJar()))


def post(path, value):
    request = urllib.request.Request(
        f"http://127.0.0.1:{port}/api/{path}", json.dumps(value).encode(), {"Content-Type": "application/json"})
    try:
        opener.open(request, timeout=20).close()
    except urllib.error.HTTPError as error:
        raise RuntimeError(f"{path}: {error.code} {error.read().decode()}") from None


def is_listening():
    with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", port)):
        return True


with contextlib.closing(sqlite3.connect(folder / "db.sqlite")) as database:
    database.executescript(TABLES.read_text())
(folder / "glewlwyd.conf").write_text(CONFIGURATION)
with subprocess.Popen(COMMAND) as server:
    try:
        while not is_listening():
            if server.poll() is not None:
                raise RuntimeError("glewlwyd has ended")
            time.sleep(0.02)
        # The user that is in the database from the beginning.
        post("auth/", {"username": "admin", "password": "password"})
        post("scope/", {"name": "read", "display_name": "read", "password_required": False})
        post("user/", {"username": "anna", "password": "pw", "enabled": True, "scope": ["read"]})
        post("client/", CLIENT)
        post("mod/plugin/", PLUGIN)
    finally:
        # What it has answered is in the database, and it would take seconds to stop.
        server.kill()
print("serves", flush=True)
# So that whoever ends this process ends the server.
os.execvp(COMMAND[0], COMMAND)
