"""config/openapi.yaml describes what the server does: schemathesis generates requests from it and checks the answers."""
import functools
import json
import re
import subprocess
from pathlib import Path

import pytest

from access import API, api_request, bearer, session_settings, write_app_secret
from administration import ADMINISTRATION, fetched, steer
from contract import fresh_id
from http_client import exchange, get, lines, post
from server_process import clean_environment, run

yaml = pytest.importorskip("yaml", reason="there is no python3-yaml")

FILE = Path(__file__).parents[2] / "config" / "openapi.yaml"
CHECKS = "not_a_server_error,status_code_conformance,content_type_conformance,response_headers_conformance," \
    "response_schema_conformance"


@pytest.fixture(name="schemathesis")
def installed_schemathesis(python_package):
    return python_package("schemathesis==4.32.5") / "bin/schemathesis"


def check(schemathesis, folder, base, tag, is_long, *options):
    """Tests all operations of a tag, and returns their number."""
    done = subprocess.run(
        [schemathesis, "run", FILE, "--url", base, "--include-tag", tag, "--checks", CHECKS, "--max-redirects", "0",
         "--seed", "6", "--max-examples", "500" if is_long else "10", "--phases", "examples,coverage,fuzzing", "--no-color",
         "--generation-database", "none", "--warnings", "off", "--suppress-health-check", "all", *options],
        capture_output=True, text=True, timeout=600, cwd=folder, check=False,
        env=clean_environment({"HOME": str(folder)}),
    )
    assert done.returncode == 0, done.stdout[-5000:] + done.stderr[-2000:]
    tested = re.search(r"Tested: (\d+)", done.stdout)
    assert tested, done.stdout[-3000:]
    return int(tested[1])


@pytest.mark.parametrize("tag, operations", [("tokens", 8), ("backend", 14), ("facebook", 3), ("administration", 8)])
def test_nobody_gets_an_answer_that_is_undocumented(serve, schemathesis, tmp_path, is_long, tag, operations):
    settings, key = session_settings(tmp_path / "keys")
    secret = write_app_secret(tmp_path / "app-secret")
    server = serve({**ADMINISTRATION, **secret, **(settings if tag == "backend" else {"json_bodies": "on"})})
    base = "http://{}:{}".format(*server.administration[0]) if tag == "administration" else server.base
    assert check(schemathesis, tmp_path, base, tag, is_long, *(["--header", bearer(key)] if tag == "backend" else [])) == operations
    assert "requested by" not in server.log()


def test_generators_of_clients_can_read_it():
    # openapi-generator 7.26 reads no more than 50 aliases, leaves out path items in components, and has no type for a mere `const`.
    text, document = FILE.read_text(), description()
    assert len(re.findall(r"(?<=[\s\[])\*\w+", text)) <= 50 and "const:" not in text and "pathItems" not in document["components"]
    names = [operation["operationId"] for item in document["paths"].values() for operation in item.values()
             if "operationId" in operation]
    assert len(set(names)) == len(names) == 28


@pytest.mark.parametrize("field, statuses", [("X-Forwarded-Proto: http", {302, 308}), ("Origin: https://evil.example", {403})])
def test_what_comes_over_plain_http_gets_a_documented_answer(serve, tmp_path, field, statuses):
    settings, key = session_settings(tmp_path / "keys")
    server, document = serve({**settings, **write_app_secret(tmp_path / "app-secret")}), description()
    for path, item in document["paths"].items():
        for method, operation in resolved(document, item).items():
            if method in ("servers", "parameters") or operation["tags"] == ["administration"]:
                continue
            request = api_request(key, method.upper(), path.replace("{", "").replace("}", ""), None, field)
            response = exchange(server.address, request, method.upper())
            assert response.status in statuses, (method, path)
            assert str(response.status) in operation["responses"], (method, path)


@functools.cache
def description():
    return yaml.load(FILE.read_text(encoding="utf-8"), yaml.CSafeLoader)


def resolved(document, node):
    """A node, after following its references."""
    while "$ref" in node:
        target = document
        for part in node["$ref"].removeprefix("#/").split("/"):
            target = target[part]
        node = target
    return node


def example(document, path, method, status, name=None):
    """The example of an answer in the file."""
    answer = resolved(document, resolved(document, document["paths"][path])[method]["responses"][status])
    # If there are several formats, one has examples.
    content, = (content for content in answer["content"].values() if content.keys() & {"example", "examples"})
    return content["examples"][name]["value"] if name else content["example"]


