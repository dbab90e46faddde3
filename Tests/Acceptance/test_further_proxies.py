"""token-cache behind the proxies of deploy/proxies/. Those that are not installed are left out; hitch and stunnel always are."""
import json
import re

import pytest

from access import api_request, bearer, fetch, session_settings, store
from contract import STORED, found
from further_proxies import FURTHER
from http_client import Connection
from proxies import HOST, Certificate
from proxy_site import CANARY, FORGED
from server_process import until

FORGED_LINES = [f"{name}: {value}" for name, value in FORGED.items()]
CLIENT = "127.0.0.2"


@pytest.fixture(name="further", params=FURTHER)
def further_site(request, serve, tmp_path, public_folder):
    """A proxy with its certificate, the server behind it, and a key for its API."""
    kind = FURTHER[request.param]
    if not kind.is_installed():
        pytest.skip(f"{kind.program} is not installed")
    settings, key = session_settings(tmp_path / "keys")
    server = serve({**settings, "listen": f"127.0.0.1:0{kind.options}", "trusted_proxies": "127.0.0.1",
                    "access_log": "combined"})
    # Some run as users of their own.
    certificate = Certificate(public_folder)
    certificate.key.chmod(0o644)
    with kind(public_folder / "proxy", server.addresses[0][1], certificate) as proxy:
        yield proxy, server, key


def test_what_the_server_needs_gets_through_and_what_it_must_not_believe_does_not(further):
    proxy, server, key = further

    def ask(data, method="GET"):
        with proxy.certificate.connect(proxy.https_port, source=CLIENT) as connection:
            return connection.exchange(data, method)

    made = ask(api_request(key, "POST", "/v1/sessions", {"user": "anna"}, host=HOST), "POST")
    assert made.status == 201, "Authorization is kept"
    session = json.loads(made.body)
    stored = ask(store("a+b & c=ä", bearer(session["session"]), host=HOST), "POST")
    assert stored.body == STORED
    assert stored.headers["strict-transport-security"] == "max-age=31536000", "the server knows that TLS ended at the proxy"
    answer = ask(fetch(bearer(session["session"]), *FORGED_LINES, unique_id="anna", host=HOST))
    assert answer.body == found("a+b & c=ä")
    assert (CANARY in answer.headers["x-request-id"]) != proxy.drops_request_id
    assert ask(api_request(key, "DELETE", f"/v1/sessions/{session['id']}", host=HOST), "DELETE").status == 200
    entries = until(lambda: len(lines := server.output().splitlines()) >= 4 and lines)
    assert {entry.split(" ")[0] for entry in entries} == {CLIENT}
    if proxy.has_plain_port:
        for method, request, status in (("GET", fetch(unique_id="anna", host=HOST), 302), ("POST", store("x", host=HOST), 308)):
            for fields in [], FORGED_LINES:
                with Connection(("127.0.0.1", proxy.http_port)) as connection:
                    head, body = request.split(b"\r\n\r\n", 1)
                    redirect = connection.exchange(b"\r\n".join([head, *map(str.encode, fields), b"", body]), method)
                assert redirect.status == status
                assert re.fullmatch(rf"https://{HOST}(:\d+)?/token(\?unique_id=anna)?", redirect.headers["location"])
