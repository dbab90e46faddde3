"""The image and the Compose file refer to existing files, are pinned and hardened, and their settings are allowed and consistent."""
import ipaddress
import json
import re
import subprocess
from pathlib import Path

import pytest

from server_process import binary, run

yaml = pytest.importorskip("yaml", reason="there is no python3-yaml")

DEPLOY = Path(__file__).parents[2] / "deploy"
DOCKER = DEPLOY / "docker"


def load(path):
    return yaml.safe_load(path.read_text())


def effective(text="", folder=None, environment=None):
    """The settings in effect with a file and variables."""
    flags = []
    if text:
        file = folder / "settings.yaml"
        file.write_text(text)
        flags = ["--config", str(file)]
    done = run("check-config", *flags, environment=environment)
    assert done.returncode == 0, done.stderr
    return dict(line.split(": ", 1) for line in done.stdout.splitlines())


def seconds(text):
    """A time as Compose and the server write it, in seconds."""
    return int(re.fullmatch(r"([0-9]+)s", text)[1])


# Docker

@pytest.fixture(name="stages", scope="module")
def dockerfile_stages():
    """The instructions of each build stage, as names and arguments."""
    text = re.sub(r"^#.*\n", "", (DOCKER / "Dockerfile").read_text(), flags=re.M).replace("\\\n", " ")
    instructions = [line.split(maxsplit=1) for line in text.splitlines() if line.strip()]
    stages = []
    for name, rest in instructions:
        # ARG before the first stage is for the images' names.
        if name == "ARG" and not stages:
            continue
        if name == "FROM":
            stages.append([])
        stages[-1].append((name, rest))
    return stages


def test_what_the_image_copies_is_there_and_gets_into_the_build(stages):
    ignored = (DOCKER / "Dockerfile.dockerignore").read_text().splitlines()
    sources = [
        source for stage in stages for name, rest in stage if name == "COPY" and not rest.startswith("--from")
        for source in rest.split()[:-1]]
    assert "Sources" in sources and ignored[1] == "*"
    for source in sources:
        assert (DEPLOY.parent / source).exists()
        assert f"!{source}" in ignored


def test_the_image_runs_as_a_user_without_rights_on_its_volume(stages):
    final = dict(stages[-1])
    user = final["USER"].split(":")[0]
    assert int(user) > 0
    assert f"--owner={user} " in final["RUN"] and final["VOLUME"] in final["RUN"]
    assert final["VOLUME"].split()[0] == "/var/lib/token-cache"
    assert json.loads(final["ENTRYPOINT"]) == ["/usr/bin/token-cache"]
    assert final["ENV"] == f"SQLITE_TMPDIR={final['VOLUME'].split()[0]}"


def test_the_image_has_the_libraries_that_the_program_needs(stages):
    final = dict(stages[-1])
    linked = subprocess.run(["ldd", binary()], capture_output=True, text=True, check=True).stdout
    for library, package in {"libsqlite3": "libsqlite3-0", "libssl": "libssl3", "libyaml": "libyaml-0-2", "libstdc++": "libstdc++6"}.items():
        assert library in linked and f" {package} " in final["RUN"]
    known = r"libsqlite3|libyaml-0|libssl|libcrypto|libstdc\+\+|libgcc_s|libc|libm|linux-vdso|libpthread|libdl|librt|libresolv"
    names = [line.split()[0].split(".so")[0] for line in linked.splitlines() if not line.strip().startswith("/")]
    assert not [name for name in names if not re.fullmatch(known, name)]


def test_the_image_with_postgresql_has_one_library_more(stages, postgres_binary):
    def needed(program):
        """Leaves out Swift's own libraries: deploy/build puts them into the program, a debug build loads them."""
        listed = subprocess.run(["objdump", "--private-headers", program], capture_output=True, text=True, check=True)
        places = subprocess.run(["ldd", program], capture_output=True, text=True, check=True).stdout
        of_swift = set(re.findall(r"(\S+) => \S*/swift/", places)) | {"libstdc++.so.6", "libgcc_s.so.1"}
        return set(re.findall(r"NEEDED +(\S+)", listed.stdout)) - of_swift

    assert needed(postgres_binary) - needed(binary()) == {"libpq.so.5"}
    assert "${TRAITS:+libpq5 " in dict(stages[-1])["RUN"] and "${TRAITS:+libpq-dev}" in dict(stages[0][:4])["RUN"]


def test_the_settings_of_the_image_are_accepted_and_fit_it(stages, tmp_path):
    text = (DEPLOY.parent / "config" / "token-cache.yaml").read_text()
    edits = next(rest for name, rest in stages[0] if name == "RUN" and rest.startswith("sed"))
    expressions = re.findall(r"--expression '([^']+)'", edits)
    edited = subprocess.run(
        ["sed", *(f"--expression={expression}" for expression in expressions)], input=text, capture_output=True,
        text=True, check=True).stdout
    settings, final = effective(edited, tmp_path), dict(stages[-1])
    differing = dict(settings.items() - effective().items())
    assert differing == {"listen": "[0.0.0.0:8080]", "data_directory": final["VOLUME"].split()[0]}
    assert final["EXPOSE"].split() == ["8080", "9090"]
    command = json.loads(final["CMD"])
    assert command[:2] == ["serve", "--config"] and edits.split()[-1] == command[2]


