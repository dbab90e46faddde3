"""Marked secrets in every field of every kind of request are found nowhere in what the server writes and tells: files, logs, metrics,
pages, commands and errors. In the modes with users, these are users, sessions, API keys, JWTs and tokens."""
import base64
import contextlib
import itertools
import json
import os
import re
import socket
import ssl
import struct
import subprocess
from pathlib import Path

import pytest

from access import API, api_request, bearer, bearer_settings, fetch, session_settings, store, unknown_session
from access_worlds import HEADER
from administration import ADMINISTRATION
from certificates import make_certificate
from contract import STORED, found
from http_client import FORM, HOST, TRUSTING, Connection, ProtocolError, exchange, get, lines, post, post_of
from issuer import Issuer
from server_process import AS_NOBODY, NO_ADMINISTRATION, NOBODY, Server, binary, clean_environment, needs_root, run, until
from store_files import make_audit_keys
from test_tls import tls_settings

CANARY = "canary4711"
USER, TOKEN = "canary-user-4711", "canary-token-4711"


# Searching

def percent(text):
    """The text with every character percent-encoded."""
    return "".join(f"%{byte:02x}" for byte in text.encode())


def base64_cores(data):
    """The base64 forms of bytes inside longer ones, without the characters that depend on their neighbours."""
    for offset in range(3):
        coded = base64.b64encode(b"\0" * offset + data).decode().rstrip("=")[(0, 2, 3)[offset]:-1]
        yield from (coded, coded.replace("+", "-").replace("/", "_"))


def forms(secret):
    """A secret in all its usual encodings."""
    yield from (secret, percent(secret), secret.encode().hex(), " ".join(f"{byte:02x}" for byte in secret.encode()))
    yield "".join(f"\\u{byte:04x}" for byte in secret.encode())
    yield from base64_cores(secret.encode())
    if secret[:4] in ("tcs_", "tck_"):
        # The random bits alone.
        bits = base64.urlsafe_b64decode(secret[4:] + "=")
        yield from (secret[4:], bits.hex(), bits.decode("latin-1"), *base64_cores(bits))


def traces(secrets, data):
    """The secrets that occur in some text or bytes; a log may change the case."""
    text = (data.decode("latin-1") if isinstance(data, bytes) else data).lower()
    return [secret[:12] for secret in secrets if any(form.lower() in text for form in forms(secret))]


@pytest.mark.parametrize("encode", [
    bytes, lambda secret: percent(secret.decode()).encode(), lambda secret: secret.hex().upper().encode(),
    lambda secret: base64.b64encode(b"a" + secret), lambda secret: base64.urlsafe_b64encode(b"ab" + base64.urlsafe_b64decode(secret[4:] + b"=")),
], ids=["plain", "percent", "hexadecimal", "base64", "bits in base64"])
def test_a_secret_is_found_in_each_encoding(encode):
    secret = unknown_session()
    assert traces(["another", secret], b"before" + encode(secret.encode()) + b"after") == [secret[:12]]


def raw_answer(address, request):
    """All bytes up to the end."""
    with Connection(address) as connection:
        # The server does not read an unexpected body.
        with contextlib.suppress(ConnectionError):
            connection.send(request)
            connection.finish_sending()
            return connection.receive_to_end()
        return connection.unread


def told(server):
    """All that the server tells its operators, and what other users see of its process."""
    for path in ("/", "/status", "/history", "/settings", "/metrics", "/readyz", "/healthz"):
        yield path, raw_answer(server.administration[0], lines(f"GET {path} HTTP/1.1", HOST, "Connection: close"))
    flags = ["--config", str(server.folder / "token-cache.yaml")]
    for command in (["stats"], ["stats", "--json"], ["list"], ["verify"], ["keyring", "list"], ["doctor"], ["doctor", "--json"],
                    ["check-config"], ["health"]):
        done = run(*command, *flags, environment={"TOKEN_CACHE_LISTEN": "127.0.0.1:0", **NO_ADMINISTRATION})
        yield " ".join(command), (done.stdout + done.stderr).encode()
    process = Path(f"/proc/{server.process.pid}")
    for path in (process / "cmdline", process / "environ", process / "comm", process / "status", *process.glob("task/*/comm")):
        # A thread may have ended meanwhile.
        with contextlib.suppress(FileNotFoundError, ProcessLookupError):
            yield path, path.read_bytes()


