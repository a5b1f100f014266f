"""The last report of a mirror about the source of a copied log. The broker stores it beside the
log, so that a standby which restarts after its source was lost still knows how far behind it was,
and since when.

`broker/replication/mirror_append.py` changes it; `directories/log_directory.py` checkpoints it once
a minute and at a clean stop.
"""

from __future__ import annotations

from typing import final

from wire.protocol.ids import UNKNOWN


@final
class SharedTime:
    """The time of the last report about many partitions (Unix ms): one report moves it for all."""

    __slots__ = ("at_ms",)

    def __init__(self, at_ms: int) -> None:
        self.at_ms = at_ms


@final
class SourceSeen:
    """The source's high watermark (UNKNOWN: no report yet), when the mirror saw it (Unix ms, 0
    never), and the leader epoch of the last record of this log then (UNKNOWN: no record).

    Records of another epoch at the end of the log are not from that source: this site was promoted
    since then, or the topic left its link. A checkpoint from before that must not be used.
    """

    __slots__ = ("high_watermark", "log_epoch", "own_seen_at_ms", "shared")

    def __init__(self, high_watermark: int = UNKNOWN, own_seen_at_ms: int = 0, log_epoch: int = UNKNOWN) -> None:
        self.high_watermark = high_watermark
        self.own_seen_at_ms = own_seen_at_ms
        self.log_epoch = log_epoch
        self.shared: SharedTime | None = None
        """The time of a session of reports (`broker/replication/report_sessions.py`); it counts
        while it is set.
        """

    @property
    def seen_at_ms(self) -> int:
        """When the mirror saw the source's high watermark."""
        return self.own_seen_at_ms if self.shared is None else self.shared.at_ms

    @seen_at_ms.setter
    def seen_at_ms(self, at_ms: int) -> None:
        self.own_seen_at_ms, self.shared = at_ms, None

    def leave(self, shared: SharedTime) -> None:
        """The reports that share this time are not about the log any more: its last time stays."""
        if self.shared is shared:
            self.seen_at_ms = max(self.own_seen_at_ms, shared.at_ms)

    @property
    def is_known(self) -> bool:
        """True if a mirror has reported."""
        return self.high_watermark != UNKNOWN

    def forget(self) -> None:
        """The log has ceased to be a copy; a later copy gets new reports."""
        self.high_watermark, self.seen_at_ms, self.log_epoch = UNKNOWN, 0, UNKNOWN
