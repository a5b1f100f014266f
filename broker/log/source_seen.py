"""The last report of a mirror about the source of a copied log. The broker stores it beside the
log, so that a standby which restarts after its source was lost still knows how far behind it was,
and since when.

`broker/replication/mirror_append.py` changes it; `directories/log_directory.py` checkpoints it once
a minute and at a clean stop.
"""

from __future__ import annotations

from msgspec import Struct

from wire.protocol.ids import UNKNOWN


class SourceSeen(Struct):
    """The source's high watermark (UNKNOWN: no report yet), when the mirror saw it (Unix ms, 0
    never), and the leader epoch of the last record of this log then (UNKNOWN: no record).

    Records of another epoch at the end of the log are not from that source: this site was promoted
    since then, or the topic left its link. A checkpoint from before that must not be used.
    """

    high_watermark: int = UNKNOWN
    seen_at_ms: int = 0
    log_epoch: int = UNKNOWN

    @property
    def is_known(self) -> bool:
        """True if a mirror has reported."""
        return self.high_watermark != UNKNOWN

    def forget(self) -> None:
        """The log has ceased to be a copy; a later copy gets new reports."""
        self.high_watermark, self.seen_at_ms, self.log_epoch = UNKNOWN, 0, UNKNOWN
