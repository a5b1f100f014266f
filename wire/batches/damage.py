"""Whether bytes are a sound batch, and whether damaged ones are proven to have been a sound one.
Pure.

The proof is the checksum. Base offset, length, leader epoch and checksum of a batch lie in front of
what the checksum covers. Where the damaged batch has these four as the sound one has them, its own
checksum says what its content was, and the sound content fits it. Where the damage lies in the
stored checksum itself, all other bytes are those of the sound batch, which fit its checksum.
"""

from __future__ import annotations

from typing import Final

from wire.batches.record_batch import InvalidBatch, iterate_headers, verify_crc

CRC_AT: Final = slice(17, 21)
COVERED_FROM: Final = 21
"""Position of the first byte that the checksum covers: the batch's attributes."""


def batch_problem(content: bytes) -> str:
    """Describe why the bytes are no sound batch, as the end of a sentence; empty if they are
    one.
    """
    try:
        headers = list(iterate_headers(content))
    except InvalidBatch as error:
        return f"is damaged: {error}"
    if len(headers) != 1:
        return f"is {len(headers)} batches"
    return "" if verify_crc(content, *headers[0]) else "does not fit its checksum"


def is_same_batch(damaged: bytes, sound: bytes) -> bool:
    """Whether the damaged bytes prove that they were the sound ones, which fit their checksum."""
    has_its_checksum = damaged[:COVERED_FROM] == sound[:COVERED_FROM]
    has_its_content = (
        damaged[: CRC_AT.start] == sound[: CRC_AT.start] and damaged[COVERED_FROM:] == sound[COVERED_FROM:]
    )
    return len(damaged) == len(sound) and (has_its_checksum or has_its_content)
