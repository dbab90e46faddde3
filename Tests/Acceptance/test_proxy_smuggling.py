"""No request is smuggled past a reverse proxy.

Each attack is a request whose body contains a second one, which only a parser that disagrees with the first finds.
"""
import concurrent.futures
import contextlib
import re
import ssl

import pytest

from contract import fresh_id
from http_client import FORM, lines, post
from proxies import HOST
from proxy_site import NOTHING, send_all

OUTER = ["POST /token HTTP/1.1", f"Host: {HOST}", FORM]
CHUNKED = "Transfer-Encoding: chunked"


def length(body):
    return f"Content-Length: {len(body)}"


def in_chunk(inner, size=None, end="\r\n", after=b"\r\n0\r\n\r\n"):
    """A chunked body with the inner request as one chunk."""
    return (size or f"{len(inner):x}").encode("latin-1") + end.encode() + inner + after


def chunk_head(inner):
    """The Content-Length that ends a body right before the inner request."""
    return f"Content-Length: {len(f'{len(inner):x}') + 2}"


def after_last_chunk(inner):
    """A body that ends before the inner request if it is read as chunks."""
    return b"0\r\n\r\n" + inner


def by_length(*fields, shown=None):
    """CL.TE: the length includes the inner request, which follows the last chunk if these fields are believed."""
    def make(inner):
        body = after_last_chunk(inner)
        return lines(*OUTER, shown or length(body), *fields, body=body)
    return make


def by_chunks(*fields):
    """TE.CL: the inner request is in a chunk; if the length is believed, it follows the body."""
    return lambda inner: lines(*OUTER, *fields, chunk_head(inner), body=in_chunk(inner))


def in_chunks(make_body):
    """Chunked only: the trick is in the syntax of the body."""
    return lambda inner: lines(*OUTER, CHUNKED, body=make_body(inner))


def two_lengths(first, second):
    """Two lengths; None stands for the right one, a number ends before the inner request."""
    def make(inner):
        body = b"a=b" + inner
        texts = [str(len(body) if value is None else value) for value in (first, second)]
        return lines(*OUTER, *(f"Content-Length: {text}" for text in texts), body=body)
    return make


def one_length(pattern):
    """A length that some parsers read as 3 and others as the whole."""
    def make(inner):
        body = b"a=b" + inner
        return lines(*OUTER, f"Content-Length: {pattern.format(len(body))}", body=body)
    return make


