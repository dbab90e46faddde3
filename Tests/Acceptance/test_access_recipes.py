"""The recipes of deploy/ for each mode, with the real programs: a backend, nginx, Caddy, an OpenID provider, certificates."""
import base64
import contextlib
import hashlib
import hmac
import http.server
import json
import re
import ssl
import subprocess
import sys
import threading
import urllib.error
import urllib.parse
import urllib.request
from pathlib import Path
from types import SimpleNamespace

import pytest

from access import API, bearer, bearer_settings, fetch, session_settings, store
from access_worlds import HEADER
from administration import ADMINISTRATION
from certificates import make_certificate
from contract import NOT_FOUND, STORED, check_http_error, found
from http_client import Connection, exchange, lines
from issuer import Issuer
from ports import free_ports
from proxies import HOST, Apache, Caddy, Nginx
from proxy_site import Recorder, raw_answer
from server_process import clean_environment, until

DEPLOY = Path(__file__).parents[2] / "deploy"
SALT = "9f8a4c1e7b3d60528cd1e5f27a94b306"


# A backend with a login of its own

def password_hash(password):
    return hashlib.scrypt(password.encode(), salt=bytes.fromhex(SALT), n=2**14, r=8, p=1).hex()


@pytest.fixture(name="backend")
def running_backend(serve, tmp_path):
    """The example, with its URL, beside a server."""
    settings, key = session_settings(tmp_path / "keys")
    server, (port,) = serve(settings), free_ports(1)
    users = tmp_path / "users.json"
    example = json.loads(re.search(r'\{"anna".*?\}\}', (DEPLOY / "examples/backend.py").read_text(), re.DOTALL)[0])
    users.write_text(json.dumps({"carl": example["anna"]} | {name: {"user": user, "salt": SALT, "hash": password_hash(f"{name}'s")}
                                 for name, user in (("anna", "user/1001"), ("ben", "user/1002"))}))
    environment = clean_environment()
    environment.update(TOKEN_CACHE=server.base, API_KEY=key, LOGOUT_KEY="stays the same", USERS=str(users))
    process = subprocess.Popen([sys.executable, DEPLOY / "examples/backend.py", str(port)], env=environment,
                               stderr=subprocess.DEVNULL)
    try:
        until(lambda: ask(f"http://127.0.0.1:{port}/login", {}) or process.poll() is not None)
        yield server, API(server, key), f"http://127.0.0.1:{port}"
    finally:
        process.terminate()
        process.wait(20)


def ask(url, form):
    """The status and the JSON of an answer to a form; nothing if nobody listens."""
    try:
        with urllib.request.urlopen(url, urllib.parse.urlencode(form).encode(), timeout=20) as answer:
            return answer.status, json.load(answer)
    except urllib.error.HTTPError as answer:
        with answer:
            return answer.code, json.load(answer)
    except urllib.error.URLError:
        return None


def log_in(url, name):
    status, answer = ask(f"{url}/login", {"name": name, "password": f"{name}'s"})
    assert status == 200
    return answer


def test_the_backend_logs_users_in_on_each_device_and_one_device_out(backend):
    server, api, url = backend
    made, *others = (log_in(url, name) for name in ("anna", "anna", "ben"))
    # Not by the API key, which may be replaced while users are logged in.
    assert made["logout"] == hmac.new(b"stays the same", made["id"].encode(), "sha256").hexdigest()
    phone, tablet, other = made["session"], *(answer["session"] for answer in others)
    assert exchange(server.address, store("hello", unique_id=phone)).body == STORED
    assert exchange(server.address, fetch(bearer(tablet))).body == found("hello")
    assert exchange(server.address, fetch(bearer(other))).body == NOT_FOUND
    assert len(api.sessions("user/1001")) == 2
    for form in ({"name": "anna", "password": "wrong"}, {"name": "nobody", "password": "anna's"}, {"name": "anna"}, {}):
        assert ask(f"{url}/login", form)[0] == 403
    for form in ({"id": others[0]["id"], "logout": made["logout"]}, {"id": made["id"]}, {"logout": "\u00e4"}, {}):
        assert ask(f"{url}/logout", form)[0] == 403
    assert ask(f"{url}/logout", {"id": made["id"], "logout": made["logout"]})[0] == 200
    check_http_error(exchange(server.address, fetch(bearer(phone))), 401)
    for session in (tablet, log_in(url, "anna")["session"]):
        assert exchange(server.address, fetch(bearer(session))).body == found("hello")
    assert exchange(server.address, fetch(bearer(other))).body == NOT_FOUND
    assert ask(f"{url}/login", {"name": "carl", "password": "secret"})[0] == 200, "the user in the example's comment"


