#!/usr/bin/env python3
"""An app's server that logs users in to token-cache (access.mode: session), with nothing but Python's standard library.

    (umask 077; openssl rand -hex 32 > logout.key)
    TOKEN_CACHE=http://127.0.0.1:8081 API_KEY="$(cat backend.key)" LOGOUT_KEY="$(cat logout.key)" USERS=users.json ./backend.py 8000
    curl -d name=anna -d password=secret http://127.0.0.1:8000/login      {"session":"tcs_...", ...}

POST /login returns a session, which the app sends to token-cache with every request: as unique_id, or in the header
Authorization: Bearer. POST /logout ends it, with the id and the logout of the same answer. With LOGOUT_KEY this program makes
logout: keep it when you replace the API key, or those who are logged in cannot log out. users.json has, for each name, a user id
that nobody else ever gets, a salt and what hashed() makes of the password:

    {"anna": {"user": "1001", "salt": "9f8a4c1e7b3d60528cd1e5f27a94b306", "hash":
        "65ec642e14f6cc1cf2f681c39d35a8ec611d16b5ea4bb4e1cb99c74bf1b572571ca99001b7ec814a6947cea455a4ea639d83dc690bff9257085ee89050a923a7"}}

Passwords cross the network: put https in front.
"""
import hashlib, hmac, http.server, json, os, sys, urllib.error, urllib.parse, urllib.request

TOKEN_CACHE = os.environ.get("TOKEN_CACHE", "http://127.0.0.1:8080")
USERS = {}
NOBODY = {"user": None, "salt": "00" * 16, "hash": ""}


def token_cache(method, path, body=None):
    headers = {"Authorization": f"Bearer {os.environ['API_KEY']}", "Content-Type": "application/json"}
    data = json.dumps(body).encode() if body else None
    with urllib.request.urlopen(urllib.request.Request(TOKEN_CACHE + path, data, headers, method=method), timeout=10) as answer:
        return json.load(answer)


def hashed(password, salt):
    return hashlib.scrypt(password.encode(), salt=bytes.fromhex(salt), n=2**14, r=8, p=1).hex()


def logout(identifier):
    return hmac.digest(os.environ["LOGOUT_KEY"].encode(), identifier.encode(), "sha256").hex()


def login(form):
    known = USERS.get(form.get("name"), NOBODY)
    if not hmac.compare_digest(hashed(form.get("password", ""), known["salt"]), known["hash"]):
        return 403, {"error": "wrong name or password"}
    made = token_cache("POST", "/v1/sessions", {"user": known["user"]})
    return 200, {**made, "logout": logout(made["id"])}


def end(form):
    identifier = form.get("id", "")
    if not hmac.compare_digest(logout(identifier).encode(), form.get("logout", "").encode()):
        return 403, {"error": "wrong id or logout"}
    try:
        return 200, token_cache("DELETE", f"/v1/sessions/{urllib.parse.quote(identifier)}")
    except urllib.error.HTTPError as error:
        if error.code != 404:
            raise
        return 200, {"status": "true"}    # It has ended, and the app did not get the answer.


class Handler(http.server.BaseHTTPRequestHandler):
    def do_POST(self):
        form = dict(urllib.parse.parse_qsl(self.rfile.read(int(self.headers.get("Content-Length", 0))).decode()))
        action = {"/login": login, "/logout": end}.get(self.path)
        try:
            status, value = action(form) if action else (404, {"error": "there is nothing at this path"})
        except OSError as error:    # Also any other status than 2xx.
            self.log_error("token-cache: %s", error)
            status, value = 502, {"error": "token-cache has no good answer"}
        self.answer(status, value)

    def answer(self, status, value):
        self.send_response(status)
        self.send_header("Content-Type", "application/json")
        self.send_header("Cache-Control", "no-store")
        self.end_headers()
        self.wfile.write(json.dumps(value).encode())


if __name__ == "__main__":
    if not all(os.environ.get(name) for name in ("API_KEY", "LOGOUT_KEY", "USERS")):
        sys.exit("set API_KEY, LOGOUT_KEY and USERS")
    with open(os.environ["USERS"], encoding="utf-8") as file:
        USERS.update(json.load(file))
    http.server.ThreadingHTTPServer(("127.0.0.1", int(sys.argv[1])), Handler).serve_forever()
