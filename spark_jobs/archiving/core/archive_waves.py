"""Divides the plan of a run into waves: ranges that get one manifest together. Pure.

A run that is killed keeps its finished waves. The ranges of a log are in the order of their offsets
over all waves, so that the archive of a log has no gap after any wave.
"""

from __future__ import annotations

from typing import Final, NamedTuple

from spark_jobs.archiving.core.archive_plan import RANGE_BYTES_MAX, ArchivePlan, Piece
from spark_jobs.archiving.core.manifest import Hole, LogId

WAVE_BYTES_PER_CORE: Final = 4 * RANGE_BYTES_MAX
"""The default: four ranges for a core, so that cores seldom wait for the last range of a wave."""
RANGE_COST_BYTES: Final = 1024 * 1024
"""A range takes as long as so many bytes, also when it is smaller: waves over many small logs have
an end, too.
"""


class Wave(NamedTuple):
    """Ranges and holes of one manifest."""

    pieces: tuple[Piece, ...]
    holes: tuple[Hole, ...]


def waves(planned: ArchivePlan, *, bytes_max: int) -> list[Wave]:
    """The plan in waves of at most `bytes_max` estimated bytes, or one range each; at least one
    wave. A hole is in the wave of the first range behind it, or in the first wave if its log has no
    range.
    """
    shares: list[list[Piece]] = [[]]
    filled = 0
    for piece in planned.pieces:
        cost = max(piece.bytes, RANGE_COST_BYTES)
        if shares[-1] and filled + cost > bytes_max:
            shares.append([])
            filled = 0
        shares[-1].append(piece)
        filled += cost
    first_waves: dict[LogId, int] = {}
    for number, share in enumerate(shares):
        for piece in share:
            first_waves.setdefault(piece.log, number)
    return [
        Wave(tuple(share), tuple(hole for hole in planned.holes if first_waves.get(hole.log, 0) == number))
        for number, share in enumerate(shares)
    ]
