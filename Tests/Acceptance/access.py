"""Servers that know who a request is from, the credentials for them, and what they answer."""
import base64
import json
import os
from dataclasses import dataclass
from urllib.parse import quote

from contract import INVALID_INPUT, NOT_FOUND, STORED, WRITE_FAILED, check_http_error, found
from http_client import FORM, exchange, lines
from server_process import run

SCOPES = ["sessions", "tokens:read", "tokens:write", "erase"]


def make_key(file, name, *scopes, expires=None):
    """Adds an API key to a file and returns it."""
    flags = [flag for scope in scopes or SCOPES for flag in ("--scope", scope)]
    flags += ["--expires", expires] if expires else []
    done = run("access", "keys", "add", name, *flags, environment={"TOKEN_CACHE_ACCESS_API_KEYS_FILE": str(file)})
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()


def session_settings(folder, **session):
    """Settings of mode session, and an API key with all scopes. The values are those below `access.session`."""
    folder.mkdir(parents=True, exist_ok=True)
    file = folder / "api-keys"
    key = make_key(file, "backend")
    access = {"mode": "session", "api": {"keys_file": str(file)}}
    return {"access": {**access, **({"session": session} if session else {})}}, key


def bearer_settings(file, signer, **settings):
    """Settings of mode bearer, with values below `access.bearer`; writes the issuer's key set to the file."""
    signer.publish(file)
    return {"access": {"mode": "bearer", "bearer": {
        "issuer": signer.url, "audience": signer.audience, "keys_file": str(file), **settings}}}


APP_SECRET = "0123456789abcdef0123456789abcdef"


def write_app_secret(file):
    """Settings with an app secret of Facebook's, which is written to the file."""
    file.write_text(APP_SECRET + "\n")
    file.chmod(0o600)
    return {"facebook": {"app_secret_file": str(file)}}


def unknown_session():
    """A session in the right form that no server has made."""
    return "tcs_" + base64.urlsafe_b64encode(os.urandom(32)).decode().rstrip("=")


def bearer(credential):
    """The header line with a credential."""
    return f"Authorization: Bearer {credential}"


# Requests

def fetch(*fields, unique_id=None, path="/token", host="localhost"):
    """A GET; the id is text or bytes, or None to leave it out."""
    query = "" if unique_id is None else f"?unique_id={quote(unique_id, safe='')}"
    return lines(f"GET {path}{query} HTTP/1.1", f"Host: {host}", *fields)


def store(token_info, *fields, unique_id=None, path="/token", host="localhost"):
    """A POST with a form; the id is text or bytes, or None to leave it out."""
    start = "" if unique_id is None else f"unique_id={quote(unique_id, safe='')}&"
    body = f"{start}token_info={quote(token_info, safe='')}".encode()
    return lines(f"POST {path} HTTP/1.1", f"Host: {host}", FORM, f"Content-Length: {len(body)}", *fields, body=body)


def api_request(key, method, path, body=None, *fields, host="localhost"):
    """A request to the API; a body that is not bytes is written as JSON. Without a key there is no Authorization."""
    data = b"" if body is None else body if isinstance(body, bytes) else json.dumps(body).encode()
    head = [f"{method} {path} HTTP/1.1", f"Host: {host}", *([bearer(key)] if key else []), *fields]
    if body is not None:
        head += ["Content-Type: application/json", f"Content-Length: {len(data)}"]
    return lines(*head, body=data)


class API:
    """Calls a server's API with one key, each time on a new connection."""

    def __init__(self, server, key):
        self.server, self.key = server, key

    def call(self, method, path, body=None, *fields):
        return exchange(self.server.address, api_request(self.key, method, path, body, *fields), method)

    def make_session(self, user):
        """A session as the API returns it: `session`, `id` and `expires_at`."""
        response = self.call("POST", "/v1/sessions", {"user": user})
        assert response.status == 201, response
        made = json.loads(response.body)
        assert list(made) == ["session", "id", "expires_at"]
        assert response.headers["location"] == f"/v1/sessions/{made['id']}"
        return made

    def session(self, user):
        """The secret of a new session."""
        return self.make_session(user)["session"]

    @staticmethod
    def path(user, rest=""):
        """The path of a user; the name is in the query if a path cannot carry it."""
        escaped = quote(user, safe="")
        return f"/v1/user{rest}?user={escaped}" if "/" in user or user in (".", "..") else f"/v1/users/{escaped}{rest}"

    def sessions(self, user):
        """The list of a user's sessions."""
        response = self.call("GET", self.path(user, "/sessions"))
        assert response.status == 200, response
        return json.loads(response.body)["sessions"]

    def end(self, session_id):
        response = self.call("DELETE", f"/v1/sessions/{session_id}")
        assert response.status == 200, response

    def end_all(self, user):
        response = self.call("DELETE", self.path(user, "/sessions"))
        assert response.status == 200, response

    def erase(self, user):
        response = self.call("DELETE", self.path(user))
        assert response.status == 200, response

    def put(self, user, token_info, *fields):
        path = self.path(user, "/token")
        return self.call("PUT", path, {"token_info": token_info}, *(fields or ["If-None-Match: *"]))

    def get(self, user, *fields):
        return self.call("GET", self.path(user, "/token"), None, *fields)


# Answers

@dataclass(frozen=True)
class Outcome:
    """What a request gets: its status, the start of its challenge and, if it is always the same, its body."""
    status: int
    body: bytes | None = None
    challenge: str | None = None
    tagged: bool = False
    is_failure: bool = False

    def check(self, response, place=""):
        assert response.status == self.status, f"{place}: {response}"
        if self.body is not None:
            assert response.body == self.body, f"{place}: {response}"
        elif self.status >= 400:
            check_http_error(response, self.status)
        assert response.headers.get("www-authenticate") == self.challenge, f"{place}: {response}"
        assert ("etag" in response.headers) == self.tagged, f"{place}: {response}"
        if self.tagged:
            tag = response.headers["etag"]
            assert tag[0] == tag[-1] == '"' and len(tag) > 2, f"{place}: a strong tag in {response}"
        assert ("retry-after" in response.headers) == (self.status == 429 or self.is_failure), f"{place}: {response}"


def found_by(user):
    """The user's token was read, or stored."""
    return Outcome(200, found(token_of(user)), tagged=True), Outcome(200, STORED, tagged=True)


def token_of(user):
    """What each user of a table stores."""
    return f'{{"token of":"{user}"}}'


def both(outcome):
    """The same for GET and POST."""
    return outcome, outcome


NONE_IN_PARAMETER = both(Outcome(200, INVALID_INPUT))
MISSING = both(Outcome(401, challenge="Bearer"))
# The same body as where nothing is stored, or where storing fails; only the challenge tells them apart.
DENIED = tuple(Outcome(200, body, challenge='Bearer error="invalid_token"') for body in (NOT_FOUND, WRITE_FAILED))
INVALID_TOKEN = both(Outcome(401, challenge='Bearer error="invalid_token"'))
OTHER_USER = both(Outcome(403))
FOREIGN_PAGE = both(Outcome(403))
CONFLICT = both(Outcome(400))
PRECONDITION = both(Outcome(412))
NOTHING = Outcome(200, NOT_FOUND), Outcome(200, STORED, tagged=True)
