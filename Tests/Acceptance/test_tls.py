"""TLS as clients see it: with curl and `openssl s_client` against the built server."""
import contextlib
import shutil
import signal
import ssl
import subprocess

import pytest

from certificates import make_pair
from contract import STORED, found
from http_client import TRUSTING, Connection, exchange, get, post
from server_process import until
from test_shutdown import begin_stop


def openssl(*arguments, text=""):
    """Runs openssl and returns its output, errors included."""
    result = subprocess.run(
        ["openssl", *map(str, arguments)], input=text, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
        timeout=30, check=False,
    )
    return result.stdout


@pytest.fixture(name="pair")
def server_pair(tmp_path):
    return make_pair(tmp_path, "server")


def tls_settings(*pairs, **more):
    """The settings of a server with these certificates."""
    return {
        "listen": "https://127.0.0.1:0",
        "tls": {"certificate": [str(pair[0]) for pair in pairs], "private_key": [str(pair[1]) for pair in pairs], **more},
    }


def serve_tls(serve, *pairs, settings=None, **more):
    """A server with one TLS listener; its address is in its start line."""
    return serve({**tls_settings(*pairs, **more), **(settings or {})})


def curl(address, *arguments, target="/token"):
    """Status and body of a request with curl, which trusts any certificate; the status is 0 without an answer."""
    host, port = address
    result = subprocess.run(
        ["curl", "--silent", "--insecure", "--max-time", "20", "--write-out", "\n%{http_code}", *arguments,
         f"https://{host}:{port}{target}"],
        capture_output=True, text=True, timeout=30, check=False,
    )
    body, _, status = result.stdout.rpartition("\n")
    return int(status), body


def s_client(server, *arguments):
    """A handshake by openssl, and its report, with names as every version writes them in this form."""
    host, port = server.address
    return openssl("s_client", "-nameopt", "RFC2253", "-connect", f"{host}:{port}", *arguments)


@pytest.mark.parametrize("version", ["1.2", "1.3"])
def test_tokens_go_back_and_forth_and_browsers_are_told_to_stay(serve, pair, version):
    server = serve_tls(serve, pair)
    flags = [f"--tlsv{version}", "--tls-max", version]
    assert curl(server.address, *flags, "-d", "unique_id=me&token_info=x") == (200, STORED.decode())
    assert curl(server.address, *flags, target="/token?unique_id=me") == (200, found("x").decode())
    status, head = curl(server.address, *flags, "--head", "--header", "Host: tokens.test")
    assert status == 200 and "Strict-Transport-Security: max-age=31536000" in head


def test_keys_are_exchanged_by_the_hybrid_group_where_openssl_knows_it(serve, pair):
    if "X25519MLKEM768" not in openssl("list", "-tls-groups"):
        pytest.skip("OpenSSL knows the group since 3.5")
    server = serve_tls(serve, pair)
    assert "Negotiated TLS1.3 group: X25519MLKEM768" in s_client(server)
    assert "Peer Temp Key: X25519" in s_client(server, "-groups", "X25519")


def test_keys_are_exchanged_by_p384_only_where_openssl_is_fast_at_it(serve, pair):
    server = serve_tls(serve, pair)
    is_fast = "X25519MLKEM768" in openssl("list", "-tls-groups")
    assert ("BEGIN CERTIFICATE" in s_client(server, "-groups", "P-384")) == is_fast
    # Other clients that prefer it get another.
    assert "BEGIN CERTIFICATE" in s_client(server, "-groups", "P-384:P-256")


def test_a_client_gets_the_certificate_of_the_name_it_asks_for(serve, pair, tmp_path):
    other = make_pair(tmp_path, "other", "other.example")
    server = serve_tls(serve, pair, other)
    assert "CN=other.example" in s_client(server, "-servername", "other.example")
    for name in (["-servername", "localhost"], ["-servername", "unknown.example"], ["-noservername"]):
        assert "CN=localhost" in s_client(server, *name)