def check_nowhere(server, secrets, *files):
    """Looks into everything that the server has written, running and stopped, and into some more files."""
    keys = re.findall(r"\b[0-9a-f]{64}\b", (server.data / "keys").read_text())
    assert keys
    for place, data in told(server):
        assert data, place
        assert not traces([*secrets, *keys], data), place
    written = [(file, file.read_bytes()) for file in server.data.iterdir() if file.is_file()]
    server.process.send_signal(1)
    assert server.stop() == 0
    written += [(file, file.read_bytes()) for file in (*server.data.iterdir(), *server.folder.iterdir(), *files) if file.is_file()]
    for file, data in written:
        assert not traces(secrets if file.name == "keys" else [*secrets, *keys], data), (
            file, [line for line in data.splitlines() if traces(secrets, line)][:5])


# Settings with which the server writes as much as it can.
LOGS = {"text": {"log_format": "text", "log_level": "trace"}, "json": {"log_format": "json", "log_level": "trace"}}


# Requests with the canary, each with the status of its answer, or None if there need not be an answer

LENGTH = f"Content-Length: {len(CANARY)}"
SECRETIVE = {
    "id in a query": (get(CANARY), 200),
    "id in the query of an unknown path": (get(CANARY, path="/other"), 404),
    "id and token info in a body": (post(CANARY, CANARY), 200),
    "id and token info in the query of a POST": (
        lines(f"POST /token?unique_id={CANARY}&token_info={CANARY} HTTP/1.1", HOST), 200),
    "query of an absolute target": (lines(f"GET http://{CANARY}/token?unique_id={CANARY} HTTP/1.1", HOST), 200),
    "header name": (get("a", f"{CANARY}: a"), 200),
    "Host": (lines("GET /token HTTP/1.1", f"Host: {CANARY}"), 200),
    "method": (lines(f"{CANARY} /token HTTP/1.1", HOST), 200),
    "method on an unknown path": (lines(f"{CANARY} /other HTTP/1.1", HOST), 404),
    "malformed target": (lines(f"GET {CANARY} HTTP/1.1", HOST), 400),
    "malformed method": (lines(f"{CANARY}: a HTTP/1.1", HOST), 400),
    "malformed version": (lines(f"GET /token {CANARY}", HOST), 400),
    "malformed header": (lines(f"GET /token?unique_id={CANARY} HTTP/1.1", HOST, f"{CANARY}"), 400),
    "malformed Host": (lines("GET /token HTTP/1.1", f"Host: {CANARY} {CANARY}"), 400),
    "malformed length": (lines("POST /token HTTP/1.1", HOST, f"Content-Length: {CANARY}"), 400),
    "unknown coding": (lines("POST /token HTTP/1.1", HOST, f"Transfer-Encoding: {CANARY}, chunked"), 501),
    "unknown expectation": (lines("POST /token HTTP/1.1", HOST, f"Expect: {CANARY}"), 417),
    "malformed chunk": (
        lines("POST /token HTTP/1.1", HOST, FORM, "Transfer-Encoding: chunked", body=f"{CANARY}\r\n".encode()), 400),
    "long target": (lines(f"GET /{CANARY * 2000} HTTP/1.1", HOST), 414),
    "long head": (lines("GET /token HTTP/1.1", HOST, f"X: {CANARY * 2000}"), 431),
    "connection cut in a body": (
        lines("POST /token HTTP/1.1", HOST, FORM, "Content-Length: 100", body=f"unique_id={CANARY}".encode()), None),
}

