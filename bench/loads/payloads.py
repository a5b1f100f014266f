"""Record values for the load: lines like JSON with common and rare words, numbers and hexadecimal
ids, the same in every run.
"""

from __future__ import annotations

import random
from collections.abc import Iterator
from pathlib import Path

SEED = 7
WORD_COUNT = 2000
FILE_BYTES_MAX = 4_000_000
LINES_MIN = 400


def payloads(size_bytes: int) -> list[bytes]:
    """Distinct values of exactly this size, without line feeds."""
    chance = random.Random(f"{SEED}-{size_bytes}")
    words = ["".join(chance.choices("etaoinshrdlucmfwypvbgk", k=chance.randint(2, 9))) for _ in range(WORD_COUNT)]
    count = max(LINES_MIN, min(5_000, FILE_BYTES_MAX // size_bytes))
    return [_line(size_bytes, chance, words) for _ in range(count)]


def write_payload_file(path: Path, size_bytes: int) -> None:
    """The values as lines."""
    path.write_bytes(b"".join(value + b"\n" for value in payloads(size_bytes)))


def _line(size_bytes: int, chance: random.Random, words: list[str]) -> bytes:
    start = f'{{"id":"{chance.getrandbits(64):016x}","user":{chance.randrange(10**6)},"amount":{chance.uniform(0, 1000):.2f},"text":"'
    parts, length = [start], len(start)
    for word in _words(chance, words):
        if length >= size_bytes - 2:
            break
        parts.append(word)
        length += len(word)
    return ("".join(parts)[: size_bytes - 2] + '"}').encode("ascii")


def _words(chance: random.Random, words: list[str]) -> Iterator[str]:
    while True:
        yield words[min(len(words) - 1, int(chance.paretovariate(0.7)))] + " "
        if chance.random() < 0.1:
            yield f"{chance.getrandbits(24):06x} "
