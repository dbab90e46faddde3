"""Package.swift declares everything that a module imports: a transitive dependency may disappear with a new version."""
import json
import re
import shutil
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
OF_THE_TOOLCHAIN = {"Dispatch", "Foundation", "FoundationEssentials", "FoundationNetworking", "Glibc", "Synchronization",
                    "Testing"}
# For apps, on Linux and on Apple's systems.
CLIENT = "TokenCacheClient"
OF_APPS = {"Foundation", "FoundationNetworking", "Security"}
IMPORT = re.compile(
    r"^(?:@\w+ +)*(?:(?:package|internal|public|private|fileprivate) +)?import +(?:\w+ +(?=\w+\.))?(\w+)", re.M)


def targets():
    """The targets of Package.swift by name."""
    if not shutil.which("swift"):
        pytest.skip("the Swift toolchain is missing")
    done = subprocess.run(["swift", "package", "dump-package"], cwd=ROOT, capture_output=True, text=True, timeout=300,
                          check=True)
    return {target["name"]: target for target in json.loads(done.stdout)["targets"]}


def folder(target):
    return ROOT / (target.get("path") or f"{'Tests' if target['type'] == 'test' else 'Sources'}/{target['name']}")


def test_what_a_module_imports_is_named_as_its_dependency():
    found = 0
    for name, target in targets().items():
        named = {(dependency.get("byName") or dependency.get("product") or dependency.get("target"))[0]
                 for dependency in target["dependencies"]}
        for file in sorted(folder(target).rglob("*.swift")):
            imported = set(IMPORT.findall(file.read_text(encoding="utf-8")))
            if name == CLIENT:
                assert imported <= OF_APPS and not named, file
                continue
            assert imported <= named | OF_THE_TOOLCHAIN, f"{name}: {file.relative_to(ROOT)}"
            # FoundationEssentials has no ICU, whose tables are larger than the rest of the program.
            assert "Foundation" not in imported or ROOT / "Tests" in file.parents, file
            found += len(imported)
    assert found > 100