ATTACKS = {
    "CL.TE": by_length(CHUNKED),
    "CL.TE, in capitals": by_length("TRANSFER-ENCODING: CHUNKED"),
    "CL.TE, xchunked": by_length("Transfer-Encoding: xchunked"),
    "CL.TE, chunked and identity": by_length("Transfer-Encoding: chunked, identity"),
    "CL.TE, identity then chunked": by_length("Transfer-Encoding: identity", CHUNKED),
    "CL.TE, chunked twice": by_length(CHUNKED, CHUNKED),
    "CL.TE, blank before the colon": by_length("Transfer-Encoding : chunked"),
    "CL.TE, vertical tab": by_length("Transfer-Encoding:\x0bchunked"),
    "CL.TE, tab": by_length("Transfer-Encoding:\tchunked"),
    "CL.TE, quoted": by_length('Transfer-Encoding: "chunked"'),
    "CL.TE, NUL": by_length("Transfer-Encoding: chunked\0"),
    "CL.TE, bare CR": by_length("X: a\rTransfer-Encoding: chunked"),
    "CL.TE, bare LF": by_length("X: a\nTransfer-Encoding: chunked"),
    "CL.TE, underscore": by_length("Transfer_Encoding: chunked"),
    "CL.TE, HTTP/1.0": lambda inner: by_length(CHUNKED)(inner).replace(b"HTTP/1.1", b"HTTP/1.0", 1),
    "CL.TE, obs-fold in Transfer-Encoding": by_length("Transfer-Encoding:\r\n chunked"),
    "CL.TE, obs-fold before Transfer-Encoding": by_length("X: a\r\n Transfer-Encoding: chunked"),
    "CL.TE, obs-fold with a tab": by_length("Transfer-Encoding:\r\n\tchunked"),
    "CL.TE, named by Connection": by_length(CHUNKED, "Connection: keep-alive, Transfer-Encoding"),
    "CL named by Connection": by_length("Connection: keep-alive, Content-Length"),
    "TE.CL": by_chunks(CHUNKED),
    "TE.CL, obs-fold in Transfer-Encoding": by_chunks("Transfer-Encoding:\r\n chunked"),
    "TE.CL, blank before the colon": by_chunks("Transfer-Encoding : chunked"),
    "TE.CL, xchunked": by_chunks("Transfer-Encoding: xchunked"),
    "TE.CL, chunked twice": by_chunks(CHUNKED, CHUNKED),
    "TE.CL, chunked then identity": by_chunks(CHUNKED, "Transfer-Encoding: identity"),
    "TE.CL, vertical tab": by_chunks("Transfer-Encoding:\x0bchunked"),
    "TE.CL, HTTP/1.0": lambda inner: by_chunks(CHUNKED)(inner).replace(b"HTTP/1.1", b"HTTP/1.0", 1),
    "duplicated Content-Length": two_lengths(None, None),
    "differing Content-Length, short first": two_lengths(3, None),
    "differing Content-Length, short last": two_lengths(None, 3),
    "Content-Length 0 first": two_lengths(0, None),
    "list of Content-Lengths": one_length("3, {}"),
    "list of equal Content-Lengths": one_length("{0}, {0}"),
    "Content-Length with a plus": one_length("+{}"),
    "hexadecimal Content-Length": one_length("0x{:x}"),
    "Content-Length with a blank": one_length("3 {}"),
    "Content-Length with a NUL": one_length("3\0{}"),
    "negative Content-Length": one_length("-{}"),
    "Content-Length beyond 64 bits": one_length(str((1 << 64) + 3)),
    "Content-Length beyond 64 bits, the whole": lambda inner: lines(
        *OUTER, f"Content-Length: {(1 << 64) + 3 + len(inner)}", body=b"a=b" + inner),
    "Content-Length beyond 32 bits": one_length(str((1 << 32) + 3)),
    "Content-Length with many leading zeros": one_length("{:030d}"),
    "folded Content-Length": one_length("3\r\n {}"),
    "blank before the colon of Content-Length": lambda inner: lines(
        *OUTER, "Content-Length: 3", f"Content-Length : {len(inner) + 3}", body=b"a=b" + inner),
    "GET with a body": lambda inner: lines(
        "GET /token?unique_id=nobody HTTP/1.1", f"Host: {HOST}", length(inner), body=inner),
    "Expect with a body": lambda inner: lines(*OUTER, "Expect: 100-continue", length(inner), body=inner),
    "Upgrade with a body": lambda inner: lines(
        *OUTER, "Connection: Upgrade", "Upgrade: websocket", length(inner), body=inner),
    "chunk": in_chunks(in_chunk),
    "chunk size with 0x": in_chunks(lambda inner: in_chunk(inner, f"0x{len(inner):x}")),
    "chunk size with a plus": in_chunks(lambda inner: in_chunk(inner, f"+{len(inner):x}")),
    "chunk size with a blank before": in_chunks(lambda inner: in_chunk(inner, f" {len(inner):x}")),
    "chunk size with a NUL": in_chunks(lambda inner: in_chunk(inner, f"0\0{len(inner):x}")),
    "chunk size with an underscore": in_chunks(lambda inner: in_chunk(inner, f"0_{len(inner):x}")),
    "negative chunk size": in_chunks(lambda inner: in_chunk(inner, f"-{len(inner):x}")),
    "chunk size beyond 64 bits": in_chunks(lambda inner: in_chunk(inner, f"1{len(inner):016x}")),
    "chunk size beyond 32 bits": in_chunks(lambda inner: in_chunk(inner, f"1{len(inner):08x}")),
    "chunk size with leading zeros": in_chunks(lambda inner: in_chunk(inner, f"{len(inner):032x}")),
    "chunk extension": in_chunks(lambda inner: in_chunk(inner, f'{len(inner):x};a="b\\"c"')),
    "chunk extension with a bare LF": in_chunks(lambda inner: in_chunk(inner, f"{len(inner):x};a\n0\r\n\r\n")),
    "chunk size ended by a bare LF": in_chunks(lambda inner: in_chunk(inner, end="\n")),
    "chunk size ended by a bare CR": in_chunks(lambda inner: in_chunk(inner, end="\r")),
    "chunk longer than its size": in_chunks(lambda inner: b"3\r\na=bXX\r\n0\r\n\r\n" + inner),
    "chunk ended by two bytes of another kind": in_chunks(lambda inner: b"3\r\na=bXX0\r\n\r\n" + inner),
    "chunk ended by a bare LF": in_chunks(lambda inner: b"3\r\na=b\n" + in_chunk(inner)),
    "inner request as a trailer": in_chunks(lambda inner: b"0\r\n" + inner),
    "inner request as a trailer after a fold": in_chunks(lambda inner: b"0\r\nX: a\r\n " + inner),
}


def attack(site, data):
    """Sends an attack and returns all bytes received until the connection ends or falls silent."""
    with site.secure() as connection:
        send_all(connection, data)
        connection.socket.settimeout(0.7)
        with contextlib.suppress(TimeoutError, ConnectionError, ssl.SSLError):
            connection.receive_to_end()
        return connection.unread


@pytest.fixture(scope="module")
def smuggled(site):
    """Runs all attacks at once, among honest clients: the answer to each, and what is stored afterwards."""
    site.works()
    before = len(site.server_log())
    markers = {name: fresh_id() for name in ATTACKS}
    inner = {
        name: post(marker, "smuggled", path="/token.php").replace(b"Host: localhost", b"Host: " + HOST.encode())
        for name, marker in markers.items()
    }
    with concurrent.futures.ThreadPoolExecutor(16) as pool:
        answers = {name: pool.submit(attack, site, make(inner[name])) for name, make in ATTACKS.items()}
        honest = [pool.submit(site.works) for _ in range(40)]
        assert all(client.result() for client in honest)
        answers = {name: answer.result() for name, answer in answers.items()}
    stored = {name: site.stored(marker) for name, marker in markers.items()}
    return answers, stored, site.server_log()[before:]


@pytest.mark.parametrize("name", ATTACKS)
def test_no_second_request_is_smuggled(smuggled, name):
    answers, stored, _ = smuggled
    final = re.findall(rb"HTTP/1\.[01] ([2-5][0-9][0-9]) ", answers[name])
    assert len(final) <= 1, answers[name]
    assert NOTHING.fullmatch(stored[name]), answers[name]


def test_the_server_has_seen_no_smuggled_request(smuggled):
    _, stored, log = smuggled
    assert not [entry for entry in log if entry[1] != "/token"]
    # At most the outer request of an attack gets through; all others are those of honest clients and of `stored`.
    assert len(log) <= len(ATTACKS) + 2 * 40 + len(stored)


def test_the_proxy_works_after_the_attacks(site, smuggled):
    for _ in range(20):
        site.works()
