"""TLS as clients see it: with curl and `openssl s_client` against the built server."""
import calendar
import json
import os
import re
import shutil
import signal
import socket
import ssl
import subprocess
import threading
import time

import pytest

from certificates import certificate_until
from contract import STORED, found
from http_client import exchange, get, post
from server_process import NO_ADMINISTRATION, binary, clean_environment, until


def openssl(*arguments, text=""):
    """Runs openssl and returns its output, errors included."""
    result = subprocess.run(
        ["openssl", *map(str, arguments)], input=text, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
        timeout=30, check=False,
    )
    return result.stdout


def make_pair(folder, name, host="localhost", issuer=None):
    """A certificate for a host and its key, self-signed or signed by another pair."""
    certificate, key = folder / f"{name}.crt", folder / f"{name}.key"
    signer = [] if issuer is None else ["-CA", issuer[0], "-CAkey", issuer[1]]
    openssl(
        "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes", "-days", "2", "-subj",
        f"/CN={host}", "-addext", f"subjectAltName=DNS:{host}", "-out", certificate, "-keyout", key, *signer,
    )
    assert certificate.exists() and key.exists()
    return certificate, key


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


def curl(server, *arguments, target="/token"):
    """Status and body of a request with curl, which trusts any certificate."""
    host, port = server.address
    result = subprocess.run(
        ["curl", "--silent", "--insecure", "--max-time", "20", "--write-out", "\n%{http_code}", *arguments,
         f"https://{host}:{port}{target}"],
        capture_output=True, text=True, timeout=30, check=False,
    )
    body, _, status = result.stdout.rpartition("\n")
    return int(status), body


def s_client(server, *arguments):
    """A handshake by openssl, and its report."""
    host, port = server.address
    return openssl("s_client", "-connect", f"{host}:{port}", *arguments)


@pytest.mark.parametrize("version", ["1.2", "1.3"])
def test_tokens_go_back_and_forth_and_browsers_are_told_to_stay(serve, pair, version):
    server = serve_tls(serve, pair)
    flags = [f"--tlsv{version}", "--tls-max", version]
    assert curl(server, *flags, "-d", "unique_id=me&token_info=x") == (200, STORED.decode())
    assert curl(server, *flags, target="/token?unique_id=me") == (200, found("x").decode())
    status, head = curl(server, *flags, "--head")
    assert status == 200 and "Strict-Transport-Security: max-age=31536000" in head


@pytest.mark.parametrize("version", ["-tls1", "-tls1_1"])
def test_older_versions_are_refused(serve, pair, version):
    server = serve_tls(serve, pair)
    assert "Cipher is (NONE)" in s_client(server, version, "-cipher", "ALL:@SECLEVEL=0")


def test_a_client_gets_the_certificate_of_the_name_it_asks_for(serve, pair, tmp_path):
    other = make_pair(tmp_path, "other", "other.example")
    server = serve_tls(serve, pair, other)
    assert "CN = other.example" in s_client(server, "-servername", "other.example")
    for name in (["-servername", "localhost"], ["-servername", "unknown.example"], ["-noservername"]):
        assert "CN = localhost" in s_client(server, *name)


def test_sessions_are_resumed(serve, pair, tmp_path):
    server = serve_tls(serve, pair)
    for version in ("-tls1_2", "-tls1_3"):
        session = tmp_path / version
        request = "GET /token HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n"
        host, port = server.address
        first = openssl("s_client", "-connect", f"{host}:{port}", version, "-sess_out", session, "-ign_eof", text=request)
        assert "New, TLSv" in first
        assert "Reused, TLSv" in s_client(server, version, "-sess_in", session)


def test_only_http_1_1_is_spoken(serve, pair):
    server = serve_tls(serve, pair)
    assert "ALPN protocol: http/1.1" in s_client(server, "-alpn", "h2,http/1.1")
    assert "no application protocol" in s_client(server, "-alpn", "h2")


def test_a_client_certificate_is_required_where_an_authority_is_set(serve, pair, tmp_path):
    authority = make_pair(tmp_path, "authority", "authority")
    known = make_pair(tmp_path, "known", "client", issuer=authority)
    stranger = make_pair(tmp_path, "stranger", "client")
    server = serve_tls(serve, pair, client_ca=str(authority[0]))
    with_pair = lambda pair: ["--cert", str(pair[0]), "--key", str(pair[1])]
    assert curl(server, *with_pair(known))[0] == 200
    assert curl(server, *with_pair(stranger))[0] == 0
    assert curl(server)[0] == 0


