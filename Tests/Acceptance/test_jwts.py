"""What operators are told of the keys of JWTs, and of tokens that are refused for their algorithm."""
from access import bearer, bearer_settings, fetch
from contract import NOT_FOUND, check_http_error
from doctor import of, said
from http_client import exchange
from issuer import Issuer
from server_process import run, until


def test_an_algorithm_that_is_not_allowed_is_told_of_once(serve, tmp_path):
    """With two keys, of which the settings allow one."""
    issuer = Issuer()
    issuer.keys[0].kid = "key-0"
    refused = [issuer.token("anna"), issuer.token("ben")]
    forged = Issuer().token("anna", header={"kid": "key-0"})
    issuer.rotate("EdDSA")
    server = serve(bearer_settings(tmp_path / "jwks.json", issuer, algorithms=["EdDSA"]))
    line = "a token that a key of the issuer (kid key-0) has signed with ES256 is refused: the alg of the key and " \
        "access.bearer.algorithms allow it no algorithm"
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
    summary = "the keys for JWTs: kid key-1: EdDSA; key 1 (kid key-0) is not used: access.bearer.algorithms has none of its algorithms"
    assert summary in said(of(server), "Start")
    assert summary in run("check-config", "--config", str(server.folder / "token-cache.yaml")).stderr


def test_the_only_key_needs_no_id(serve, tmp_path):
    issuer = Issuer()
    named = issuer.token("anna")
    issuer.keys[0].kid = None
    server = serve(bearer_settings(tmp_path / "jwks.json", issuer))
    for token in (named, issuer.token("anna", header={"kid": "another"})):
        assert exchange(server.address, fetch(bearer(token))).body == NOT_FOUND
