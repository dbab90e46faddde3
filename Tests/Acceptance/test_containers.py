"""The Compose file and the objects for Kubernetes: their settings are accepted and fit, and keys are as pods have them."""
import ipaddress
import os
import re
import shutil
import subprocess
from pathlib import Path

import pytest

from access import make_key
from server_process import Server, binary, run
from store_files import printed

yaml = pytest.importorskip("yaml", reason="there is no python3-yaml")

DEPLOY = Path(__file__).parents[2] / "deploy"
DOCKER = DEPLOY / "docker"


def load(path):
    return yaml.safe_load(path.read_text())


def effective(text="", folder=None, environment=None):
    """The settings in effect with a file and variables; the files that they name need not be there."""
    flags = ["--syntax-only"]
    if text:
        file = folder / "settings.yaml"
        file.write_text(text)
        flags += ["--config", str(file)]
    done = run("check-config", *flags, environment=environment)
    assert done.returncode == 0, done.stderr
    return dict(line.split(": ", 1) for line in done.stdout.splitlines())


# Docker

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


# Kubernetes

KUBERNETES = DEPLOY / "kubernetes"
# Of custom resources, which Kubernetes' own schemas do not have.
CUSTOM = {"Certificate", "HTTPRoute", "BackendTLSPolicy", "PodMonitor"}


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


@pytest.fixture(name="validate")
def installed_validator(python_package):
    return python_package("kubernetes-validate==1.37.0") / "bin/kubernetes-validate"


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
    stop = [container["lifecycle"]["preStop"]["sleep"]["seconds"], seconds(settings["drain_delay"]), seconds(settings["drain_timeout"])]
    assert min(stop) > 2 and pod["terminationGracePeriodSeconds"] > sum(stop) + 5


def test_keys_that_kubelet_has_opened_to_the_volumes_group_are_taken_in_a_pod(public_folder):
    """In a volume as fsGroup leaves it, with the folder 02770, files 0660 and the process in the group; for both kinds of keys.
    SystemTests/ProcessTests have the cases of other groups and of files for everybody."""
    if os.geteuid() != 0:
        pytest.skip("only root can make files of another group")
    data, program = public_folder / "data", public_folder / "token-cache"
    printed(data, "put", "me", "x")
    make_key(data / "api-keys", "anna")
    for path in (data, *data.iterdir()):
        os.chown(path, 10001, 20001)
        path.chmod(0o2770 if path.is_dir() else 0o660)
    shutil.copy(binary(), program)
    as_pod = ["setpriv", "--reuid=10001", "--regid=10001", "--groups=20001"]
    in_pod = {"KUBERNETES_SERVICE_HOST": "10.0.0.1"}
    settings = {"access": {"api": {"keys_file": str(data / "api-keys")}}}
    server = Server(public_folder / "server", settings, data=data, prefix=as_pod, environment=in_pod, program=str(program))
    try:
        assert "may be read by group 20001" in server.log() and "Better provide it as a secret" in server.log()
        # Nothing is advised that kubelet would undo.
        found = run("doctor", "--data-directory", str(data), prefix=as_pod, environment=in_pod, folder="/", program=str(program))
        assert "chmod" not in found.stdout and "only its owner and group 20001, that of the pod's volumes" in found.stdout, found.stdout
    finally:
        server.kill()
    # As kubelet leaves the volume's own folder, which the server's user cannot change: of a disk, and of an emptyDir.
    for mode, volume in ((0o2775, "of a disk"), (0o2777, "an emptyDir")):
        os.chown(data, 0, 20001)
        data.chmod(mode)
        found = run("doctor", "--data-directory", str(data), prefix=as_pod, environment=in_pod, folder="/", program=str(program))
        assert found.returncode == 0 and "0 problems, 0 warnings" in found.stdout, (volume, found.stdout)
        assert "only containers that mount the volume" in found.stdout
    os.chown(data, 10001, 20001)
    data.chmod(0o2770)
    for key, mode in (("keys", 0o664), ("keys", 0o660), ("api-keys", 0o662)):
        (data / key).chmod(mode)
        refused = run("serve", "--data-directory", str(data), prefix=as_pod, folder="/", program=str(program), environment={
            "TOKEN_CACHE_LISTEN": "127.0.0.1:0", "TOKEN_CACHE_ACCESS_API_KEYS_FILE": str(data / "api-keys"),
            **(in_pod if mode != 0o660 else {})})
        assert refused.returncode == 1 and re.search("can be (read|changed) by other", refused.stderr), refused
