"""RC2 in CBC mode (RFC 2268), decryption alone: what keytool before Java 16, and openssl, locked certificates in PKCS12 with.

With 40 bits, for which libraries do not have it. Nothing is protected by it here: whoever has such a store has its password too.
"""

from __future__ import annotations

import struct
from typing import Final

BLOCK_BYTES: Final = 8

_PI_TABLE: Final = bytes.fromhex(
    "d978f9c419ddb5ed28e9fd794aa0d89dc67e37832b76538e624c6488448bfba2"
    "179a59f587b34f1361456d8d09817d32bd8f40eb86b77b0bf09521225c6b4e82"
    "54d66593ce60b21c7356c014a78cf1dc1275ca1f3bbee4d1423dd430a33cb626"
    "6fbf0eda4669075727f21d9bbc944303f811c7f690ef3ee706c3d52fc8661ed7"
    "08e8eade8052eef784aa72ac354d6a2a961ad2715a1549744b9fd05e0418a4ec"
    "c2e0416e0f51cbcc2491af50a1f47039997c3a8523b8b47afc02365b25559731"
    "2d5dfa98e38a92ae05df2910676cbac9d300e6cfe19ea82c6316013f58e289a9"
    "0d38341bab33ffb0bb480c5fb9b1cd2ec5f3db47e5a59c770aa62068fe7fc1ad"
)
_ROTATIONS: Final = (1, 2, 3, 5)
_MIXING_ROUNDS: Final = (5, 6, 5)
"""With a round of mashing between them."""


def decrypt_cbc(key: bytes, iv: bytes, data: bytes, *, effective_bits: int | None = None) -> bytes:
    """The plain text, padding included; `data` is whole blocks. Without `effective_bits` all of the key's count."""
    words = _expanded(key, len(key) * 8 if effective_bits is None else effective_bits)
    plain, before = bytearray(), iv
    for position in range(0, len(data), BLOCK_BYTES):
        block = data[position : position + BLOCK_BYTES]
        plain += bytes(left ^ right for left, right in zip(_decrypted(words, block), before, strict=True))
        before = block
    return bytes(plain)


def _expanded(key: bytes, effective_bits: int) -> tuple[int, ...]:
    size = (effective_bits + 7) // 8
    mask = 255 >> (8 * size - effective_bits)
    expanded = bytearray(key)
    for index in range(len(key), 128):
        expanded.append(_PI_TABLE[(expanded[index - 1] + expanded[index - len(key)]) & 255])
    expanded[128 - size] = _PI_TABLE[expanded[128 - size] & mask]
    for index in range(127 - size, -1, -1):
        expanded[index] = _PI_TABLE[expanded[index + 1] ^ expanded[index + size]]
    return struct.unpack("<64H", expanded)


def _decrypted(words: tuple[int, ...], block: bytes) -> bytes:
    r = list(struct.unpack("<4H", block))
    next_word = len(words) - 1
    for turn, rounds in enumerate(_MIXING_ROUNDS):
        if turn:
            for i in (3, 2, 1, 0):
                r[i] = (r[i] - words[r[i - 1] & 63]) & 0xFFFF
        for _ in range(rounds):
            for i in (3, 2, 1, 0):
                rotated = (r[i] >> _ROTATIONS[i] | r[i] << (16 - _ROTATIONS[i])) & 0xFFFF
                r[i] = (rotated - words[next_word] - (r[i - 1] & r[i - 2]) - (~r[i - 1] & r[i - 3])) & 0xFFFF
                next_word -= 1
    return struct.pack("<4H", *r)
