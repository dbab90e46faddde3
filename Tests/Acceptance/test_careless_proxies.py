"""https.mode strict, behind an nginx that forwards plain HTTP instead of redirecting it."""
import pytest

from contract import STORED, found, fresh_id
from http_client import form
from proxies import HOST
from proxy_site import FORGED, FORM_HEADERS, NOTHING, REDIRECTS

# The header that nginx sets, the one that the client sends, and whether the server must redirect
CARELESS = {
    "scheme": ("scheme", {}),
    "scheme and address": ("scheme-and-address", {}),
    "scheme, Forwarded by the client": ("scheme", {"Forwarded": "proto=https"}),
    "scheme, loopback claimed by the client": ("scheme", {"X-Forwarded-For": "127.0.0.1"}),
    "scheme, forged": ("scheme-and-address", FORGED),
    "no scheme, only the address": ("address", {}),
    "no scheme, loopback claimed by the client": ("address", {"X-Forwarded-For": "127.0.0.1"}),
    "no scheme, only addresses": ("real-address", {}),
    "Forwarded": ("forwarded", {}),
    "Forwarded, appended to a claim": ("appended", {"Forwarded": "for=6.6.6.6;proto=https"}),
    "Forwarded, appended to an open quote": ("appended", {"Forwarded": 'for=6.6.6.6;proto=https;x="'}),
}


@pytest.mark.parametrize("method, status", REDIRECTS.items(), ids=REDIRECTS)
@pytest.mark.parametrize("place, claims", CARELESS.values(), ids=CARELESS)
def test_the_server_redirects_what_a_proxy_passes_on_from_plain_http(careless, place, claims, method, status):
    unique_id = fresh_id()
    body = form(unique_id, "leaked") if method in ("POST", "PUT") else None
    target = f"/token?unique_id={unique_id}&token_info=leaked"
    response = careless.request(
        method, f"/{place}{target}", body, {**FORM_HEADERS, **claims}, open_connection=careless.plain)
    assert (response.status, response.headers.get("location")) == (status, f"https://{HOST}{target}")
    assert response.body == b""
    assert NOTHING.fullmatch(careless.stored(unique_id))


@pytest.mark.parametrize("place", ["scheme", "scheme-and-address", "forwarded", "appended"])
def test_the_server_serves_what_a_proxy_passes_on_from_https(careless, place):
    unique_id = fresh_id()
    answer = careless.request("POST", f"/{place}/token", form(unique_id, "kept"), FORM_HEADERS)
    assert answer.body == STORED
    assert careless.request("GET", f"/{place}/token?unique_id={unique_id}").body == found("kept")
