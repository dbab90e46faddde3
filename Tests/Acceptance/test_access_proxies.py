"""The table of answers through nginx and Caddy: they pass on credentials, challenges, tags and errors as they are."""
import http.client
from types import SimpleNamespace

import pytest

from access import API, INVALID_TOKEN, MISSING, api_request, bearer, fetch, session_settings, unknown_session
from access_worlds import bearer_world, session_world
from contract import NOT_FOUND, check_http_error
from http_client import Response, exchange
from proxies import HOST, Caddy, Nginx, TLSConnection
from server_process import Server, finish, until


# The API is not forwarded by the configurations of deploy/; here it is, as somebody may do who knows why.

class OpenNginx(Nginx):
    def site(self):
        text, old = super().site(), r"location ~ ^/token(?:\.php)?$ {"
        assert old in text
        return text.replace(old, r"location ~ ^/(?:token(?:\.php)?$|v1/) {")


class OpenCaddy(Caddy):
    def deployed(self, replacements):
        return super().deployed({**replacements, "@token path /token /token.php": "@token path /token /token.php /v1/*"})


PROXIES = {"nginx": OpenNginx, "caddy": OpenCaddy}


class Site:
    """A server with users behind a proxy."""

    def __init__(self, world, folder, kind, certificate):
        self.world, self.certificate = world, certificate
        self.proxy = kind(folder / "proxy", world.server.address[1], certificate)

    def connect(self, source="127.0.0.1"):
        return TLSConnection(("127.0.0.1", self.proxy.https_port), self.certificate.context, source=source)

    def close(self):
        self.proxy.stop()
        finish(self.world.server)


WORLDS = {"session": session_world, "bearer": lambda folder: bearer_world(folder, True)}


@pytest.fixture(scope="module", name="site", params=[(mode, proxy) for mode in WORLDS for proxy in PROXIES], ids="-".join)
def shared_site(request, tmp_path_factory, proxy_certificate):
    mode, proxy = request.param
    folder = tmp_path_factory.mktemp(f"{mode}-{proxy}")
    site = Site(WORLDS[mode](folder), folder, PROXIES[proxy], proxy_certificate)
    yield site
    site.close()


class Client:
    """One connection to the proxy, which is opened again when the proxy has closed it."""

    def __init__(self, site):
        self.site, self.connection = site, None
        self.count = 0

    def exchange(self, data, method="GET"):
        if self.connection is None:
            self.connection = self.site.connect()
            self.count += 1
        self.connection.send(data)
        answer = http.client.HTTPResponse(self.connection.socket, method=method)
        answer.begin()
        headers = {name.lower(): value for name, value in answer.getheaders()}
        response = Response(answer.status, headers, answer.read())
        if answer.will_close:
            self.close()
        return response

    def close(self):
        if self.connection:
            self.connection.close()
        self.connection = None

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.close()


@pytest.mark.parametrize("seed", range(2))
def test_each_request_is_judged_by_its_own_credential(site, seed):
    with Client(site) as client:
        requests = site.world.table.shuffled(seed, HOST)
        for name, method, data, outcome in requests:
            response = client.exchange(data, method)
            if site.proxy.configuration.startswith("nginx") and b"\r\nAuthorization:" in data and response.status == 400 \
                    and data.count(b"\r\nAuthorization:") > 1:
                # nginx itself refuses two Authorization fields.
                continue
            outcome.check(response, name)
        assert client.count < len(requests) / 10, "the connection was kept open"


def test_the_api_answers_through_a_proxy(site):
    if not hasattr(site.world, "api"):
        pytest.skip("this server has no API")
    key = site.world.api.key
    with Client(site) as client:
        made = client.exchange(api_request(key, "POST", "/v1/sessions", {"user": "größe"}, host=HOST))
        assert made.status == 201 and made.headers["location"].startswith("/v1/sessions/")
        path = "/v1/users/gr%C3%B6%C3%9Fe"
        for request, outcome in (((None, "GET", f"{path}/token"), MISSING), (("tck_x", "GET", f"{path}/token"), INVALID_TOKEN)):
            outcome[0].check(client.exchange(api_request(*request, host=HOST)))
        check_http_error(client.exchange(api_request(key, "PUT", f"{path}/token", {"token_info": "x"}, host=HOST)), 428)
        stored = client.exchange(api_request(key, "PUT", f"{path}/token", {"token_info": "x"}, "If-None-Match: *", host=HOST))
        tag = stored.headers["etag"]
        response = client.exchange(api_request(key, "GET", f"{path}/token", None, f"If-None-Match: {tag}", host=HOST))
        assert (response.status, response.headers["etag"], response.body) == (304, tag, b"")
        check_http_error(client.exchange(
            api_request(key, "PUT", f"{path}/token", {"token_info": "y"}, 'If-Match: "1"', host=HOST)), 412)
        assert client.exchange(api_request(key, "DELETE", path, host=HOST)).status == 200
        assert client.exchange(api_request(key, "GET", f"{path}/token", host=HOST)).body == NOT_FOUND


@pytest.mark.parametrize("proxy", PROXIES)
def test_those_who_guess_are_told_apart_by_their_own_addresses(tmp_path, proxy_certificate, proxy):
    """Behind a trusted proxy, one client's failures limit neither others nor the proxy."""
    settings, key = session_settings(tmp_path / "keys")
    settings["access"]["failures"] = "5/min"
    world = SimpleNamespace(server=Server(tmp_path / "server", settings))
    site = Site(world, tmp_path, PROXIES[proxy], proxy_certificate)
    try:
        session = API(world.server, key).session("anna")
        guess = fetch(bearer(unknown_session()), host=HOST)

        def answer(data, source):
            with site.connect(source) as connection:
                connection.send(data)
                response = http.client.HTTPResponse(connection.socket)
                response.begin()
                response.read()
                return response

        until(lambda: answer(guess, "127.0.0.2").status == 429, pause=0)
        response = answer(guess, "127.0.0.2")
        assert response.status == 429 and int(response.getheader("Retry-After")) > 0
        assert answer(fetch(bearer(session), host=HOST), "127.0.0.2").status == 429
        assert answer(fetch(bearer(session), host=HOST), "127.0.0.3").status == 200
        assert answer(guess, "127.0.0.3").status == 401
        assert exchange(world.server.address, guess.replace(HOST.encode(), b"localhost")).status == 401
    finally:
        site.close()
