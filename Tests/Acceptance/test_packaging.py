"""The Debian package: its contents, and installation, upgrade, removal and purge."""
import contextlib
import gzip
import json
import os
import re
import shutil
import subprocess
from pathlib import Path
from types import SimpleNamespace

import pytest

from contract import STORED, found
from copied_machine import CopiedMachine
from http_client import exchange, get, post
from server_process import AS_NOBODY, binary, run, wait_until_serving
from test_contract_vectors import CASES, check

DEPLOY = Path(__file__).parents[2] / "deploy"
VERSIONS = "1~test1", "1~test2"
# Bytes, stripped.
LARGEST_PROGRAM = 30_000_000

pytestmark = pytest.mark.skipif(
    not shutil.which("dpkg-shlibdeps"), reason="there is no dpkg-dev, with which the package is built")


@pytest.fixture(name="package", scope="module")
def built_package(tmp_path_factory):
    """The package, uncompressed, to save time."""
    return build(tmp_path_factory.mktemp("package"), VERSIONS[0], binary())


@pytest.fixture(name="contents", scope="module")
def package_contents(package, tmp_path_factory):
    """The files of the package, and its control files in DEBIAN."""
    folder = tmp_path_factory.mktemp("contents")
    run_of("dpkg-deb", "--raw-extract", str(package), str(folder))
    return folder


def build(folder, version, program):
    """The path of a package that is built from a program."""
    return Path(run_of(
        str(DEPLOY / "debian" / "build"), "--output", str(folder), "--version", version, "--binary", program,
        "--compression", "none").strip())


def run_of(*command):
    """The output of a command that must succeed."""
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout


def is_debug_build():
    """Whether the program needs Swift's shared libraries, unlike one of deploy/build."""
    return "libswiftCore" in run_of("ldd", binary())


# Contents

def test_the_package_states_what_it_needs_and_who_owns_its_files(package, contents):
    fields = dict(re.findall(r"^([A-Z][A-Za-z-]*): (.*)", (contents / "DEBIAN" / "control").read_text(), re.M))
    assert (fields["Package"], fields["Version"]) == ("token-cache", VERSIONS[0])
    # Debian 13 calls libssl3 libssl3t64, because of larger times on other architectures.
    needed = {part.split()[0].removesuffix("t64") for part in fields["Depends"].split(", ")}
    assert {"libc6", "libssl3", "libsqlite3-0", "libyaml-0-2", "init-system-helpers"} <= needed
    listed = run_of("dpkg-deb", "--contents", str(package)).splitlines()
    assert {line.split()[1] for line in listed} == {"root/root"}
    assert not [line for line in listed if line[5] == "w" or line[8] == "w"]


def test_the_program_is_small_and_has_no_tables_of_icu(contents):
    program = contents / "usr/bin/token-cache"
    assert program.stat().st_size <= LARGEST_PROGRAM
    # What ICU calls its tables, of languages and time zones, which some part of Foundation would link.
    assert b"icudt" not in program.read_bytes()
    linked = run_of("ldd", str(program))
    assert is_debug_build() or "Foundation" not in linked and "icu" not in linked.lower()


def test_the_program_of_a_package_does_not_say_where_it_was_built(contents):
    """A debug build, as developers have one, does say it in its assertions."""
    if is_debug_build():
        pytest.skip("the program is not one of deploy/build")
    assert str(DEPLOY.parent).encode() not in (contents / "usr/bin/token-cache").read_bytes()


def test_the_program_is_hardened(contents):
    program = contents / "usr/bin/token-cache"
    headers = run_of("readelf", "--wide", "--file-header", "--program-headers", "--dynamic", str(program))
    assert re.search(r"^ +Type: +DYN", headers, re.M), "it is loaded at an address that nobody can foresee"
    assert re.search(r"GNU_STACK .* RW +0", headers) and "GNU_RELRO" in headers
    if not is_debug_build():
        # Options of deploy/build.
        assert "BIND_NOW" in headers or " NOW" in headers
        # SwiftPM always names the program's own folder, which only root can write to.
        assert re.findall(r"PATH\) .*\[(.*)\]", headers) in ([], ["$ORIGIN"])


