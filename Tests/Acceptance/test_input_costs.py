"""No input costs much more than a plain one of its length: counted in instructions under Callgrind, not in seconds."""
import re
import shutil
import subprocess

import pytest

from contract import STORED, found
from http_client import FORM, HOST, exchange, get, lines, post, post_of
from server_process import Server, binary

LENGTH = 32 << 10
"""Of a token info, in bytes as they are sent."""
HEAD = 15 << 10
"""Of a header line."""
QUERY = 7_900
COPIES = 16
"""Requests that are counted together if one alone is not much more than what the loop does at times by itself."""
MOST = 2
"""The instructions, at most, when those of the plain input are 1."""
TOTAL = re.compile(r"^totals: (\d+)$", re.MULTILINE)
SETTINGS = {"loops": 1, "json_bodies": "on", "access_log": "combined", "access": {"failures": "1000000/s"}}

JSON = "Content-Type: application/json"
MULTIPART = "Content-Type: multipart/form-data; boundary=b"
PART = "--b\r\nContent-Disposition: form-data"


def filled(first, repeated, last="", length=LENGTH):
    """A text of about this length, in which nothing is cut."""
    return first + repeated * ((length - len(first) - len(last)) // len(repeated)) + last


# What `token.php` removes are tags; a token info begins with the first part and then repeats the second.
FORMS = {
    "letters": ("", "x"), "escapes": ("", "%41"), "no escapes": ("", "%"), "blanks": ("", "+"), "NUL": ("", "%00"),
    "beginnings": ("", "<"), "tags": ("", "<b>x"), "nested tags": ("<a" + "<" * 1000, ">x"), "quotes": ("<", "\"'"),
    "declaration, e": ("<!", "e"), "declaration, E": ("<!", "E"), "declaration, almost": ("<!", "octype"),
    "declaration, nearly": ("<!", "doctye"), "declaration, -": ("<!", "x-"), "comment, -": ("<!--", "-"),
    "comment, >": ("<!--", ">"), "comment, ->": ("<!--", "->"), "instruction, l": ("<?", "l"), "instruction, ml": ("<?", "<?ml"),
    "instruction, quotes": ("<?", "\""), "instruction, parentheses": ("<?", "()"), "pairs": ("", "&"), "named pairs": ("", "a&"),
}
# The first, repeated and last part of a JSON value.
VALUES = {
    "escaped letters": ('"', r"\u0041", '"'), "line feeds": ('"', r"\n", '"'), "pairs": ('"', r"\ud83d\ude00", '"'),
    "beyond ASCII": ('"', "aé", '"'), "members": ("{", '"":1,', '"a":1}'), "escaped names": ("{", r'"\u0041":1,', '"a":1}'),
    "arrays": ('{"a":[', "[],", "1]}"), "numbers": ('{"a":[', "1,", "1]}"), "objects": ('{"a":[', '{"a":1},', "1]}"),
    "depth": ('{"a":[', "[" * 60 + "]" * 60 + ",", "1]}"),
}
# Those of the head of a part, or of its value if there is an empty line.
PARTS = {
    "names": ("", ";name=x", '; name="token_info"'), "semicolons": ("", ";", '; name="token_info"'),
    "equals signs": ("", ";=", '; name="token_info"'), "quotes": (";a=", "\"'\"'", '; name="token_info"'),
    "backslashes": (';name="', "\\", '"'), "lines": ("\n", "a\n", PART), "folded lines": ("", "\n ", '; name="token_info"'),
    "line feeds": ('; name="token_info"\n\n', "\n", "\n--b--"), "hyphens": ('; name="token_info"\n\n', "\n-", "\n--b--"),
    "delimiters": ('; name="token_info"\n\n', "\n--b", "\n"),
    "parts": ('; name="token_info"\n\n', "\n--b\nContent-Disposition:;name=a\n\n", "\n"),
}
# Of which a query has many.
PAIRS = {
    "empty": "&", "names": "a&", "arrays": "unique_id[=&", "open arrays": "unique_id[%&", "escaped names": "%aaaaaaaaaa&",
    "escaped ids": "u%6eique_id&", "escaped infos": "t%6fken_info&",
}
# The one long line of a head, and lines of which a head has many.
LINES = {
    "letters": ("X: ", "a"), "hops": ("X-Forwarded-For: ", "a,"), "no hops": ("X-Forwarded-For: ", ","),
    "a long hop": ("X-Forwarded-For: ", "1"), "a far hop": ("X-Forwarded-For: 1,", " ", ",1"),
    "trusted hops": ("X-Forwarded-For: ", "::1,", "::1"), "protocols": ("X-Forwarded-Proto: ", "https,", "https"),
    "options": ("Connection: ", "a,", "a"), "no options": ("Connection: ", ","), "known options": ("Connection: ", "keep-alive,", "x"),
    "almost options": ("Connection: ", "clos ,", "x"), "versions": ("If-None-Match: ", '"1",', '"1"'), "no versions": ("If-None-Match: ", ",", '"1"'),
    "codings": ("Transfer-Encoding: ", ",", "gzip"),
    "a credential": ("Authorization: Bearer ", "a"),
}
MANY = {
    "plain": "X-Forwarded-Four: 127.0.0.1", "hops": "X-Forwarded-For: 127.0.0.1", "protocols": "X-Forwarded-Proto: https",
    "options": "Connection: keep-alive", "many options": "Connection: clos , keep-alive",
}
TEXTS = {"quotes": '"', "letters": "x", "two bytes": "é", "mixed": "aé", "three bytes": "€", "four bytes": "😀", "controls": "\x01"}


class CountedServer(Server):
    """A server in Callgrind's virtual processor."""

    def __init__(self, folder):
        super().__init__(folder, SETTINGS, prefix=[
            "valgrind", "--quiet", "--tool=callgrind", "--separate-threads=yes", f"--callgrind-out-file={folder}/callgrind.%p"])
        self.dumps = set()

    def instructions(self, data, copies=1):
        """Those of a request, in user space, since the last call of this; and the last answer.

        Only the thread with the most counts, which is the loop: others work at times by themselves.
        """
        for _ in range(copies):
            answer = exchange(self.address, data)
        done = subprocess.run(
            ["callgrind_control", "--dump", str(self.process.pid)], capture_output=True, text=True, timeout=60, check=True)
        assert "OK" in done.stdout, done.stdout + done.stderr
        dumps = set(self.folder.glob("callgrind.*.*")) - self.dumps
        self.dumps |= dumps
        return max(int(total) for dump in dumps for total in TOTAL.findall(dump.read_text())) // copies, answer


@pytest.fixture(name="counted", scope="module")
def counted_server(tmp_path_factory):
    linked = subprocess.run(["ldd", binary()], capture_output=True, text=True, check=True).stdout
    if not shutil.which("valgrind") or "libdispatch" in linked:
        pytest.skip("needs valgrind, and a release binary: Callgrind crashes with Swift's shared libraries")
    server = CountedServer(tmp_path_factory.mktemp("counted"))
    try:
        # The first requests fill caches and make buffers.
        for _ in range(2):
            server.instructions(form(*FORMS["letters"]))
            server.instructions(get("a"))
        yield server
    finally:
        server.kill()


def form(first, repeated):
    return post_of(f"unique_id=a&token_info={(first + repeated * LENGTH)[:LENGTH]}".encode(), FORM)


def json(*value):
    return post_of(f'{{"unique_id":"a","token_info":{filled(*value)}}}'.encode(), JSON)


def multipart(*part):
    return post_of(f'{PART}; name="unique_id"\n\na\n{PART}{filled(*part)}\n\nx\n--b--\n'.encode(), MULTIPART)


def query(method, repeated):
    return lines(f"{method} /token?{filled('', repeated, length=QUERY)} HTTP/1.1", HOST)


def head(*fields):
    return get("h", "X-Forwarded-Proto: https", *fields)


def check(counts, plain):
    """Checks that no count exceeds that of the plain input by much."""
    assert max(counts.values()) < MOST * counts[plain], counts


def test_no_body_costs_much_more_than_a_plain_one(counted):
    counts = {}
    queries = {(method, name): (method, pair) for name, pair in PAIRS.items() for method in ("GET", "POST")}
    for make, inputs in (form, FORMS), (json, VALUES), (multipart, PARTS), (query, queries):
        for name, parts in inputs.items():
            data = make(*parts)
            count, _ = counted.instructions(data)
            counts[make.__name__, name] = count / len(data)
    check(counts, ("form", "tags"))


@pytest.mark.parametrize("heads", [
    {"plain": head(*["X: " + "a" * 150] * 95)} | {name: head(filled(*parts, length=HEAD)) for name, parts in LINES.items()}
    | {
        "a host": lines("GET /token HTTP/1.1", filled("Host: ", "a", length=HEAD)),
        "a type": post_of(b"x", filled("Content-Type: multipart/form-data;", "b", length=HEAD)),
    },
    {name: head(*[line] * 95) for name, line in MANY.items()},
], ids=["one line", "many lines"])
def test_no_head_costs_much_more_than_a_plain_one(counted, heads):
    assert exchange(counted.address, post("h", "x")).body == STORED
    counts = {}
    for name, data in heads.items():
        counts[name], _ = counted.instructions(data, COPIES)
    check(counts, "plain")


def test_no_text_costs_much_more_to_send_than_one_that_is_escaped(counted):
    counts = {}
    for name, character in TEXTS.items():
        text = filled("", character, length=2 * LENGTH // len(character.encode()))
        assert counted.instructions(post_of(f"unique_id=t&token_info={text}".encode(), FORM))[1].body == STORED
        counts[name], answer = counted.instructions(get("t"))
        assert answer.body == found(text)
    check(counts, "quotes")
