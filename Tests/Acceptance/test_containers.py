"""The files for containers refer to existing files, and their settings are allowed and consistent."""
import json
import re
import shutil
import subprocess
from pathlib import Path

import pytest

from server_process import binary, run

yaml = pytest.importorskip("yaml", reason="there is no python3-yaml")

DEPLOY = Path(__file__).parents[2] / "deploy"
DOCKER = DEPLOY / "docker"
KUBERNETES = DEPLOY / "kubernetes"
CREDENTIAL = re.search(
    r'credentialName = "([^"]+)"', (DEPLOY.parent / "Sources/TokenStore/Sealing/KeyRingFile.swift").read_text())[1]


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
    assert json.loads(final["ENTRYPOINT"]) == ["/usr/bin/token-cache"]
    assert final["ENV"] == f"SQLITE_TMPDIR={final['VOLUME']}"


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
        listed = subprocess.run(["objdump", "--private-headers", program], capture_output=True, text=True, check=True)
        return {name for name in re.findall(r"NEEDED +(\S+)", listed.stdout) if "swift" not in name.lower()}

    assert needed(postgres_binary) - needed(binary()) == {"libpq.so.5"}
    assert "${TRAITS:+libpq5 " in dict(stages[-1])["RUN"] and "${TRAITS:+libpq-dev}" in dict(stages[0][:3])["RUN"]


def test_the_settings_of_the_image_are_accepted_and_fit_it(stages, tmp_path):
    text = (DEPLOY.parent / "config" / "token-cache.yaml").read_text()
    edits = next(rest for name, rest in stages[0] if name == "RUN" and rest.startswith("sed"))
    expressions = re.findall(r"--expression '([^']+)'", edits)
    edited = subprocess.run(
        ["sed", *(f"--expression={expression}" for expression in expressions)], input=text, capture_output=True,
        text=True, check=True).stdout
    settings, final = effective(edited, tmp_path), dict(stages[-1])
    differing = dict(settings.items() - effective().items())
    assert differing == {"listen": "[0.0.0.0:8080]", "data_directory": final["VOLUME"]}
    assert final["EXPOSE"].split() == ["8080", "9090"]
    command = json.loads(final["CMD"])
    assert command[:2] == ["serve", "--config"] and edits.split()[-1] == command[2]


def test_compose_puts_nginx_in_front(stages):
    services = load(DOCKER / "compose.yaml")["services"]
    server, nginx = services["token-cache"], services["nginx"]
    settings = effective(environment=server["environment"])
    site = (DOCKER / nginx["volumes"][0].split(":")[0]).resolve()
    assert site == DEPLOY / "nginx" / "token-cache.conf"
    # The containers share a network, so that the proxy's file needs no other address.
    assert nginx["network_mode"] == "service:token-cache"
    assert f"[{re.search(r'server ([0-9.:]+);', site.read_text())[1]}]" == settings["listen"]
    assert "ports" not in nginx
    listened = set(re.findall(r"listen (?:\[::\]:)?([0-9]+)", site.read_text()))
    assert {port.split(":")[1] for port in server["ports"]} == listened
    tls = nginx["volumes"][1].split(":")[1]
    for path in re.findall(r"ssl_certificate(?:_key)? ([^;]+);", site.read_text()):
        assert path.startswith(f"{tls}/") and Path(path).name in (DOCKER / "compose.yaml").read_text()


def test_compose_keeps_the_server_in_bounds(stages):
    compose = load(DOCKER / "compose.yaml")
    server, settings = compose["services"]["token-cache"], effective()
    volume, place = server["volumes"][0].split(":")
    assert volume in compose["volumes"] and place == dict(stages[-1])["VOLUME"]
    assert server["read_only"] and server["cap_drop"] == ["ALL"]
    assert seconds(server["stop_grace_period"]) > seconds(settings["drain_timeout"]) + 5
    assert server["ulimits"]["nofile"] > int(settings["limits.connections"])
    build = server["build"]
    assert (DOCKER / build["context"] / build["dockerfile"]).resolve() == DOCKER / "Dockerfile"


# Kubernetes

@pytest.fixture(name="objects", scope="module")
def kubernetes_objects():
    """The objects by kind."""
    found = [load(KUBERNETES / name) for name in load(KUBERNETES / "kustomization.yaml")["resources"]]
    assert len({item["kind"] for item in found}) == len(found)
    return {item["kind"]: item for item in found}


@pytest.fixture(name="pod")
def pod_template(objects):
    return objects["StatefulSet"]["spec"]["template"]["spec"]


@pytest.fixture(name="settings")
def pod_settings(tmp_path):
    text = (KUBERNETES / "settings.yaml").read_text()
    if not any(key.startswith("admin") for key in effective()):
        pytest.skip("this server has no admin listener")
    return effective(text, tmp_path)


