"""The tokens and the requests for each row of the table."""

import dataclasses
import random
import re
import string
import uuid
from pathlib import Path
from urllib.parse import quote

TOKEN_COUNT = 10_000
SEED = 20_240_229
# The ids of numbered tokens, for printf in Python, SQLite and Lua.
ID_FORMAT = "00000000-0000-4000-8000-%012d"
# What stands before the user's number in a form: digits that the client replaces in each POST. A token that is already
# stored would be no change, for which SQLite writes nothing.
USER_FIELD = quote('"com.sdk:UserIDKey":"', safe="").encode()
USER_DIGITS = 15


@dataclasses.dataclass(frozen=True)
class Workload:
    """Requests of one length, sent in random order."""

    name: str
    requests: list[bytes]
    body_bytes: int
    expected: bytes
    """A part of every correct answer."""
    is_tls: bool = False

    @property
    def request_bytes(self) -> int:
        """The length of each request."""
        return len(self.requests[0])

    @property
    def keeps_connections(self) -> bool:
        """Whether a connection stays open after an answer."""
        return b"Connection: close" not in self.requests[0]

    @property
    def user_offset(self) -> int:
        """Where in each request the user's number is, or -1."""
        offset = self.requests[0].find(USER_FIELD)
        return offset + len(USER_FIELD) if offset >= 0 else -1

    def script(self, folder: Path, seed: int) -> list[str]:
        """The script for wrk and its arguments, with its files in a folder."""
        requests = folder / "requests"
        requests.write_bytes(b"".join(self.requests))
        return ["replay.lua", str(requests), str(self.request_bytes), str(seed), str(self.user_offset)]


@dataclasses.dataclass(frozen=True)
class Numbered(Workload):
    """Requests for random tokens whose ids contain numbers; the first request is the template."""

    count: int = 0

    def script(self, folder: Path, seed: int) -> list[str]:
        template = self.requests[0].decode().replace("%", "%%").replace(ID_FORMAT % 0, ID_FORMAT)
        user = USER_FIELD.decode().replace("%", "%%")
        template = re.sub(rf"(?<={user})[0-9]{{{USER_DIGITS}}}", "%s", template)
        return ["numbered.lua", template, str(self.count), str(seed)]


@dataclasses.dataclass(frozen=True)
class Paced(Workload):
    """Requests at a fixed rate, however fast the server is."""

    requests_per_second: float = 0


def unique_ids(seed: int) -> list[str]:
    """An id for each token, the same ones for the same seed."""
    source = random.Random(seed)
    return [str(uuid.UUID(int=source.getrandbits(128), version=4)) for _ in range(TOKEN_COUNT)]


def token_infos(seed: int) -> list[str]:
    """Token infos as a login SDK stores them, about 330 bytes, all of one length in any encoding."""
    source = random.Random(seed)

    def token_info() -> str:
        token = "".join(source.choices(string.ascii_letters + string.digits, k=132))
        user = "".join(source.choices(string.digits, k=USER_DIGITS))
        return (
            f'{{"com.sdk:TokenKey":"{token}","com.sdk:ExpirationDateKey":"2031-09-10T18:02:21.457+0530",'
            f'"com.sdk:UserIDKey":"{user}","com.sdk:PermissionsKey":["public_profile","email"],'
            '"com.sdk:IsLoginKey":true}'
        )

    return [token_info() for _ in range(TOKEN_COUNT)]


def get(unique_id: str) -> bytes:
    """A GET request."""
    return f"GET /token?unique_id={unique_id} HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n".encode()


def form(unique_id: str, token_info: str) -> bytes:
    """A form-encoded body."""
    return f"unique_id={unique_id}&token_info={quote(token_info, safe='')}".encode()


def post(body: bytes) -> bytes:
    """A POST request of a form."""
    head = (
        "POST /token HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Type: application/x-www-form-urlencoded\r\n"
        f"Content-Length: {len(body)}\r\n\r\n"
    )
    return head.encode() + body


def gets(name: str, ids: list[str], expected: bytes) -> Workload:
    """A workload of GET requests."""
    return Workload(name, [get(unique_id) for unique_id in ids], 0, expected)


def posts(name: str, ids: list[str], infos: list[str]) -> Workload:
    """A workload of POST requests."""
    bodies = [form(unique_id, info) for unique_id, info in zip(ids, infos)]
    return Workload(name, [post(body) for body in bodies], len(bodies[0]), b'{"status":"true"}')


def numbered_gets(count: int) -> Numbered:
    """GET requests for numbered tokens."""
    return Numbered("GET hit", [get(ID_FORMAT % 0)], 0, b'"token_info":', count=count)


def paced(workload: Workload, requests_per_second: float) -> Paced:
    """The same requests at a rate."""
    name = f"{workload.name}, {requests_per_second:,.0f}/s"
    return Paced(
        name, workload.requests, workload.body_bytes, workload.expected, requests_per_second=requests_per_second
    )


def over_tls(name: str, workload: Workload, field: str = "") -> Workload:
    """The same requests over TLS, with an additional header."""
    requests = [request.replace(b"\r\n", f"\r\n{field}".encode(), 1) for request in workload.requests]
    return dataclasses.replace(workload, name=name, requests=requests, is_tls=True)


NUMBERED_INFO = token_infos(SEED + 4)[0]
STORED_IDS = unique_ids(SEED)
LOADING = posts("loading", STORED_IDS, token_infos(SEED + 1))
GET_HIT = gets("GET hit", STORED_IDS, b'"token_info":')
GET_MISS = gets("GET miss", unique_ids(SEED + 2), b'"50002"')
POST = posts("POST", STORED_IDS, token_infos(SEED + 3))
GET_UNCACHED = dataclasses.replace(GET_HIT, name="GET hit, from SQLite")
TLS_GET = over_tls("TLS GET hit", GET_HIT)
# wrk does not resume sessions: each connection makes a full handshake.
TLS_HANDSHAKE = over_tls("TLS handshake", GET_HIT, "Connection: close\r\n")
