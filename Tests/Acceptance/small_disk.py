"""A small disk in memory that a test can fill and empty."""
import errno
import os
import subprocess
import tempfile
from pathlib import Path

import pytest

import caretaker


class SmallDisk:
    """A tmpfs(5) of its own; only root can make one, so the test is skipped for others."""

    def __init__(self, megabytes=512):
        if os.geteuid() != 0:
            pytest.skip("only root can mount a small disk")
        self.folder = Path(tempfile.mkdtemp(prefix="small-disk-", dir="/tmp"))
        self.unmount = ["umount", "--lazy", str(self.folder)]
        caretaker.remember(folder=self.folder)
        self.ballast = self.folder / "ballast"
        done = subprocess.run(
            ["mount", "-t", "tmpfs", "-o", f"size={megabytes}m,mode=0777", "tmpfs", str(self.folder)],
            capture_output=True, text=True, check=False, timeout=60)
        if done.returncode != 0:
            self.close()
            pytest.skip(f"no small disk can be mounted here: {done.stderr.strip()}")

        caretaker.remember(command=self.unmount)

    def fill(self):
        """Fills it to the last page, so that the next write that needs room fails with ENOSPC."""
        with open(self.ballast, "ab") as file:
            size = os.statvfs(self.folder).f_bavail * os.statvfs(self.folder).f_frsize
            while size >= 4096:
                try:
                    os.posix_fallocate(file.fileno(), file.seek(0, os.SEEK_END), size)
                except OSError as error:
                    if error.errno != errno.ENOSPC:
                        raise
                    # Others wrote meanwhile.
                    size //= 2

    def empty(self):
        """Ends the fault."""
        self.ballast.unlink(missing_ok=True)

    def close(self):
        """Unmounts it, also while files on it are open."""
        subprocess.run(self.unmount, capture_output=True, check=False, timeout=60)
        if self.folder.is_dir() and not os.path.ismount(self.folder):
            self.folder.rmdir()
            caretaker.forget(command=self.unmount)
            caretaker.forget(folder=self.folder)
