"""Deletes copies at the target that cannot be mirrored any further, so that they are copied again
from the start of the source's log.

Used for topics in RESET (deleted, or deleted and created again, at the source), FAULTED and GAP, or
with possibly missing tombstones, and only at a person's request. The report first counts the
records that are deleted with a copy: if the topic was created again, or the copy has left the
source's history, some of its records may exist at no other site. The target's brokers put these
into quarantine before anything is deleted: the records above the history that both sites share by
their leader epochs (`wire/batches/log_histories.py`) and by the last batch below it, or the whole
copy if that history cannot be determined. If a broker refuses to keep them, nothing is deleted. The
copy is deleted by its id under the link's epoch, so the request can delete neither a topic that was
created later nor an active site's topic. The request can be repeated, also after an interruption at
any step: records are put into quarantine only once, and `mirror/topics/topic_sync.py` creates a
deleted copy anew.
"""

from __future__ import annotations

import enum
from collections.abc import Callable, Mapping, Sequence
from uuid import UUID

from msgspec import Struct

from mirror.admin.histories import Histories, SharedHistory
from mirror.admin.verifier import Verifier
from mirror.flow.board import FlowBoard
from mirror.flow.core.flow_state import FlowFacts, FlowState
from mirror.flow.rows import Row
from mirror.link.core.link_roles import LinkRole
from mirror.link.core.topic_plan import Absence, DeleteCopy, TopicView, absence_trouble, find_trouble, gone_trouble
from mirror.link.link_watch import LinkView
from mirror.link.ports import (
    EndToKeep,
    LogAnswer,
    LogEnds,
    QuarantinePort,
    Refused,
    SitePort,
    SiteTopic,
    SourcePort,
    TopicActor,
    Unreachable,
)
from runtime.logs import state_change_logger
from wire.protocol.ids import TopicPartition
from wire.rules.links import InvalidPattern, carries_topic, matches

_CURABLE = (FlowState.FAULTED, FlowState.GAP)

_state_change = state_change_logger()


class ResetOutcome(enum.Enum):
    """The outcome for a topic."""

    PLANNED = "planned"  # a dry run: it would be reset
    PUT_AWAY = "put away"
    REFUSED = "refused"
    NOTHING = "nothing to do"


class CopyLog(Struct, frozen=True, kw_only=True):
    """The start and end of one partition's log in a copy."""

    partition: int
    log_start_offset: int
    log_end_offset: int
    kept_from_offset: int
    """The records from this offset on go into quarantine; the log end when the source has all of
    them.
    """

    @property
    def records(self) -> int:
        """The number of offsets that are deleted with the copy."""
        return self.log_end_offset - self.log_start_offset


class TopicReset(Struct, frozen=True, kw_only=True):
    """A topic with its outcome, the reason in a sentence, and the records of its copy."""

    topic: str
    outcome: ResetOutcome
    reason: str
    copy_id: UUID | None = None
    partitions: tuple[CopyLog, ...] = ()


def is_curable(facts: FlowFacts) -> bool:
    """True if a new copy would help the partition."""
    return facts.state in _CURABLE or facts.may_lack_tombstones


