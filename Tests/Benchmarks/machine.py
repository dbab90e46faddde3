"""The machine that the benchmark runs on: cores, limits, packages, and its description in reports."""

import datetime
import os
import platform
import resource
import shutil
import subprocess
import sys
from pathlib import Path

CLOCK_TICKS = os.sysconf("SC_CLK_TCK")


class BenchmarkError(Exception):
    """An error that the person who runs the benchmark must correct."""


def note(text: str) -> None:
    """Prints progress."""
    print(text, file=sys.stderr)


def choose_cores() -> tuple[int, int]:
    """One core for the server and another for the client."""
    cores = sorted(os.sched_getaffinity(0))
    if len(cores) < 2:
        raise BenchmarkError("two usable cores are needed: one for the server, one for wrk")
    return cores[0], cores[1]


def raise_descriptor_limit() -> int:
    """Raises the soft limit of open files to the hard one and returns it."""
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    return hard


def install(*packages: str) -> None:
    """Installs the Debian packages that are missing."""
    script = Path(__file__).resolve().parents[2] / "deploy" / "packages"
    try:
        subprocess.run([script, *packages], check=True, stdout=sys.stderr)
    except (OSError, subprocess.CalledProcessError):
        raise BenchmarkError(f"could not install {' '.join(packages)}; please do it by hand") from None


def program(name: str) -> str:
    """The path of a program that may be on root's PATH only."""
    found = shutil.which(name) or shutil.which(name, path="/usr/sbin:/sbin")
    if not found:
        raise BenchmarkError(f"there is no program {name}")
    return found


def package_version(name: str) -> str:
    """The version of a Debian package."""
    result = subprocess.run(
        ["dpkg-query", "--show", "--showformat", "${Version}", name], capture_output=True, text=True, check=False
    )
    return result.stdout or "unknown"


def first_line(*command: str) -> str:
    """The first line that a command prints to standard output or standard error."""
    result = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=False)
    return (result.stdout.strip().splitlines() or ["unknown"])[0]


def value_of(path: str, key: str, separator: str) -> str:
    """The value of the first line `key separator value` of a file."""
    for line in Path(path).read_text().splitlines():
        name, _, value = line.partition(separator)
        if name.strip() == key:
            return value.strip().strip('"')
    return "unknown"


def file_system(folder: Path) -> str:
    """The file system of a folder, on which the cost of a durable write depends."""
    return first_line("findmnt", "--noheadings", "--output", "FSTYPE", "--target", str(folder))


def stolen_seconds(core: int) -> float:
    """The time so far that the host of a virtual machine did not give to a core (steal, proc_stat(5))."""
    return int(value_of("/proc/stat", f"cpu{core}", " ").split()[7]) / CLOCK_TICKS


def bytes_from_disk() -> int:
    """The bytes that all programs have read from disks so far, not from the page cache (proc_vmstat(5))."""
    return int(value_of("/proc/vmstat", "pgpgin", " ")) * 1024


def describe(folder: Path) -> dict[str, str]:
    """Machine, versions and date."""
    memory = int(value_of("/proc/meminfo", "MemTotal", ":").split()[0]) / (1 << 20)
    return {
        "date": datetime.datetime.now(datetime.timezone.utc).strftime("%Y-%m-%d %H:%M UTC"),
        "machine": f"{value_of('/proc/cpuinfo', 'model name', ':')}, {os.cpu_count()} cores, {memory:.1f} GiB",
        "system": f"{value_of('/etc/os-release', 'PRETTY_NAME', '=')}, Linux {platform.release().partition('-')[0]}",
        "token-cache": f"data on {file_system(folder)}",
        "libraries": f"SQLite {package_version('libsqlite3-0')}, {first_line('openssl', 'version').partition(' (')[0]}",
        "swift": first_line("swift", "--version"),
        "wrk": first_line("wrk", "--version").partition(" Copyright")[0].removeprefix("wrk "),
    }