def test_one_listener_may_require_client_certificates_and_another_not(serve, pair, tmp_path):
    authority = make_pair(tmp_path, "authority", "authority")
    known = make_pair(tmp_path, "known", "client", issuer=authority)
    stranger = make_pair(tmp_path, "stranger", "client")
    listen = [f"https://127.0.0.1:0{query}" for query in ("", "?client-certificate=required", "?client-certificate=optional")]
    server = serve_tls(serve, pair, client_ca=str(authority[0]), settings={"listen": listen})

    def status(index, *identity):
        shown = ["--cert", str(identity[0]), "--key", str(identity[1])] if identity else []
        return curl(server.addresses[index], *shown)[0]

    assert [status(index) for index in range(3)] == [200, 0, 200]
    assert [status(index, *known) for index in range(3)] == [200, 200, 200]
    # A client that is not asked for a certificate shows none.
    assert [status(index, *stranger) for index in range(3)] == [200, 0, 0]


def certificate_client(server, identity):
    """A connection on which a client has shown its certificate."""
    context = ssl.create_default_context()
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    context.load_cert_chain(*identity)
    return Connection(server.address, context=context)


def is_answered(client):
    """Whether a request on a kept connection is answered, rather than the connection closed."""
    # The server may close the connection while the request is sent.
    with contextlib.suppress(ConnectionError, ssl.SSLEOFError):
        client.send(get("nobody"))
        # Whatever comes must be a whole answer.
        if client.receive_more():
            assert client.receive().status == 200
            return True
    return False


def test_replaced_authorities_end_kept_connections(serve, pair, tmp_path):
    authority = make_pair(tmp_path, "authority", "authority")
    known = make_pair(tmp_path, "known", "client", issuer=authority)
    server = serve_tls(serve, pair, client_ca=str(authority[0]))
    with certificate_client(server, known) as kept, certificate_client(server, known) as pipelining:
        assert is_answered(kept) and is_answered(pipelining)
        replace(pair, make_pair(tmp_path, "renewed"))
        server.process.send_signal(signal.SIGHUP)
        until(lambda: "certificates reloaded" in server.log())
        # A new certificate of the server does not concern connections that are open.
        assert is_answered(kept) and is_answered(pipelining)
        replace(authority, make_pair(tmp_path, "other", "other"))
        until(lambda: not is_answered(kept))
        pipelining.send(get("nobody") * 2)
        pipelining.expect_end()


def test_plain_http_on_a_tls_port_gets_a_readable_answer(serve, pair):
    server = serve_tls(serve, pair)
    response = exchange(server.address, get("me"))
    assert response.status == 400 and response.closes
    assert b"use https" in response.body


def serial(server):
    """The serial number of the certificate that the server shows."""
    host, port = server.address
    return openssl("x509", "-noout", "-serial", text=ssl.get_server_certificate((host, port)))


def replace(pair, by):
    """Atomically replaces the files of one pair by those of another."""
    for old, new in zip(pair, by):
        shutil.copy(new, f"{new}.copy")
        shutil.move(f"{new}.copy", old)


def test_a_stop_answers_what_was_received_over_tls(serve, pair):
    server = serve_tls(serve, pair)
    with Connection(server.address, context=TRUSTING) as client:
        # Once the first request is answered, the beginning of the second one has been received with it.
        client.send(get("nobody") + get("nobody")[:-2])
        assert client.receive().status == 200
        begin_stop(server)
        client.send(get("nobody")[-2:])
        assert client.receive().closes
    assert server.wait() == 0


def test_the_proxys_header_comes_before_the_handshake(serve, pair):
    settings = {**tls_settings(pair), "listen": "https://127.0.0.1:0?proxy-protocol=required", "access_log": "combined"}
    server = serve(settings)
    with Connection(server.address) as client:
        client.send(b"PROXY TCP4 203.0.113.9 127.0.0.1 1 2\r\n")
        client.socket = TRUSTING.wrap_socket(client.socket)
        assert client.exchange(post("me", "x")).body == STORED
    until(lambda: server.output().startswith("203.0.113.9 "))
