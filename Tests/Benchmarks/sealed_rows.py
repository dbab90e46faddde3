"""Rows as token-cache seals them, also for COPY in its binary format (postgresql.org/docs/15/sql-copy.html)."""

import hmac
import os
import random
import string
import struct
import time
from collections.abc import Iterable, Iterator
from pathlib import Path

from cryptography.hazmat.primitives.ciphers import Cipher, algorithms, modes
from cryptography.hazmat.primitives.ciphers.aead import AESGCM

from postgres_server import PostgresServer
from workloads import ID_FORMAT, SEED

BEGIN = b"PGCOPY\n\xff\r\n\0" + struct.pack(">ii", 0, 0)
END = struct.pack(">h", -1)
COLUMNS = "key, version, written_at, expires_at, key_number, value"
BATCH = 10_000
LIFE_SECONDS = 60 * 86_400
"""How long a token of the app's users lives; those that are loaded were stored evenly in this time."""
# The lower bits of a version, as `VersionClock.processBits`. With more, all rows would count as written in the far future, and
# each write would be tried, examined and repeated.
VERSION_BITS = 10
# Bytes of a sealed value besides the id and the token info, as in `TokenSealer`.
OVERHEAD = 42


class KeyRing:
    """The keys of a ring with one numbered key, in the form of `KeyRingText`."""

    def __init__(self, file: Path) -> None:
        lines = [line.split() for line in file.read_text().splitlines() if line and not line.startswith("#")]
        keys = {words[0]: words[1:] for words in lines}
        self.index = bytes.fromhex(keys["index"][0])
        self.number = 1
        self.blocks = Cipher(algorithms.AES256(bytes.fromhex(keys["1"][1])), modes.ECB()).encryptor()
        doubled = int.from_bytes(self.blocks.update(bytes(16)), "big") << 1
        self.subkey = doubled ^ (doubled >> 128) * (1 << 128 | 0x87)

    def key(self, unique_id: bytes) -> bytes:
        """The key of a row, as in `RowCoder`."""
        return hmac.digest(self.index, unique_id, "sha256")

    def sealed(
        self, unique_id: bytes, info: bytes, written_at: int, expires_at: int | None
    ) -> tuple[bytes, bytes]:
        """The key and the value of a row, as in `RowCoder` and `TokenSealer`."""
        key = self.key(unique_id)
        nonce = os.urandom(24)
        expiration = (0, 0) if expires_at is None else (1, expires_at)
        associated = struct.pack(">IqBq", self.number, written_at, *expiration) + key
        text = struct.pack(">H", len(unique_id)) + unique_id + info
        return key, nonce + self.cipher(nonce[:12]).encrypt(nonce[12:], text, associated)

    def cipher(self, nonce: bytes) -> AESGCM:
        """AES-GCM under the key that XAES-256-GCM derives from the first half of a nonce, as in `TokenCipher`."""
        inputs = (int.from_bytes(bytes([0, counter, ord("X"), 0]) + nonce, "big") for counter in (1, 2))
        return AESGCM(self.blocks.update(b"".join((one ^ self.subkey).to_bytes(16, "big") for one in inputs)))


def row(key: bytes, written_at: int, expires_at: int, key_number: int, value: bytes) -> bytes:
    """A row of the table `token`."""
    return struct.pack(
        f">hi{len(key)}siqiqiqiqi", 6, len(key), key, 8, written_at * 1_000_000 << VERSION_BITS, 8, written_at, 8, expires_at, 8,
        key_number, len(value)) + value


def times(count: int) -> Iterator[tuple[int, int]]:
    """When each of so many tokens was written, and when it expires."""
    now = int(time.time())
    for number in range(count):
        written_at = now - LIFE_SECONDS + number * LIFE_SECONDS // count
        yield written_at, written_at + LIFE_SECONDS


def load(server: PostgresServer, database: str, rows: Iterable[bytes]) -> None:
    """Adds rows to the table `token`, whose indexes grow as they do with single writes."""
    with server.copying(database, f"token ({COLUMNS})") as process:
        process.stdin.write(BEGIN)
        batch = []
        for one in rows:
            batch.append(one)
            if len(batch) == BATCH:
                process.stdin.write(b"".join(batch))
                batch.clear()
        process.stdin.write(b"".join(batch) + END)
    server.sql("VACUUM ANALYZE token", database)
    server.sql("CHECKPOINT")


def sealed_rows(ring: KeyRing, count: int, info: bytes) -> Iterator[bytes]:
    """The rows of numbered tokens, which a server with this ring can read."""
    for number, (written_at, expires_at) in enumerate(times(count)):
        key, value = ring.sealed((ID_FORMAT % number).encode(), info, written_at, expires_at)
        yield row(key, written_at, expires_at, ring.number, value)


def opaque_rows(keys: list[bytes], length: int) -> Iterator[bytes]:
    """Rows with these keys, in random order as that of hashes is, and values of this length."""
    source = random.Random(SEED)
    for key, (written_at, expires_at) in zip(source.sample(keys, len(keys)), times(len(keys))):
        yield row(key, written_at, expires_at, 1, opaque_value(source, length))


def opaque_value(source: random.Random, length: int) -> bytes:
    """A value that is the same as text and in binary."""
    return "".join(source.choices(string.ascii_letters + string.digits, k=length)).encode()
