"""The objects for Kubernetes fit one another, their schemas and the server, and say what they are not trusted with."""
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from server_process import SERVES, binary, clean_environment, run, until

yaml = pytest.importorskip("yaml", reason="there is no python3-yaml")

DEPLOY = Path(__file__).parents[2] / "deploy"
KUBERNETES = DEPLOY / "kubernetes"
COMPONENTS = "certificate", "gateway", "monitoring", "postgresql"
# Of custom resources, which Kubernetes' own schemas do not have.
CUSTOM = {"Certificate", "HTTPRoute", "BackendTLSPolicy", "PodMonitor"}
CREDENTIAL = re.search(
    r'credentialName = "([^"]+)"', (DEPLOY.parent / "Sources/TokenStore/Sealing/KeyRingFile.swift").read_text())[1]


def load(path):
    return yaml.safe_load(path.read_text())


def effective(text="", folder=None):
    """The settings in effect with a file, whose certificate is not looked for."""
    flags = []
    if text:
        file = folder / "settings.yaml"
        file.write_text(text)
        flags = ["--config", str(file), "--syntax-only"] if "--syntax-only" in run("help", "check-config").stdout else ["--config", str(file)]
    done = run("check-config", *flags)
    assert done.returncode == 0, done.stderr
    return dict(line.split(": ", 1) for line in done.stdout.splitlines())


def seconds(text):
    return int(re.fullmatch(r"([0-9]+)s", text)[1])


@pytest.fixture(name="objects", scope="module")
def kubernetes_objects():
    """The objects by kind and name."""
    files = load(KUBERNETES / "kustomization.yaml")["resources"]
    found = [item for name in files for item in yaml.safe_load_all((KUBERNETES / name).read_text())]
    objects = {(item["kind"], item["metadata"]["name"]): item for item in found}
    assert len(objects) == len(found)
    return objects


@pytest.fixture(name="pod")
def pod_template(objects):
    return objects["StatefulSet", "token-cache"]["spec"]["template"]["spec"]


@pytest.fixture(name="job")
def backup_template(objects):
    return objects["CronJob", "token-cache-backup"]["spec"]["jobTemplate"]["spec"]["template"]


@pytest.fixture(name="settings")
def pod_settings(tmp_path):
    return effective((KUBERNETES / "settings.yaml").read_text(), tmp_path)


