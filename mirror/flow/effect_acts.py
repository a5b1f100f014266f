"""Carries out the effects of a decision for a row of the board, and writes the lines about changes
of state.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, Final, assert_never

from mirror.flow.core.flow_effects import (
    CheckSource,
    Discard,
    Effect,
    Effects,
    Fetch,
    FindTarget,
    QueueBatches,
    RefreshLink,
    RefreshMetadata,
    ReinstateCopy,
    RetryLater,
    StopFetching,
)
from mirror.flow.core.flow_events import Command, RetryDue
from mirror.flow.core.flow_state import FlowFacts, FlowState
from mirror.flow.rows import Row
from runtime.logs import STATE_CHANGE, LogLines, state_change_logger
from wire.protocol.ids import TopicPartition

RETRY_INITIAL_MS: Final = 25
RETRY_MAX_MS: Final = 500
RETRY_SLOW_MS: Final = 5000

RETRIES_A_SECOND_MAX: Final = 2000
"""While many flows wait, each one waits longer: during a move, the retries of 10,000 flows would
take the processor that the move needs. A change of the partition's leader or of the link's role
ends a wait.
"""


_state_change = state_change_logger()


class EffectActs:
    """The effects of one board's flows. `submit` is the board's."""

    def __init__(
        self, effects: Effects, chance: random.Random, submit: Callable[[TopicPartition, Command], Any]
    ) -> None:
        self._effects = effects
        self._chance = chance
        self._submit = submit
        # The flows whose time for another attempt has not come.
        self._waiting = 0

    def carry_out(self, key: TopicPartition, row: Row, effect: Effect) -> None:
        """Carry out one effect."""
        match effect:
            case QueueBatches():
                pass  # The fetcher that submitted the batches queues them itself.
            case Fetch(generation=generation, offset=offset):
                row.wanted = (generation, offset)
                self._effects.fetching_changed(key)
            case StopFetching():
                row.wanted = None
                self._effects.fetching_changed(key)
            case Discard(generation=generation):
                self._effects.discard(key, generation)
            case FindTarget(generation=generation):
                self._effects.find_target(key, generation)
            case CheckSource(generation=generation, epoch=epoch):
                self._effects.check_source(key, generation, epoch)
            case ReinstateCopy(generation=generation, reason=reason):
                self._effects.reinstate_copy(key, generation, reason)
            case RetryLater():
                self._retry_later(key, row, effect)
            case RefreshMetadata(side=side):
                self._effects.refresh_metadata(side)
            case RefreshLink():
                self._effects.refresh_link()
            case _:
                assert_never(effect)

    def _retry_later(self, key: TopicPartition, row: Row, effect: RetryLater) -> None:
        cap_ms = min(RETRY_MAX_MS, RETRY_INITIAL_MS * 2 ** min(effect.attempt, 16))
        if effect.is_slow:
            cap_ms = RETRY_SLOW_MS
        if row.retry is not None:
            row.retry.cancel()
        else:
            self._waiting += 1
        cap_ms = max(cap_ms, 1000 * self._waiting / RETRIES_A_SECOND_MAX)
        # The jitter keeps flows that failed together from retrying together.
        delay_ms = cap_ms * (0.5 + self._chance.random() / 2)
        due = RetryDue(generation=effect.generation)
        row.retry = asyncio.get_running_loop().call_later(delay_ms / 1000, self._retry, key, row, due)

    def _retry(self, key: TopicPartition, row: Row, due: RetryDue) -> None:
        row.retry = None
        self._waiting -= 1
        self._submit(key, due)


class StateLines:
    """The lines of one board."""

    def __init__(self) -> None:
        # The lines that are written together.
        self._lines: LogLines | None = None

    @contextmanager
    def together(self) -> Iterator[None]:
        """Write lines together, which costs less; await nothing inside."""
        lines = self._lines = LogLines(STATE_CHANGE)
        try:
            yield
        finally:
            self._lines = None
            lines.write()

    def write(self, key: TopicPartition, before: FlowState, after: FlowFacts) -> None:
        """The partition's flow is in another state."""
        fields = {
            "partition": str(key),
            "before": before.value,
            "state": after.state.value,
            "generation": after.generation,
            "offset": after.chain_offset,
        }
        if self._lines is None:
            _state_change.info(after.reason, **fields)
        else:
            self._lines.add(event=after.reason, **fields)
