"""Plays apps on devices: runs the example `two-devices`, which is built with the client library."""
import os
import shutil
import subprocess
from pathlib import Path

import pytest

REPOSITORY = Path(__file__).parents[2]


def two_devices():
    """The path of the built example; skips the test if it is not built and there is no toolchain to do so."""
    beside = Path(os.environ.get("TOKEN_CACHE_BINARY", "")).parent
    for folder in (beside, REPOSITORY / ".build" / "debug"):
        if os.access(folder / "two-devices", os.X_OK):
            return str(folder / "two-devices")
    if not shutil.which("swift"):
        pytest.skip("two-devices is not built, and the Swift toolchain is missing")
    subprocess.run(["swift", "build", "--product", "two-devices"], cwd=REPOSITORY, check=True, timeout=900,
                   capture_output=True)
    return str(REPOSITORY / ".build" / "debug" / "two-devices")


class Devices:
    """The devices of one user, in a folder of their own."""

    def __init__(self, folder, server, *options):
        self.folder = Path(folder)
        self.server = server
        self.options = options

    def command(self, name, *commands):
        """The command line of a device."""
        host, port = self.server.address
        return [two_devices(), "--device", name, "--folder", str(self.folder),
                "--server", f"http://{host}:{port}/token.php", *self.options, *commands]

    def run(self, name, *commands):
        """What a device prints, line by line, without its name."""
        done = subprocess.run(self.command(name, *commands), capture_output=True, text=True, timeout=60, check=False)
        assert done.returncode == 0, done.stderr
        return [line.removeprefix(f"{name}: ") for line in done.stdout.splitlines()]

    def start(self, name, *commands):
        """A device that runs beside the test."""
        return subprocess.Popen(self.command(name, *commands), stdout=subprocess.PIPE, text=True)
