"""Servers of each mode with some users who have stored their tokens, as the tables of answers need them."""
import ssl
from types import SimpleNamespace

from access import API, bearer, bearer_settings, session_settings, store, token_of
from access_tables import bearer_table, certificate_table, header_table, session_table
from certificates import make_pair
from contract import STORED
from http_client import Connection, exchange
from issuer import Issuer
from server_process import Server, until


def session_world(folder):
    """A server in mode session, with the table of its answers."""
    access, key = session_settings(folder)
    brief = {"access": {**access["access"], "session": {"max_age": "1s"}}}
    # A session of this server expires before it has stopped.
    first = Server(folder / "first", brief)
    api = API(first, key)
    expired = api.session("anna")
    until(lambda: exchange(first.address, store("x", bearer(expired))).status == 401)
    assert first.stop() == 0
    server = Server(folder / "server", access, data=first.data)
    api = API(server, key)
    sessions = [api.session(user) for user in ("anna", "anna", "ben", "newcomer")]
    revoked = api.make_session("anna")
    tags = {}
    for user, session in (("anna", sessions[0]), ("ben", sessions[2])):
        response = exchange(server.address, store(token_of(user), bearer(session)))
        assert response.body == STORED
        tags[user] = response.headers["etag"]
    api.end(revoked["id"])
    table = session_table(*sessions, expired, revoked["session"], tags["ben"])
    return SimpleNamespace(server=server, api=api, table=table, sessions=sessions)


def bearer_world(folder, is_in_unique_id):
    """A server in mode bearer, with the table of its answers."""
    folder.mkdir(parents=True, exist_ok=True)
    issuer = Issuer()
    own = bearer_settings(folder / "keys.json", issuer, in_unique_id="on" if is_in_unique_id else "off")
    server = Server(folder / "server", own)
    for user in ("anna", "ben"):
        response = exchange(server.address, store(token_of(user), bearer(issuer.token(user))))
        assert response.body == STORED, response
    return SimpleNamespace(server=server, issuer=issuer, table=bearer_table(issuer, Issuer(), is_in_unique_id))


HEADER = {"access": {"mode": "header", "header": {"name": "Remote-User"}}, "trusted_proxies": "127.0.0.1"}


def header_world(folder):
    """A server in mode header, whose trusted proxy is 127.0.0.1, with the table of its answers."""
    server = Server(folder / "server", HEADER)
    for user in ("anna", "ben"):
        assert exchange(server.address, store(token_of(user), f"Remote-User: {user}")).body == STORED
    return SimpleNamespace(server=server, table=header_table())


# Certificates

class Authority:
    """Issues certificates to clients."""

    def __init__(self, folder):
        folder.mkdir(parents=True)
        self.folder, self.pair = folder, make_pair(folder, "ca", "devices")

    def issue(self, name, *alternatives):
        """A certificate with alternative names such as `URI:user:anna`, and its key."""
        return make_pair(self.folder, name, name, self.pair, ",".join(alternatives) or None)


def certificate_world(folder, clients="required"):
    """A server in mode certificate."""
    authority, (certificate, key) = Authority(folder / "authority"), make_pair(folder, "own")
    server = Server(folder / "server", {
        "listen": f"https://127.0.0.1:0?client-certificate={clients}",
        "tls": {"certificate": str(certificate), "private_key": str(key), "client_ca": str(authority.pair[0])},
        "access": {"mode": "certificate", "certificate": {"name": "san_uri"}}})

    def connect(pair=None):
        context = ssl.create_default_context(cafile=str(certificate))
        if pair:
            context.load_cert_chain(*map(str, pair))
        return Connection(server.address, context=context, host="localhost")

    return SimpleNamespace(server=server, authority=authority, connect=connect, table=certificate_table)