def test_lintian_finds_no_error_that_is_not_explained(is_long, package):
    """Its warnings are others with each version. The packages of tests are not compressed, unlike those that are given away."""
    if not is_long or not shutil.which("lintian"):
        pytest.skip("lintian takes most of a minute: --long")
    done = subprocess.run(
        ["lintian", "--allow-root", "--fail-on", "none", "--tag-display-limit", "0", "--suppress-tags",
         "uses-no-compression-for-data-tarball,uses-no-compression-for-control-tarball", str(package)],
        capture_output=True, text=True, timeout=300, check=False)
    assert done.returncode == 0, done
    found = [line for line in done.stdout.splitlines() if line.startswith("E:")]
    if is_debug_build():
        # A debug build finds Swift's libraries where the toolchain is.
        found = [line for line in found if "custom-library-search-path" not in line]
    assert not found, done.stdout


def test_the_package_says_what_it_was_built_from(contents):
    document = json.loads((contents / "usr/share/doc/token-cache/token-cache.cdx.json").read_text())
    assert (document["bomFormat"], document["specVersion"]) == ("CycloneDX", "1.6")
    components = {component["name"].removesuffix("t64"): component for component in document["components"]}
    assert {"swift-argument-parser", "swift-log", "swift", "libc6", "libssl3", "libsqlite3-0", "libyaml-0-2"} <= set(components)
    manifest = (DEPLOY.parent / "Package.swift").read_text()
    for name, version in re.findall(r'url: "https://github.com/\w+/([\w-]+)", exact: "([^"]+)"', manifest):
        assert components[name]["version"] == version
        assert re.search(r"#[0-9a-f]{40}$", components[name]["externalReferences"][0]["url"])
    installed = run_of("dpkg-query", "--show", "--showformat=${Version}", "libsqlite3-0")
    assert components["libsqlite3-0"]["version"] == installed
    assert {entry["ref"] for entry in document["dependencies"]} == {
        component["bom-ref"] for component in [*components.values(), document["metadata"]["component"]]}


def test_the_settings_of_the_package_are_those_of_the_service(contents):
    installed = contents / "etc" / "token-cache" / "token-cache.yaml"
    effective = run("check-config", "--config", str(installed)).stdout.splitlines()
    differing = set(effective) - set(run("check-config").stdout.splitlines())
    # DynamicUser= makes /var/lib/token-cache a link; systemd's StateDirectory= is the last part of it.
    assert differing == {"data_directory: /var/lib/token-cache"}
    conffiles = (contents / "DEBIAN" / "conffiles").read_text().split()
    assert sorted(conffiles) == ["/etc/logrotate.d/token-cache", "/etc/token-cache/token-cache.yaml"]


@pytest.fixture(name="manual", scope="module")
def manual_page(contents):
    return gzip.decompress((contents / "usr/share/man/man8/token-cache.8.gz").read_bytes()).decode()


def test_the_manual_has_every_command_and_setting(manual):
    text = manual.replace("\\-", "-").replace("\\&", "")
    commands = re.findall(r"^  ([a-z][a-z-]*) +[A-Z]", run("help").stdout, re.M)
    assert {"serve", "check-config", "keyring", "backup"} <= set(commands)
    missing = [name for name in commands if name != "help" and not re.search(rf'^\.SS "{name}\b', text, re.M)]
    assert not missing
    for setting in json.loads(run("check-config", "--syntax-only", "--json").stdout):
        assert f"\n.TP\n\\fB{setting['key']}\\fR" in text
        assert setting["purpose"] in text and f"Allowed: {setting['allowed']}." in text