def test_every_file_for_kubernetes_is_used(objects):
    kustomization = load(KUBERNETES / "kustomization.yaml")
    files = [entry.split("=")[1] for generator in kustomization["configMapGenerator"] for entry in generator["files"]]
    offered = re.search(r"^# components: \[(.*)\]$", (KUBERNETES / "kustomization.yaml").read_text(), re.M)[1]
    used = {"kustomization.yaml", *kustomization["resources"], *files, offered}
    assert {path.name for path in KUBERNETES.iterdir()} == used
    component = load(KUBERNETES / offered / "kustomization.yaml")
    assert component["kind"] == "Component"
    assert {path.name for path in (KUBERNETES / offered).iterdir()} == {"kustomization.yaml", *component["resources"]}


def patched(item, operations):
    """A copy of an object with a patch (RFC 6902)."""
    item = json.loads(json.dumps(item))
    for operation in operations:
        *parents, last = operation["path"].split("/")[1:]
        place = item
        for name in parents:
            place = place[int(name) if isinstance(place, list) else name]
        if isinstance(place, list) and last == "-":
            assert operation["op"] == "add"
            place.append(operation["value"])
        elif operation["op"] == "add":
            assert last not in place, operation
            place[last] = operation["value"]
        elif operation["op"] == "replace":
            assert last in place, operation
            place[last] = operation["value"]
        elif operation["op"] == "test":
            assert place[last] == operation["value"], operation
        else:
            assert operation["op"] == "remove", operation
            del place[last]
    return item


def test_pods_that_share_a_database_have_nothing_of_their_own(objects, tmp_path):
    component = load(KUBERNETES / "postgresql" / "kustomization.yaml")
    patches = {patch["target"]["kind"]: yaml.safe_load(patch["patch"]) for patch in component["patches"]}
    made = {kind: patched(objects[kind], operations) for kind, operations in patches.items()}
    spec = made["StatefulSet"]["spec"]
    pod = spec["template"]["spec"]
    assert spec["replicas"] > 1 and "volumeClaimTemplates" not in spec
    volumes = {volume["name"]: volume for volume in pod["volumes"]}
    mounts = {mount["name"]: mount["mountPath"] for mount in pod["containers"][0]["volumeMounts"]}
    assert volumes.keys() == mounts.keys() and not volumes["keys"]["secret"]["optional"]
    ports = {port["port"] for rule in made["NetworkPolicy"]["spec"]["egress"] for port in rule["ports"]}
    assert ports == {5432, 53}
    labels = spec["template"]["metadata"]["labels"]
    budget = load(KUBERNETES / "postgresql" / "disruption-budget.yaml")["spec"]
    assert budget["selector"]["matchLabels"] == labels
    assert pod["topologySpreadConstraints"][0]["labelSelector"]["matchLabels"] == labels
    # What the comments offer.
    text = (KUBERNETES / "settings.yaml").read_text()
    url = yaml.safe_load(re.sub(r"^# (store:|  url:)", r"\1", text, flags=re.M))["store"]["url"]
    assert f"sslrootcert={mounts['database']}/ca.pem" in url
    instructions = (KUBERNETES / "kustomization.yaml").read_text()
    assert f"secret generic {volumes['keys']['secret']['secretName']} --from-file={CREDENTIAL}" in instructions
    assert f"configmap {volumes['database']['configMap']['name']} --from-file=ca.pem" in instructions


