"""Reports a read position that the log does not have."""

from __future__ import annotations

from clients.reader.core.positions import Position
from runtime.logs import get_logger
from wire.protocol.ids import PartitionKey

_log = get_logger("clients.reader.skipped_offsets")


def report_skipped(place: PartitionKey, lost: Position, offset: int, *, log_start: int, log_end: int) -> int:
    """Log where reading continues after a lost position; the number of offsets that are skipped."""
    skipped = max(0, offset - lost.offset)
    _log.warning(
        "a read position is out of range",
        partition=f"{place[0]}-{place[1]}",
        position=lost.offset,
        log=f"{log_start} to {log_end}",
        goes_on_at=offset,
        skipped_offsets=skipped,
        read_again_offsets=max(0, lost.offset - offset),
    )
    return skipped
