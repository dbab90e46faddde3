"""Certificates with those of their issuers, and the authorities for clients' certificates, as `openssl s_client` and Python see them."""
import re
import ssl

import pytest
from cryptography.hazmat.primitives.asymmetric import ec, rsa

from administration import ADMINISTRATION, ask, metrics
from certificates import Issued
from doctor import of, said
from http_client import Connection, get
from server_process import run, until
from test_tls import certificate_client, is_answered, s_client, serve_tls


def sent(server):
    """The subjects of the certificates that a server sends, in their order."""
    return re.findall(r"^ *\d+ s:CN=(.*)$", s_client(server, "-showcerts"), re.M)


def check_config(server):
    """What check-config says of a server's settings."""
    return run("check-config", "--config", str(server.folder / "token-cache.yaml")).stderr


def test_certificates_are_sent_each_before_its_issuer_and_the_rest_at_the_end(serve, tmp_path):
    root, stranger = Issued("root"), Issued("stranger")
    renewed = Issued("intermediate", root)
    expired = Issued("intermediate", root, (-400, -1), key=renewed.key)
    leaf = Issued("localhost", renewed)
    server = serve_tls(serve, leaf.write(tmp_path, root, stranger, expired, renewed))
    assert sent(server) == ["localhost", "intermediate", "root", "stranger", "intermediate"]
    # Some clients look only at the first of an issuer's certificates, as here: the one that is valid.
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.load_verify_locations(cadata=root.pem().decode())
    with Connection(server.address, context=context, host="localhost") as client:
        client.send(get("nobody"))
        assert client.receive().status == 200
    # In the right order nothing changes, also where there are two paths.
    assert sent(serve_tls(serve, leaf.write(tmp_path, renewed, root, expired))) == ["localhost", "intermediate", "root", "intermediate"]


@pytest.mark.parametrize("days, text", [((-400, -1), "has expired: clients refuse it"), ((-400, 3.5), "expires in 3 days")])
def test_an_issuers_certificate_that_expires_is_told_of(serve, tmp_path, days, text):
    root = Issued("root")
    intermediate = Issued("intermediate", root, days)
    leaf = Issued("localhost", intermediate, (-1, 4_000))
    server = serve_tls(serve, leaf.write(tmp_path, root, intermediate), settings=ADMINISTRATION)
    warning = f"a certificate that is sent with the server's own, that of intermediate, {text}"
    until(lambda: warning in server.log())
    assert metrics(server)["token_cache_certificate_expiry_timestamp_seconds"] == intermediate.end.timestamp()
    assert any(found["text"].startswith(warning) for found in ask(server.administration[0], "GET", "/status")[1]["warnings"])
    assert warning in said(of(server), "Server", "warning")
    server.kill()
    assert warning in said(of(server), "Start", "warning") and warning in check_config(server)


@pytest.mark.parametrize("version", [ssl.TLSVersion.TLSv1_2, ssl.TLSVersion.TLSv1_3])
def test_certificates_of_clients_may_have_any_of_the_curves(serve, tmp_path, version):
    authority = Issued("authority", key=ec.generate_private_key(ec.SECP521R1()))
    server = serve_tls(serve, Issued("localhost").write(tmp_path), client_ca=str(authority.write(tmp_path)[0]))
    for curve in (ec.SECP256R1(), ec.SECP384R1(), ec.SECP521R1()):
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
        context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
        context.minimum_version = context.maximum_version = version
        context.load_cert_chain(*Issued("client", authority, key=ec.generate_private_key(curve)).write(tmp_path))
        with Connection(server.address, context=context) as client:
            client.send(get("nobody"))
            assert client.receive().status == 200


@pytest.mark.parametrize("version", ["-tls1_2", "-tls1_3"])
def test_clients_are_not_told_the_names_of_authorities(serve, tmp_path, version):
    authorities = [Issued(f"authority {number}") for number in range(3)]
    client_ca, _ = authorities[0].write(tmp_path, *authorities[1:])
    server = serve_tls(serve, Issued("localhost").write(tmp_path), client_ca=str(client_ca))
    assert "No client certificate CA names sent" in s_client(server, version)
    with certificate_client(server, Issued("client", authorities[2]).write(tmp_path)) as client:
        assert is_answered(client)


def test_an_authority_that_is_too_weak_is_told_of(serve, tmp_path):
    strong, weak = Issued("strong"), Issued("weak", key=rsa.generate_private_key(65537, 1024))
    client_ca, _ = strong.write(tmp_path, weak)
    server = serve_tls(serve, Issued("localhost").write(tmp_path), client_ca=str(client_ca))
    warning = f"{client_ca} holds 1 certificate authority whose time has passed or whose key is too weak"
    until(lambda: warning in server.log())
    assert warning in check_config(server)
    assert warning in said(of(server), "Server", "warning")
