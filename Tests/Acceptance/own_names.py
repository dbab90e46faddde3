"""Names of hosts that only some processes know, and that move to other addresses while these run.

    names = OwnNames(tmp_path)
    names.set("database.test", "127.0.0.1")
    server = serve(settings, prefix=names.prefix)
    names.set("database.test", "127.0.0.2")
"""
import os
from pathlib import Path

import pytest


class OwnNames:
    """A file in place of /etc/hosts, for the processes that are started with the prefix. Only root can replace it."""

    def __init__(self, folder):
        if os.geteuid() != 0:
            pytest.skip("only root can replace /etc/hosts for some processes")
        self.file = Path(folder) / "hosts"
        self.addresses = {}
        self.file.write_text(self._text(), encoding="ascii")
        # Each command becomes the next one, and in the end the process itself, whose id stays the same.
        self.prefix = ["unshare", "--mount", "sh", "-c", 'mount --bind "$0" /etc/hosts && exec "$@"', str(self.file)]

    def set(self, name, *addresses):
        """Gives a name these addresses, or none. Who has resolved it before may still use the old ones."""
        self.addresses[name] = addresses
        # In place, because the file is mounted.
        self.file.write_text(self._text(), encoding="ascii")

    def _text(self):
        return "127.0.0.1 localhost\n" + "".join(
            f"{address} {name}\n" for name, addresses in self.addresses.items() for address in addresses)