class Resets:
    """The topic resets of one mirror."""

    def __init__(
        self,
        board: FlowBoard,
        *,
        source: SourcePort,
        target: SitePort,
        actor: TopicActor,
        link: Callable[[], LinkView],
        on_put_away: Callable[[str], None],
        quarantine: QuarantinePort | None,
        verifier: Verifier | None,
    ) -> None:
        """`quarantine` is None on translate links, whose targets refuse to delete a copy."""
        self._quarantine = quarantine
        self._histories = Histories(source, target, verifier)
        self._board = board
        self._source = source
        self._target = target
        self._actor = actor
        self._link = link
        self._on_put_away = on_put_away

    async def reset(self, patterns: Sequence[str], *, is_dry_run: bool) -> list[TopicReset]:
        """Delete the copies of the topics whose whole names match. Unreachable, InvalidPattern."""
        link = self._link()
        if not patterns:
            raise InvalidPattern("name at least one topic pattern: an empty list does not mean all topics")
        # Called only to raise InvalidPattern before anything is changed.
        matches("", whitelist=patterns, blacklist=())
        source, target = await self._source.topics(), await self._target.topics()
        names = sorted(
            name
            for name in source.keys() | target.keys()
            if carries_topic(link.record, name) and matches(name, whitelist=patterns, blacklist=())
        )
        # A source that hides a topic from the mirror (authorization) looks like one that has
        # deleted it.
        unlisted = [name for name in names if name not in source]
        absences = await self._source.absences(unlisted) if unlisted else {}
        kept = {name for name, absence in absences.items() if absence is not Absence.GONE}
        return [
            _kept(name, target[name], absences[name])
            if name in kept
            else await self._one(name, source.get(name), target.get(name), link, is_dry_run=is_dry_run)
            for name in names
        ]

    async def _one(
        self, name: str, wanted: SiteTopic | None, copy: SiteTopic | None, link: LinkView, *, is_dry_run: bool
    ) -> TopicReset:
        if link.role is not LinkRole.MIRRORING:
            return TopicReset(topic=name, outcome=ResetOutcome.REFUSED, reason=link.reason)
        if copy is None:
            reason = f"the target has no copy of {name}: it is created as soon as the target's controller allows it"
            return TopicReset(topic=name, outcome=ResetOutcome.NOTHING, reason=reason)
        trouble = self._trouble(name, wanted, copy)
        if not trouble:
            reason = f"topic {name} is {self._states(name)}: only RESET, FAULTED, GAP and missing tombstones are repaired by a new copy"
            return TopicReset(topic=name, outcome=ResetOutcome.REFUSED, reason=reason, copy_id=copy.topic_id)
        logs, problem = await self._logs(name, wanted, copy)
        if problem:
            reason = f"the records that the reset would remove cannot be counted: {problem}"
            return TopicReset(topic=name, outcome=ResetOutcome.REFUSED, reason=reason, copy_id=copy.topic_id)
        outcome = ResetOutcome.PLANNED
        if not is_dry_run:
            # Quarantine comes before the deletion, which cannot be undone.
            refusal = await self._keep(name, copy, logs, link, trouble)
            if refusal:
                return TopicReset(
                    topic=name, outcome=ResetOutcome.REFUSED, reason=refusal, copy_id=copy.topic_id, partitions=logs
                )
            action = DeleteCopy(name=name, topic_id=copy.topic_id)
            (refusal,) = await self._actor.act([action], link=link.name, link_epoch=link.epoch)
            if refusal:
                return TopicReset(
                    topic=name, outcome=ResetOutcome.REFUSED, reason=refusal, copy_id=copy.topic_id, partitions=logs
                )
            outcome = ResetOutcome.PUT_AWAY
            held = {str(log.partition): f"{log.log_start_offset} to {log.log_end_offset}" for log in logs}
            _state_change.warning("copy removed", topic=name, copy_id=str(copy.topic_id), reason=trouble, held=held)
            self._on_put_away(name)
        return TopicReset(topic=name, outcome=outcome, reason=trouble, copy_id=copy.topic_id, partitions=logs)

    def _trouble(self, name: str, wanted: SiteTopic | None, copy: SiteTopic) -> str:
        """The reason why the copy cannot be mirrored any further, from both sites' current answers;
        empty if it can.
        """
        actual = _view(copy)
        found = gone_trouble(name, actual) if wanted is None else find_trouble(name, _view(wanted), actual)
        if found is not None:
            return found.reason
        return next((facts.reason for facts in self._facts(name) if is_curable(facts)), "")

    def _facts(self, name: str) -> list[FlowFacts]:
        return [row.facts for key, row in sorted(self._board.our_rows(), key=_key) if key.topic == name]

    def _states(self, name: str) -> str:
        return " and ".join(sorted({facts.state.value for facts in self._facts(name)})) or "not on the board yet"

    async def _keep(self, name: str, copy: SiteTopic, logs: Sequence[CopyLog], link: LinkView, reason: str) -> str:
        """Make the target quarantine the records that the source may lack; empty when all of them
        are on disk there. Unreachable.
        """
        if self._quarantine is None:
            return ""
        ends = {
            TopicPartition(name, log.partition): EndToKeep(
                topic_id=copy.topic_id, leader=copy.leaders[log.partition], first_offset=log.kept_from_offset
            )
            for log in logs
            if log.kept_from_offset < log.log_end_offset
        }
        if not ends:
            return ""
        outcomes = await self._quarantine.keep(ends, link=link.name, link_epoch=link.epoch, reason=reason)
        refused = [f"{key}: {outcome}" for key, outcome in sorted(outcomes.items()) if outcome]
        return (
            f"nothing was deleted, since not everything could be put into quarantine: {'; '.join(refused)}"
            if refused
            else ""
        )

    async def _logs(self, name: str, wanted: SiteTopic | None, copy: SiteTopic) -> tuple[tuple[CopyLog, ...], str]:
        """Each partition of the copy, or the reason why one of them cannot be counted."""
        leaders = {TopicPartition(name, partition): leader for partition, leader in copy.leaders.items()}
        found = await self._target.log_ends(leaders)
        ends: dict[TopicPartition, LogEnds] = {}
        for key in sorted(leaders):
            one = found.get(key)
            if not isinstance(one, LogEnds):
                return (), f"{key}: {_why(one)}"
            ends[key] = one
        shared: Mapping[TopicPartition, SharedHistory] = {}
        # Only logs of the same topic id can have a common history.
        if wanted is not None and wanted.topic_id == copy.topic_id and self._quarantine is not None:
            try:
                shared = await self._histories.compare(ends, wanted, copy)
            except Unreachable as error:
                return (), f"the source's log of it is not known: {error}"
        logs = [
            CopyLog(
                partition=key.partition,
                log_start_offset=one.log_start_offset,
                log_end_offset=one.end_offset,
                kept_from_offset=_kept_from(one, shared.get(key)),
            )
            for key, one in ends.items()
        ]
        return tuple(logs), ""


def _kept_from(log: LogEnds, shared: SharedHistory | None) -> int:
    """The offset from which on the source may lack records of the copy: the copy's start if this is
    unknown.
    """
    if shared is None or shared.doubt:
        return log.log_start_offset
    return max(shared.end_offset, log.log_start_offset)


def _kept(name: str, copy: SiteTopic, absence: Absence) -> TopicReset:
    """The outcome for a copy whose topic may still exist at a source that does not list it: the
    copy may be the last one.
    """
    trouble = absence_trouble(name, _view(copy), absence)
    reason = f"topic {name} was missing from the source's last metadata" if trouble is None else trouble.reason
    return TopicReset(topic=name, outcome=ResetOutcome.REFUSED, reason=reason, copy_id=copy.topic_id)


def _view(topic: SiteTopic) -> TopicView:
    return TopicView(topic_id=topic.topic_id, partition_count=len(topic.leaders))


def _key(row: tuple[TopicPartition, Row]) -> TopicPartition:
    return row[0]


def _why(answer: LogAnswer | None) -> str:
    match answer:
        case Refused(error=error):
            return error.name
        case None:
            return "no answer"
        case _:
            return str(answer)
