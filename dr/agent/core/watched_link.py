"""What the agents of a standby know of one link during one epoch, and how often they acted. Pure;
`dr/agent/failover_watch.py` looks and acts.
"""

from __future__ import annotations

from typing import Final

from msgspec import Struct, field

from dr.agent.core.failover_gates import LossWatch
from dr.sites.core.evidence import SiteEvidence
from dr.sites.core.log_columns import LogEnds, safe_ends

LOOKS_PER_LEASE: Final = 8
INTERVAL_MS_MIN: Final = 200
SETTLE_MS: Final = 100
"""Time (ms) in which no batch may arrive from a lost site before the epoch is raised. The site's
mirror has received nothing for a whole lease. The watch measures it while the site is silent, so
that the failover need not wait for it.
"""


def look_pause_ms(lease_ms: int) -> int:
    """The pause (ms) between two looks at a link with this lease."""
    return max(lease_ms // LOOKS_PER_LEASE, INTERVAL_MS_MIN)


class WatchedLink(Struct):
    """One link during one epoch."""

    epoch: int
    watch: LossWatch
    verdict: str = ""
    is_waiting: bool = False
    """True if the active site is lost and a person has to act."""
    try_again_at_ms: float = 0.0
    is_copy_complete: bool = False
    ask_of_copy_at_ms: float = 0.0
    ends: LogEnds = field(default_factory=dict)
    """The ends of the logs here while the active site is silent."""
    ends_since_ms: float = 0.0

    def note_ends(self, evidence: SiteEvidence, now_ms: float) -> None:
        """Note the ends of the logs here."""
        ends = safe_ends(evidence.partitions)
        if ends != self.ends:
            self.ends, self.ends_since_ms = ends, now_ms

    def settled_ends(self, now_ms: float) -> LogEnds | None:
        """The ends of the logs here, if they have not grown for SETTLE_MS."""
        return self.ends if self.ends and now_ms - self.ends_since_ms >= SETTLE_MS else None


class FailoverCounts(Struct):
    """The counts of one link since the process started."""

    observed: int = 0
    done: int = 0
    refused: int = 0