@pytest.mark.parametrize("version", ["1.2", "1.3"])
def test_one_listener_may_require_client_certificates_and_another_not(serve, pair, tmp_path, version):
    authority = make_pair(tmp_path, "authority", "authority")
    known = make_pair(tmp_path, "known", "client", issuer=authority)
    stranger = make_pair(tmp_path, "stranger", "client")
    listen = [f"https://127.0.0.1:0{query}" for query in ("", "?client-certificate=required", "?client-certificate=optional")]
    server = serve_tls(serve, pair, client_ca=str(authority[0]), settings={"listen": listen})

    def status(index, *identity):
        host, port = server.addresses[index]
        shown = ["--cert", str(identity[0]), "--key", str(identity[1])] if identity else []
        done = subprocess.run(
            ["curl", "-sk", f"--tlsv{version}", "--tls-max", version, "-o", "/dev/null", "-w", "%{http_code}", *shown,
             f"https://{host}:{port}/token?unique_id=a"], capture_output=True, text=True, timeout=30, check=False)
        return int(done.stdout)

    assert [status(index) for index in range(3)] == [200, 0, 200]
    assert [status(index, *known) for index in range(3)] == [200, 200, 200]
    # Who is not asked for a certificate shows none.
    assert [status(index, *stranger) for index in range(3)] == [200, 0, 0]

    # A session of the listener that asks for nothing does not open the one that requires a certificate.
    session = tmp_path / "session"
    request = "GET /token HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n"
    flag = f"-tls{version.replace('.', '_')}"
    addresses = [f"{host}:{port}" for host, port in server.addresses]
    openssl("s_client", "-connect", addresses[0], flag, "-sess_out", session, "-ign_eof", text=request)
    assert "HTTP/1.1 200" in openssl("s_client", "-connect", addresses[0], flag, "-sess_in", session, "-ign_eof", text=request)
    assert "HTTP/1.1" not in openssl("s_client", "-connect", addresses[1], flag, "-sess_in", session, "-ign_eof", text=request)

    # Other authorities are taken from their file when it changes.
    shutil.copy(stranger[0], authority[0])
    until(lambda: status(1, *stranger) == 200)
    assert status(1, *known) == 0 and status(2, *known) == 0 and status(0) == 200


def certificate_client(server, identity):
    """A connection on which a client has shown its certificate."""
    context = ssl.create_default_context()
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    context.load_cert_chain(*identity)
    return context.wrap_socket(socket.create_connection(server.address, 20))


def is_answered(client):
    """Whether a request on a kept connection is answered, rather than the connection closed."""
    client.sendall(get("nobody"))
    answer = client.recv(4096)
    assert answer == b"" or answer.startswith(b"HTTP/1.1 200")
    return answer != b""


def test_replaced_authorities_end_kept_connections(serve, pair, tmp_path):
    authority = make_pair(tmp_path, "authority", "authority")
    known = make_pair(tmp_path, "known", "client", issuer=authority)
    server = serve_tls(serve, pair, client_ca=str(authority[0]))
    with certificate_client(server, known) as kept, certificate_client(server, known) as pipelining:
        assert is_answered(kept) and is_answered(pipelining)
        replace(pair, make_pair(tmp_path, "renewed"))
        server.process.send_signal(signal.SIGHUP)
        until(lambda: "certificates reloaded" in server.log())
        # Of the server's own certificate they know nothing.
        assert is_answered(kept) and is_answered(pipelining)
        replace(authority, make_pair(tmp_path, "other", "other"))
        until(lambda: "issued by \"CN=other\"" in server.log())
        assert not is_answered(kept)
        pipelining.sendall(get("nobody") * 2)
        assert pipelining.recv(4096) == b""


def test_a_kept_connection_ends_with_its_certificate(serve, pair, tmp_path):
    authority = make_pair(tmp_path, "authority", "authority")
    end = time.gmtime(time.time() + 6)
    identity = certificate_until(tmp_path, "20240101000000Z", time.strftime("%Y%m%d%H%M%SZ", end), issuer=authority)
    server = serve_tls(serve, pair, client_ca=str(authority[0]))
    with certificate_client(server, identity) as kept:
        assert is_answered(kept)
        until(lambda: not is_answered(kept))
    assert time.time() > calendar.timegm(end)