def test_the_image_is_made_as_linters_want_it(stages):
    """The rules of hadolint that matter here."""
    text = (DOCKER / "Dockerfile").read_text()
    images = dict(re.findall(r"^ARG (\w+_IMAGE)=(\S+)$", text, re.M))
    assert [rest.split()[0] for stage in stages for name, rest in stage if name == "FROM"] == [f"${{{name}}}" for name in images]
    for image in images.values():
        assert re.fullmatch(r"[a-z]+:[\w.-]+", image) and not image.endswith(":latest")
    for stage in stages:
        for name, rest in stage:
            assert name not in ("ADD", "MAINTAINER"), "COPY says what it does"
            if name == "RUN" and "apt-get" in rest:
                assert "apt-get update" in rest and "--no-install-recommends" in rest and "rm -rf /var/lib/apt/lists/*" in rest
            if name == "WORKDIR":
                assert rest.startswith("/")
            assert "sudo" not in rest and "curl" not in rest
    names = [name for name, _ in stages[-1]]
    assert names.index("USER") < names.index("ENTRYPOINT") and "HEALTHCHECK" in names
    assert not [rest for name, rest in stages[-1] if name in ("ENTRYPOINT", "CMD") and not rest.startswith("[")]


def test_the_health_check_of_the_image_is_the_command_for_it(stages, serve):
    command = json.loads(re.search(r"CMD (\[.*\])", dict(stages[-1])["HEALTHCHECK"])[1])
    assert command[-2:] == json.loads(dict(stages[-1])["CMD"])[-2:]
    server = serve({"admin": {"listen": "127.0.0.1:0"}})
    arguments = [*command[1:-1], str(server.folder / "token-cache.yaml")]
    assert run(*arguments).returncode == 0
    server.stop()
    assert run(*arguments).returncode == 1


def test_what_is_published_without_a_proxy_is_answered_with_the_variable_that_the_dockerfile_names(serve):
    text = (DOCKER / "Dockerfile").read_text()
    name, value = re.search(r"--env (TOKEN_CACHE_HTTPS_MODE)=(\w+)", text).groups()
    assert effective(environment={name: value})["https.mode"] == value == "off"
    assert f"--env {name}={value}" in (DEPLOY / "kubernetes" / "README.md").read_text(encoding="utf-8")


def test_compose_puts_nginx_in_front():
    compose = load(DOCKER / "compose.yaml")
    server, nginx = compose["services"]["token-cache"], compose["services"]["nginx"]
    settings = effective(environment=server["environment"])
    assert "network_mode" not in nginx and "ports" not in server
    # Both have addresses that stay the same, in a network of their own without a way out.
    addresses = {name: service["networks"]["proxy"]["ipv4_address"] for name, service in compose["services"].items()}
    network = compose["networks"]["proxy"]
    subnet = ipaddress.ip_network(network["ipam"]["config"][0]["subnet"])
    assert network["internal"] and all(ipaddress.ip_address(address) in subnet for address in addresses.values())
    assert settings["trusted_proxies"] == f"[{addresses['nginx']}]" and settings["listen"] == "[0.0.0.0:8080]"
    # What nginx reads is the site of this folder with the server's address.
    source, place, _ = nginx["volumes"][0].split(":")
    site = (DOCKER / source).resolve()
    assert site == DEPLOY / "nginx" / "token-cache.conf" and place == "/site.conf"
    expressions = re.findall(r"-e '([^']+)'", nginx["command"][2])
    made = subprocess.run(
        ["sed", *(f"--expression={expression}" for expression in expressions)], input=site.read_text(), capture_output=True,
        text=True, check=True).stdout
    assert f"server {addresses['token-cache']}:8080;" in made and "127.0.0.1:8080" not in made
    assert "/var/log" not in made
    assert set(re.findall(r"access_log (/\S+)", made)) == {"/dev/stdout"}
    listened = set(re.findall(r"listen (?:\[::\]:)?([0-9]+)", made))
    assert {port.split(":")[1] for port in nginx["ports"]} == listened
    tls = nginx["volumes"][1].split(":")[1]
    for path in re.findall(r"ssl_certificate(?:_key)? ([^;]+);", made):
        assert path.startswith(f"{tls}/") and Path(path).name in (DOCKER / "compose.yaml").read_text()


def test_compose_keeps_both_in_bounds(stages):
    compose = load(DOCKER / "compose.yaml")
    server, nginx, settings = compose["services"]["token-cache"], compose["services"]["nginx"], effective()
    places = dict(volume.split(":") for volume in server["volumes"])
    assert set(places) == set(compose["volumes"]) and list(places.values()) == dict(stages[-1])["VOLUME"].split()
    for service in server, nginx:
        assert service["read_only"] and service["cap_drop"] == ["ALL"]
        assert service["security_opt"] == ["no-new-privileges:true"]
        assert service["logging"]["options"]["max-size"]
    assert "cap_add" not in server and "NET_ADMIN" not in nginx["cap_add"]
    assert all("size=" in place for place in nginx["tmpfs"])
    # nginx starts when the server is ready, and both are watched: the server by the image's own check.
    assert nginx["depends_on"]["token-cache"]["condition"] == "service_healthy"
    assert nginx["healthcheck"]["test"][-1] == "http://127.0.0.1/healthz"
    assert seconds(server["stop_grace_period"]) > seconds(settings["drain_timeout"]) + 5
    assert server["ulimits"]["nofile"] > int(settings["limits.connections"])
    build = server["build"]
    assert (DOCKER / build["context"] / build["dockerfile"]).resolve() == DOCKER / "Dockerfile"
