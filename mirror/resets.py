"""Puts away copies at the target that cannot be mirrored on, so that they are made anew from where the source's log begins.

For topics in RESET (deleted, or deleted and made again, at the source), FAULTED and GAP, or that may lack tombstones, and only when a
person asks for it. What goes with a copy is counted first and told: a copy of a topic that was made again, or that left the source's
history, has records that may be nowhere else. It is deleted by its id under the link's epoch, so neither a topic made meanwhile nor an
active site's is ever meant. Asking again is harmless: a copy that is away is left to `topic_sync.py`, which makes it anew.
"""

from __future__ import annotations

import enum
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from uuid import UUID

from mirror.board import FlowBoard, Row
from mirror.core.flow_events import LinkRole
from mirror.core.flow_state import FlowFacts, FlowState
from mirror.core.partitions import PartitionKey
from mirror.core.plan import Absence, DeleteCopy, TopicView, absence_trouble, find_trouble, gone_trouble
from mirror.link_watch import LinkStanding
from mirror.ports import LogAnswer, LogEnds, Refused, SitePort, SiteTopic, SourcePort, TopicActor
from runtime.logs import state_change_logger
from wire.links import InvalidPattern, carries_topic, matches

_CURABLE = (FlowState.FAULTED, FlowState.GAP)

_state_change = state_change_logger()


class ResetOutcome(enum.Enum):
    """What became of a topic."""

    PLANNED = "planned"  # a dry run: it would be put away
    PUT_AWAY = "put away"
    REFUSED = "refused"
    NOTHING = "nothing to do"


@dataclass(frozen=True, slots=True, kw_only=True)
class CopyLog:
    """One partition of a copy: where it starts and ends."""

    partition: int
    log_start_offset: int
    log_end_offset: int

    @property
    def records(self) -> int:
        """Offsets that go with it."""
        return self.log_end_offset - self.log_start_offset


@dataclass(frozen=True, slots=True, kw_only=True)
class TopicReset:
    """A topic with its outcome, the reason in a sentence, and what its copy holds."""

    topic: str
    outcome: ResetOutcome
    reason: str
    copy_id: UUID | None = None
    partitions: tuple[CopyLog, ...] = ()


def is_curable(facts: FlowFacts) -> bool:
    """Whether a partition is better off with a new copy."""
    return facts.state in _CURABLE or facts.may_lack_tombstones


class Resets:
    """One mirror's."""

    def __init__(
        self,
        board: FlowBoard,
        *,
        source: SourcePort,
        target: SitePort,
        actor: TopicActor,
        link: Callable[[], LinkStanding],
        on_put_away: Callable[[str], None],
    ) -> None:
        self._board = board
        self._source = source
        self._target = target
        self._actor = actor
        self._link = link
        self._on_put_away = on_put_away

    async def reset(self, patterns: Sequence[str], *, is_dry_run: bool) -> list[TopicReset]:
        """Put away the copies of the topics whose whole names match. Unreachable, InvalidPattern."""
        link = self._link()
        if not patterns:
            raise InvalidPattern("say which topics: here no pattern does not mean all of them")
        matches("", whitelist=patterns, blacklist=())
        source, target = await self._source.topics(), await self._target.topics()
        names = sorted(
            name
            for name in source.keys() | target.keys()
            if carries_topic(link.record, name) and matches(name, whitelist=patterns, blacklist=())
        )
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
        self, name: str, wanted: SiteTopic | None, copy: SiteTopic | None, link: LinkStanding, *, is_dry_run: bool
    ) -> TopicReset:
        if link.role is not LinkRole.MIRRORING:
            return TopicReset(topic=name, outcome=ResetOutcome.REFUSED, reason=link.reason)
        if copy is None:
            reason = f"the target has no copy of {name}: it is made as soon as the target's controller allows it"
            return TopicReset(topic=name, outcome=ResetOutcome.NOTHING, reason=reason)
        trouble = self._trouble(name, wanted, copy)
        if not trouble:
            reason = f"topic {name} is {self._states(name)}: only RESET, FAULTED, GAP and missing tombstones are cured by a new copy"
            return TopicReset(topic=name, outcome=ResetOutcome.REFUSED, reason=reason, copy_id=copy.topic_id)
        logs, problem = await self._logs(name, copy)
        if problem:
            reason = f"what would go with the copy cannot be counted: {problem}"
            return TopicReset(topic=name, outcome=ResetOutcome.REFUSED, reason=reason, copy_id=copy.topic_id)
        outcome = ResetOutcome.PLANNED
        if not is_dry_run:
            action = DeleteCopy(name=name, topic_id=copy.topic_id)
            (refusal,) = await self._actor.act([action], link=link.name, link_epoch=link.epoch)
            if refusal:
                return TopicReset(
                    topic=name, outcome=ResetOutcome.REFUSED, reason=refusal, copy_id=copy.topic_id, partitions=logs
                )
            outcome = ResetOutcome.PUT_AWAY
            held = {str(log.partition): f"{log.log_start_offset} to {log.log_end_offset}" for log in logs}
            _state_change.warning("copy put away", topic=name, copy_id=str(copy.topic_id), reason=trouble, held=held)
            self._on_put_away(name)
        return TopicReset(topic=name, outcome=outcome, reason=trouble, copy_id=copy.topic_id, partitions=logs)

    def _trouble(self, name: str, wanted: SiteTopic | None, copy: SiteTopic) -> str:
        """Why the copy cannot be mirrored on, from what both sites say now; empty when it can."""
        actual = _view(copy)
        found = gone_trouble(name, actual) if wanted is None else find_trouble(name, _view(wanted), actual)
        if found is not None:
            return found.reason
        return next((facts.reason for facts in self._facts(name) if is_curable(facts)), "")

    def _facts(self, name: str) -> list[FlowFacts]:
        return [row.facts for key, row in sorted(self._board.our_rows(), key=_key) if key.topic == name]

    def _states(self, name: str) -> str:
        return " and ".join(sorted({facts.state.value for facts in self._facts(name)})) or "not on the board yet"

    async def _logs(self, name: str, copy: SiteTopic) -> tuple[tuple[CopyLog, ...], str]:
        """Each partition of the copy, or why one of them cannot be counted."""
        leaders = {PartitionKey(name, partition): leader for partition, leader in copy.leaders.items()}
        found = await self._target.log_ends(leaders)
        logs: list[CopyLog] = []
        for key in sorted(leaders):
            ends = found.get(key)
            if not isinstance(ends, LogEnds):
                return (), f"{key}: {_why(ends)}"
            logs.append(
                CopyLog(partition=key.partition, log_start_offset=ends.log_start_offset, log_end_offset=ends.end_offset)
            )
        return tuple(logs), ""


def _kept(name: str, copy: SiteTopic, absence: Absence) -> TopicReset:
    """A copy whose topic may still be at the source, which does not show it: it may be all that there is."""
    trouble = absence_trouble(name, _view(copy), absence)
    reason = f"topic {name} was not shown by the source just now" if trouble is None else trouble.reason
    return TopicReset(topic=name, outcome=ResetOutcome.REFUSED, reason=reason, copy_id=copy.topic_id)


def _view(topic: SiteTopic) -> TopicView:
    return TopicView(topic_id=topic.topic_id, partition_count=len(topic.leaders))


def _key(row: tuple[PartitionKey, Row]) -> PartitionKey:
    return row[0]


def _why(answer: LogAnswer | None) -> str:
    match answer:
        case Refused(error=error):
            return error.name
        case None:
            return "no answer"
        case _:
            return str(answer)
