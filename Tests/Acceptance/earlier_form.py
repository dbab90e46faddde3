"""Seals rows as versions up to schema 3 did, without binding them to their times."""
import os
import struct

from cryptography.hazmat.primitives.ciphers.aead import AESGCM


def set_back(database, ring):
    """Seals every row as an earlier version did, and marks the keys as such a version's; leaves unencrypted stores alone."""
    if not ring.exists():
        return
    lines = [line.split() for line in ring.read_text().splitlines()]
    keys = {int(words[0]): AESGCM(bytes.fromhex(words[2])) for words in lines if words and words[0].isdigit()}
    rows = database.execute("SELECT slot, key, written_at, expires_at, key_number, value FROM token").fetchall()
    for slot, key, written_at, expires_at, number, value in rows:
        # The same as in TokenSealer.swift.
        times = struct.pack(">q?q", written_at, expires_at is not None, expires_at or 0)
        text = keys[number].decrypt(value[5:17], value[17:], b"\2" + struct.pack(">I", number) + value[1:5] + times + key)
        nonce = os.urandom(12)
        sealed = keys[number].encrypt(nonce, text, b"\1" + struct.pack(">I", number) + key)
        database.execute("UPDATE token SET value = ? WHERE slot = ?", [b"\1" + nonce + sealed, slot])
    ring.write_text(ring.read_text().replace(" binds-times", ""))