def made(folder, *components):
    """What kustomize makes of the files, with some components."""
    if not shutil.which("kubectl"):
        pytest.skip("there is no kubectl")
    place = folder / "kubernetes"
    shutil.copytree(KUBERNETES, place, dirs_exist_ok=True)
    if components:
        with open(place / "kustomization.yaml", "a", encoding="utf-8") as file:
            file.write(f"components: [{', '.join(components)}]\n")
    done = subprocess.run(["kubectl", "kustomize", str(place)], capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 0, done.stderr
    (folder / "made.yaml").write_text(done.stdout)
    return {(item["kind"], item["metadata"]["name"]): item for item in yaml.safe_load_all(done.stdout)}


def test_every_file_for_kubernetes_is_used():
    kustomization = load(KUBERNETES / "kustomization.yaml")
    files = [entry.split("=")[1] for generator in kustomization["configMapGenerator"] for entry in generator["files"]]
    text = (KUBERNETES / "kustomization.yaml").read_text()
    offered = re.findall(r"^#   - (\w+)$", text[text.index("# components:"):], re.M)
    assert tuple(offered) == COMPONENTS
    assert {path.name for path in KUBERNETES.iterdir()} == {"README.md", "kustomization.yaml", *kustomization["resources"], *files, *offered}
    for name in offered:
        component = load(KUBERNETES / name / "kustomization.yaml")
        assert component["kind"] == "Component"
        assert {path.name for path in (KUBERNETES / name).iterdir()} == {"kustomization.yaml", *component.get("resources", [])}


@pytest.fixture(name="validate", scope="module")
def installed_validator(tmp_path_factory):
    """The path of kubernetes-validate, installed in a virtual environment."""
    folder = tmp_path_factory.mktemp("validator")
    for command in ([sys.executable, "-m", "venv", folder],
                    [folder / "bin/pip", "install", "--quiet", "--disable-pip-version-check", "kubernetes-validate==1.37.0"]):
        done = subprocess.run(command, capture_output=True, text=True, timeout=180, check=False)
        if done.returncode != 0:
            pytest.skip(f"kubernetes-validate cannot be installed here: {(done.stderr or done.stdout).strip()[-300:]}")
    return folder / "bin/kubernetes-validate"


@pytest.mark.parametrize("components", [(), ("certificate", "gateway", "monitoring"), ("postgresql",)], ids="-".join)
def test_the_objects_have_the_form_that_kubernetes_wants(validate, tmp_path, components):
    objects = made(tmp_path, *components)
    file = tmp_path / "objects.yaml"
    file.write_text(yaml.safe_dump_all(item for (kind, _), item in objects.items() if kind not in CUSTOM))
    for version in "1.31.0", "1.37.0":
        done = subprocess.run(
            [str(validate), "--strict", "--kubernetes-version", version, str(file)], capture_output=True, text=True, timeout=120,
            check=False)
        assert done.returncode == 0, done.stdout + done.stderr
    # The validator itself finds what is wrong.
    file.write_text(file.read_text().replace("replicas:", "replica:").replace("schedule:", "shedule:"))
    done = subprocess.run([str(validate), "--strict", str(file)], capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode != 0


def test_pods_that_share_a_database_have_nothing_of_their_own(tmp_path):
    objects = made(tmp_path, "postgresql")
    spec = objects["StatefulSet", "token-cache"]["spec"]
    pod = spec["template"]["spec"]
    assert spec["replicas"] > 1 and "volumeClaimTemplates" not in spec
    volumes = {volume["name"]: volume for volume in pod["volumes"]}
    mounts = {mount["name"]: mount["mountPath"] for mount in pod["containers"][0]["volumeMounts"]}
    assert volumes.keys() == mounts.keys() and "backups" not in volumes
    assert not {kind for kind, _ in objects} & {"CronJob", "PersistentVolumeClaim"}
    egress = objects["NetworkPolicy", "token-cache"]["spec"]["egress"]
    assert {port["port"] for rule in egress for port in rule["ports"]} == {5432, 53}
    labels = spec["template"]["metadata"]["labels"]
    assert pod["topologySpreadConstraints"][0]["labelSelector"]["matchLabels"] == labels
    # What the comments offer.
    text = (KUBERNETES / "settings.yaml").read_text()
    url = yaml.safe_load(re.sub(r"^# (store:|  url:)", r"\1", text, flags=re.M))["store"]["url"]
    assert f"sslrootcert={mounts['database']}/ca.pem" in url
    instructions = (KUBERNETES / "kustomization.yaml").read_text()
    assert f"configmap {volumes['database']['configMap']['name']} --from-file=ca.pem" in instructions


def test_kustomize_makes_objects_that_know_one_another(tmp_path):
    objects = made(tmp_path)
    config = next(name for kind, name in objects if kind == "ConfigMap")
    assert config != "token-cache"
    digest = load(KUBERNETES / "kustomization.yaml")["images"][0]["digest"]
    for template in (objects["StatefulSet", "token-cache"]["spec"]["template"],
                     objects["CronJob", "token-cache-backup"]["spec"]["jobTemplate"]["spec"]["template"]):
        settings = next(volume for volume in template["spec"]["volumes"] if volume["name"] == "settings")
        assert settings["configMap"]["name"] == config
        assert template["spec"]["containers"][0]["image"] == f"registry.example.com/token-cache@{digest}"


def test_tokens_cross_the_network_by_tls_only(objects, pod, settings):
    container = pod["containers"][0]
    ports = {port["name"]: port["containerPort"] for port in container["ports"]}
    mounts = {mount["name"]: mount for mount in container["volumeMounts"]}
    assert settings["listen"] == f"[https://0.0.0.0:{ports['https']}]"
    assert settings["data_directory"] == mounts["tokens"]["mountPath"]
    # A secret of type kubernetes.io/tls, as cert-manager makes it. Without subPath kubelet replaces the files.
    for key, name in (("tls.certificate", "tls.crt"), ("tls.private_key", "tls.key")):
        assert settings[key] == f"[{mounts['tls']['mountPath']}/{name}]" and "subPath" not in mounts["tls"]
    assert next(volume["secret"] for volume in pod["volumes"] if volume["name"] == "tls")["secretName"] == "token-cache-tls"
    assert load(KUBERNETES / "certificate" / "certificate.yaml")["spec"]["secretName"] == "token-cache-tls"
    # Only https is offered to clients, and nobody's claims are believed.
    assert [port["targetPort"] for port in objects["Service", "token-cache"]["spec"]["ports"]] == ["https"]
    assert settings["trusted_proxies"] == "none"
    assert pod["terminationGracePeriodSeconds"] > seconds(settings["drain_timeout"]) + 5


def test_the_gateway_goes_on_by_tls(tmp_path):
    objects = made(tmp_path, "gateway")
    service = objects["Service", "token-cache"]["spec"]
    assert service["type"] == "ClusterIP" and "externalTrafficPolicy" not in service
    route, policy = objects["HTTPRoute", "token-cache"]["spec"], objects["BackendTLSPolicy", "token-cache"]["spec"]
    paths = [match["path"]["value"] for match in route["rules"][0]["matches"]]
    assert f"[{', '.join(paths)}]" == effective()["paths"]
    assert route["rules"][0]["backendRefs"] == [{"name": "token-cache", "port": service["ports"][0]["port"]}]
    assert policy["targetRefs"][0]["sectionName"] == service["ports"][0]["name"]
    assert [policy["validation"]["hostname"]] == route["hostnames"]
    rules = objects["NetworkPolicy", "token-cache"]["spec"]["ingress"]
    assert all("from" in rule for rule in rules)


def test_metrics_are_asked_of_the_pod(pod, settings):
    monitor = load(KUBERNETES / "monitoring" / "pod-monitor.yaml")["spec"]
    assert settings["admin.listen"] == "[0.0.0.0:9090]"
    assert {"name": monitor["podMetricsEndpoints"][0]["port"], "containerPort": 9090} in pod["containers"][0]["ports"]
    assert monitor["selector"]["matchLabels"] == {"app.kubernetes.io/name": "token-cache"}


def test_the_backup_is_made_where_the_server_is(objects, pod, job):
    container, server = job["spec"]["containers"][0], pod["containers"][0]
    into = container["args"][container["args"].index("--into") + 1]
    # The server writes the file, so both have the folder at the same place, and the same user.
    for mounts in (container["volumeMounts"], server["volumeMounts"]):
        places = {mount["name"]: mount["mountPath"] for mount in mounts}
        assert (places["backups"], places["tokens"]) == (into, "/var/lib/token-cache")
    for key in "runAsUser", "runAsGroup", "fsGroup":
        assert job["spec"]["securityContext"][key] == pod["securityContext"][key]
    claims = {volume["name"]: volume["persistentVolumeClaim"]["claimName"] for volume in job["spec"]["volumes"]
              if "persistentVolumeClaim" in volume}
    assert claims == {"tokens": "tokens-token-cache-0", "backups": "token-cache-backups"}
    assert ("PersistentVolumeClaim", "token-cache-backups") in objects
    term = job["spec"]["affinity"]["podAffinity"]["requiredDuringSchedulingIgnoredDuringExecution"][0]
    assert term["labelSelector"]["matchLabels"] == objects["StatefulSet", "token-cache"]["spec"]["template"]["metadata"]["labels"]
    # Not one of the pods that serve.
    assert job["metadata"]["labels"] != term["labelSelector"]["matchLabels"]
    assert container["args"][0] == "backup" and run(*container["args"], "--help").returncode == 0


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


@pytest.mark.parametrize("kind", ("server", "backup"))
def test_the_pods_have_no_rights_and_a_root_folder_that_stays_as_it_is(pod, job, kind):
    spec = pod if kind == "server" else job["spec"]
    user = int(re.search(r"^USER (\d+)", (DEPLOY / "docker" / "Dockerfile").read_text(), re.M)[1])
    context, container = spec["securityContext"], spec["containers"][0]
    assert context["runAsNonRoot"] and {context[key] for key in ("runAsUser", "runAsGroup", "fsGroup")} == {user}
    assert container["securityContext"] == {
        "allowPrivilegeEscalation": False, "readOnlyRootFilesystem": True, "capabilities": {"drop": ["ALL"]}}
    assert {"requests", "limits"} == set(container["resources"]) and not spec["automountServiceAccountToken"]


def test_the_memory_limit_has_room_for_what_the_settings_allow(pod, tmp_path):
    defaults = effective()
    allowed = sum(int(defaults[key].removesuffix(" MiB")) for key in ("cache.max_bytes", "limits.buffers"))
    assert int(pod["containers"][0]["resources"]["limits"]["memory"].removesuffix("Mi")) >= allowed + 128


def test_the_key_ring_is_a_secret_from_the_first_start_on(pod, job):
    for spec in pod, job["spec"]:
        container = spec["containers"][0]
        variables = {variable["name"]: variable["value"] for variable in container["env"]}
        mount = next(mount["mountPath"] for mount in container["volumeMounts"] if mount["name"] == "keys")
        assert variables == {"CREDENTIALS_DIRECTORY": mount}
        secret = next(volume["secret"] for volume in spec["volumes"] if volume["name"] == "keys")
        assert "optional" not in secret
    instructions = (KUBERNETES / "kustomization.yaml").read_text()
    assert f"keyring create - > {CREDENTIAL})\n" in instructions
    assert f"secret generic {secret['secretName']} --from-file={CREDENTIAL}\n" in instructions


def test_a_key_ring_that_was_made_before_the_first_start_is_used(serve, tmp_path):
    done = run("keyring", "create", "-")
    assert done.returncode == 0 and done.stderr == "", done
    secret = tmp_path / "credentials" / CREDENTIAL
    secret.parent.mkdir()
    secret.write_text(done.stdout)
    secret.chmod(0o440)
    server = serve(data=tmp_path / "data", environment={"CREDENTIALS_DIRECTORY": str(secret.parent)})
    assert server.stop() == 0 and not (tmp_path / "data" / "keys").exists()
    assert run("keyring", "create", "-").stdout != done.stdout


def test_ports_and_labels_of_the_objects_fit_one_another(objects, pod):
    ports = {port["name"] for port in pod["containers"][0]["ports"]}
    stateful = objects["StatefulSet", "token-cache"]["spec"]
    labels = stateful["template"]["metadata"]["labels"]
    service, policy = objects["Service", "token-cache"]["spec"], objects["NetworkPolicy", "token-cache"]["spec"]
    assert {port["port"] for rule in policy["ingress"] for port in rule["ports"]} == ports
    budget = objects["PodDisruptionBudget", "token-cache"]["spec"]
    assert service["selector"] == labels == policy["podSelector"]["matchLabels"] == budget["selector"]["matchLabels"]
    assert stateful["selector"]["matchLabels"] == labels
    assert stateful["serviceName"] == objects["Service", "token-cache"]["metadata"]["name"]
    # Never 0: the node of a single pod could not be drained.
    assert budget["maxUnavailable"] == 1


USER, GROUP = 10001, 20001


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can make files of another group")
@pytest.mark.parametrize("variables, groups, mode, refusal", [
    ({"KUBERNETES_SERVICE_HOST": "10.0.0.1"}, [GROUP], 0o660, None),
    ({"KUBERNETES_SERVICE_HOST": "10.0.0.1"}, [], 0o660, "give the server's user access|can be read by others"),
    ({"KUBERNETES_SERVICE_HOST": "10.0.0.1"}, [GROUP], 0o664, "can be read by others"),
    ({}, [GROUP], 0o660, "can be read by others"),
], ids=["in a pod", "of another group", "for everybody", "outside a pod"])
def test_a_key_ring_that_kubelet_has_opened_to_the_volumes_group_is_taken_in_a_pod(
        public_folder, variables, groups, mode, refusal):
    """As fsGroup leaves a volume: the folder 02770, files 0660, and the process in the group."""
    data = public_folder / "data"
    assert run("stats", "--data-directory", str(data)).returncode == 1
    assert run("put", "me", "x", "--data-directory", str(data)).returncode == 0
    for path in (data, *data.iterdir()):
        os.chown(path, USER, GROUP)
        path.chmod(0o2770 if path.is_dir() else 0o660)
    (data / "keys").chmod(mode)
    as_pod = ["setpriv", f"--reuid={USER}", f"--regid={USER}", *([f"--groups={','.join(map(str, groups))}"] if groups else ["--clear-groups"])]
    program = public_folder / "token-cache"
    shutil.copy(binary(), program)
    environment = clean_environment({**variables, "TOKEN_CACHE_ADMIN_LISTEN": "off"})
    with open(public_folder / "log", "w+b") as log:
        process = subprocess.Popen(
            [*as_pod, str(program), "serve", "--listen", "127.0.0.1:0", "--data-directory", str(data)], env=environment, stderr=log,
            stdout=subprocess.DEVNULL, cwd="/")
        try:
            until(lambda: SERVES.search((public_folder / "log").read_text()) or process.poll() is not None)
            text = (public_folder / "log").read_text()
            if refusal:
                assert process.poll() == 1 and re.search(refusal, text), text
                return
            assert f"may be read by group {GROUP}" in text and "Better provide it as a secret" in text, text
            # Nothing is advised that kubelet would undo.
            found = subprocess.run(
                [*as_pod, str(program), "doctor", "--data-directory", str(data)], env=environment, capture_output=True, text=True,
                timeout=30, check=False, cwd="/")
            assert "chmod" not in found.stdout, found.stdout
            assert f"only its owner and group {GROUP}, that of the pod's volumes" in found.stdout
        finally:
            process.terminate()
            process.wait(30)