HEADERS = ["Accept", "Authorization", "Content-Encoding", "Content-Language", "Cookie", "Date", "Forwarded", "From",
           "If-None-Match", "Origin", "Proxy-Authorization", "Range", "Referer", "Upgrade", "User-Agent", "Via", "X-Forwarded-For",
           "X-Forwarded-Host", "X-Forwarded-Proto", "X-Real-IP", "X-Anything"]
for _name in HEADERS:
    SECRETIVE[_name] = (get("a", f"{_name}: {CANARY}"), 200)
    SECRETIVE[f"{_name} of a refused request"] = (get("a", f"{_name}: {CANARY}", HOST), 400)
    SECRETIVE[f"{_name} on an unknown path"] = (get("a", f"{_name}: {CANARY}", path="/other"), 404)


def with_body(content_type, body):
    """A POST with any body."""
    return post_of(body.encode(), f"Content-Type: {content_type}"), 200


def part(disposition, value):
    """A multipart body with one part."""
    return f"--x\r\nContent-Disposition: form-data; {disposition}\r\n\r\n{value}\r\n--x--\r\n"


ESCAPED = "".join(f"\\u{byte:04x}" for byte in CANARY.encode())
MULTIPART = "multipart/form-data; boundary=x"
SECRETIVE |= {
    "escaped id and token info": with_body(FORM[14:], f"unique_id={percent(CANARY)}&token_info={percent(CANARY)}"),
    "escaped id in a query": (get(percent(CANARY)), 200),
    "name in a query": (lines(f"GET /token?{CANARY}={CANARY}&unique_id=a HTTP/1.1", HOST), 200),
    "name in a form": with_body(FORM[14:], f"{CANARY}=a&unique_id[{CANARY}]=b"),
    "escapes that are none": with_body(FORM[14:], f"unique_id=%{CANARY}%zz"),
    "no UTF-8": with_body(FORM[14:], f"unique_id=%ff{CANARY}&token_info=%ff{CANARY}"),
    "id that is too long": with_body(FORM[14:], f"unique_id={CANARY * 200}&token_info=a"),
    "id of a part": with_body(MULTIPART, part('name="unique_id"', CANARY)),
    "name of a part": with_body(MULTIPART, part(f'name="{CANARY}"', "a")),
    "name of a file": with_body(MULTIPART, part(f'name="unique_id"; filename="{CANARY}"', "a")),
    "header of a part": with_body(MULTIPART, f"--x\r\n{CANARY}: {CANARY}\r\n\r\na\r\n--x--\r\n"),
    "broken part": with_body(MULTIPART, f"--x\r\n{CANARY}"),
    "boundary": with_body(f"multipart/form-data; boundary={CANARY}", f"--{CANARY}\r\n\r\na\r\n--{CANARY}--\r\n"),
    "JSON": with_body("application/json", json.dumps({"unique_id": CANARY, "token_info": {CANARY: CANARY}})),
    "escaped JSON": with_body("application/json", f'{{"unique_id": "{ESCAPED}", "token_info": "{ESCAPED}"}}'),
    "broken JSON": with_body("application/json", f'{{"unique_id": "{CANARY}", {CANARY}'),
    "content type": with_body(f"{CANARY}/{CANARY}; charset={CANARY}", CANARY),
    "chunk extension": (lines("POST /token HTTP/1.1", HOST, FORM, "Transfer-Encoding: chunked",
                              body=f"1;{CANARY}={CANARY}\r\na\r\n0\r\n\r\n".encode()), 200),
    "trailer": (lines("POST /token HTTP/1.1", HOST, FORM, "Transfer-Encoding: chunked",
                      body=f"1\r\na\r\n0\r\n{CANARY}: {CANARY}\r\n\r\n".encode()), 200),
    "path": (lines(f"GET /token/{CANARY} HTTP/1.1", HOST), 404),
    "escaped path": (lines(f"GET /{percent(CANARY)} HTTP/1.1", HOST), 404),
    "CONNECT": (lines(f"CONNECT {CANARY}:443 HTTP/1.1", f"Host: {CANARY}"), 405),
    "request line": (f"{CANARY}\r\n\r\n".encode(), 400),
    "no HTTP": (CANARY.encode() * 3000, None),
    "too large a body": (lines("POST /token HTTP/1.1", HOST, FORM, "Content-Length: 99999999", f"X: {CANARY}"), 413),
    "name of a request that is none": (get("a", f"X-Request-Id: {CANARY} {CANARY}"), 200),
}


