"""Providers that refresh tokens: a stand-in whose every answer a test decides, and real OAuth servers, each a process of its own.

    provider = StandIn()                       # rotates refresh tokens and refuses one that was used, as RFC 9700 advises
    token_info = provider.log_in("anna")       # the JSON of a token answer
    provider.answer = broken                   # a function that answers instead: it gets the handler of the request
    provider.requests                          # what has come, as (path, fields, authorization)
"""
import contextlib
import http.server
import itertools
import json
import threading
import time
import urllib.parse

SECRET = "s3cret"
CLIENT = "app"


class StandIn:
    """A token endpoint on loopback that behaves, until it is told otherwise.

    As Facebook it follows developers.facebook.com/docs/facebook-login/guides/access-tokens/get-long-lived.
    """

    def __init__(self, lifetime=3600, rotates=True, context=None):
        self.lifetime, self.rotates = lifetime, rotates
        self.requests, self.lock, self.numbers = [], threading.Lock(), itertools.count(1)
        # The refresh token that is valid, by user, and the user of each that was ever given.
        self.valid, self.owners = {}, {}
        self.reused = []
        self.answer = None
        self.server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), self._handler())
        self.server.daemon_threads = True
        if context:
            self.server.socket = context.wrap_socket(self.server.socket, server_side=True)
        self.scheme = "https" if context else "http"
        threading.Thread(target=self.server.serve_forever, kwargs={"poll_interval": 0.05}, daemon=True).start()

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.server.shutdown()
        self.server.server_close()

    @property
    def url(self):
        return f"{self.scheme}://localhost:{self.server.server_address[1]}/token"

    def settings(self, folder, provider="oauth2", **more):
        """The server's settings for this provider, with the secret in a file."""
        secret = folder / "client-secret"
        secret.write_text(SECRET + "\n")
        return {"refresh": {
            "provider": provider, "url": self.url, "client_id": CLIENT, "client_secret_file": str(secret), **more}}

    def log_in(self, user, expires_in=0):
        """A token of a user, who has logged in, as the JSON of a token answer."""
        return json.dumps({"access_token": f"access-{user}", "expires_in": expires_in, "refresh_token": self._give(user), "scope": "a b"})

    def _give(self, user):
        token = f"refresh-{user}-{next(self.numbers)}"
        self.valid[user], self.owners[token] = token, user
        return token

    def exchange(self, token):
        """The status and the answer to a refresh token."""
        with self.lock:
            user = self.owners.get(token)
            if user is None or self.valid[user] != token:
                self.reused.append(token)
                return 400, {"error": "invalid_grant"}
            answer = {"access_token": f"access-{next(self.numbers)}", "expires_in": self.lifetime, "token_type": "Bearer"}
            if self.rotates:
                answer["refresh_token"] = self._give(user)
            return 200, answer

    def _handler(self):
        provider = self

        class Handler(http.server.BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def handle_one_request(self):
                with contextlib.suppress(ConnectionError):
                    super().handle_one_request()

            def do_POST(self):
                self.serve(self.rfile.read(int(self.headers["Content-Length"])).decode())

            def do_GET(self):
                self.serve(urllib.parse.urlsplit(self.path).query)

            def serve(self, text):
                self.fields = dict(urllib.parse.parse_qsl(text, keep_blank_values=True))
                provider.requests.append((self.path, self.fields, self.headers["Authorization"]))
                (provider.answer or self.usual)(self)

            @staticmethod
            def usual(self):
                if self.fields["grant_type"] == "fb_exchange_token":
                    return self.send(200, {"access_token": f"EAA{next(provider.numbers)}", "token_type": "bearer", "expires_in": 5_183_944})
                return self.send(*provider.exchange(self.fields["refresh_token"]))

            def send(self, status, answer, **fields):
                body = answer if isinstance(answer, bytes) else json.dumps(answer).encode()
                self.send_response(status)
                self.send_header("Content-Type", "application/json")
                self.send_header("Content-Length", str(len(body)))
                for name, value in fields.items():
                    self.send_header(name.replace("_", "-"), value)
                self.end_headers()
                self.wfile.write(body)

            def log_message(self, *_):
                pass

        return Handler


def dictionary(token, expires, refreshed, **more):
    """The dictionary of Facebook's SDK, with times in seconds since 1970."""
    def date(seconds):
        return time.strftime("%Y-%m-%dT%H:%M:%S.000+0000", time.gmtime(seconds))
    return json.dumps({
        "com.facebook.sdk:TokenInformationExpirationDateKey": date(expires),
        "com.facebook.sdk:TokenInformationPermissionsKey": ["email", "public_profile"],
        "com.facebook.sdk:TokenInformationRefreshDateKey": date(refreshed),
        "com.facebook.sdk:TokenInformationTokenKey": token, **more})
