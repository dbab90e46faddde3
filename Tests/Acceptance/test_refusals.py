"""Ambiguous requests are refused with an error in the contract's shape, and the connection is closed.

Every case is followed by a whole request that must never be answered, as it would be in a smuggling attack. RequestHeadTests,
RequestBodyTests and ByteClassTests have further ones, for the same reasons.
"""
import pytest

from contract import NOT_FOUND, check_http_error, unsupported
from http_client import FORM, HOST, Connection, exchange, get, lines

CANARY = "canary4711"
GET = f"GET /token?unique_id={CANARY} HTTP/1.1"
POST = "POST /token HTTP/1.1"
CHUNKED = "Transfer-Encoding: chunked"
FOLLOWER = get("follower")


def chunked(body):
    """A chunked POST with this body as it goes over the wire."""
    return lines(POST, HOST, FORM, CHUNKED, body=body)


REFUSALS = {
    # Line ends
    "bare LF after the request line": (f"{GET}\n{HOST}\r\n\r\n", 400, "LF alone"),
    "bare LF as the empty line": (f"{GET}\r\n{HOST}\r\n\n", 400, "LF alone"),
    "bare CR in a header value": (lines(GET, HOST, "X: a\rb"), 400, "CR"),
    "CR CR LF": (f"{GET}\r\n{HOST}\r\r\n\r\n", 400, "CR"),
    "CR CR LF after the request line": (f"{GET}\r\r\n{HOST}\r\n\r\n", 400, "version"),
    # Request line
    "no version, as in HTTP/0.9": (b"GET /token\r\n\r\n", 400, "request line"),
    "two blanks before the version": (lines("GET /token  HTTP/1.1", HOST), 400, "version"),
    "tabs instead of blanks": (lines("GET\t/token\tHTTP/1.1", HOST), 400, "request line"),
    "colon in the method": (lines("GE:T /token HTTP/1.1", HOST), 400, "method"),
    "NUL in the target": (lines("GET /token?unique_id=a\0b HTTP/1.1", HOST), 400, "target"),
    "absolute target without Host": (lines("GET http://localhost/token HTTP/1.1"), 400, "Host"),
    "HTTP/1,1": (lines("GET /token HTTP/1,1", HOST), 400, "version"),
    "HTTPS/1.1": (lines("GET /token HTTPS/1.1", HOST), 400, "version"),
    "HTTP/3.0": (lines("GET /token HTTP/3.0", HOST), 505, "version"),
    "preface of HTTP/2": (b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", 505, "version"),
    "CONNECT": (lines("CONNECT localhost:80 HTTP/1.1", HOST), 405, "CONNECT"),
    "CONNECT with a path": (lines("CONNECT /token HTTP/1.1", HOST), 405, "CONNECT"),
    # Header lines
    "blank before the colon": (lines(GET, HOST, f"X-{CANARY} : a"), 400, "colon"),
    "NUL in a header value": (lines(GET, HOST, f"X: {CANARY}\0"), 400, "control"),
    "folded header with a blank": (lines(GET, HOST, "X: a", " b"), 400, "folded"),
    "blank line that is none": (f"{GET}\r\n{HOST}\r\n \r\n\r\n", 400, "folded"),
    # Host
    "missing Host": (lines(GET), 400, "Host"),
    "missing Host in HTTP/1.2": (lines("GET /token HTTP/1.2"), 400, "Host"),
    "repeated Host": (lines(GET, HOST, HOST), 400, "Host"),
    "blank in Host": (lines(GET, "Host: a b"), 400, "host"),
    "two ports in Host": (lines(GET, "Host: a:1:2"), 400, "host"),
    "no address in brackets": (lines(GET, "Host: []"), 400, "host"),
    "something after the brackets": (lines(GET, "Host: [::1]a"), 400, "host"),
    "no host before the port": (lines(GET, "Host: :80"), 400, "host"),
    # Length of the body
    "repeated Content-Length": (
        lines(POST, HOST, FORM, "Content-Length: 4", "Content-Length: 4", body=b"a=bc"), 400, "Content-Length"),
    "differing Content-Lengths": (
        lines(POST, HOST, FORM, "Content-Length: 4", "Content-Length: 0", body=b"a=bc"), 400, "Content-Length"),
    "negative Content-Length": (lines(POST, HOST, "Content-Length: -1"), 400, "Content-Length"),
    "Content-Length of a GET, repeated": (
        lines(GET, HOST, "Content-Length: 0", "Content-Length: 0"), 400, "Content-Length"),
    "Content-Length of 2 to the 64": (lines(POST, HOST, "Content-Length: 18446744073709551616"), 413, "body"),
    "Content-Length then chunked (CL.TE)": (
        lines(POST, HOST, "Content-Length: 5", CHUNKED, body=b"0\r\n\r\n"), 400, "exclude"),
    "repeated Transfer-Encoding": (lines(POST, HOST, CHUNKED, CHUNKED, body=b"0\r\n\r\n"), 400, "Transfer-Encoding"),
    "Transfer-Encoding in HTTP/1.0": (
        lines("POST /token HTTP/1.0", HOST, CHUNKED, body=b"0\r\n\r\n"), 400, "Transfer-Encoding"),
    "chunked not last": (
        lines(POST, HOST, "Transfer-Encoding: chunked, gzip", body=b"0\r\n\r\n"), 400, "chunked"),
    "not quite chunked": (lines(POST, HOST, "Transfer-Encoding: xchunked", body=b"0\r\n\r\n"), 400, "chunked"),
    "chunked with a parameter": (lines(POST, HOST, f"{CHUNKED};q=1", body=b"0\r\n\r\n"), 400, "chunked"),
    "quoted chunked": (lines(POST, HOST, 'Transfer-Encoding: "chunked"', body=b"0\r\n\r\n"), 400, "chunked"),
    "coding before chunked": (
        lines(POST, HOST, "Transfer-Encoding: gzip, chunked", body=b"0\r\n\r\n"), 501, "coding"),
    "repeated Content-Type": (
        lines(POST, HOST, FORM, "Content-Type: text/plain", "Content-Length: 4", body=b"a=bc"), 400, "Content-Type"),
    "unknown expectation": (lines(POST, HOST, "Expect: 200-ok", "Content-Length: 0"), 417, "100-continue"),
    "not quite the expectation": (lines(POST, HOST, "Expect: 100-continue2", "Content-Length: 0"), 417, "100-continue"),
    "expectation beside another": (lines(POST, HOST, "Expect: 100-continue, other", "Content-Length: 0"), 417, "100-continue"),
    # Chunks
    "chunk size that is no number": (chunked(b"x\r\n"), 400, "size"),
    "chunk size of many zeros": (chunked(b"0" * 30 + b"5\r\na=bcd\r\n0\r\n\r\n"), 400, "size"),
    "bare LF in a chunk extension": (chunked(b"5;a\na=bcd\r\n0\r\n\r\n"), 400, "LF alone"),
    "chunk extension without end": (chunked(b"5;" + b"a" * 5000), 400, "too long"),
    "no line end after a chunk": (chunked(b"5\r\na=bcd0\r\n\r\n"), 400, "CR LF"),
    "bare LF as the end of the trailers": (chunked(b"0\r\n\n"), 400, "LF alone"),
    "folded trailer": (chunked(b"0\r\nx: a\r\n b\r\n\r\n"), 400, "folded"),
    "NUL in a trailer": (chunked(b"0\r\nx: \0\r\n\r\n"), 400, "control"),
}


def as_bytes(data):
    return data.encode("latin-1") if isinstance(data, str) else data


def deliver(connection, data, delivery):
    """Sends the data in one go or byte by byte."""
    if delivery == "whole":
        connection.send_while_possible(data)
    else:
        connection.send_pieces([data[index:index + 1] for index in range(len(data))], pause=0.00002)


@pytest.mark.parametrize("delivery", ["whole", "bytes"])
@pytest.mark.parametrize("data, status, reason", REFUSALS.values(), ids=REFUSALS)
def test_an_ambiguous_request_is_refused_and_ends_the_connection(plain, data, status, reason, delivery):
    with Connection(plain.address) as connection:
        deliver(connection, as_bytes(data) + FOLLOWER, delivery)
        response = connection.receive()
        message = check_http_error(response, status)
        assert reason in message
        assert CANARY not in message, "an error message quotes nothing of the request"
        assert response.closes
        connection.expect_end()


def test_a_refused_connect_names_the_allowed_methods(plain):
    response = exchange(plain.address, lines("CONNECT localhost:80 HTTP/1.1", HOST))
    assert response.headers["allow"] == "GET, HEAD, POST"


def test_a_refused_head_request_has_no_body(plain):
    with Connection(plain.address) as connection:
        connection.send(lines("HEAD /token HTTP/1.1", HOST, HOST))
        response = connection.receive("HEAD")
        assert response.status == 400
        connection.expect_end()


SERVED = {
    "absolute target": (lines("GET http://other:80/token?unique_id=nobody HTTP/1.1", HOST), NOT_FOUND),
    "absolute target of https": (lines("GET HTTPS://other/token?unique_id=nobody HTTP/1.1", HOST), NOT_FOUND),
    "HTTP/1.9": (lines("GET /token?unique_id=nobody HTTP/1.9", HOST), NOT_FOUND),
    "empty Host": (lines(GET, "Host:"), NOT_FOUND),
    "Host with an address": (lines(GET, "Host: [::1]:8080"), NOT_FOUND),
    "Host with a port": (lines(GET, "Host: a.localhost:8080"), NOT_FOUND),
    "empty header value": (lines(GET, HOST, "X:"), NOT_FOUND),
    "Upgrade to h2c": (lines(GET, HOST, "Connection: Upgrade, HTTP2-Settings", "Upgrade: h2c"), NOT_FOUND),
    "a method of one's own": (lines("get /token HTTP/1.1", HOST), unsupported("get")),
    "a method of punctuation": (lines("!#$%&'*+-.^_`|~ /token HTTP/1.1", HOST), unsupported("!#$%&'*+-.^_`|~")),
    "PUT with a body": (
        lines("PUT /token HTTP/1.1", HOST, "Content-Length: 4", body=b"a=bc"), unsupported("PUT")),
    "TRACE": (lines("TRACE /token HTTP/1.1", HOST), unsupported("TRACE")),
}


@pytest.mark.parametrize("delivery", ["whole", "bytes"])
@pytest.mark.parametrize("data, body", SERVED.values(), ids=SERVED)
def test_an_unusual_but_clear_request_is_served_and_the_next_one_too(plain, data, body, delivery):
    with Connection(plain.address) as connection:
        deliver(connection, data + FOLLOWER, delivery)
        response = connection.receive()
        assert (response.status, response.body) == (200, body)
        assert not response.closes
        assert connection.receive().body == NOT_FOUND
