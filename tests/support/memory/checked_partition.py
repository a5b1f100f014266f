"""The replication machine with its invariants checked after every command, and helpers for tests to
look at its effects.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import wraps
from typing import Any

from broker.replication.core.partition import LeadershipChange, Partition
from broker.replication.core.partition_effects import Effects, HighWatermarkMoved

COMMANDS = (
    "change",
    "leave",
    "require_in_sync",
    "record_append",
    "await_flush",
    "record_flush",
    "record_truncation",
    "record_copy_truncation",
    "restart_at",
    "follow_high_watermark",
    "record_fetch",
    "record_standby",
    "check_standby",
    "consider",
    "drop_joining",
    "shrink_isr",
    "propose_isr",
    "withdraw_proposal",
    "refuse",
)


class CheckedPartition(Partition):
    """Raises InvariantBroken after the command that breaks an invariant."""


def _checked(command: Callable[..., Any]) -> Callable[..., Any]:
    @wraps(command)
    def checked(self: Partition, *values: Any, **named: Any) -> Any:
        former = self.high_watermark
        outcome = command(self, *values, **named)
        self.check_invariants()
        has_change = isinstance(outcome, tuple) and outcome and isinstance(outcome[0], LeadershipChange)
        effects = outcome[1] if has_change else outcome
        if self.high_watermark > former:
            assert HighWatermarkMoved(former, self.high_watermark) in effects
        return outcome

    return checked


for _name in COMMANDS:
    setattr(CheckedPartition, _name, _checked(getattr(Partition, _name)))


def moves(effects: Effects) -> bool:
    """True when the high watermark moved."""
    return any(isinstance(effect, HighWatermarkMoved) for effect in effects)