def check_answer(name, response):
    """Answers contain the canary only where the contract says so: in a token info that was found, and in a method."""
    assert not traces([CANARY], " ".join([*response.headers, *response.headers.values()])), (name, response)
    body = json.loads(response.body) if response.body else {}
    if body.get("errorCode") == "50003":
        assert body["errorMessage"] == f"Unsupported method: {CANARY}", name
    elif "token_info" not in body:
        assert not traces([CANARY], response.body), (name, response)


def send(address, name, data, status=None):
    """Sends a request on its own connection, and checks the answer; without a status, there need not be one."""
    with Connection(address) as connection:
        connection.send_while_possible(data)
        try:
            if status is None:
                connection.finish_sending()
            response = connection.receive()
        except (ProtocolError, OSError):
            assert status is None, name
            return
        assert status in (None, response.status), (name, response)
        check_answer(name, response)


def send_behind_proxy_headers(address):
    """PROXY headers with the canary: valid ones, with it in an extension, and invalid ones."""
    addresses = socket.inet_aton("192.0.2.1") + socket.inet_aton("192.0.2.2") + struct.pack("!HH", 1, 2)
    # PP2_TYPE_AUTHORITY, PP2_TYPE_UNIQUE_ID and an unknown type.
    extensions = b"".join(struct.pack("!BH", kind, len(CANARY)) + CANARY.encode() for kind in (0x02, 0x05, 0xe0))
    signature = b"\r\n\r\n\0\r\nQUIT\n"
    for header in (signature + struct.pack("!BBH", 0x21, 0x11, len(addresses + extensions)) + addresses + extensions,
                   b"PROXY UNKNOWN " + CANARY.encode() + b"\r\n",
                   b"PROXY TCP4 " + CANARY.encode() + b" 192.0.2.1 1 2\r\n", b"PROXY " + CANARY.encode() + b"\r\n",
                   signature + b"\xff" + CANARY.encode() * 10, CANARY.encode() * 50):
        send(address, "PROXY header", header + get(CANARY))


def send_over_tls(address):
    """The canary as the name and the protocol in a handshake, in requests over TLS, and in data that is not TLS."""
    protocol = ssl.create_default_context()
    protocol.check_hostname, protocol.verify_mode = False, ssl.CERT_NONE
    protocol.set_alpn_protocols([CANARY])
    for context in (TRUSTING, protocol):
        with socket.create_connection(address, timeout=20) as plain:
            try:
                with context.wrap_socket(plain, server_hostname=f"{CANARY}.example") as secure:
                    secure.sendall(get(CANARY, "Connection: close"))
                    assert b"200 OK" in secure.recv(65536)
            except (ssl.SSLError, ConnectionResetError):
                # The server refuses unknown protocols.
                assert context is protocol
    for data in (get(CANARY), CANARY.encode() * 10, b"\x16\x03\x01\x00\x20" + CANARY.encode() * 10):
        send(address, "no TLS", data)