def test_the_manual_is_well_formed(manual):
    if shutil.which("mandoc"):
        done = subprocess.run(
            ["mandoc", "-T", "lint", "-W", "error"], input=manual, capture_output=True, text=True, check=False)
        assert (done.returncode, done.stdout) == (0, "")
    elif shutil.which("groff"):
        done = subprocess.run(
            ["groff", "-man", "-Tutf8", "-ww", "-z"], input=manual, capture_output=True, text=True, check=False)
        assert (done.returncode, done.stderr) == (0, "")
    else:
        pytest.skip("there is neither mandoc nor groff")


@pytest.mark.parametrize("shell, path", [
    ("bash", "bash-completion/completions/token-cache"), ("zsh", "zsh/vendor-completions/_token-cache"),
    ("fish", "fish/vendor_completions.d/token-cache.fish")])
def test_the_shell_takes_its_completions(contents, shell, path):
    file = contents / "usr/share" / path
    assert "check-config" in file.read_text()
    if not shutil.which(shell):
        pytest.skip(f"there is no {shell}")
    run_of(shell, "-n", str(file))


# Installation, upgrade, removal, purge

@pytest.fixture(name="system", scope="module", params=["this system", "bookworm", "trixie"])
def root_folder(request, is_long, tmp_path_factory):
    """The root folder of this system, and with --long those of new systems of the releases of Debian that the package is for."""
    if request.param == "this system":
        yield "/"
        return
    if not is_long or os.geteuid() != 0 or not shutil.which("mmdebstrap"):
        pytest.skip("as root, with mmdebstrap, fetches a release of Debian, which takes minutes: --long")
    folder = tmp_path_factory.mktemp("debian") / request.param
    try:
        # In namespaces of its own, so that nothing of ours is mounted in the folder when it is removed, also after an interruption.
        done = subprocess.run(
            ["unshare", "--mount", "--pid", "--fork", "--kill-child", "--mount-proc", "mmdebstrap", "--mode=root", "--variant=apt",
             "--include=mount", "--dpkgopt=force-unsafe-io", "--skip=cleanup/apt/lists", request.param, str(folder)],
            capture_output=True, text=True, timeout=1_800, check=False)
        if done.returncode != 0:
            pytest.skip(f"Debian's {request.param} cannot be fetched from its mirror here: {done.stderr.strip()[-300:]}")
        yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)


@pytest.fixture(name="machine")
def copied_machine(tmp_path, system):
    machine = CopiedMachine(tmp_path, system)
    try:
        if machine.run("dpkg", "--status", "token-cache").returncode == 0:
            pytest.skip("token-cache is installed on this machine, so that its copy is no fresh one")
        yield machine
    finally:
        machine.close()


def unit_command(machine, key):
    """A command of the service's unit."""
    unit = machine.output("cat", "/usr/lib/systemd/system/token-cache.service")
    return re.search(rf"^{key}=(.*)$", unit, re.M)[1].split()


@contextlib.contextmanager
def service(machine, folder, **variables):
    """Runs the command of the unit as another user and on a free port, because systemd does not run in the copy."""
    command = unit_command(machine, "ExecStart")
    machine.output("install", "--directory", "--owner=nobody", "--mode=0700", "/var/lib/token-cache")
    with open(folder / "log", "w+b") as log:
        process = subprocess.Popen(
            machine.command(*AS_NOBODY, *command, "--listen", "127.0.0.1:0"), stderr=log, cwd="/",
            env={"PATH": "/usr/sbin:/usr/bin:/sbin:/bin", "TOKEN_CACHE_ADMIN_LISTEN": "127.0.0.1:0", **variables})
        try:
            line = wait_until_serving(process, folder / "log")
            yield ("127.0.0.1", int(line["addresses"].rsplit(":", 1)[1]))
            # The process that we started is nsenter; the server's id is in its lock file.
            owner = machine.output("cat", "/var/lib/token-cache/lock").strip()
            machine.output("sh", "-c", 'kill -TERM "$0"', owner)
            assert process.wait(30) == 0
        finally:
            process.kill()
            process.wait(30)


def install(machine, *packages):
    machine.output("apt-get", "install", "--yes", "--no-install-recommends", "--option=Dpkg::Options::=--force-confdef",
                   "--option=Dpkg::Options::=--force-confold", *packages)


