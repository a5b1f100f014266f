"""Decides whether the bytes of a batch on disk may be replaced. Only if they are proven to be the
bytes that were written (`wire/batches/damage.py`). Pure, on the bytes of both.
"""

from __future__ import annotations

import enum
from typing import NamedTuple

from wire.batches.damage import batch_problem, is_same_batch


class Replacement(enum.Enum):
    """The decision about a batch on the disk."""

    WRITE = "write"
    NOTHING = "it has these bytes"
    REFUSE = "refuse"


class ReplacementJudgement(NamedTuple):
    """`reason` is a sentence, empty unless refused."""

    replacement: Replacement
    reason: str = ""


def judge_replacement(stored: bytes, offered: bytes) -> ReplacementJudgement:
    """Decide if `stored`, the bytes at the offered batch's position, is replaced by `offered`, one
    batch.
    """
    if problem := batch_problem(offered):
        return ReplacementJudgement(Replacement.REFUSE, f"the batch that is offered {problem}")
    if stored == offered:
        return ReplacementJudgement(Replacement.NOTHING)
    if len(stored) != len(offered):
        return ReplacementJudgement(
            Replacement.REFUSE, f"the batch on the disk has {len(stored)} bytes, and the offered one {len(offered)}"
        )
    if not batch_problem(stored):
        return ReplacementJudgement(Replacement.REFUSE, "the batch on the disk is whole and another one")
    if is_same_batch(stored, offered):
        return ReplacementJudgement(Replacement.WRITE)
    return ReplacementJudgement(
        Replacement.REFUSE, "the damaged batch has neither the checksum nor the content of the offered one"
    )