def ask_administration(server):
    """Sends the administration requests with the canary in all places, and checks the answers."""
    for path in ("/metrics", "/readyz", "/status", "/reload", f"/{CANARY}", f"/store/{CANARY}"):
        for method in ("GET", "POST", CANARY):
            request = lines(f"{method} {path}?{CANARY} HTTP/1.1", f"Host: {CANARY}", f"X-{CANARY}: {CANARY}", "Connection: close", LENGTH,
                            body=CANARY.encode())
            for address in (server.administration[0], server.data / "control.sock"):
                assert not traces([CANARY], raw_answer(address, request)), (path, method)
    assert not traces([CANARY], raw_answer(server.administration[0], f"{CANARY}\r\n\r\n".encode()))
    for name in ("stats", "keyring/list", "get", "page", "delete"):
        body = f'{{"ids": "{CANARY}", "{CANARY}": "{CANARY}"}}'.encode()
        request = post_of(body, path=f"/store/{name}")
        assert not traces([CANARY], raw_answer(server.data / "control.sock", request)), name


@pytest.mark.parametrize("logs, goes_to_file", [("text", False), ("json", True)])
def test_nothing_of_what_clients_send_is_told_to_anybody_else(serve, tmp_path, logs, goes_to_file):
    access_file = tmp_path / "access.log"
    server = serve({
        **tls_settings(make_certificate(tmp_path)),
        **LOGS[logs], **ADMINISTRATION, "json_bodies": "on",
        "access_log": f"json {access_file}" if goes_to_file else "combined",
        "listen": ["127.0.0.1:0", "127.0.0.1:0?proxy-protocol=required", "https://127.0.0.1:0"],
        # Forwarded headers contain canaries, and must not cause redirects here.
        "https": {"mode": "off"},
    })
    plain, proxied, secure = (("127.0.0.1", int(port)) for port in re.findall(
        r"(?:http|https)://127\.0\.0\.1:(\d+)", server.log().split(" administration ")[0]))
    for name, (data, status) in SECRETIVE.items():
        send(plain, name, data, status)
    send_behind_proxy_headers(proxied)
    send_over_tls(secure)
    assert exchange(plain, get(CANARY)).body == found(CANARY), "the canary did arrive"
    ask_administration(server)
    check_nowhere(server, [CANARY], access_file)
    access = access_file.read_text() if goes_to_file else server.output()
    assert len(access.splitlines()) >= sum(status is not None for _, status in SECRETIVE.values())


def test_the_name_of_a_request_is_nobodys_who_is_not_trusted(serve):
    server = serve({"trusted_proxies": "none", "access_log": "json", "log_level": "trace",
                    "https": {"mode": "off"}})
    fields = [f"X-Request-Id: {CANARY}", f"X-Forwarded-For: {CANARY}", f"Forwarded: for={CANARY}"]
    for request in (get("nobody", *fields), get("nobody", *fields, path="/other"), get("nobody", *fields, HOST),
                    post("a", "b", *fields), lines("HEAD /token HTTP/1.1", HOST, *fields)):
        response = exchange(server.address, request, "HEAD" if request.startswith(b"HEAD") else "GET")
        check_answer("X-Request-Id", response)
    assert server.stop() == 0
    assert len(server.output().splitlines()) == 5
    assert not traces([CANARY], server.output()) and not traces([CANARY], server.log())


@pytest.mark.parametrize("method, status", [("GET", 302), ("POST", 308)])
def test_a_redirect_tells_only_the_client_where_it_wanted_to_go(serve, method, status):
    server = serve({"access_log": "combined", "log_level": "trace"})
    response = exchange(server.address, lines(
        f"{method} /token?unique_id={CANARY} HTTP/1.1", "Host: localhost", "X-Forwarded-Proto: http", "Content-Length: 0"))
    assert response.status == status and response.headers["location"] == f"https://localhost/token?unique_id={CANARY}"
    assert server.stop() == 0
    assert server.output() and not traces([CANARY], server.output()) and not traces([CANARY], server.log())