def test_authorities_are_named_and_what_is_left_out(serve, pair, tmp_path):
    root = make_pair(tmp_path, "root", "root")
    issuer = make_pair(tmp_path, "issuer", "issuing", issuer=root)
    known = make_pair(tmp_path, "known", "client", issuer=issuer)
    stranger = make_pair(tmp_path, "stranger", "client", issuer=root)
    file = tmp_path / "authorities.pem"
    file.write_text(issuer[1].read_text() + issuer[0].read_text())
    server = serve_tls(serve, pair, client_ca=str(file))
    for identity, status in ((known, 200), (stranger, 0)):
        assert curl(server, "--cert", str(identity[0]), "--key", str(identity[1]))[0] == status
    environment = clean_environment({
        "TOKEN_CACHE_LISTEN": "https://127.0.0.1:0", "TOKEN_CACHE_TLS_CERTIFICATE": str(pair[0]),
        "TOKEN_CACHE_TLS_PRIVATE_KEY": str(pair[1]), "TOKEN_CACHE_TLS_CLIENT_CA": str(file),
        "TOKEN_CACHE_DATA_DIRECTORY": str(tmp_path / "data")})
    texts = [server.log()]
    for command in ("check-config", "doctor"):
        done = subprocess.run([binary(), command, "--verbose"][:3 if command == "doctor" else 2], capture_output=True,
                              text=True, timeout=60, check=False, env=environment)
        texts.append(done.stdout + done.stderr)
    for text in texts:
        words = " ".join(text.split())
        assert "trusted if issued by \"CN=issuing\"" in words, text
        assert "left out: line 1 (it is no certificate)" in words, text


@pytest.mark.parametrize("place", ["certificate", "private_key", "client_ca"])
def test_a_pipe_is_no_certificate(tmp_path, pair, place):
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    files = {"certificate": pair[0], "private_key": pair[1], "client_ca": pair[0], place: pipe}
    environment = clean_environment({
        **NO_ADMINISTRATION, **{f"TOKEN_CACHE_TLS_{key.upper()}": str(path) for key, path in files.items()},
        "TOKEN_CACHE_LISTEN": "https://127.0.0.1:0", "TOKEN_CACHE_DATA_DIRECTORY": str(tmp_path / "data")})
    for command in ("check-config", "serve"):
        done = subprocess.run(
            [binary(), command], capture_output=True, text=True, timeout=30, check=False, env=environment)
        assert done.returncode == 1 and f"{pipe} cannot be read: it is no regular file" in done.stderr, done


def test_a_listener_that_asks_for_certificates_needs_authorities(tmp_path, pair):
    listen = "https://127.0.0.1:0?client-certificate=optional"
    done = subprocess.run(
        [binary(), "check-config"], capture_output=True, text=True, timeout=30, check=False, env=clean_environment({
            "TOKEN_CACHE_LISTEN": listen, "TOKEN_CACHE_TLS_CERTIFICATE": str(pair[0]),
            "TOKEN_CACHE_TLS_PRIVATE_KEY": str(pair[1])}))
    assert done.returncode == 1 and f"listen has {listen}, and tls.client_ca is not set" in done.stderr, done


def test_plain_http_on_a_tls_port_gets_a_readable_answer(serve, pair):
    server = serve_tls(serve, pair)
    response = exchange(server.address, get("me"))
    assert response.status == 400 and response.closes
    assert b"use https" in response.body


def test_tls_on_a_plain_port_is_closed_without_an_answer(serve):
    server = serve({"log_level": "debug"})
    assert "no peer certificate available" in s_client(server)
    until(lambda: "TLS on a plain HTTP port" in server.log())


def test_a_handshake_that_does_not_come_is_given_up(serve, pair):
    server = serve_tls(serve, pair, settings={"timeouts": {"head": "1s"}})
    before = server.open_sockets()
    clients = [socket.create_connection(server.address) for _ in range(5)]
    clients[0].sendall(b"\x16\x03\x01\x02\x00")
    # Other clients are served meanwhile.
    assert curl(server)[0] == 200
    for client in clients:
        client.settimeout(20)
        assert client.recv(100) == b""
        client.close()
    until(lambda: server.open_sockets() <= before)


def serial(server):
    """The serial number of the certificate that the server shows."""
    host, port = server.address
    return openssl("x509", "-noout", "-serial", text=ssl.get_server_certificate((host, port)))


def replace(pair, by):
    """Atomically replaces the files of one pair by those of another."""
    for old, new in zip(pair, by):
        shutil.copy(new, f"{new}.copy")
        shutil.move(f"{new}.copy", old)


@pytest.mark.parametrize("how", ["on SIGHUP", "when the files change"])
def test_certificates_are_read_again(serve, pair, tmp_path, how):
    server = serve_tls(serve, pair)
    first = serial(server)
    replace(pair, make_pair(tmp_path, "next"))
    if how == "on SIGHUP":
        server.process.send_signal(signal.SIGHUP)
    until(lambda: serial(server) != first)
    until(lambda: "certificates reloaded" in server.log())


DATES = {
    "expired": ("20240101000000Z", "20250101000000Z", "a certificate has expired: clients refuse it"),
    "not valid yet": ("20890101000000Z", "20900101000000Z", "a certificate is not valid before 2089-01-01"),
}


