"""Warns of partitions that are so far behind that the source may expire records before they are
mirrored (MM-31).

`mirror/topics/topic_sync.py` passes the topics' configs and calls it in each of its rounds, also
while the source does not answer.
"""

from __future__ import annotations

from collections.abc import Mapping

from mirror.flow.board import FlowBoard
from mirror.flow.core.retention import is_at_risk, part_used, retention_ms
from runtime.logs import get_logger
from wire.protocol.ids import TopicPartition

_log = get_logger("mirror.retention")


class RetentionWatch:
    """The retention watch of one mirror."""

    def __init__(self, board: FlowBoard) -> None:
        self._board = board
        self._retained_ms: dict[str, int] = {}
        self.at_risk: dict[TopicPartition, float] = {}
        """The fraction of its retention by which each partition at risk is behind; replaced as a
        whole.
        """

    def note(self, configs: Mapping[str, Mapping[str, str]]) -> None:
        """The configs that are set on topics at the source."""
        self._retained_ms.update({topic: retention_ms(given) for topic, given in configs.items()})

    def look(self) -> None:
        """Compare lags with retentions, and log the partitions that are newly at risk."""
        found: dict[TopicPartition, float] = {}
        for key, row in self._board.restless_rows():
            if not row.is_ours:
                continue
            retained_ms = self._retained_ms.get(key.topic, -1)
            lag_ms = self._board.lag(key).ms
            part = part_used(lag_ms, retained_ms)
            if not is_at_risk(part, was_at_risk=key in self.at_risk):
                continue
            found[key] = part
            if key not in self.at_risk:
                _log.warning(
                    "records may expire at the source before they are mirrored",
                    partition=str(key),
                    behind_ms=lag_ms,
                    retention_ms=retained_ms,
                )
        self.at_risk = found