def test_a_failing_store_is_logged_without_what_it_failed_on(serve):
    # As if the disk were full: the database and the WAL cannot grow.
    server = serve({"log_level": "trace"}, file_size=256 << 10)
    numbers = itertools.count()
    with Connection(server.address) as connection:
        # The value differs, because SQLite writes nothing if a page stays the same.
        until(lambda: connection.exchange(post(CANARY, CANARY * 1000 + str(next(numbers)))).body != STORED, pause=0)
    assert server.stop() == 0
    assert "tokens cannot be stored" in server.log()
    assert not traces([CANARY], server.log())


# Modes with users

def telling(tmp_path, logs):
    """Settings with which the server writes everything that it can write, and the options for them."""
    make_audit_keys(tmp_path / "first.key", tmp_path / "data")
    return {**logs, **ADMINISTRATION, "access_log": f"combined {tmp_path}/access.log",
            "audit": {"file": str(tmp_path / "audit.ndjson"), "events": "all"}}


def of(tmp_path):
    """The files beside the data folder."""
    files = [tmp_path / name for name in ("access.log", "audit.ndjson", "first.key")]
    # The access log's lines are written by a thread, perhaps after the answers.
    until(lambda: all(file.stat().st_size > 0 for file in files))
    return files


@pytest.mark.parametrize("logs", LOGS.values(), ids=LOGS)
def test_mode_session(serve, tmp_path, logs):
    settings, key = session_settings(tmp_path / "keys")
    server = serve({**settings, **telling(tmp_path, logs)}, data=tmp_path / "data")
    api = API(server, key)
    made = [api.make_session(USER) for _ in range(3)]
    sessions = [one["session"] for one in made]
    secrets = [USER, TOKEN, key, *sessions]
    assert exchange(server.address, store(TOKEN, unique_id=sessions[0])).body == STORED
    assert exchange(server.address, fetch(bearer(sessions[1]))).body == found(TOKEN)
    tag = api.get(USER).headers["etag"]
    api.end(made[2]["id"])
    answers = [
        fetch(unique_id=sessions[2]), fetch(bearer(sessions[2])), store(TOKEN, bearer(sessions[2])),
        fetch(bearer(sessions[0]), unique_id=sessions[1]), fetch(bearer(sessions[0]), unique_id="other"),
        fetch(bearer(sessions[0]), bearer(sessions[1])), store(TOKEN, bearer(sessions[0]), 'If-Match: "1"'),
        fetch(bearer(sessions[0]), f"If-None-Match: {tag}"), fetch(bearer(key)), fetch(unique_id=key),
        store(TOKEN, bearer(sessions[0]), f"If-Match: {sessions[0]}"), fetch(f"Authorization: Basic {sessions[0]}"),
        fetch(bearer(f"{sessions[0]}x")), fetch(unique_id=f"{sessions[0]}x"), fetch(bearer(sessions[0]), path=f"/v1/{USER}"),
        fetch(bearer(sessions[0]), "X-Forwarded-Proto: ftp"), lines("GET /token HTTP/1.1", bearer(sessions[0])),
        api_request(key + "x", "GET", f"/v1/users/{USER}/token"), api_request(sessions[0], "GET", f"/v1/users/{USER}/token"),
        api_request(key, "GET", f"/v1/users/{USER}/tokens"), api_request(key, "PATCH", f"/v1/users/{USER}/token"),
        api_request(key, "PUT", f"/v1/users/{USER}/token", {"token_info": TOKEN}),
        api_request(key, "PUT", f"/v1/users/{USER}/token", {"token_info": TOKEN}, 'If-Match: "1"'),
        api_request(key, "PUT", f"/v1/users/{USER}/token", TOKEN.encode(), "If-Match: *"),
        api_request(key, "PUT", f"/v1/users/{USER}%00/token", {"token_info": TOKEN}, "If-Match: *"),
        api_request(key, "POST", "/v1/sessions", {"user": USER, "other": [TOKEN]}, f"X: {key}"),
        api_request(key, "POST", "/v1/sessions", f'{{"user": "{USER}'.encode()),
        api_request(key, "GET", f"/v1/users/{USER}/sessions"), api_request(key, "DELETE", f"/v1/sessions/{sessions[0]}"),
        api_request(key, "DELETE", f"/v1/sessions/{USER}")]
    for data in answers:
        response = exchange(server.address, data)
        answer = json.dumps(response.headers).encode() + response.body
        if response.status == 201:
            secrets.append(json.loads(response.body)["session"])
        else:
            assert not traces(secrets, answer), (data, response)
    # Half a request that never ends.
    with socket.create_connection(server.address) as connection:
        connection.sendall(fetch(bearer(sessions[0]), unique_id=USER)[:-2])
    check_nowhere(server, secrets, *of(tmp_path), *(tmp_path / "keys").iterdir())