@pytest.mark.parametrize("start, end, text", DATES.values(), ids=DATES)
def test_a_certificate_that_clients_refuse_is_warned_of(serve, tmp_path, start, end, text):
    dated = certificate_until(tmp_path, start, end)
    server = serve_tls(serve, dated, settings={"admin": {"listen": "127.0.0.1:0"}})
    warning = re.compile(rf"warning.* {text}.*{dated[0]}", re.M)
    until(lambda: warning.search(server.log()))
    now = json.loads(exchange(server.administration[0], get("x", path="/status")).body)
    assert now["warnings"][0]["text"].startswith(text)
    server.process.send_signal(signal.SIGHUP)
    until(lambda: len(warning.findall(server.log())) == 2)
    dated[0].touch()
    until(lambda: len(warning.findall(server.log())) == 3)


def test_a_bad_pair_is_refused_and_the_old_one_stays(serve, pair, tmp_path):
    server = serve_tls(serve, pair)
    first = serial(server)
    shutil.copy(make_pair(tmp_path, "next")[1], pair[1])
    server.process.send_signal(signal.SIGHUP)
    until(lambda: "the certificates in use stay" in server.log())
    assert "does not belong to the certificate" in server.log()
    assert serial(server) == first


def test_a_reload_under_load_loses_no_request(serve, pair, tmp_path):
    server = serve_tls(serve, pair)
    context = ssl.create_default_context()
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    faults, counts, ends = [], [0] * 4, threading.Event()

    def ask(number):
        """Sends half of the requests on one connection, and each of the others on a new one."""
        try:
            with context.wrap_socket(socket.create_connection(server.address, 20)) as kept:
                while not ends.is_set():
                    for client in (kept, context.wrap_socket(socket.create_connection(server.address, 20))):
                        client.sendall(get("nobody"))
                        assert client.recv(4096).startswith(b"HTTP/1.1 200")
                        counts[number] += 1
                        if client is not kept:
                            client.close()
        except (OSError, AssertionError) as error:
            faults.append(repr(error))

    threads = [threading.Thread(target=ask, args=(number,)) for number in range(4)]
    for thread in threads:
        thread.start()
    for number in range(5):
        replace(pair, make_pair(tmp_path, f"next{number}"))
        server.process.send_signal(signal.SIGHUP)
        time.sleep(0.1)
    ends.set()
    for thread in threads:
        thread.join(20)
    assert not faults and min(counts) > 10
    assert server.stop() == 0


def test_a_stop_answers_what_was_received_over_tls(serve, pair):
    server = serve_tls(serve, pair)
    context = ssl.create_default_context()
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    with context.wrap_socket(socket.create_connection(server.address, 20)) as client:
        client.sendall(get("nobody")[:-2])
        server.send_signal()
        until(lambda: server.is_running())
        time.sleep(0.2)
        client.sendall(get("nobody")[-2:])
        assert b"Connection: close" in client.recv(4096)
    assert server.wait() == 0


def test_the_proxys_header_comes_before_the_handshake(serve, pair):
    settings = {**tls_settings(pair), "listen": "https://127.0.0.1:0?proxy-protocol=required", "access_log": "combined"}
    server = serve(settings)
    context = ssl.create_default_context()
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    client = socket.create_connection(server.address, 20)
    client.sendall(b"PROXY TCP4 203.0.113.9 127.0.0.1 1 2\r\n")
    with context.wrap_socket(client) as client:
        client.sendall(post("me", "x"))
        assert client.recv(4096).endswith(STORED)
    until(lambda: server.output().startswith("203.0.113.9 "))


@pytest.mark.parametrize("fault, message", [
    ("no file", "cannot be read"), ("no key", "holds no usable private key"), ("other key", "does not belong to"),
])
def test_certificates_that_cannot_be_used_stop_the_start(tmp_path, pair, fault, message):
    key = {"no file": tmp_path / "missing", "no key": pair[0], "other key": make_pair(tmp_path, "other")[1]}[fault]
    result = subprocess.run(
        [binary(), "serve", "--listen", "https://127.0.0.1:0", "--data-directory", str(tmp_path / "data")],
        env=clean_environment({**NO_ADMINISTRATION, "TOKEN_CACHE_TLS_CERTIFICATE": str(pair[0]), "TOKEN_CACHE_TLS_PRIVATE_KEY": str(key)}),
        capture_output=True, text=True, timeout=30, check=False,
    )
    assert result.returncode == 1
    assert str(key) in result.stderr and message in result.stderr
    assert "PRIVATE" not in result.stderr
