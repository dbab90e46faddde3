"""Puts a slow, failing or recorded disk under a server, with the library in shim/."""
import mmap
import os
import struct
import subprocess
from pathlib import Path

from process_tree import Closeable
from server_process import Server

SOURCE = Path(__file__).parent / "shim" / "storage_shim.c"
ALWAYS = 65_536
# struct control in shim/storage_shim.c
FIELDS = (
    "seed", "sync_delay_microseconds", "write_delay_microseconds", "write_failures", "short_writes", "sync_failures", "truncate_failures",
    "next_database_syncs", "late_database_syncs", "error", "end_after_events", "failed_writes", "shortened_writes",
    "failed_syncs", "failed_truncates", "delayed_writes",
)
FAULTS = ("write_failures", "short_writes", "sync_failures", "truncate_failures", "next_database_syncs",
          "late_database_syncs")
COUNTS = ("failed_writes", "shortened_writes", "failed_syncs", "failed_truncates")


def compile_library(folder, source=SOURCE):
    """Compiles a library into a folder and returns its path."""
    library = folder / f"{source.stem}.so"
    subprocess.run(
        ["cc", "-shared", "-fPIC", "-O2", "-Wall", "-Wextra", "-Werror", "-o", str(library), str(source), "-ldl"],
        check=True)
    return library


class StorageShim(Closeable):
    """A simulated disk in its own folder, the controls of its faults, and the servers that run on it, which end with it."""

    def __init__(self, library, folder, is_recorded=False, seed=1):
        folder = Path(os.path.realpath(folder))
        self.library = library
        self.disk = folder / "disk"
        self.disk.mkdir(parents=True)
        self.data = self.disk / "data"
        self.recording = folder / "recording" if is_recorded else None
        self.control = folder / "control"
        self.control.write_bytes(struct.pack(f"<{len(FIELDS)}I", seed, *[0] * (len(FIELDS) - 1)))
        with open(self.control, "r+b") as file:
            self.knobs = mmap.mmap(file.fileno(), 0)
        self.servers = []

    def close(self):
        for server in self.servers:
            server.kill()
        self.knobs.close()

    def get(self, field):
        """The value of a control or a count."""
        return struct.unpack_from("<I", self.knobs, 4 * FIELDS.index(field))[0]

    def set(self, **values):
        """Sets controls at once. Chances are per 65,536 calls; the controls of database syncs are counts."""
        for field, value in values.items():
            struct.pack_into("<I", self.knobs, 4 * FIELDS.index(field), value)

    def heal(self):
        """Ends all faults."""
        self.set(**dict.fromkeys(FAULTS, 0))

    def faults(self):
        """The number of calls that have failed so far."""
        return sum(self.get(count) for count in COUNTS)

    @property
    def environment(self):
        """Puts the disk under a process."""
        return {
            "LD_PRELOAD": str(self.library),
            "STORAGE_SHIM_FOLDER": str(self.disk),
            "STORAGE_SHIM_CONTROL": str(self.control),
            **({"STORAGE_SHIM_RECORDING": str(self.recording)} if self.recording else {}),
        }

    def serve(self, folder, settings=None, *flags, **options):
        """A server whose data folder is on this disk."""
        server = Server(folder, settings, *flags, environment=self.environment, data=self.data, **options)
        self.servers.append(server)
        return server
