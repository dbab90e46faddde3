"""The files of deploy/release: the same from two folders, and a container image whose program serves."""
import gzip
import hashlib
import json
import os
import shutil
import subprocess
import tarfile
from pathlib import Path
from types import SimpleNamespace

import pytest

from contract import STORED
from http_client import exchange, post
from server_process import binary, needs_root, run, wait_until_serving

CHECKOUT = Path(__file__).parents[2]
# Runs a command in the folder of the image's files as another user, with what containers get from their host, too.
IN_IMAGE = ["unshare", "--mount", "sh", "-euc", """
    for name in proc dev; do mount --rbind /$name "$0/$name"; done
    user=$1
    shift
    exec /usr/sbin/chroot --userspec="$user" "$0" "$@" """]

pytestmark = pytest.mark.skipif(
    not shutil.which("dpkg-shlibdeps"), reason="there is no dpkg-dev, with which the packages are built")


def release(folder, *options, checkout=CHECKOUT, **variables):
    """Runs deploy/release to its end."""
    return subprocess.run(
        [str(checkout / "deploy" / "release"), *options, str(folder)], capture_output=True, text=True, timeout=7_200, check=False,
        env={**os.environ, **variables})


def sums(folder):
    """The sums of a release, after they have been checked."""
    checked = subprocess.run(["sha256sum", "--check", "--strict", "SHA256SUMS"], cwd=folder, capture_output=True, text=True, check=False)
    assert checked.returncode == 0, checked
    lines = (folder / "SHA256SUMS").read_text().splitlines()
    assert {line.split("  ")[1] for line in lines} | {"SHA256SUMS"} == {file.name for file in folder.iterdir()}
    return lines


@pytest.fixture(name="folder", scope="module")
def made_release(tmp_path_factory):
    """A release of the program under test, not compressed where that saves time, and made twice."""
    made = [tmp_path_factory.mktemp("release") / name for name in ("one", "another-with-a-longer-name")]
    for folder in made:
        done = release(folder, "--binary", binary(), "--compression", "none", SOURCE_DATE_EPOCH="1700000000")
        assert done.returncode == 0, done
        assert all(file.name in done.stdout for file in folder.iterdir())
    assert sums(made[0]) == sums(made[1])
    return made[0]


@pytest.fixture(name="file", scope="module")
def file_of_release(folder):
    """A function from the end of a file's name to its path."""
    package, = folder.glob("*.deb")
    assert package.name.startswith(f"token-cache_{run('--version').stdout.strip()}")
    return package.with_suffix


@pytest.fixture(name="image", scope="module")
def unpacked_image(file, tmp_path_factory):
    """The image: its configuration, its manifest's digest, and the folder of its files."""
    with tarfile.open(file(".oci.tar")) as archive:
        def read(name):
            return archive.extractfile(name).read()

        def blob(descriptor):
            algorithm, digest = descriptor["digest"].split(":")
            content = read(f"blobs/{algorithm}/{digest}")
            assert (len(content), hashlib.new(algorithm, content).hexdigest()) == (descriptor["size"], digest)
            return content

        assert json.loads(read("oci-layout")) == {"imageLayoutVersion": "1.0.0"}
        described, = json.loads(read("index.json"))["manifests"]
        manifest = json.loads(blob(described))
        config, layer = json.loads(blob(manifest["config"])), gzip.decompress(blob(manifest["layers"][0]))
        assert config["rootfs"]["diff_ids"] == [f"sha256:{hashlib.sha256(layer).hexdigest()}"]
        # What docker load reads.
        named, = json.loads(read("manifest.json"))
        assert json.loads(read(named["Config"])) == config and gzip.decompress(read(named["Layers"][0])) == layer
        assert named["RepoTags"] == ["token-cache:" + described["annotations"]["org.opencontainers.image.ref.name"]]
    root = tmp_path_factory.mktemp("image") / "root"
    root.mkdir()
    subprocess.run(["tar", "--extract", "--directory", str(root)], input=layer, check=True)
    for name in ("proc", "dev"):
        (root / name).mkdir()
    return SimpleNamespace(root=root, config=config["config"], architecture=config["architecture"], digest=described["digest"])


def test_the_tarball_has_the_files_of_the_package(file):
    def files(archive, start):
        return {
            member.name.removeprefix(start): (member.mode, member.uid, member.gid, member.mtime, archive.extractfile(member).read())
            for member in archive if member.isfile()}

    unpacked = subprocess.run(["dpkg-deb", "--fsys-tarfile", file(".deb")], stdout=subprocess.PIPE, check=True)
    with tarfile.open(file(".tar.gz")) as archive:
        _, version, _ = file(".deb").name.split("_")
        tarball = files(archive, f"token-cache-{version}/")
    package = file(".package")
    package.write_bytes(unpacked.stdout)
    with tarfile.open(package) as archive:
        assert files(archive, "./") == tarball
    package.unlink()
    assert {"usr/bin/token-cache", "usr/share/man/man8/token-cache.8.gz", "usr/lib/systemd/system/token-cache.service",
            "usr/share/doc/token-cache/examples/nginx/token-cache.conf", "etc/token-cache/token-cache.yaml"} <= set(tarball)
    assert tarball["usr/share/doc/token-cache/token-cache.cdx.json"][-1] == file(".cdx.json").read_bytes()


