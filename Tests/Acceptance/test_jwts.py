"""What operators are told of the keys of JWTs, and of tokens that are refused for their algorithm."""
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import padding, rsa

from access import bearer, bearer_settings, fetch
from contract import NOT_FOUND, check_http_error
from doctor import of, said
from http_client import exchange
from issuer import Issuer, base64url
from server_process import run, until


class RSAKey:
    """A private RSA key that is for one algorithm and signs with another."""

    algorithm, kid = "RS512", "key-0"

    def __init__(self):
        self.private = rsa.generate_private_key(65537, 2048)

    def jwk(self):
        n = self.private.public_key().public_numbers().n
        return {"kty": "RSA", "n": base64url(n.to_bytes(256, "big")), "e": "AQAB", "kid": self.kid, "alg": "RS256"}

    def sign(self, data):
        return self.private.sign(data, padding.PKCS1v15(), hashes.SHA512())


def test_an_algorithm_that_a_key_is_not_for_is_told_of_once(serve, tmp_path):
    issuer, stranger = Issuer(), Issuer()
    issuer.keys, stranger.keys = [RSAKey()], [RSAKey()]
    refused, forged = [issuer.token("anna"), issuer.token("ben")], stranger.token("anna")
    issuer.rotate("EdDSA")
    server = serve(bearer_settings(tmp_path / "jwks.json", issuer))
    line = "a token that a key of the issuer (kid key-0) has signed with RS512 is refused: the key is only for RS256"
    check_http_error(exchange(server.address, fetch(bearer(forged))), 401)
    assert exchange(server.address, fetch(bearer(issuer.token("anna")))).body == NOT_FOUND
    assert line not in server.log()

    def is_told():
        for token in refused:
            check_http_error(exchange(server.address, fetch(bearer(token))), 401)
        return line in server.log()

    # At most one token a second is verified for that.
    until(is_told)
    assert is_told() and server.log().count("has signed with") == 1
    summary = "the keys for JWTs: kid key-0: RS256; kid key-1: EdDSA"
    assert summary in said(of(server), "Start")
    assert summary in run("check-config", "--config", str(server.folder / "token-cache.yaml")).stderr


def test_the_only_key_needs_no_id(serve, tmp_path):
    issuer = Issuer()
    named = issuer.token("anna")
    issuer.keys[0].kid = None
    server = serve(bearer_settings(tmp_path / "jwks.json", issuer))
    for token in (named, issuer.token("anna", header={"kid": "another"})):
        assert exchange(server.address, fetch(bearer(token))).body == NOT_FOUND