# nginx and Caddy, which ask a login

@contextlib.contextmanager
def answering(answer, context=None):
    """The port of a web server that gives a function each request, which returns the status, fields and body of the answer."""
    class Handler(http.server.BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_GET(self):
            self.form = self.rfile.read(int(self.headers.get("Content-Length", 0)))
            status, fields, body = answer(self)
            self.send_response(status)
            for name, value in {**fields, "Content-Length": str(len(body))}.items():
                self.send_header(name, value)
            self.end_headers()
            self.wfile.write(body)

        do_POST = do_GET

        def log_message(self, *_):
            pass

    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        server.daemon_threads = True
        if context:
            server.socket = context.wrap_socket(server.socket, server_side=True)
        thread = threading.Thread(target=server.serve_forever, daemon=True)
        thread.start()
        try:
            yield server.server_port
        finally:
            server.shutdown()
            thread.join()


class Login:
    """A login as the recipes need it: knows users by a cookie, and records what it was asked."""
    users = {"cookie-of-anna": "anna", "cookie-of-ben": "ben"}

    def __init__(self):
        self.heads = []
        self.server = contextlib.ExitStack()
        self.port = self.server.enter_context(answering(self.answer))

    def answer(self, request):
        self.heads.append((request.path, request.headers.items()))
        cookie = request.headers.get("Cookie", "")
        user = self.users.get(cookie)
        return 200 if cookie else 401, {"Remote-User": user} if user else {}, b""

    def close(self):
        self.server.close()


class NginxWithLogin(Nginx):
    """With the file that asks the login, as its first lines say."""
    login_port = 0

    def site(self):
        users = (DEPLOY / "nginx/token-cache-users.conf").read_text().replace("127.0.0.1:8000", f"127.0.0.1:{self.login_port}")
        line = "# include /etc/nginx/token-cache-users.conf;"
        text = super().site()
        assert line in text
        return text.replace(line, f"include {self.write('token-cache-users.conf', users)};")


class CaddyWithLogin(Caddy):
    """With the file that asks the login, as its first lines say."""
    login_port = 0

    def deployed(self, replacements):
        users = (DEPLOY / "caddy/users.caddy").read_text().replace("127.0.0.1:8000", f"127.0.0.1:{self.login_port}")
        self.write("users.caddy", users)
        return super().deployed({**replacements, "# import users.caddy": "import users.caddy"})


@pytest.fixture(name="site", params=[NginxWithLogin, CaddyWithLogin], ids=["nginx", "caddy"])
def site_with_login(request, serve, tmp_path, proxy_certificate):
    server, login = serve({**HEADER, "access_log": "combined"}), Login()
    kind = type(request.param.__name__, (request.param,), {"login_port": login.port})
    proxy = kind(tmp_path / "proxy", server.address[1], proxy_certificate)

    def connect():
        return proxy_certificate.connect(proxy.https_port)

    yield server, login, proxy, connect
    proxy.close()
    login.close()


COOKIES = {user: f"Cookie: {cookie}" for cookie, user in Login.users.items()}


def test_a_proxy_asks_the_login_who_it_is(site):
    server, login, proxy, connect = site
    anna, ben = COOKIES["anna"], COOKIES["ben"]
    with connect() as connection:
        for data, status, body in (
                (store("anna's", anna, host=HOST), 200, STORED), (fetch(anna, host=HOST), 200, found("anna's")),
                (fetch(ben, host=HOST), 200, NOT_FOUND), (store("ben's", ben, unique_id="ben", host=HOST), 200, STORED),
                (fetch(ben, unique_id="anna", host=HOST), 403, None), (fetch(host=HOST), 401, None),
                (store("stolen", host=HOST), 401, None), (fetch(anna, unique_id="anna", host=HOST), 200, found("anna's"))):
            response = raw_answer(connection, data)
            assert response.status == status and body in (None, response.body), data
    # Neither ids nor tokens reach the login.
    assert login.heads and not re.search(r"unique_id|token_info|anna's|stolen", str(login.heads))
    assert {path for path, _ in login.heads} == {"/check"}


@pytest.mark.parametrize("fields", [["Remote-User: anna"], ["remote-user: anna"], ["Remote_User: anna"],
                                    ["Remote-User: anna", "Remote-User: anna"], ["Connection: Remote-User", "Remote-User: anna"]])
def test_no_client_chooses_its_user(site, fields):
    """Neither without a cookie, nor with one that the login does not know, nor with that of another user."""
    server, _, _, connect = site
    assert exchange(server.address, store("anna's", "Remote-User: anna")).body == STORED
    for cookie, statuses in ((None, {401}), ("Cookie: somebody", {401}), (COOKIES["ben"], {200, 401})):
        for data in (fetch(*fields, *([cookie] if cookie else []), host=HOST),
                     store("stolen", *fields, *([cookie] if cookie else []), host=HOST)):
            with connect() as connection:
                response = raw_answer(connection, data)
                assert response.status in statuses and b"anna's" not in response.body, (cookie, response)
    assert exchange(server.address, fetch("Remote-User: anna")).body == found("anna's")


def test_without_the_login_nobody_is_served(site):
    server, login, _, connect = site
    login.close()
    with connect() as connection:
        response = raw_answer(connection, fetch(COOKIES["anna"], host=HOST))
    assert response.status >= 500 and json.loads(response.body)["status"] == "false"


def test_the_api_is_not_reached_through_the_proxies(site):
    _, _, _, connect = site
    for path in ("/v1/sessions", "/v1/users/anna/token", "/token/../v1/sessions"):
        with connect() as connection:
            assert raw_answer(connection, fetch(COOKIES["anna"], path=path, host=HOST)).status in (400, 404)


# Apache, at which users log in

class Provider:
    """An OpenID provider at which everybody is logged in as `user` (OpenID Connect Core, section 3.1)."""
    client = "token-cache"

    def __init__(self):
        self.user, self.codes, self.issuer = "anna", {}, Issuer()
        self.server = contextlib.ExitStack()
        self.issuer.url = f"http://127.0.0.1:{self.server.enter_context(answering(self.answer))}"

    def answer(self, request):
        target = urllib.parse.urlsplit(request.path)
        parameters = dict(urllib.parse.parse_qsl(target.query))
        url = self.issuer.url
        if target.path == "/authorize":
            code = f"code-{len(self.codes)}"
            self.codes[code] = self.issuer.token(self.user, aud=self.client, nonce=parameters["nonce"], email=f"{self.user}@example.com")
            query = urllib.parse.urlencode({"code": code, "state": parameters["state"]})
            return 302, {"Location": f"{parameters['redirect_uri']}?{query}"}, b""
        form = dict(urllib.parse.parse_qsl(request.form.decode()))
        answers = {
            "/.well-known/openid-configuration": lambda: {
                "issuer": url, "authorization_endpoint": f"{url}/authorize", "token_endpoint": f"{url}/token", "jwks_uri": f"{url}/jwks",
                "response_types_supported": ["code"], "id_token_signing_alg_values_supported": ["ES256"],
                "token_endpoint_auth_methods_supported": ["client_secret_basic"]},
            "/jwks": self.issuer.jwks,
            "/token": lambda: {"access_token": "access-4711", "token_type": "Bearer", "expires_in": 300, "id_token": self.codes.pop(form["code"])},
        }
        body = answers.get(target.path, dict)()
        return 200 if body else 404, {"Content-Type": "application/json"}, json.dumps(body).encode()

    def close(self):
        self.server.close()


class ApacheWithLogin(Apache):
    """With the file that logs users in, as its first lines say."""
    provider = ""
    module = Path("/etc/apache2/mods-available/auth_openidc.load")
    # What the file has for the user.
    user = "expr=%{REMOTE_USER}"

    def deployed(self, replacements):
        users = (DEPLOY / "apache/token-cache-users.conf").read_text()
        for module in re.search("a2enmod (.*)", users)[1].split():
            self.enable(module)
        for old, new in {"https://login.example.com": self.provider, "https://tokens.example.com": f"https://{HOST}",
                         "expr=%{REMOTE_USER}": self.user}.items():
            assert old in users
            users = users.replace(old, new)
        line = "# Include /etc/apache2/token-cache-users.conf"
        return super().deployed({**replacements, line: f"Include {self.write('token-cache-users.conf', users)}"})


PAGE = "Accept: text/html"


@pytest.fixture(name="behind_apache")
def site_behind_apache(serve, tmp_path, proxy_certificate):
    """A function that starts Apache with a login, and what is between the server and the provider."""
    if not ApacheWithLogin.module.exists():
        pytest.skip("libapache2-mod-auth-openidc is not installed")
    with contextlib.ExitStack() as stack:
        provider = stack.enter_context(contextlib.closing(Provider()))
        server = serve({"access": {"mode": "header", "header": {"name": "X-Remote-User"}}, "trusted_proxies": "127.0.0.1"})

        def start(port=None, **changes):
            kind = type("ApacheWithLogin", (ApacheWithLogin,), {"provider": provider.issuer.url, **changes})
            proxy = stack.enter_context(kind(tmp_path / "proxy", port or server.address[1], proxy_certificate))
            return lambda data: browse(proxy_certificate, proxy.https_port, data)

        yield provider, server, start


def browse(certificate, port, data):
    """The answer to a request on a connection of its own."""
    with certificate.connect(port) as connection:
        return raw_answer(connection, data)


def log_in_at(provider, ask):
    """The cookie that a browser has after a login, and where it is sent then."""
    first = ask(fetch(PAGE, unique_id="anna", host=HOST))
    assert first.status == 302 and first.headers["location"].startswith(f"{provider.issuer.url}/authorize?")
    _, fields, _ = provider.answer(SimpleNamespace(path=first.headers["location"].removeprefix(provider.issuer.url), form=b""))
    path = fields["Location"].removeprefix(f"https://{HOST}")
    second = ask(lines(f"GET {path} HTTP/1.1", f"Host: {HOST}", PAGE, "Cookie: " + first.headers["set-cookie"].partition(";")[0]))
    assert second.status == 302
    cookies = re.findall(r"(mod_auth_openidc_session=[^;]+)", second.headers["set-cookie"])
    return f"Cookie: {cookies[0]}", second.headers["location"]


def test_users_log_in_at_apache(behind_apache):
    provider, server, start = behind_apache
    ask = start()
    anna, location = log_in_at(provider, ask)
    assert re.sub(r":\d+/", "/", location) == f"https://{HOST}/token?unique_id=anna"
    assert ask(store("anna's", anna, host=HOST)).body == STORED
    provider.user = "ben"
    ben, _ = log_in_at(provider, ask)
    assert ask(fetch(ben, host=HOST)).body == NOT_FOUND
    assert ask(fetch(ben, unique_id="anna", host=HOST)).status == 403
    assert ask(fetch(anna, "X-Remote-User: ben", "Authorization: Bearer x", unique_id="anna", host=HOST)).body == found("anna's")
    for fields in [], ["X-Remote-User: anna"], ["Cookie: mod_auth_openidc_session=x", "X-Remote-User: anna"], ["Connection: X-Remote-User"]:
        check_http_error(ask(fetch(*fields, host=HOST)), 401)
        check_http_error(ask(store("stolen", *fields, host=HOST)), 401)
    assert exchange(server.address, fetch("X-Remote-User: anna")).body == found("anna's")
    assert "names nobody" not in server.log()


def test_apache_keeps_credentials_and_claims_to_itself(behind_apache):
    provider, _, start = behind_apache
    port, = free_ports(1)
    with Recorder(port) as recorder:
        ask = start(port)
        anna, _ = log_in_at(provider, ask)
        ask(fetch(anna, "Authorization: Basic YTpi", host=HOST))
    assert recorder.values("x-remote-user") == ["anna"]
    assert not re.search("(?i)cookie|authorization|oidc|access-4711|example.com", "\n".join(recorder.heads[-1]))


def test_a_user_whom_apache_takes_from_the_environment_is_nobody(behind_apache):
    """Otherwise all share a token under the name `(null)`."""
    provider, server, start = behind_apache
    ask = start(user="%{REMOTE_USER}e")
    for user in "anna", "ben":
        provider.user = user
        cookie, _ = log_in_at(provider, ask)
        check_http_error(ask(store("shared", cookie, host=HOST)), 401)
        check_http_error(ask(fetch(cookie, host=HOST)), 401)
    until(lambda: "names nobody" in server.log())
    assert server.log().count("a proxy sends (null) in X-Remote-User") == 1


# An OpenID provider

def test_keys_of_a_provider_are_fetched_and_change(serve, tmp_path):
    issuer, file = Issuer(), tmp_path / "jwks.json"
    certificate, key = make_certificate(tmp_path, "-addext", "subjectAltName=DNS:localhost")
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(certificate, key)
    settings = bearer_settings(file, issuer)

    def key_set(request):
        """As the jwks_uri of a provider gives it."""
        body = {"/jwks": issuer.jwks(), "/hiccup": {"keys": []}}.get(request.path)
        return 200 if body else 404, {"Content-Type": "application/json"}, json.dumps(body).encode()

    with answering(key_set, context) as port:
        provider = f"https://localhost:{port}/jwks"

        def refresh(url=provider):
            return subprocess.run([DEPLOY / "examples/fetch-jwks", url, file], capture_output=True, text=True, timeout=60,
                                  env=clean_environment({"CURL_CA_BUNDLE": certificate}), check=False)

        file.unlink()
        assert refresh().returncode == 0
        server = serve(settings)
        first = issuer.token("anna")
        assert exchange(server.address, store("hello", bearer(first))).body == STORED
        # A key that is not yet fetched is not accepted; once it is, tokens of both keys are.
        issuer.rotate("EdDSA")
        token = issuer.token("anna")
        check_http_error(exchange(server.address, fetch(bearer(token))), 401)
        assert refresh().returncode == 0
        until(lambda: exchange(server.address, fetch(bearer(token))).body == found("hello"))
        assert exchange(server.address, fetch(bearer(first))).body == found("hello")
        # Tokens of a key that was withdrawn are refused, also those that were accepted before.
        issuer.withdraw("key-1")
        assert refresh().returncode == 0
        until(lambda: exchange(server.address, fetch(bearer(first))).status == 401)
        assert exchange(server.address, fetch(bearer(issuer.token("anna")))).body == found("hello")
        # An answer that is no key set replaces nothing, and leaves no files.
        before = file.read_bytes()
        for url in (provider.replace("/jwks", "/nothing"), provider.replace("/jwks", "/hiccup"), provider.replace("https:", "http:"),
                    "https://127.0.0.1:1/"):
            assert refresh(url).returncode != 0
        assert file.read_bytes() == before and list(tmp_path.glob(".fetch-jwks.*")) == []
        file.write_text('{"keys": "nonsense"}')
        until(lambda: str(file) in server.log())
        assert exchange(server.address, fetch(bearer(issuer.token("anna")))).body == found("hello")


# nginx in front of the administration

class NginxForOperators(Nginx):
    """Asks operators for a password or a certificate, before a server's administration."""
    configuration = "nginx/administration.conf"

    def site(self):
        self.http_port = self.https_port
        return self.deployed({
            "listen 9443 ssl;": f"listen {self.https_port} ssl;", "listen [::]:9443 ssl;": f"listen [::]:{self.https_port} ssl;",
            "/etc/nginx/token-cache-operators": str(self.passwords()), "127.0.0.1:9090": self.replacements["127.0.0.1:8080"]})

    def passwords(self):
        """The file of passwords, made by the command in the configuration's first lines."""
        file = self.folder / "passwords"
        command, = re.findall(r"#  +(printf .*)", (DEPLOY / self.configuration).read_text())
        shell = command.replace("/etc/nginx/token-cache-operators", str(file)).replace("passwd -6", "passwd -6 secret")
        subprocess.run(["sh", "-c", shell], check=True, timeout=60)
        return file


class NginxForCertificates(NginxForOperators):
    def deployed(self, replacements):
        text = super().deployed(replacements)
        text = re.sub(r"(?m)^ +auth_basic.*\n", "", text)
        return re.sub(r"# (ssl_client_certificate) .*;\n( +)# (ssl_verify_client)", rf"\1 {self.certificate.file};\n\2\3", text)


def asked(proxy, context, path, *fields, method="GET"):
    """The status and the body of an answer to an operator."""
    with Connection(("127.0.0.1", proxy.https_port), context=context, host=HOST) as connection:
        connection.send(lines(f"{method} {path} HTTP/1.1", f"Host: {HOST}", *fields, "Connection: close"))
        head, _, body = connection.receive_to_end().partition(b"\r\n\r\n")
    return int(head.split()[1]), body


def test_nginx_asks_operators_for_a_password(serve, tmp_path, proxy_certificate):
    server = serve(ADMINISTRATION)
    right, wrong = (f"Authorization: Basic {base64.b64encode(text).decode()}" for text in (b"anna:secret", b"anna:other"))
    with NginxForOperators(tmp_path / "proxy", server.administration[0][1], proxy_certificate) as proxy:
        for fields in (), (wrong,), ("Authorization: Bearer secret",):
            assert asked(proxy, proxy_certificate.context, "/status", *fields)[0] == 401
        for path, start in ("/", b"<!DOCTYPE html>"), ("/status", b'{"'), ("/metrics", b"# HELP"), ("/readyz", b'{"ready":true'):
            status, body = asked(proxy, proxy_certificate.context, path, right)
            assert status == 200 and start in body[:40], path
        status, body = asked(proxy, proxy_certificate.context, "/reload", right, "Content-Length: 0", method="POST")
        assert status == 403 and b"only on control.sock" in body


def test_nginx_asks_operators_for_a_certificate(serve, tmp_path, proxy_certificate):
    server = serve(ADMINISTRATION)
    with NginxForCertificates(tmp_path / "proxy", server.administration[0][1], proxy_certificate) as proxy:
        assert asked(proxy, proxy_certificate.context, "/status")[0] == 400
        context = ssl.create_default_context(cafile=str(proxy_certificate.file))
        context.load_cert_chain(proxy_certificate.file, proxy_certificate.key)
        assert asked(proxy, context, "/status")[0] == 200


# Certificates

def test_the_commands_for_client_certificates_work_as_written(serve, tmp_path):
    """The commands in deploy/examples/README.md, in their order."""
    section = (DEPLOY / "examples/README.md").read_text(encoding="utf-8").partition("## Client certificates")[2].partition("\n## ")[0]
    settings, making, using = re.findall(r"(?:^    .*\n)+", section, re.M)
    yaml = pytest.importorskip("yaml", reason="there is no python3-yaml")
    # Certificate and key in one file, as the hook for certbot writes them.
    pair = make_certificate(tmp_path, "-addext", "subjectAltName=DNS:localhost")
    whole = tmp_path / "tokens.example.com.pem"
    whole.touch(0o600)
    whole.write_text("".join(Path(part).read_text() for part in pair))

    def shell(text):
        text = re.sub(r"(?m)^    ", "", text)
        return subprocess.run(["bash", "-euc", text], cwd=tmp_path, capture_output=True, text=True, timeout=60, check=False)

    made = shell(making)
    assert made.returncode == 0, made.stderr
    places = r"(/var/lib/token-cache/tls|/etc/token-cache)/"
    given = yaml.safe_load(re.sub(places, f"{tmp_path}/", re.sub(r"(?m)^    ", "", settings)))
    assert given["access"]["mode"] == "certificate"
    given["listen"] = [re.sub(r"(https://)\S+?:8443", r"\g<1>127.0.0.1:0", entry) for entry in given["listen"]]
    server = serve(given)
    port = server.addresses[0][1]
    used = shell(using.replace("https://tokens.example.com", f"--cacert certificate.pem https://localhost:{port}"))
    assert (used.returncode, used.stdout) == (0, STORED.decode() + found("hello").decode()), used.stderr
    # Without a certificate there is no connection.
    refused = subprocess.run(["curl", "--silent", "--cacert", tmp_path / "certificate.pem", f"https://localhost:{port}/token"],
                             capture_output=True, timeout=60, check=False)
    assert refused.returncode != 0 and refused.stdout == b""