def test_the_settings_of_the_image_are_accepted_and_fit_it(image):
    command = image.config["Cmd"]
    assert command[:2] == ["serve", "--config"]
    effective = run("check-config", "--config", f"{image.root}{command[2]}").stdout.splitlines()
    volumes = list(image.config["Volumes"])
    assert set(effective) - set(run("check-config").stdout.splitlines()) == {"listen: [0.0.0.0:8080]", f"data_directory: {volumes[0]}"}
    assert set(image.config["ExposedPorts"]) == {"8080/tcp", "9090/tcp"}
    for volume in volumes:
        status = Path(f"{image.root}{volume}").stat()
        assert status.st_mode & 0o777 == 0o700
        assert os.geteuid() != 0 or f"{status.st_uid}:{status.st_gid}" == image.config["User"]
    health = image.config["Healthcheck"]
    assert health["Test"] == ["CMD", *image.config["Entrypoint"], "health", *command[1:]]
    assert (health["Interval"], health["StartPeriod"], health["Retries"]) == (10 * 10**9, 600 * 10**9, 3)


@needs_root
def test_a_server_runs_in_the_image_with_nothing_but_its_files(image, tmp_path):
    """With the addresses of a test, as the machine is not the image's own."""
    inside = [*IN_IMAGE, str(image.root), image.config["User"]]
    environment = {**dict(entry.split("=") for entry in image.config["Env"]),
                   "TOKEN_CACHE_LISTEN": "127.0.0.1:0", "TOKEN_CACHE_ADMIN_LISTEN": "off"}

    def health():
        return subprocess.run(
            [*inside, *image.config["Healthcheck"]["Test"][1:]], capture_output=True, cwd="/", env=environment, timeout=60,
            check=False).returncode

    with open(tmp_path / "log", "w+b") as log:
        server = subprocess.Popen(
            [*inside, *image.config["Entrypoint"], *image.config["Cmd"]], stderr=log, cwd="/", env=environment)
        try:
            line = wait_until_serving(server, tmp_path / "log")
            assert exchange(("127.0.0.1", int(line["addresses"].rsplit(":", 1)[1])), post("me", "x")).body == STORED
            assert health() == 0
            server.terminate()
            assert server.wait(60) == 0
            assert health() == 1
        finally:
            server.kill()
            server.wait(60)
    assert (image.root / "var/lib/token-cache/tokens.db").exists()


def test_skopeo_reads_the_image(file, image):
    if not shutil.which("skopeo"):
        pytest.skip("there is no skopeo")
    done = subprocess.run(["skopeo", "inspect", f"oci-archive:{file('.oci.tar')}"], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done
    found = json.loads(done.stdout)
    assert (found["Digest"], found["Architecture"], found["Os"]) == (image.digest, image.architecture, "linux")


def test_a_release_is_made_of_a_commit_and_in_a_new_folder(tmp_path):
    checkout, folder = tmp_path / "checkout", tmp_path / "folder"
    shutil.copytree(CHECKOUT / "deploy", checkout / "deploy")
    subprocess.run(["git", "init", "--quiet", str(checkout)], check=True)
    done = release(folder, checkout=checkout)
    assert done.returncode == 1 and "commit or stash these changes first:\n?? deploy/" in done.stderr and not folder.exists()
    folder.mkdir()
    (folder / "kept").touch()
    done = release(folder, checkout=checkout)
    assert done.returncode == 1 and f"{folder} exists and is not an empty folder" in done.stderr
    assert [file.name for file in folder.iterdir()] == ["kept"]


def test_two_checkouts_in_two_folders_make_the_same_release(is_long, tmp_path):
    if not is_long:
        pytest.skip("builds four programs, each of which takes minutes: --long")
    checkouts = [tmp_path / name / "checkout" for name in ("one", "another-with-a-longer-name")]
    # The second is of the first, so that a commit in the meantime is in neither.
    for source, checkout in zip((CHECKOUT, checkouts[0]), checkouts):
        subprocess.run(["git", "clone", "--quiet", "--no-local", str(source), str(checkout)], check=True)
        done = release(checkout.parent / "release", checkout=checkout)
        assert done.returncode == 0, done
    made = [sums(checkout.parent / "release") for checkout in checkouts]
    assert made[0] == made[1] and len(made[0]) == 8
