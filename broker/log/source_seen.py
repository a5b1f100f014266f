"""What a mirror last said of the source of a copied log. Kept beside the log, so that a standby
which is restarted after its source was lost still knows how far behind it was, and since when.

Changed by broker/replication/mirror_append.py; checkpointed by log_directory.py once a minute and
at a clean stop.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

UNKNOWN: Final = -1


@dataclass(slots=True)
class SourceSeen:
    """The source's high watermark (UNKNOWN: no mirror has said), and when the mirror saw it (Unix
    ms, 0 never).
    """

    high_watermark: int = UNKNOWN
    seen_at_ms: int = 0

    @property
    def is_known(self) -> bool:
        """Whether a mirror has said anything."""
        return self.high_watermark != UNKNOWN

    def forget(self) -> None:
        """The log is nobody's copy any more: what comes of it again is told again."""
        self.high_watermark, self.seen_at_ms = UNKNOWN, 0