def test_the_examples_are_what_the_server_answers(serve):
    """The examples for clients and operators, except those of a failing disk and a stop."""
    server, document, unique_id = serve(ADMINISTRATION), description(), fresh_id()

    def of_administration(start, host="localhost"):
        return lines(start, *([f"Host: {host}"] if host else []))

    for request, path, method, status, name in [
        (post(unique_id, "hello"), "/token", "post", "200", "stored"), (get(unique_id), "/token", "get", "200", "found"),
        (get("nobody"), "/token", "get", "200", "nothing"), (get(""), "/token", "get", "200", "noID"),
        (post("", "a"), "/token", "post", "200", "noID"),
        (lines("DELETE /token HTTP/1.1", "Host: a"), "/token", "delete", "200", "delete"),
        (lines("GET /token HTTP/1.1"), "/token", "get", "400", None),
        (get("a", "Origin: https://evil.example"), "/token", "get", "403", None),
        (lines("GET /token HTTP/1.1", "Host: evil.example"), "/token", "get", "421", None),
        (of_administration("GET /healthz HTTP/1.1"), "/healthz", "get", "200", "alive"),
        (of_administration("GET /readyz HTTP/1.1"), "/readyz", "get", "200", "ready"),
        (of_administration("GET /healthz HTTP/1.1", None), "/healthz", "get", "400", None),
        (of_administration("POST /healthz HTTP/1.1"), "/healthz", "get", "405", None),
        (of_administration("GET /healthz HTTP/1.1", "pages.example"), "/healthz", "get", "421", None),
    ]:
        address = server.address if path == "/token" else server.administration[0]
        response = exchange(address, request)
        assert response.status == int(status)
        assert json.loads(response.body) == example(document, path, method, status, name), (path, method, name)
    assert example(document, "/metrics", "get", "200", "ready") in fetched(server.administration[0], "/metrics").body.decode()
    assert steer(server, "/reload") == (200, example(document, "/reload", "post", "200", "nothing"))


def test_the_examples_for_backends_are_what_the_server_answers(serve, tmp_path):
    settings, key = session_settings(tmp_path / "keys")
    api, document = API(serve(settings), key), description()

    def shape(value):
        """A value without what differs from one server to another."""
        if isinstance(value, dict):
            return {name: shape(inner) if name not in ("session", "id", "created_at", "expires_at", "last_used_at") else type(inner)
                    for name, inner in value.items()}
        return list(map(shape, value)) if isinstance(value, list) else value

    made = api.make_session("1001")
    requests = [("GET", "/v1/users/{user}/sessions", "one"), ("PUT", "/v1/users/{user}/token", "stored"),
                ("GET", "/v1/users/{user}/token", "found"), ("DELETE", "/v1/users/{user}/token", "deleted"),
                ("DELETE", "/v1/sessions/{id}", "ended")]
    assert shape(made) == shape(example(document, "/v1/sessions", "post", "201", "made"))
    for method, path, name in requests:
        real = path.replace("{user}", "1001").replace("{id}", made["id"])
        fields = ["If-None-Match: *"] if method == "PUT" else []
        body = {"token_info": "hello"} if method == "PUT" else None
        response = exchange(api.server.address, api_request(key, method, real, body, *fields))
        assert shape(json.loads(response.body)) == shape(example(document, path, method.lower(), "200", name)), path
    for path, name in (("/v1/users/{user}/sessions", "ended"), ("/v1/users/{user}", "erased")):
        api.make_session("1001"), api.make_session("1001"), api.put("1001", "hello", "If-None-Match: *")
        response = api.call("DELETE", path.replace("{user}", "1001"))
        assert json.loads(response.body) == example(document, path, "delete", "200", name)


def test_it_names_the_servers_own_paths(serve):
    document = description()
    by_tag = {"tokens": [], "backend": [], "facebook": [], "administration": []}
    for path, item in document["paths"].items():
        operations = [value for name, value in resolved(document, item).items() if name not in ("servers", "parameters")]
        by_tag[operations[0]["tags"][0]].append(path)
    # The other one is the same.
    assert by_tag["tokens"] == ["/token"] and "paths: [/token, /token.php]" in run("check-config").stdout
    server = serve(ADMINISTRATION)
    message = json.loads(exchange(server.administration[0], lines("GET /x HTTP/1.1", "Host: localhost")).body)["error"]
    assert message.endswith(", ".join(by_tag["administration"]))
