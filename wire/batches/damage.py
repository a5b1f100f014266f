"""Checks if bytes are an intact batch, and if a damaged batch is proven to be a copy of an intact
one. Pure.

The proof is the checksum. The checksum of a batch does not cover base offset, length, leader epoch
and the checksum itself. If the damaged batch has these four fields of the intact one, its checksum
identifies its former content, and the intact content matches it. If the damage is in the stored
checksum, all other bytes equal those of the intact batch.
"""

from __future__ import annotations

from typing import Final

from wire.batches.record_batch import InvalidBatch, iterate_headers, verify_crc

CRC_AT: Final = slice(17, 21)
COVERED_FROM: Final = 21
"""Position of the first byte that the checksum covers: the batch's attributes."""


def batch_problem(content: bytes) -> str:
    """The reason why the bytes are not an intact batch, as the end of a sentence; empty if they
    are.
    """
    try:
        headers = list(iterate_headers(content))
    except InvalidBatch as error:
        return f"is damaged: {error}"
    if len(headers) != 1:
        return f"is {len(headers)} batches"
    return "" if verify_crc(content, *headers[0]) else "does not fit its checksum"


def is_same_batch(damaged: bytes, sound: bytes) -> bool:
    """True if the damaged bytes are proven to be a copy of the intact ones."""
    has_its_checksum = damaged[:COVERED_FROM] == sound[:COVERED_FROM]
    has_its_content = (
        damaged[: CRC_AT.start] == sound[: CRC_AT.start] and damaged[COVERED_FROM:] == sound[COVERED_FROM:]
    )
    return len(damaged) == len(sound) and (has_its_checksum or has_its_content)