@pytest.mark.skipif(not shutil.which("kubectl"), reason="there is no kubectl")
def test_kustomize_makes_objects_that_know_one_another():
    done = subprocess.run(
        ["kubectl", "kustomize", str(KUBERNETES)], capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 0, done.stderr
    made = {item["kind"]: item for item in yaml.safe_load_all(done.stdout)}
    pod = made["StatefulSet"]["spec"]["template"]["spec"]
    settings = next(volume for volume in pod["volumes"] if volume["name"] == "settings")
    assert settings["configMap"]["name"] == made["ConfigMap"]["metadata"]["name"] != "token-cache"
    assert pod["containers"][0]["image"].startswith("registry.example.com/token-cache:")


def test_settings_other_than_the_admin_listener_are_accepted(pod, tmp_path):
    text = (KUBERNETES / "settings.yaml").read_text()
    settings = effective(re.sub(r"^admin:\n  .*\n", "", text, flags=re.M), tmp_path)
    container = pod["containers"][0]
    ports = {port["name"]: port["containerPort"] for port in container["ports"]}
    mounts = {mount["name"]: mount["mountPath"] for mount in container["volumeMounts"]}
    assert settings["listen"] == f"[0.0.0.0:{ports['http']}]"
    assert settings["data_directory"] == mounts["tokens"]
    assert pod["terminationGracePeriodSeconds"] > seconds(settings["drain_timeout"]) + 5


def test_the_settings_of_the_pod_are_accepted(settings, pod):
    assert settings["admin.listen"].strip("[]") == "0.0.0.0:9090"


def test_the_settings_are_where_the_command_looks_for_them(pod):
    container = pod["containers"][0]
    generator = load(KUBERNETES / "kustomization.yaml")["configMapGenerator"][0]
    mount = next(mount["mountPath"] for mount in container["volumeMounts"] if mount["name"] == "settings")
    assert container["args"] == ["serve", "--config", f"{mount}/{generator['files'][0].split('=')[0]}"]
    volume = next(volume for volume in pod["volumes"] if volume["name"] == "settings")
    assert volume["configMap"]["name"] == generator["name"]


def test_probes_ask_the_admin_listener(pod):
    container = pod["containers"][0]
    asked = {
        kind: (container[kind]["httpGet"]["path"], container[kind]["httpGet"]["port"])
        for kind in ("startupProbe", "livenessProbe", "readinessProbe")}
    assert asked == {
        "startupProbe": ("/healthz", "admin"), "livenessProbe": ("/healthz", "admin"),
        "readinessProbe": ("/readyz", "admin")}
    assert {"name": "admin", "containerPort": 9090} in container["ports"]


def test_the_pod_has_no_rights_and_a_root_folder_that_stays_as_it_is(pod, stages):
    user = int(dict(stages[-1])["USER"].split(":")[0])
    context, container = pod["securityContext"], pod["containers"][0]
    assert context["runAsNonRoot"] and {context[key] for key in ("runAsUser", "runAsGroup", "fsGroup")} == {user}
    assert container["securityContext"] == {
        "allowPrivilegeEscalation": False, "readOnlyRootFilesystem": True, "capabilities": {"drop": ["ALL"]}}
    assert {"requests", "limits"} == set(container["resources"])


def test_the_memory_limit_has_room_for_what_the_settings_allow(pod, tmp_path):
    defaults = effective()
    allowed = sum(int(defaults[key].removesuffix(" MiB")) for key in ("cache.max_bytes", "limits.buffers"))
    assert int(pod["containers"][0]["resources"]["limits"]["memory"].removesuffix("Mi")) >= allowed + 128


def test_the_key_ring_may_come_as_a_secret(pod):
    container = pod["containers"][0]
    variables = {variable["name"]: variable["value"] for variable in container["env"]}
    mount = next(mount["mountPath"] for mount in container["volumeMounts"] if mount["name"] == "keys")
    assert variables == {"CREDENTIALS_DIRECTORY": mount}
    secret = next(volume["secret"] for volume in pod["volumes"] if volume["name"] == "keys")
    assert secret["optional"]
    instructions = (KUBERNETES / "kustomization.yaml").read_text()
    assert f"secret generic {secret['secretName']} --from-file={CREDENTIAL}\n" in instructions


def test_a_secret_that_its_group_may_read_is_taken_as_the_key_ring(serve, tmp_path):
    first = serve(data=tmp_path / "data")
    assert first.stop() == 0
    ring = tmp_path / "data" / "keys"
    secret = tmp_path / "credentials" / CREDENTIAL
    secret.parent.mkdir()
    ring.rename(secret)
    secret.chmod(0o440)
    second = serve(data=tmp_path / "data", environment={"CREDENTIALS_DIRECTORY": str(secret.parent)})
    assert second.stop() == 0 and not ring.exists()


def test_ports_and_labels_of_the_objects_fit_one_another(objects, pod):
    ports = {port["name"] for port in pod["containers"][0]["ports"]}
    labels = objects["StatefulSet"]["spec"]["template"]["metadata"]["labels"]
    service = objects["Service"]["spec"]
    assert {port["targetPort"] for port in service["ports"]} <= ports
    rules = objects["NetworkPolicy"]["spec"]["ingress"]
    assert {port["port"] for rule in rules for port in rule["ports"]} == ports
    assert service["selector"] == labels == objects["NetworkPolicy"]["spec"]["podSelector"]["matchLabels"]
    assert objects["StatefulSet"]["spec"]["selector"]["matchLabels"] == labels
    assert objects["StatefulSet"]["spec"]["serviceName"] == objects["Service"]["metadata"]["name"]
    paths = objects["Ingress"]["spec"]["rules"][0]["http"]["paths"]
    assert f"[{', '.join(path['path'] for path in paths)}]" == effective()["paths"]
    for path in paths:
        backend = path["backend"]["service"]
        assert backend["name"] == objects["Service"]["metadata"]["name"]
        assert backend["port"]["name"] in {port["name"] for port in service["ports"]}
