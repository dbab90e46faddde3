"""Puts marked secrets into every field of every kind of request, and finds them nowhere in what the server writes."""
import base64
import itertools
import json
import os
import re
import shutil
import socket
import ssl
import struct
import subprocess
import tempfile
from pathlib import Path

import pytest

from certificates import make_certificate
from contract import STORED, found
from http_client import FORM, Connection, ProtocolError, exchange, get, lines, post
from server_process import NO_ADMINISTRATION, binary, clean_environment, run, until

HOST = "Host: localhost"
CANARY = "canary4711"
SECURE = ssl.create_default_context()
SECURE.check_hostname, SECURE.verify_mode = False, ssl.CERT_NONE


# Searching

def percent(text):
    """The text with every character percent-encoded."""
    return "".join(f"%{byte:02x}" for byte in text.encode())


def base64_cores(text):
    """The base64 forms of a text inside a longer one, without the characters that depend on its neighbours."""
    for offset in range(3):
        coded = base64.b64encode(b"\0" * offset + text.encode()).decode().rstrip("=")
        yield coded[(0, 2, 3)[offset]:-1]


# All in lower case, because a log may change the case.
FORMS = [CANARY, percent(CANARY), CANARY.encode().hex(), " ".join(f"{byte:02x}" for byte in CANARY.encode()),
         "".join(f"\\u{byte:04x}" for byte in CANARY.encode()), *(core.lower() for core in base64_cores(CANARY))]


def traces(text):
    """The forms of the canary that occur in a text."""
    text = text.decode("latin-1") if isinstance(text, bytes) else text
    return [form for form in FORMS if form in text.lower()]


# Requests with the canary, each with the status of its answer, or None if there need not be an answer

