"""A transaction of which a promoted site has only a part, as named in the failover's account.
`dr/failover/core/torn_transactions.py` finds them. Pure.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from msgspec import Struct

NAMED_MAX: Final = 5


class TornTransaction(Struct, frozen=True, kw_only=True):
    """A transaction that was committed at the source and of which the standby has only a part.

    `kept` are the partitions (`topic-index`) with its commit marker, `lacking` those without.
    `is_undone`: a consistent truncation made it open in all of them, and it is aborted.
    """

    transactional_id: str
    producer_id: int
    producer_epoch: int
    decided_at_ms: int
    kept: tuple[str, ...]
    lacking: tuple[str, ...]
    is_undone: bool = False

    @property
    def sentence(self) -> str:
        """For the operator."""
        who = f"transaction of {self.transactional_id} (producer {self.producer_id}, epoch {self.producer_epoch})"
        if self.is_undone:
            return f"{who} is removed: {_named(self.lacking)} lacked its commit, {_named(self.kept)} had it; it is aborted in all of them"
        return (
            f"{who} is torn: {_named(self.kept)} has it whole, records of it may be missing in {_named(self.lacking)}"
        )


def _named(places: Sequence[str]) -> str:
    more = f" (and {len(places) - NAMED_MAX} more)" if len(places) > NAMED_MAX else ""
    return ", ".join(places[:NAMED_MAX]) + more
