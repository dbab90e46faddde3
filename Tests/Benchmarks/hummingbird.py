"""The peer on SwiftNIO, which token-cache does not use."""

import json
import subprocess
from pathlib import Path

from machine import BenchmarkError, note
from peers import Peer
from workloads import Workload

PACKAGE = Path(__file__).with_name("hummingbird-peer")


class Hummingbird(Peer):
    """Hummingbird with GRDB, one event loop per core and as durable as token-cache; a package of its own."""

    name = "hummingbird"

    def __init__(self, core: int, folder: Path, binary: Path) -> None:
        super().__init__(core, folder)
        self.binary = binary

    def command(self, port: int, workload: Workload) -> list[str]:
        return [str(self.binary), str(port), str(self.folder / "hummingbird.db"), str(len(self.cores))]


def build() -> Path:
    """The release binary, linked like token-cache's, and built only if it is older than its sources."""
    binary = PACKAGE / ".build" / "release" / PACKAGE.name
    sources = [PACKAGE / "Package.swift", *PACKAGE.glob("Sources/**/*.swift")]
    if binary.exists() and binary.stat().st_mtime > max(source.stat().st_mtime for source in sources):
        return binary
    note(f"building {PACKAGE.name}, which takes some minutes the first time")
    command = [
        "swift", "build", "--package-path", str(PACKAGE), "--configuration", "release", "--static-swift-stdlib",
    ]
    try:
        subprocess.run(command, check=True, capture_output=True, text=True)
    except OSError as error:
        raise BenchmarkError(f"the build of {PACKAGE.name} failed: {error}") from None
    except subprocess.CalledProcessError as error:
        raise BenchmarkError(f"the build of {PACKAGE.name} failed:\n{error.stdout}{error.stderr}") from None
    return binary


def versions() -> dict[str, str]:
    """The versions of its packages."""
    pins = json.loads((PACKAGE / "Package.resolved").read_text())["pins"]
    found = {pin["identity"]: pin["state"].get("version", "unknown") for pin in pins}
    return {
        "hummingbird": f"{found['hummingbird']}, GRDB {found['grdb.swift']}, SwiftNIO {found['swift-nio']}",
    }
