"""A small disk in memory that a test can fill and empty."""
import os
import subprocess
import tempfile
from pathlib import Path

import pytest

import caretaker
from process_tree import Closeable
from server_process import until

SECONDS = 60
FULL_SECONDS = 10


class SmallDisk(Closeable):
    """A tmpfs(5) of its own; only root can make one, so the test is skipped for others. It uses no more memory than its files."""

    def __init__(self, megabytes=4096):
        if os.geteuid() != 0:
            pytest.skip("only root can mount a small disk")
        self.size = megabytes << 20
        self.folder = Path(tempfile.mkdtemp(prefix="small-disk-", dir="/tmp"))
        self.unmount = ["umount", "--lazy", str(self.folder)]
        caretaker.remember(folder=self.folder)
        done = self._mount(f"size={self.size},mode=0777")
        if done.returncode != 0:
            self.close()
            pytest.skip(f"no small disk can be mounted here: {done.stderr.strip()}")
        caretaker.remember(command=self.unmount)

    def _mount(self, options):
        return subprocess.run(
            ["mount", "-t", "tmpfs", "-o", options, "tmpfs", str(self.folder)], capture_output=True, text=True, check=False,
            timeout=SECONDS)

    def fill(self):
        """Makes it as small as what is on it, so that the next write that needs room fails with ENOSPC."""
        def is_full():
            used = os.statvfs(self.folder)
            # Refused if somebody has written more meanwhile.
            self._mount(f"remount,size={(used.f_blocks - used.f_bfree) * used.f_frsize}")
            return os.statvfs(self.folder).f_bfree == 0
        until(is_full, FULL_SECONDS, 0)

    def empty(self):
        """Ends the fault."""
        done = self._mount(f"remount,size={self.size}")
        assert done.returncode == 0, f"the disk is still full: {done.stderr.strip()}"

    def close(self):
        """Unmounts it, also while files on it are open."""
        subprocess.run(self.unmount, capture_output=True, check=False, timeout=SECONDS)
        if self.folder.is_dir() and not os.path.ismount(self.folder):
            self.folder.rmdir()
            caretaker.forget(command=self.unmount)
            caretaker.forget(folder=self.folder)
