"""Writes the result of a round over topics to the board: partitions with their leaders, topics that
cannot be mirrored, and changes that the target refuses.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from collections.abc import Set as AbstractSet
from typing import Final
from uuid import UUID

from mirror.flow.board import FlowBoard
from mirror.flow.core.flow_events import (
    Command,
    CopyBegins,
    CopyRenewed,
    LinkTurned,
    SourceLeaderChanged,
    Start,
    TombstonesKept,
    TopicAgrees,
    TopicConflict,
    TopicHidden,
    TopicRefused,
    TopicReplaced,
)
from mirror.flow.core.tombstones import tombstones_kept_ms
from mirror.flow.rows import NO_LEADER
from mirror.link.core.refusals import Refusal
from mirror.link.core.topic_plan import Finding, Plan, Trouble
from mirror.link.link_watch import LinkView
from mirror.link.ports import Leader, SiteTopic
from runtime.logs import get_logger
from wire.protocol.ids import UNKNOWN, TopicPartition
from wire.rules.links import carries_topic

_TROUBLES: Final[Mapping[Finding, Callable[..., Command]]] = {
    Finding.REPLACED: TopicReplaced,
    Finding.SHRUNK: TopicConflict,
    Finding.GONE: TopicReplaced,
    Finding.HIDDEN: TopicHidden,
}

_Placement = tuple[UUID, Mapping[int, Leader], Mapping[int, Leader], Mapping[int, int]]
"""A topic's id, its partitions' leaders at the source and at the target, and where copies begin."""

_log = get_logger("mirror.topics")


class TopicBoard:
    """The topics of one link on its board."""

    def __init__(
        self,
        board: FlowBoard,
        *,
        link: Callable[[], LinkView],
        keeps_beginnings: bool,
        on_topology: Callable[[], None],
        on_renewed: Callable[[str], None],
    ) -> None:
        self._board = board
        self._link = link
        self._keeps_beginnings = keeps_beginnings
        self._on_topology = on_topology
        self._on_renewed = on_renewed
        # Topics whose copy is missing or was deleted; their next copy begins anew.
        self.renewed: set[str] = set()
        # With what the partitions of each topic were last placed.
        self._placed: dict[str, _Placement] = {}
        self.troubles: Mapping[str, Trouble] = {}
        # The topics with partitions on the board: a round must not look at thousands of partitions
        # to find out that no topic was deleted.
        self._shown: set[str] = set()

    def keep_renewed(self, source: AbstractSet[str], target: AbstractSet[str]) -> None:
        """Keep the topics whose copy has not been created again yet, and add the topics that the
        target lacks.
        """
        self.renewed = (self.renewed & source) | (source - target)

    def update(
        self,
        source: Mapping[str, SiteTopic],
        target: Mapping[str, SiteTopic],
        wanted: Plan,
        beginnings: Mapping[str, Mapping[int, int]],
    ) -> None:
        """Put every partition that both sites have on the board, and every topic in trouble.
        `beginnings` has the first offset of each copy by topic and partition; a topic without an
        entry is left out. A topic that is as in the last round is
        skipped, unless a flow waits for it.
        """
        has_moved = False
        otherwise = 0 if self._keeps_beginnings else UNKNOWN
        placed: dict[str, _Placement] = {}
        awaited = self.renewed | {key.topic for key, row in self._board.restless_rows() if row.facts.waits_for_topic}
        for name in wanted.agreed & beginnings.keys():
            found = (source[name].topic_id, source[name].leaders, target[name].leaders, beginnings[name])
            if name not in awaited:
                if found == self._placed.get(name):
                    placed[name] = self._placed[name]
                    continue
                # copies: a site may change what it has answered
                placed[name] = (found[0], dict(found[1]), dict(found[2]), dict(found[3]))
            self._shown.add(name)
            with self._board.lines_together():
                for partition in sorted(source[name].leaders.keys() & target[name].leaders.keys()):
                    has_moved |= self._place(
                        TopicPartition(name, partition),
                        source[name],
                        target[name],
                        beginnings[name].get(partition, otherwise),
                    )
            if name in self.renewed:
                self.renewed.discard(name)
                self._on_renewed(name)
        for name, trouble in wanted.troubles.items():
            there = source.get(name) or target[name]
            for partition in there.leaders:
                self._show_trouble(TopicPartition(name, partition), there, trouble)
        if gone := self._shown - source.keys() - target.keys():
            for key in [key for key in self._board if key.topic in gone]:
                self._board.retire(key, self._why_gone(key.topic))
            self._shown -= gone
            has_moved = True
        self.troubles = _logged(wanted.troubles, before=self.troubles)
        self._placed = placed
        if has_moved:
            self._on_topology()

    def _why_gone(self, topic: str) -> str:
        link = self._link()
        if carries_topic(link.record, topic):
            return f"topic {topic} was deleted at both sites"
        return f"link {link.name} does not carry topic {topic} any longer"

    def _place(self, key: TopicPartition, source: SiteTopic, target: SiteTopic, begins: int) -> bool:
        """Put the partition on the board with its leaders; True when anything about it is new."""
        is_new = key not in self._board
        row = self._board.add(key, source.topic_id)
        # A topic that comes back must not be read at its old positions.
        is_back, row.is_retired = row.is_retired, False
        before = (row.source, row.target)
        row.topic_id, row.source, row.target = (
            source.topic_id,
            source.leaders[key.partition],
            target.leaders[key.partition],
        )
        if begins != row.facts.begins_offset:
            self._board.submit(key, CopyBegins(offset=begins))
        if is_new:
            link = self._link()
            self._board.submit(key, LinkTurned(role=link.role, reason=link.reason))
            self._board.submit(key, Start())
        elif key.topic in self.renewed:
            self._board.submit(key, CopyRenewed())
        elif row.facts.waits_for_topic:
            # This includes a copy that was deleted and created again in between: then one round
            # found no problem.
            self._board.submit(key, TopicAgrees())
        elif before[0] != row.source:
            reason = f"broker {row.source.node_id} leads {key} at the source in epoch {row.source.epoch}: comparing the histories"
            self._board.submit(key, SourceLeaderChanged(reason=reason))
        return is_new or is_back or before != (row.source, row.target)

    def report_tombstones(self, configs: Mapping[str, Mapping[str, str]]) -> None:
        """Report to the flows how long the source keeps tombstones, where configs are known."""
        if not configs:  # most rounds compare none
            return
        for key, row in self._board.rows():
            if key.topic in configs:
                kept_ms = tombstones_kept_ms(configs[key.topic])
                if kept_ms != row.facts.tombstones_kept_ms:
                    self._board.submit(key, TombstonesKept(kept_ms=kept_ms))

    def _show_trouble(self, key: TopicPartition, topic: SiteTopic, trouble: Trouble) -> None:
        """Put a topic that cannot be mirrored on the board as well, so that operators see it."""
        self._shown.add(key.topic)
        row = self._board.add(key, topic.topic_id)
        row.source, row.is_retired = NO_LEADER, False
        self._board.submit(key, _TROUBLES[trouble.finding](reason=trouble.reason))

    def show_refusal(self, refusal: Refusal, source: SiteTopic, target: SiteTopic | None) -> None:
        """Put partitions that the target refuses to create on the board as well."""
        for partition in sorted(source.leaders.keys() - (target.leaders.keys() if target is not None else set())):
            key = TopicPartition(refusal.topic, partition)
            self._shown.add(key.topic)
            row = self._board.add(key, source.topic_id)
            row.source, row.target, row.is_retired = source.leaders[partition], NO_LEADER, False
            self._board.submit(key, TopicRefused(reason=refusal.reason))


def _logged(troubles: Mapping[str, Trouble], *, before: Mapping[str, Trouble]) -> dict[str, Trouble]:
    """Log the new problems, and return all of them."""
    for name, trouble in troubles.items():
        if before.get(name) != trouble:
            _log.warning(trouble.reason, topic=name, finding=trouble.finding.value)
    return dict(troubles)
