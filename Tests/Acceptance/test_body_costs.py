"""No body costs much more than a plain one of its length: counted in instructions under Callgrind, not in seconds."""
import re
import shutil
import subprocess

import pytest

from contract import STORED
from http_client import FORM, exchange, post_of
from server_process import Server, binary

LENGTH = 32 << 10
"""Of a token info, in bytes as they are sent."""
MOST = 2
"""The instructions for each byte, at most, when those of a body full of tags are 1."""
TOTAL = re.compile(r"^totals: (\d+)$", re.MULTILINE)

# What `token.php` removes are tags; a body begins with the first part and then repeats the second.
ALPHABETS = {
    "letters": ("", "x"), "escapes": ("", "%41"), "no escapes": ("", "%"), "blanks": ("", "+"), "NUL": ("", "%00"),
    "beginnings": ("", "<"), "tags": ("", "<b>x"), "nested tags": ("<a" + "<" * 1000, ">x"), "quotes": ("<", "\"'"),
    "declaration, e": ("<!", "e"), "declaration, E": ("<!", "E"), "declaration, almost": ("<!", "octype"),
    "declaration, nearly": ("<!", "doctye"), "declaration, -": ("<!", "x-"), "comment, -": ("<!--", "-"),
    "comment, >": ("<!--", ">"), "comment, ->": ("<!--", "->"), "instruction, l": ("<?", "l"), "instruction, ml": ("<?", "<?ml"),
    "instruction, quotes": ("<?", "\""), "instruction, parentheses": ("<?", "()"),
}


class CountedServer(Server):
    """A server in Callgrind's virtual processor."""

    def __init__(self, folder):
        super().__init__(folder, {"loops": 1}, prefix=[
            "valgrind", "--quiet", "--tool=callgrind", f"--callgrind-out-file={folder}/callgrind.%p"])

    def control(self, action):
        """Tells Callgrind what to do, and waits until it has done it."""
        done = subprocess.run(
            ["callgrind_control", action, str(self.process.pid)], capture_output=True, text=True, timeout=60, check=True)
        assert "OK" in done.stdout, done.stdout + done.stderr

    def instructions(self, data):
        """Those of a POST, in user space."""
        self.control("--zero")
        assert exchange(self.address, data).body == STORED
        before = set(self.folder.glob("callgrind.*.*"))
        self.control("--dump")
        [dump] = set(self.folder.glob("callgrind.*.*")) - before
        return int(TOTAL.findall(dump.read_text())[-1])


@pytest.fixture(name="counted")
def counted_server(tmp_path):
    linked = subprocess.run(["ldd", binary()], capture_output=True, text=True, check=True).stdout
    if not shutil.which("valgrind") or "libdispatch" in linked:
        pytest.skip("needs valgrind, and a release binary: Callgrind crashes with Swift's shared libraries")
    server = CountedServer(tmp_path)
    try:
        yield server
    finally:
        server.kill()


def post(first, repeated):
    """A POST of a body of the common length."""
    info = (first + repeated * LENGTH)[:LENGTH]
    body = f"unique_id=a&token_info={info}".encode()
    return post_of(body, FORM)


def test_no_body_costs_much_more_than_a_plain_one(counted):
    # The first requests fill caches and make buffers.
    for _ in range(2):
        counted.instructions(post("", "x"))
    counts = {name: counted.instructions(post(*parts)) / LENGTH for name, parts in ALPHABETS.items()}
    assert max(counts.values()) < MOST * counts["tags"], counts
