"""A copy of this machine, or of another system's folder, in which tests install packages; all changes to it are discarded."""
import os
import shutil
import subprocess

import pytest

# An installation may fetch packages.
SECONDS = 600

# An overlay over the system's root folder, in its own mount namespace. /run is empty: systemd does not run there.
PREPARE = """
set -e
mount --make-rprivate /
mount -t tmpfs tmpfs "$0"
mkdir "$0/changes" "$0/work" "$0/root"
mount -t overlay overlay -o "lowerdir=$1,upperdir=$0/changes,workdir=$0/work" "$0/root"
cd "$0/root"
mount -t proc proc proc
mount --rbind /dev dev
mount -t tmpfs tmpfs tmp
mount -t tmpfs tmpfs run
echo ready
exec sleep infinity
"""

# A systemctl whose commands never fail. /active has the units that run. `preset` enables, which packages' scripts ask for.
SYSTEMCTL = """#!/bin/sh
wants=/etc/systemd/system/multi-user.target.wants
action=
for word; do
    case "$word" in -*) continue ;; esac
    case "$action" in
    "") action=$word ;;
    preset) mkdir -p "$wants"; ln -s "/usr/lib/systemd/system/$word" "$wants" ;;
    start | restart) touch "/active/$word" ;;
    stop) rm -f "/active/$word" ;;
    is-active) [ -e "/active/$word" ] || exit 3 ;;
    is-enabled) if [ -L "$wants/$word" ]; then echo enabled; else echo disabled; fi ;;
    esac
done
"""


class CopiedMachine:
    """Runs commands in the copy; closing it ends the processes that are left."""

    def __init__(self, folder, system="/"):
        if os.geteuid() != 0:
            pytest.skip("packages are installed in a copy of this machine, which only root can make")
        if not shutil.which("dpkg"):
            pytest.skip("there is no dpkg")
        self.root = folder / "root"
        self.holder = subprocess.Popen(
            ["unshare", "--mount", "--pid", "--fork", "--kill-child", "sh", "-c", PREPARE, str(folder), str(system)],
            stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        if self.holder.stdout.readline() != "ready\n":
            message = self.holder.communicate(timeout=SECONDS)[1]
            pytest.skip(f"no copy of this machine can be made here: {message.strip()}")
        children = f"/proc/{self.holder.pid}/task/{self.holder.pid}/children"
        with open(children, encoding="ascii") as file:
            self.process = file.read().split()[0]

    def close(self):
        self.holder.kill()
        self.holder.communicate(timeout=SECONDS)

    def command(self, *arguments):
        """A command for this machine that runs one in the copy."""
        return ["nsenter", f"--target={self.process}", "--mount", "--pid", "chroot", str(self.root), *arguments]

    def run(self, *arguments, input=""):
        """Runs a command to its end."""
        return subprocess.run(
            self.command(*arguments), capture_output=True, text=True, timeout=SECONDS, check=False, input=input,
            env={"PATH": "/usr/sbin:/usr/bin:/sbin:/bin", "DEBIAN_FRONTEND": "noninteractive", "LC_ALL": "C.UTF-8"})

    def output(self, *arguments, input=""):
        """The output of a command that succeeds."""
        done = self.run(*arguments, input=input)
        assert done.returncode == 0, done
        return done.stdout

    def put(self, source, path):
        """Copies a file into the copy."""
        with open(source, "rb") as file:
            subprocess.run(self.command("sh", "-c", 'cat > "$0"', path), stdin=file, check=True, timeout=SECONDS)

    def exists(self, path):
        return self.run("test", "-e", path).returncode == 0

    def replace_systemctl(self):
        """Lets the packages' scripts believe that systemd runs here."""
        self.output("mkdir", "-p", "/run/systemd/system", "/active")
        self.output("sh", "-c", "rm -f /usr/sbin/policy-rc.d /usr/bin/systemctl; cat > /usr/bin/systemctl; chmod 755 /usr/bin/systemctl",
                    input=SYSTEMCTL)

    def active_units(self):
        """The units that run according to our systemctl."""
        return self.output("ls", "/active").split()