def test_mode_bearer(serve, tmp_path):
    issuer, file = Issuer(), tmp_path / "keys.json"
    settings = bearer_settings(file, issuer, in_unique_id="on")
    server = serve({**settings, **telling(tmp_path, LOGS["text"])}, data=tmp_path / "data")
    token, other = issuer.token(USER), Issuer().token(USER)
    parts = [part for text in (token, other) for part in text.split(".")[1:]]
    assert exchange(server.address, store(TOKEN, unique_id=token)).body == STORED
    for data in (fetch(bearer(token), unique_id="other"), fetch(bearer(other)), fetch(unique_id=other), fetch(bearer(token[:-1])),
                 fetch(bearer(token), unique_id=issuer.token("ben")), fetch(bearer(token), 'If-Match: "1"'),
                 fetch(bearer(issuer.token(USER, crit=["x"], header={"crit": [USER]}))),
                 fetch(bearer(issuer.token(USER, header={"kid": USER}))), fetch(bearer(issuer.token(USER, aud=USER)))):
        response = exchange(server.address, data)
        assert not traces([USER, TOKEN, *parts], json.dumps(response.headers).encode() + response.body)
    check_nowhere(server, [USER, TOKEN, *parts], *of(tmp_path))


def test_mode_header(serve, tmp_path):
    server = serve({**HEADER, **telling(tmp_path, LOGS["json"])}, data=tmp_path / "data")
    assert exchange(server.address, store(TOKEN, f"Remote-User: {USER}")).body == STORED
    for fields in ([f"Remote-User: {USER}", "Remote-User: a"], [f"Remote-User: <{USER}>"], [f"Remote_User: {USER}"]):
        response = exchange(server.address, fetch(*fields))
        assert response.status >= 400 and not traces([USER], response.body)
    assert not traces([USER], exchange(server.address, fetch("Remote-User: a", unique_id=USER)).body)
    check_nowhere(server, [USER, TOKEN], *of(tmp_path))


# Core dumps and access to the process's memory

@needs_root
def test_there_are_no_core_dumps_and_no_process_of_the_same_user_can_read_its_memory(public_folder):
    """The files of an undumpable process belong to root (proc(5))."""
    os.chown(public_folder, NOBODY, NOBODY)
    server = Server(public_folder / "server", data=public_folder / "data", prefix=AS_NOBODY)
    try:
        status = Path(f"/proc/{server.process.pid}/status")
        assert re.search(rf"^Uid:\t{NOBODY}\t", status.read_text(encoding="utf-8"), re.M)
        assert status.stat().st_uid == 0
    finally:
        server.kill()
    # Nor of a command, such as one that reads a token from a pipe.
    arguments = [*AS_NOBODY, binary(), "put", "me", "-", "--data-directory", str(public_folder / "data")]
    with subprocess.Popen(arguments, stdin=subprocess.PIPE, env=clean_environment(), cwd="/") as command:
        process = Path(f"/proc/{command.pid}")
        until(lambda: (process / "comm").read_text() == "token-cache\n" and (process / "status").stat().st_uid == 0)