def later_version(contents, folder):
    """The package once more, with the same program and another version."""
    again, package = folder / "again", folder / "again.deb"
    shutil.copytree(contents, again, symlinks=True)
    control = again / "DEBIAN" / "control"
    control.write_text(control.read_text().replace(f"\nVersion: {VERSIONS[0]}\n", f"\nVersion: {VERSIONS[1]}\n"))
    run_of("dpkg-deb", "-Znone", "--root-owner-group", "--build", str(again), str(package))
    return package


def test_the_package_is_installed_runs_is_upgraded_and_purged(machine, package, contents, tmp_path):
    machine.put(package, "/root/0.deb")
    machine.put(later_version(contents, tmp_path), "/root/1.deb")
    install(machine, "/root/0.deb")
    assert machine.output("dpkg", "--verify", "token-cache") == ""
    program = run("--version").stdout
    assert machine.output("token-cache", "--version") == program
    enabled = "/etc/systemd/system/multi-user.target.wants/token-cache.service"
    assert machine.run("test", "-L", enabled).returncode == 0, "it starts with the machine"
    assert not machine.exists("/etc/systemd/system/sockets.target.wants/token-cache.socket")
    assert not machine.exists("/etc/systemd/system/timers.target.wants/token-cache-backup.timer")

    with service(machine, tmp_path) as address:
        assert exchange(address, post("me", "x")).body == STORED
        # With what the package itself needs: a small system has no kill(1).
        assert machine.output(*AS_NOBODY, *unit_command(machine, "ExecReload")) == "reloaded: no setting has changed\n"
    machine.output("sh", "-c", "echo 'json_bodies: on' >> /etc/token-cache/token-cache.yaml; "
                   "sed -i 's/^json_bodies: off//' /etc/token-cache/token-cache.yaml; rm " + enabled)

    install(machine, "/root/1.deb")
    assert machine.output("dpkg-query", "--show", "--showformat=${Version}", "token-cache") == VERSIONS[1]
    assert "json_bodies: on" in machine.output("cat", "/etc/token-cache/token-cache.yaml")
    assert machine.run("test", "-L", enabled).returncode == 1, "the administrator has turned it off"
    with service(machine, tmp_path) as address:
        assert exchange(address, get("me")).body == found("x")

    # With DynamicUser= the folder is below private/, which only root can enter, and there is a link to it.
    machine.output("mkdir", "-p", "/etc/credstore", "/var/log/private/token-cache")
    machine.output("ln", "-s", "private/token-cache", "/var/log/token-cache")
    machine.output("touch", "/etc/credstore/token-cache.keys", "/var/log/token-cache/access.log")
    machine.output("dpkg", "--remove", "token-cache")
    assert not machine.exists("/usr/bin/token-cache")
    for kept in "/etc/token-cache/token-cache.yaml", "/var/lib/token-cache/tokens.db", "/var/lib/token-cache/keys":
        assert machine.exists(kept)
    purged = machine.run("dpkg", "--purge", "token-cache")
    assert (purged.returncode, purged.stderr) == (0, "")
    assert left_behind(machine) == ["/etc/credstore/token-cache.keys"]


def test_an_installation_starts_again_what_a_removal_stopped_unless_it_is_disabled(machine, package):
    machine.put(package, "/root/0.deb")
    machine.replace_systemctl()
    install(machine, "/root/0.deb")
    server, timer = "token-cache.service", "token-cache-backup.timer"
    assert machine.active_units() == [server]
    machine.output("systemctl", "preset", timer)
    machine.output("systemctl", "start", timer)
    machine.output("dpkg", "--remove", "token-cache")
    assert machine.active_units() == []
    machine.output("dpkg", "--install", "/root/0.deb")
    assert machine.active_units() == [timer, server]
    machine.output("sh", "-c", "rm /etc/systemd/system/*.wants/token-cache*")
    machine.output("systemctl", "stop", server, timer)
    machine.output("dpkg", "--install", "/root/0.deb")
    assert machine.active_units() == [], "the administrator has turned them off"


