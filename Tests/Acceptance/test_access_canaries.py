"""Users, sessions, API keys, JWTs and tokens are told to nobody: not to files, logs, metrics, pages, commands and errors."""
import base64
import json
import socket
from pathlib import Path

import pytest

from access import API, api_request, bearer, bearer_settings, fetch, session_settings, store
from access_worlds import HEADER
from contract import STORED, found
from http_client import Connection, exchange, lines
from issuer import Issuer
from server_process import NO_ADMINISTRATION, run
from test_canaries import base64_cores, percent

USER, TOKEN = "canary-user-4711", "canary-token-4711"


def traces(secrets, data):
    """The secrets that occur in some bytes, as they are or in a usual encoding."""
    text = data.decode("latin-1").lower()
    found_in = []
    for secret in secrets:
        forms = [secret, percent(secret), secret.encode().hex(), *base64_cores(secret)]
        if secret[:4] in ("tcs_", "tck_"):
            # The random bits alone.
            bits = base64.urlsafe_b64decode(secret[4:] + "=")
            forms += [secret[4:], bits.hex(), bits.decode("latin-1"), *base64_cores(bits.decode("latin-1"))]
        found_in += [secret[:12] for form in forms if form.lower() in text]
    return found_in


def asked_of_operators(server):
    """All that the server tells its operators."""
    for path in ("/", "/status", "/history", "/log", "/settings", "/metrics", "/readyz"):
        with Connection(server.administration[0]) as connection:
            connection.send(fetch("Connection: close", path=path))
            yield path, connection.receive_to_end()
    flags = ["--config", str(server.folder / "token-cache.yaml")]
    for command in (["stats"], ["stats", "--json"], ["list"], ["verify"], ["keyring", "list"], ["doctor"], ["doctor", "--json"],
                    ["check-config"]):
        done = run(*command, *flags, environment={"TOKEN_CACHE_LISTEN": "127.0.0.1:0", **NO_ADMINISTRATION})
        yield " ".join(command), (done.stdout + done.stderr).encode()


def check_nowhere(server, secrets, folder, *files):
    """Looks into everything that the server has written, running and stopped, and into some more files."""
    for place, data in asked_of_operators(server):
        assert not traces(secrets, data), place
    process = Path(f"/proc/{server.process.pid}")
    for file in (process / "cmdline", process / "environ", *process.glob("task/*/comm")):
        assert not traces(secrets, file.read_bytes()), file
    running = {file: file.read_bytes() for file in server.data.iterdir() if file.is_file()}
    server.process.send_signal(1)
    assert server.stop() == 0
    logs = [folder / name for name in ("access.log", "audit.ndjson", "first.key")]
    assert all(file.stat().st_size > 0 for file in logs)
    for file in (*server.data.iterdir(), *server.folder.iterdir(), *logs, *files):
        if file.is_file():
            assert not traces(secrets, file.read_bytes()), file
            assert not traces(secrets, running.get(file, b"")), file


LOGS = {"text": {"log_format": "text", "log_level": "trace", "access_log": "combined"},
        "json": {"log_format": "json", "log_level": "trace", "access_log": "json"}}


def told(tmp_path, logs):
    """Settings with which the server writes everything that it can write, and the options for them."""
    made = run("audit", "key", str(tmp_path / "first.key"), "--data-directory", str(tmp_path / "data"))
    assert made.returncode == 0, made.stderr
    return {**logs, "admin": {"listen": "127.0.0.1:0"}, "access_log_file": str(tmp_path / "access.log"),
            "audit": {"file": str(tmp_path / "audit.ndjson"), "events": "all"}}


@pytest.mark.parametrize("logs", LOGS.values(), ids=LOGS)
def test_mode_session(serve, tmp_path, logs):
    settings, key = session_settings(tmp_path / "keys")
    server = serve({**settings, **told(tmp_path, logs)}, data=tmp_path / "data")
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
    check_nowhere(server, secrets, tmp_path, *(tmp_path / "keys").iterdir())


def test_an_erased_user_is_in_no_file(serve, tmp_path):
    """Not even encrypted: the row's key is gone from all pages, so the files of a user who comes back differ."""
    settings, key = session_settings(tmp_path / "keys")
    server = serve({**settings, "sealing": {"enabled": "off"}})
    api = API(server, key)
    session = api.session(USER)
    for number in range(20):
        assert exchange(server.address, store(f"{TOKEN} {number} " + "x" * 9000, bearer(session))).body == STORED
    assert any(traces([USER], file.read_bytes()) for file in server.data.iterdir() if file.is_file())
    api.erase(USER)
    for file in server.data.iterdir():
        if file.is_file():
            assert not traces([USER, TOKEN, session], file.read_bytes()), file


def test_mode_bearer(serve, tmp_path):
    issuer, file = Issuer(), tmp_path / "keys.json"
    settings = bearer_settings(file, issuer, in_unique_id="on")
    server = serve({**settings, **told(tmp_path, LOGS["text"])}, data=tmp_path / "data")
    token, other = issuer.token(USER), Issuer().token(USER)
    parts = [part for text in (token, other) for part in text.split(".")[1:]]
    assert exchange(server.address, store(TOKEN, unique_id=token)).body == STORED
    for data in (fetch(bearer(token), unique_id="other"), fetch(bearer(other)), fetch(unique_id=other), fetch(bearer(token[:-1])),
                 fetch(bearer(token), unique_id=issuer.token("ben")), fetch(bearer(token), 'If-Match: "1"'),
                 fetch(bearer(issuer.token(USER, crit=["x"], header={"crit": [USER]}))),
                 fetch(bearer(issuer.token(USER, header={"kid": USER}))), fetch(bearer(issuer.token(USER, aud=USER)))):
        response = exchange(server.address, data)
        assert not traces([USER, TOKEN, *parts], json.dumps(response.headers).encode() + response.body)
    check_nowhere(server, [USER, TOKEN, *parts], tmp_path)


def test_mode_header(serve, tmp_path):
    server = serve({**HEADER, **told(tmp_path, LOGS["json"])}, data=tmp_path / "data")
    assert exchange(server.address, store(TOKEN, f"Remote-User: {USER}")).body == STORED
    for fields in ([f"Remote-User: {USER}", "Remote-User: a"], [f"Remote-User: <{USER}>"], [f"Remote_User: {USER}"]):
        response = exchange(server.address, fetch(*fields))
        assert response.status >= 400 and not traces([USER], response.body)
    assert not traces([USER], exchange(server.address, fetch("Remote-User: a", unique_id=USER)).body)
    check_nowhere(server, [USER, TOKEN], tmp_path)
