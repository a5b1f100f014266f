"""The topic patterns that an operator has paused. They last until they are resumed, and survive
restarts if a file is configured.

The board enforces them repeatedly (`enforce`), so that new topics, changes of the link's direction
and dead workers do not let a paused partition run. A draining link is not paused: a promotion takes
precedence over a pause.
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path

from mirror.flow.board import FlowBoard
from mirror.flow.core.flow_events import Pause, Resume
from mirror.flow.core.flow_state import FlowState
from mirror.flow.rows import Row
from mirror.link.core.link_roles import LinkRole
from runtime.configuration import ConfigurationError
from runtime.process import OperationalFailure
from wire.protocol.ids import TopicPartition
from wire.protocol.json_documents import parse_json
from wire.rules.links import matches
from wire.rules.sync_reports import ALL_SLOTS

ALL_TOPICS = ".*"
REASON = "paused by an operator"
_SAMPLE = TopicPartition("", 0)
_HELD = (FlowState.PAUSED, FlowState.PROMOTED, FlowState.RESET, FlowState.REFUSED)
ELSEWHERE = "another daemon of the link mirrors it"


class NotKept(OperationalFailure):
    """The pause cannot be written to its file, so a restart would lose it."""


class Pauses:
    """The pauses of one mirror. Partitions that another daemon owns are held in the same way. One
    event loop only.
    """

    def __init__(
        self,
        board: FlowBoard,
        file: Path | None,
        *,
        owns: Callable[[TopicPartition], bool] = lambda _: True,
        slots: Callable[[], frozenset[int]] = lambda: ALL_SLOTS,
    ) -> None:
        """`owns` is true for the partitions of these slots, or for all, or for none."""
        self._board = board
        self._owns = owns
        self._slots = slots
        self._enforced_for: tuple[frozenset[int], bool] | None = None
        self._file = file
        self._patterns: list[str] = _load(file)

    @property
    def patterns(self) -> Sequence[str]:
        """The paused patterns."""
        return tuple(self._patterns)

    def pause(self, patterns: Sequence[str]) -> int:
        """Pause topics (none given: all); return how many partitions are paused now. InvalidPattern
        and NotKept change nothing.
        """
        wanted = list(patterns) or [ALL_TOPICS]
        matches("", whitelist=wanted, blacklist=())
        return self._change([*self._patterns, *(pattern for pattern in wanted if pattern not in self._patterns)])

    def resume(self, patterns: Sequence[str]) -> int:
        """Remove patterns, written as they were given (none given: all); return how many partitions
        are still paused. NotKept changes nothing.
        """
        return self._change([pattern for pattern in self._patterns if patterns and pattern not in patterns])

    def enforce(self) -> None:
        """Pause and resume the flows of the board according to the patterns and to the share of
        this daemon. Call it regularly: it looks at partitions about which something has changed.
        """
        # The second part: a daemon may keep a whole link while it owns no slot of it.
        share = self._slots(), self._owns(_SAMPLE)
        if share != self._enforced_for:
            self._enforced_for = share
            self._enforce_on(list(self._board.rows()))
        else:
            self._enforce_on(self._board.restless_rows())

    def _enforce_on(self, rows: Iterable[tuple[TopicPartition, Row]]) -> None:
        for key, row in rows:
            facts = row.facts
            row.is_ours = self._owns(key)
            if not row.is_ours:
                self._board.give_up(key)
            is_paused = facts.role is LinkRole.MIRRORING and self._is_paused(key.topic)
            is_wanted = is_paused or not row.is_ours
            if not row.is_ours and (facts.state not in _HELD or facts.is_chained):
                self._board.submit(key, Pause(reason=ELSEWHERE, is_anothers=True))
            elif row.is_ours and is_paused and (facts.state not in _HELD or facts.reason == ELSEWHERE):
                self._board.submit(key, Pause(reason=REASON))
            elif not is_wanted and facts.state is FlowState.PAUSED and facts.role is not LinkRole.GONE:
                self._board.submit(key, Resume())

    def _is_paused(self, topic: str) -> bool:
        return bool(self._patterns) and matches(topic, whitelist=self._patterns, blacklist=())

    def _change(self, patterns: list[str]) -> int:
        if self._file is not None:
            written = self._file.with_name(f"{self._file.name}.new")
            try:
                written.write_text(json.dumps(patterns), encoding="utf-8")
                os.replace(written, self._file)
            except OSError as error:
                raise NotKept(
                    f"antipode.pause.file {self._file} cannot be written ({error.strerror}); nothing is changed"
                ) from error
        self._patterns = patterns
        self._enforce_on(list(self._board.rows()))
        return sum(self._is_paused(key.topic) for key, _ in self._board.our_rows())


def _load(file: Path | None) -> list[str]:
    if file is None or not file.exists():
        return []
    try:
        patterns = parse_json(file.read_text(encoding="utf-8"))
        matches("", whitelist=patterns, blacklist=())
    except (OSError, ValueError, TypeError) as error:
        accepted = f"a file of a JSON list of topic patterns, which this one is not ({error})"
        raise ConfigurationError("antipode.pause.file", str(file), accepted) from error
    return list(patterns)