# A cluster of the release's own PostgreSQL, which is reached over a Unix socket only, with a database of the server's user.
DATABASE = """set -e
mkdir -p /etc/postgresql-common/createcluster.d
echo "create_main_cluster = false" > /etc/postgresql-common/createcluster.d/test.conf
apt-get install --yes --no-install-recommends postgresql
version=$(ls /usr/lib/postgresql)
pg_createcluster --port 5432 "$version" test
echo "listen_addresses = ''" >> "/etc/postgresql/$version/test/postgresql.conf"
pg_ctlcluster "$version" test start
runuser -u postgres -- createuser nobody
runuser -u postgres -- createdb --owner nobody tokens
"""


def test_with_the_libraries_and_postgresql_of_each_release_the_contract_is_kept(
        is_long, machine, package, postgres_binary, tmp_path):
    if not is_long:
        pytest.skip("installs PostgreSQL, which takes a minute: --long")
    upgrade = build(tmp_path, VERSIONS[1], postgres_binary)
    for number, file in enumerate((package, upgrade)):
        machine.put(file, f"/root/{number}.deb")

    def keep_contract(address):
        for case in CASES:
            check(case, SimpleNamespace(address=address), pieces=1)

    def command(*arguments):
        return machine.output(*AS_NOBODY, "token-cache", *arguments, "--config", "/etc/token-cache/token-cache.yaml")

    install(machine, "/root/0.deb")
    with service(machine, tmp_path) as address:
        assert exchange(address, post("me", "x")).body == STORED
        keep_contract(address)
        command("keyring", "rotate")
        command("verify")
    install(machine, "/root/1.deb")
    machine.output("sh", "-c", DATABASE)
    database = "postgresql:///tokens?host=/var/run/postgresql"
    command("migrate", "--url", database)
    command("copy", "--from", "/var/lib/token-cache", "--to", database)
    with service(machine, tmp_path, TOKEN_CACHE_STORE_URL=database) as address:
        assert exchange(address, get("me")).body == found("x")
        keep_contract(address)


def left_behind(machine):
    return machine.output(
        "sh", "-c", "find /etc /usr /var/lib /var/log /var/cache -name '*token-cache*' -not -path '/usr/src/*' | sort").split()


def test_purging_empties_a_folder_on_which_a_disk_is_mounted_and_spares_disks_below(machine, package):
    data, backups, logs = "/var/lib/private/token-cache", "/var/lib/private/token-cache-backups", "/var/log/private/token-cache"
    machine.put(package, "/root/0.deb")
    install(machine, "/root/0.deb")
    machine.output("sh", "-c", f"""set -e
        mkdir -p {data} {backups} {logs}/own/disk
        mount -t tmpfs tmpfs {data}
        mount -t tmpfs tmpfs {backups}
        mkdir -p {data}/tls {data}/own/disk {backups}/lost+found
        for disk in {data}/own/disk {logs}/own/disk; do
            mount -t tmpfs tmpfs $disk
            touch $disk/file
        done
        touch {data}/tokens.db {data}/tls/.new {logs}/audit.ndjson
        ln -s private/token-cache /var/lib/token-cache
        ln -s private/token-cache-backups /var/lib/token-cache-backups""")
    purged = machine.run("dpkg", "--purge", "token-cache")
    told = [line for line in purged.stderr.splitlines() if not line.startswith("rm: ")]
    assert (purged.returncode, told) == (
        0, [f"token-cache: {folder} stays, probably because a disk is mounted there or below it" for folder in (data, logs)])
    assert machine.output("find", data, logs, "-type", "f") == f"{data}/own/disk/file\n{logs}/own/disk/file\n"
    # The disk for backups has none.
    assert left_behind(machine) == [data, backups, "/var/lib/token-cache-backups", logs]
    assert machine.run("dpkg-query", "--show", "token-cache").returncode == 1, "dpkg has forgotten the package"
