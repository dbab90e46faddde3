"""Opens the rows of a store, with the keys in its key ring and a library other than the server's.

A value is sealed with XAES-256-GCM: https://c2sp.org/XAES-256-GCM. Sources/TokenStore/Sealing/TokenSealer.swift says what is in it.
"""
import functools
import hmac
import struct

from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.ciphers import Cipher, algorithms, modes
from cryptography.hazmat.primitives.ciphers.aead import AESGCM

BLOCK = 16


class KeyRing:
    """The key ring in a file."""

    def __init__(self, path):
        lines = [line.split() for line in path.read_text().splitlines() if not line.startswith("#")]
        [self.index] = (bytes.fromhex(key) for name, *_, key in lines if name == "index")
        self.keys = {int(name): bytes.fromhex(key) for name, *_, key in lines if name != "index"}

    def row_key(self, unique_id):
        """The key of the row of an id's token."""
        return hmac.digest(self.index, unique_id.encode(), "sha256")

    def open(self, value, row_key, key_number, written_at, expires_at):
        """The id and the token info of a token's row, or the user and the key of a session's."""
        times = struct.pack(">q?q", written_at, expires_at is not None, expires_at or 0)
        text = unsealed(self.keys[key_number], value, struct.pack(">I", key_number) + times + row_key)
        assert text is not None, f"the row {row_key.hex()} does not open with key {key_number}"
        end = 2 + int.from_bytes(text[:2], "big")
        return text[2:end], text[end:]


# The same rows are read again and again.
@functools.cache
def unsealed(key, value, associated):
    """The text of a sealed value, or None if it was changed."""
    try:
        return AESGCM(derived_key(key, value[:12])).decrypt(value[12:24], value[24:], associated)
    except InvalidTag:
        return None


@functools.cache
def derived_key(key, half_nonce):
    """The key that belongs to the first half of a nonce."""
    encryptor = Cipher(algorithms.AES(key), modes.ECB()).encryptor()
    zeros = int.from_bytes(encryptor.update(bytes(BLOCK)), "big")
    subkey = (zeros << 1) % (1 << 128) ^ (0x87 if zeros >> 127 else 0)
    blocks = (int.from_bytes(bytes([0, counter]) + b"X\0" + half_nonce, "big") ^ subkey for counter in (1, 2))
    return b"".join(encryptor.update(block.to_bytes(BLOCK, "big")) for block in blocks)