LENGTH = f"Content-Length: {len(CANARY)}"
SECRETIVE = {
    "id in a query": (get(CANARY), 200),
    "id in the query of an unknown path": (get(CANARY, path="/other"), 404),
    "id and token info in a body": (post(CANARY, CANARY), 200),
    "id and token info in the query of a POST": (
        lines(f"POST /token?unique_id={CANARY}&token_info={CANARY} HTTP/1.1", HOST), 200),
    "query of an absolute target": (lines(f"GET http://{CANARY}/token?unique_id={CANARY} HTTP/1.1", HOST), 200),
    "header values": (
        get("a", *(f"{name}: {CANARY}" for name in ("User-Agent", "Referer", "Cookie", "X-Forwarded-For"))), 200),
    "header name": (get("a", f"{CANARY}: a"), 200),
    "Host": (lines("GET /token HTTP/1.1", f"Host: {CANARY}"), 200),
    "method": (lines(f"{CANARY} /token HTTP/1.1", HOST), 200),
    "method on an unknown path": (lines(f"{CANARY} /other HTTP/1.1", HOST), 404),
    "body that is no form": (
        lines("POST /token HTTP/1.1", HOST, "Content-Type: a/b", "Content-Length: 10", body=CANARY.encode()), 200),
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


def with_body(content_type, body, *fields, status=200):
    """A POST with any body."""
    body = body.encode() if isinstance(body, str) else body
    return lines("POST /token HTTP/1.1", HOST, f"Content-Type: {content_type}", f"Content-Length: {len(body)}", *fields,
                 body=body), status


def part(disposition, value):
    """A multipart body with one part."""
    return f"--x\r\nContent-Disposition: form-data; {disposition}\r\n\r\n{value}\r\n--x--\r\n"


MULTIPART = "multipart/form-data; boundary=x"
SECRETIVE |= {
    "escaped id and token info": with_body(FORM[14:], f"unique_id={percent(CANARY)}&token_info={percent(CANARY)}"),
    "escaped id in a query": (get(percent(CANARY)), 200),
    "name in a query": (lines(f"GET /token?{CANARY}={CANARY}&unique_id=a HTTP/1.1", HOST), 200),
    "name in a form": with_body(FORM[14:], f"{CANARY}=a&unique_id[{CANARY}]=b"),
    "escapes that are none": with_body(FORM[14:], f"unique_id=%{CANARY}%zz"),
    "no UTF-8": with_body(FORM[14:], f"unique_id=%ff{CANARY}&token_info=%ff{CANARY}"),
    "id that is too long": with_body(FORM[14:], f"unique_id={CANARY * 200}&token_info=a"),
    "hexadecimal": with_body(FORM[14:], f"unique_id={CANARY.encode().hex()}&token_info={CANARY.encode().hex()}"),
    "base64": with_body(FORM[14:], f"unique_id={base64.b64encode(CANARY.encode()).decode()}&token_info=a"),
    "id of a part": with_body(MULTIPART, part('name="unique_id"', CANARY)),
    "name of a part": with_body(MULTIPART, part(f'name="{CANARY}"', "a")),
    "name of a file": with_body(MULTIPART, part(f'name="unique_id"; filename="{CANARY}"', "a")),
    "header of a part": with_body(MULTIPART, f"--x\r\n{CANARY}: {CANARY}\r\n\r\na\r\n--x--\r\n"),
    "broken part": with_body(MULTIPART, f"--x\r\n{CANARY}"),
    "boundary": with_body(f"multipart/form-data; boundary={CANARY}", f"--{CANARY}\r\n\r\na\r\n--{CANARY}--\r\n"),
    "JSON": with_body("application/json", json.dumps({"unique_id": CANARY, "token_info": {CANARY: CANARY}})),
    "escaped JSON": with_body("application/json", f'{{"unique_id": "{FORMS[4]}", "token_info": "{FORMS[4]}"}}'),
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
    "beginning of another protocol": (f"SSH-2.0-{CANARY}\r\n".encode(), None),
    "expectation": with_body(FORM[14:], CANARY, f"Expect: 100-{CANARY}", status=417),
    "too large a body": (lines("POST /token HTTP/1.1", HOST, FORM, "Content-Length: 99999999", f"X: {CANARY}"), 413),
    "name of a request that is none": (get("a", f"X-Request-Id: {CANARY} {CANARY}"), 200),
}


def check_answer(name, response):
    """Answers contain the canary only where the contract says so: in a token info that was found, and in a method."""
    assert not traces(" ".join([*response.headers, *response.headers.values()])), (name, response)
    body = json.loads(response.body) if response.body else {}
    if body.get("errorCode") == "50003":
        assert body["errorMessage"] == f"Unsupported method: {CANARY}", name
    elif "token_info" not in body:
        assert not traces(response.body), (name, response)


def has_answer(name, connection):
    """Ends the sending of a request that need not be answered, and returns whether it was."""
    try:
        connection.finish_sending()
        check_answer(name, connection.receive())
        return True
    except (ProtocolError, OSError):
        return False


def send(address, requests):
    """Sends each request on its own connection, checks the answers and returns their number."""
    count = 0
    for name, (data, status) in requests.items():
        with Connection(address) as connection:
            connection.send_while_possible(data)
            if status is None:
                count += has_answer(name, connection)
            else:
                response = connection.receive()
                assert response.status == status, (name, response)
                check_answer(name, response)
                count += 1
    return count


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
        with Connection(address) as connection:
            connection.send_while_possible(header + get(CANARY))
            has_answer("PROXY header", connection)


def send_over_tls(address):
    """The canary as the name and the protocol in a handshake, in requests over TLS, and in data that is not TLS."""
    protocol = ssl.create_default_context()
    protocol.check_hostname, protocol.verify_mode = False, ssl.CERT_NONE
    protocol.set_alpn_protocols([CANARY])
    for context in (SECURE, protocol):
        with socket.create_connection(address, timeout=20) as plain:
            try:
                with context.wrap_socket(plain, server_hostname=f"{CANARY}.example") as secure:
                    secure.sendall(get(CANARY, "Connection: close"))
                    assert b"200 OK" in secure.recv(65536)
            except (ssl.SSLError, ConnectionResetError):
                # The server refuses unknown protocols.
                assert context is protocol
    for data in (get(CANARY), CANARY.encode() * 10, b"\x16\x03\x01\x00\x20" + CANARY.encode() * 10):
        with Connection(address) as connection:
            connection.send_while_possible(data)
            has_answer("no TLS", connection)


def answers_of_administration(server):
    """The answers of the administration to requests with the canary in all places."""
    address = server.administration[0]
    field = f"X-{CANARY}: {CANARY}"
    told = []
    for path in ("/metrics", "/readyz", "/healthz", "/server", "/reload", f"/{CANARY}", f"/store/{CANARY}"):
        for method in ("GET", "POST", CANARY):
            request = lines(f"{method} {path}?{CANARY} HTTP/1.1", f"Host: {CANARY}", field, "Connection: close", LENGTH,
                            body=CANARY.encode())
            for connect in (lambda: socket.create_connection(address, timeout=20), lambda: control_socket(server)):
                told.append(raw_answer(connect(), request))
    told.append(raw_answer(socket.create_connection(address, timeout=20), f"{CANARY}\r\n\r\n".encode()))
    for name in ("stats", "keyring/list", "get", "page", "delete"):
        body = f'{{"ids": "{CANARY}", "{CANARY}": "{CANARY}"}}'.encode()
        told.append(raw_answer(control_socket(server), lines(
            f"POST /store/{name} HTTP/1.1", HOST, f"Content-Length: {len(body)}", body=body)))
    assert all(told)
    return told


def control_socket(server):
    """A connection to this address."""
    connection = socket.socket(socket.AF_UNIX)
    connection.settimeout(20)
    folder = os.open(server.data, os.O_PATH)
    try:
        # The full path may be too long for a socket.
        connection.connect(f"/proc/self/fd/{folder}/control.sock")
    finally:
        os.close(folder)
    return connection


def raw_answer(connection, request):
    """All bytes up to the end."""
    with connection:
        connection.sendall(request)
        connection.shutdown(socket.SHUT_WR)
        answer = b""
        try:
            while data := connection.recv(65536):
                answer += data
        except ConnectionResetError:
            # The server does not read an unexpected body.
            pass
        return answer


def outputs_of_commands(server):
    """The output of the commands on the store."""
    flags = ["--config", str(server.folder / "token-cache.yaml")]
    for command in (["stats"], ["stats", "--json"], ["list"], ["verify"], ["keyring", "list"], ["doctor"], ["doctor", "--json"],
                    ["health"]):
        done = run(*command, *flags, environment={"TOKEN_CACHE_LISTEN": "127.0.0.1:0", **NO_ADMINISTRATION})
        assert done.returncode == 0 and done.stdout, done
        yield done.stdout + done.stderr


def process_titles(server):
    """What all users see in the list of processes."""
    process = Path(f"/proc/{server.process.pid}")
    for path in (process / "cmdline", process / "comm", process / "status", *process.glob("task/*/comm")):
        yield path.read_bytes()


LOGS = {
    "combined": {"log_format": "text", "log_level": "trace", "access_log": "combined"},
    "json access log": {"log_format": "text", "log_level": "debug", "access_log": "json"},
    "json": {"log_format": "json", "log_level": "trace", "access_log": "json"},
    "none": {"log_format": "text", "log_level": "trace", "access_log": "off"},
}


@pytest.mark.parametrize("logs, goes_to_file", [("combined", False), ("json", True), ("json access log", False), ("none", True)])
def test_nothing_of_what_clients_send_is_told_to_anybody_else(serve, tmp_path, logs, goes_to_file):
    logs = LOGS[logs]
    chain, key = make_certificate(tmp_path)
    access_file = tmp_path / "access.log"
    server = serve({
        **logs, "admin": {"listen": "127.0.0.1:0"}, "json_bodies": "on",
        "access_log_file": str(access_file) if goes_to_file else "",
        "listen": ["127.0.0.1:0", "127.0.0.1:0?proxy-protocol=required", "https://127.0.0.1:0"],
        "tls": {"certificate": chain, "private_key": key},
        # Forwarded headers contain canaries, and must not cause redirects here.
        "https": {"mode": "off"},
    })
    environment = Path(f"/proc/{server.process.pid}/environ").read_bytes()
    plain, proxied, secure = (("127.0.0.1", int(port)) for port in re.findall(
        r"(?:http|https)://127\.0\.0\.1:(\d+)", server.log().split(" administration ")[0]))
    count = send(plain, SECRETIVE)
    send_behind_proxy_headers(proxied)
    send_over_tls(secure)
    assert exchange(plain, get(CANARY)).body == found(CANARY), "the canary did arrive"
    places = {"administration": answers_of_administration(server), "commands": outputs_of_commands(server),
              "titles": process_titles(server)}
    for place, texts in places.items():
        for text in texts:
            assert not traces(text), (place, text[:3000])
    assert Path(f"/proc/{server.process.pid}/environ").read_bytes() == environment
    assert server.stop() == 0
    access = access_file.read_text() if access_file.exists() else server.output()
    if goes_to_file:
        assert server.output() == "" and access_file.exists() == (logs["access_log"] != "off")
    assert access == "" if logs["access_log"] == "off" else len(access.splitlines()) >= count
    for place, text in {"output": server.output(), "access log": access, "log": server.log()}.items():
        assert not traces(text), (place, [line for line in text.splitlines() if traces(line)][:5])
    for path in server.data.iterdir():
        assert not traces(path.read_bytes()), path


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
    assert not traces(server.output()) and not traces(server.log())


@pytest.mark.parametrize("method, status", [("GET", 302), ("POST", 308)])
def test_a_redirect_tells_only_the_client_where_it_wanted_to_go(serve, method, status):
    server = serve({"access_log": "combined", "log_level": "trace"})
    response = exchange(server.address, lines(
        f"{method} /token?unique_id={CANARY} HTTP/1.1", "Host: localhost", "X-Forwarded-Proto: http", "Content-Length: 0"))
    assert response.status == status and response.headers["location"] == f"https://localhost/token?unique_id={CANARY}"
    assert server.stop() == 0
    assert server.output() and not traces(server.output()) and not traces(server.log())


def test_a_failing_store_is_logged_without_what_it_failed_on(serve):
    # As if the disk were full: the database and the WAL cannot grow.
    server = serve({"log_level": "trace"}, file_size=256 << 10)
    numbers = itertools.count()
    with Connection(server.address) as connection:
        # The value differs, because SQLite writes nothing if a page stays the same.
        until(lambda: connection.exchange(post(CANARY, CANARY * 1000 + str(next(numbers)))).body != STORED, pause=0)
    assert server.stop() == 0
    assert "tokens cannot be stored" in server.log()
    assert not traces(server.log())


# Core dumps and access to the process's memory

def test_there_are_no_core_dumps(serve):
    server = serve()
    limits = Path(f"/proc/{server.process.pid}/limits").read_text(encoding="utf-8")
    assert re.search(r"^Max core file size +0 +0 ", limits, re.M)


@pytest.mark.skipif(os.geteuid() != 0 or not shutil.which("setpriv"), reason="only root can run as somebody else")
def test_no_process_of_the_same_user_can_read_its_memory():
    """Core dump handlers do not get the memory either: the files of an undumpable process belong to root (proc(5))."""
    with tempfile.TemporaryDirectory() as folder:
        os.chown(folder, 65534, 65534)
        process = subprocess.Popen(
            ["setpriv", "--reuid=65534", "--regid=65534", "--clear-groups", binary(), "serve", "--listen", "127.0.0.1:0",
             "--data-directory", f"{folder}/data"], cwd=folder, stderr=subprocess.PIPE,
            env=clean_environment(NO_ADMINISTRATION))
        try:
            assert any(b" serves on " in line for line in process.stderr)
            status = Path(f"/proc/{process.pid}/status")
            assert re.search(r"^Uid:\t65534\t", status.read_text(encoding="utf-8"), re.M)
            assert status.stat().st_uid == 0
        finally:
            process.terminate()
            process.wait(60)
            process.stderr.close()
