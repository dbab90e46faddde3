"""deploy/packages: installs what is missing, says so before, and leaves the services of the machine as they were."""
import subprocess
from pathlib import Path

import pytest

from copied_machine import CopiedMachine

PACKAGES = Path(__file__).parents[2] / "deploy" / "packages"
POLICY = "/usr/sbin/policy-rc.d"
# As Debian's packages with a service do it: asks whether the service may start, and enables it for both kinds of machines.
INSTALLED = """#!/bin/sh
[ ! -e /killed ] || kill -9 "$(cat /killed)"
{policy} --quiet {service} "(start)" default; echo "{service} $?" >> /answers
{policy} old.service restart; echo "old $?" >> /answers
{policy} many@1.service restart; echo "many $?" >> /answers
mkdir -p /etc/systemd/system/multi-user.target.wants
ln -s /lib/systemd/system/{service}.service /etc/systemd/system/multi-user.target.wants/{service}.service
update-rc.d {service} defaults
"""


def package(folder, name, needs=None):
    """Makes a package with a service of the same name."""
    root = folder / name
    for path, text, mode in (
        ("DEBIAN/control", f"Package: {name}\nVersion: 1\nArchitecture: all\nMaintainer: nobody\nDescription: a test\n"
         + (f"Depends: {needs}\n" if needs else ""), 0o644),
        ("DEBIAN/postinst", INSTALLED.format(policy=POLICY, service=name), 0o755),
        (f"lib/systemd/system/{name}.service", "[Service]\nExecStart=/bin/true\n[Install]\nWantedBy=multi-user.target\n", 0o644),
        (f"etc/init.d/{name}", "#!/bin/sh\n### BEGIN INIT INFO\n# Provides: x\n# Required-Start:\n# Required-Stop:\n"
         "# Default-Start: 2 3 4 5\n# Default-Stop: 0 1 6\n### END INIT INFO\n", 0o755),
    ):
        file = root / path
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text)
        file.chmod(mode)
    file = folder / f"{name}.deb"
    subprocess.run(["dpkg-deb", "--build", "--root-owner-group", str(root), str(file)], check=True, capture_output=True)
    return file


@pytest.fixture(name="machine")
def machine_with_a_repository(tmp_path):
    """A copy of this machine whose only repository holds our packages, and which has services `old` and `many@`, but no policy."""
    copy = CopiedMachine(tmp_path)
    try:
        index = ""
        for file in (package(tmp_path, "first-service"), package(tmp_path, "second-service", needs="first-service")):
            copy.put(file, f"/tmp/{file.name}")
            size, digest = file.stat().st_size, subprocess.run(
                ["sha256sum", str(file)], check=True, capture_output=True, text=True).stdout.split()[0]
            control = (tmp_path / file.stem / "DEBIAN" / "control").read_text()
            index += f"{control}Filename: ./{file.name}\nSize: {size}\nSHA256: {digest}\n\n"
        copy.output("sh", "-c", "cat > /tmp/Packages", input=index)
        copy.output("sh", "-c", (
            "rm -rf /etc/apt/sources.list /etc/apt/sources.list.d /var/lib/apt/lists/*\n"
            "echo 'deb [trusted=yes] file:/tmp ./' > /etc/apt/sources.list\n"
            f"rm -f {POLICY}; touch /etc/init.d/old /etc/systemd/system/many@.service"))
        copy.put(PACKAGES, "/tmp/packages")
        yield copy
    finally:
        copy.close()


def install(machine, *packages):
    return machine.run("bash", "/tmp/packages", "--for", "the tests", *packages)


def enabled(machine):
    """The links that would start one of the services with the machine."""
    return machine.output(
        "sh", "-c", "find /etc/systemd/system /etc/rc[2-5].d -type l ! -name 'K*' | grep -e first -e second; true")


def test_services_of_new_packages_are_neither_started_nor_enabled(machine):
    done = install(machine, "second-service", "bash")
    assert done.returncode == 0, done
    assert "For the tests, these Debian packages are missing: second-service\n" in done.stderr
    assert "Installing them with what they need, 2 packages: first-service second-service\n" in done.stderr
    # Services that the machine had before may be started.
    assert machine.output("cat", "/answers") == "first-service 101\nold 0\nmany 0\nsecond-service 101\nold 0\nmany 0\n"
    assert enabled(machine) == ""
    assert not machine.exists(POLICY)
    again = install(machine, "second-service", "bash")
    assert (again.returncode, again.stderr, again.stdout) == (0, "", "")


def test_a_killed_installation_forbids_no_service_once_its_files_are_gone(machine):
    killed = machine.run("bash", "-c", "echo $$ > /killed; exec bash /tmp/packages first-service")
    assert killed.returncode == -9, killed
    policies = [(service, "restart") for service in ("old.service", "many@1.service", "first-service.service")]
    assert [machine.run(POLICY, *policy).returncode for policy in policies] == [0, 0, 101]
    machine.output("sh", "-c", "rm -r /tmp/tmp.*")
    assert [machine.run(POLICY, *policy).returncode for policy in policies] == [0, 0, 0]
    machine.output("rm", "/killed")
    assert install(machine, "second-service").returncode == 0
    assert not machine.exists(POLICY), "the next installation removes what was left behind"
