"""Reinstates the copies of a site after a failover away from it. The leader of a copy moves the
records that only the copy has into quarantine, and truncates the copy to the common history;
mirroring continues from there.

Flows request it when they find their copy diverged. It is granted if the link's policy is
`automatic` and the copy's last record is older than the promotion of the active site; a copy with
newer records means that the active site has lost records, which a person must examine. A person
requests it by `antipode links reinstate`. In both cases the link must be exact, this site must be
passive under the newest known epoch, and the common history must be known; otherwise the copy stays
unchanged, and only `antipode links reset` (`resets.py`) helps. The target's brokers check link,
epoch and role again when they truncate. A request may be interrupted and repeated at any moment:
records are in the copy, in quarantine, or in both, and quarantined once at each broker.
"""

from __future__ import annotations

import asyncio
import enum
from collections.abc import Callable, Mapping, Sequence
from typing import Final

from msgspec import Struct
from msgspec.structs import replace

from mirror.admin.histories import Histories, SharedHistory
from mirror.admin.verifier import Verifier
from mirror.flow.board import FlowBoard
from mirror.flow.core.flow_events import CopyNotReinstated, CopyReinstated, Start
from mirror.flow.core.flow_state import FlowState
from mirror.groups.truncated_copies import move_groups_back
from mirror.link.core.link_roles import LinkRole
from mirror.link.group_ports import GroupPort
from mirror.link.link_watch import LinkView
from mirror.link.ports import EndToKeep, LogEnds, QuarantinePort, SitePort, SiteTopic, SourcePort, Unreachable
from runtime.invariants import InvariantBroken
from runtime.logs import state_change_logger
from runtime.supervision import note_death, was_asked_to_end
from wire.protocol.ids import TopicPartition
from wire.rules.links import ReinstatePolicy, carries_topic, matches, reinstate_policy

FIRST_LINK_EPOCH: Final = 1
"""The epoch of a link whose direction never changed: no site returns under it."""
NEW_COPY: Final = "antipode links reset copies the topic again"
BY_HAND: Final = (
    "antipode links reinstate puts the copy's own records into quarantine and continues from the common history"
)

_state_change = state_change_logger()


class ReinstateOutcome(enum.Enum):
    """The outcome for a partition."""

    PLANNED = "planned"  # a dry run: it would be reinstated
    REINSTATED = "reinstated"
    REFUSED = "refused"
    NOTHING = "nothing to do"


class Reinstatement(Struct, frozen=True, kw_only=True):
    """One partition's outcome and the reason in a sentence; only the copy has, or had, the offsets
    from `from_offset` up to `end_offset`.
    """

    key: TopicPartition
    outcome: ReinstateOutcome
    reason: str
    from_offset: int = -1
    end_offset: int = -1
    entry: str = ""


class Reinstatements:
    """All reinstatements of one mirror. `close` ends those that are running."""

    def __init__(
        self,
        board: FlowBoard,
        *,
        source: SourcePort,
        target: SitePort,
        target_groups: GroupPort,
        link: Callable[[], LinkView],
        quarantine: QuarantinePort | None,
        verifier: Verifier | None,
    ) -> None:
        """`quarantine` is None on translate links, whose copies are never truncated."""
        self._board = board
        self._source = source
        self._target = target
        self._target_groups = target_groups
        self._link = link
        self._quarantine = quarantine
        self._histories = Histories(source, target, verifier)
        self._asked: dict[TopicPartition, tuple[int, str]] = {}
        self._turn = asyncio.Lock()
        self._task: asyncio.Task[None] | None = None

    def ask(self, key: TopicPartition, generation: int, reason: str) -> None:
        """A flow's request; the answer is submitted to the board."""
        self._asked[key] = (generation, reason)
        if self._task is None or self._task.done():
            self._task = asyncio.get_running_loop().create_task(self._answer())

    async def close(self) -> None:
        """Stop answering."""
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)

    async def reinstate(self, patterns: Sequence[str], *, is_dry_run: bool) -> list[Reinstatement]:
        """Reinstate the FAULTED copies of the topics whose whole names match; no pattern means all
        topics. Unreachable, InvalidPattern.
        """
        wanted = list(patterns) or [".*"]
        # Called only to raise InvalidPattern before anything is changed.
        matches("", whitelist=wanted, blacklist=())
        link = self._link()
        rows = [
            (key, row.facts)
            for key, row in sorted(self._board.our_rows(), key=lambda row: row[0])
            if carries_topic(link.record, key.topic) and matches(key.topic, whitelist=wanted, blacklist=())
        ]
        # FAULTED also covers damaged batches; the comparison of histories below finds those that
        # did not diverge.
        diverged = {key: facts.reason for key, facts in rows if facts.state is FlowState.FAULTED}
        found = {
            key: _nothing(key, f"the partition is {facts.state.value}: only diverged copies are reinstated")
            for key, facts in rows
        }
        async with self._turn:
            found |= await self._reinstated(diverged, is_dry_run=is_dry_run)
        for key, one in found.items():
            # A copy without own records was truncated by another program: `antipode repair`.
            is_prefix = key in diverged and one.outcome is ReinstateOutcome.NOTHING
            if not is_dry_run and (is_prefix or one.outcome is ReinstateOutcome.REINSTATED):
                self._board.submit(key, Start(reason="the copy has the source's history"))
        return list(found.values())

    async def _answer(self) -> None:
        await asyncio.sleep(0)  # The answer is submitted later, because the board is still in the decision that asked.
        while asked := self._asked:
            self._asked = {}
            try:
                await self._answer_now(asked)
            except InvariantBroken:
                raise
            except (Exception, asyncio.CancelledError) as error:
                if was_asked_to_end():
                    raise
                # Without an answer the flow would wait for ever, so it gets one after every error.
                if not isinstance(error, Unreachable):
                    note_death("reinstatements")
                for key, (generation, _) in asked.items():
                    advice = f"the copy cannot be reinstated now: {error}"
                    failed = CopyNotReinstated(generation=generation, advice=advice, is_final=False)
                    self._board.submit(key, failed)

    async def _answer_now(self, asked: Mapping[TopicPartition, tuple[int, str]]) -> None:
        refusal = self._policy_refusal()
        found: Mapping[TopicPartition, Reinstatement] = {}
        due = {key: reason for key, (_, reason) in asked.items() if refusal is None and self._is_of_former_epoch(key)}
        if due:
            async with self._turn:
                found = await self._reinstated(due, is_dry_run=False)
        for key, (generation, _) in asked.items():
            if key not in due:
                advice = BY_HAND if refusal is None else refusal
                self._board.submit(key, CopyNotReinstated(generation=generation, advice=advice))
            elif found[key].outcome in (ReinstateOutcome.REINSTATED, ReinstateOutcome.NOTHING):
                reinstated = CopyReinstated(
                    generation=generation,
                    log_end_offset=found[key].from_offset,
                    has_truncated=found[key].outcome is ReinstateOutcome.REINSTATED,
                )
                self._board.submit(key, reinstated)
            else:
                self._board.submit(key, CopyNotReinstated(generation=generation, advice=found[key].reason))

    def _is_of_former_epoch(self, key: TopicPartition) -> bool:
        """Whether the copy's last record was written before the active site was promoted."""
        # Records of the current epoch band show that the active site has lost records: a person
        # must examine that.
        return self._board.row(key).facts.chain_epoch < self._link().record.leader_epoch_floor

    def _policy_refusal(self) -> str | None:
        """Return why flows get no reinstatement, empty if only a new copy helps; None if they get
        one.
        """
        link = self._link()
        if self._quarantine is None:
            return ""
        if reinstate_policy(link.record) is not ReinstatePolicy.AUTOMATIC or link.epoch <= FIRST_LINK_EPOCH:
            return BY_HAND
        return None

    async def _reinstated(
        self, diverged: Mapping[TopicPartition, str], *, is_dry_run: bool
    ) -> dict[TopicPartition, Reinstatement]:
        """Each partition's outcome. Unreachable."""
        link = self._link()
        if self._quarantine is None:
            return {
                key: _refused(key, f"a translate link has no copy to truncate: {reason}")
                for key, reason in diverged.items()
            }
        if link.role is not LinkRole.MIRRORING:
            return {key: _refused(key, link.reason) for key in diverged}
        if not diverged:
            return {}
        found: dict[TopicPartition, Reinstatement] = {}
        ends: dict[TopicPartition, EndToKeep] = {}
        source, target = await self._source.topics(), await self._target.topics()
        for topic in sorted({key.topic for key in diverged}):
            keys = [key for key in diverged if key.topic == topic]
            planned = await self._planned(keys, source.get(topic), target.get(topic))
            found |= planned
            ends |= {
                key: EndToKeep(
                    topic_id=target[topic].topic_id,
                    leader=target[topic].leaders[key.partition],
                    first_offset=one.from_offset,
                )
                for key, one in planned.items()
                if one.outcome is ReinstateOutcome.PLANNED
            }
        return found if is_dry_run else found | await self._truncated(found, ends, diverged, link)

    async def _planned(
        self, keys: Sequence[TopicPartition], wanted: SiteTopic | None, copy: SiteTopic | None
    ) -> dict[TopicPartition, Reinstatement]:
        if wanted is None or copy is None or wanted.topic_id != copy.topic_id:
            return {key: _refused(key, f"the two sites do not have the same topic; {NEW_COPY}") for key in keys}
        leaders = {key: copy.leaders[key.partition] for key in keys if key.partition in copy.leaders}
        source_leaders = {key: wanted.leaders[key.partition] for key in keys if key.partition in wanted.leaders}
        logs, source_logs = await self._target.log_ends(leaders), await self._source.log_ends(source_leaders)
        known = {key: log for key, log in logs.items() if isinstance(log, LogEnds)}
        shared = await self._histories.compare(known, wanted, copy)
        return {key: _plan(key, known.get(key), source_logs.get(key), shared.get(key)) for key in keys}

    async def _truncated(
        self,
        planned: Mapping[TopicPartition, Reinstatement],
        ends: Mapping[TopicPartition, EndToKeep],
        diverged: Mapping[TopicPartition, str],
        link: LinkView,
    ) -> dict[TopicPartition, Reinstatement]:
        if not ends or self._quarantine is None:
            return {}
        reason = (
            "; ".join(sorted({diverged[key] for key in ends})) if len(ends) == 1 else f"link {link.name}: {link.reason}"
        )
        # Before the truncation: after it, an interrupted reinstatement finds nothing to do.
        await move_groups_back(self._target_groups, {key: end.first_offset for key, end in ends.items()}, link)
        done = await self._quarantine.keep_and_truncate(ends, link=link.name, link_epoch=link.epoch, reason=reason)
        found: dict[TopicPartition, Reinstatement] = {}
        for key, one in done.items():
            if one.refusal:
                found[key] = replace(planned[key], outcome=ReinstateOutcome.REFUSED, reason=one.refusal)
                continue
            found[key] = replace(
                planned[key],
                outcome=ReinstateOutcome.REINSTATED,
                reason=f"truncated to offset {one.log_end_offset}",
                from_offset=one.log_end_offset,
                entry=one.entry,
            )
            _state_change.warning("copy reinstated", partition=str(key), offset=one.log_end_offset, entry=one.entry)
        return found


def _plan(key: TopicPartition, log: LogEnds | None, source_log: object, shared: SharedHistory | None) -> Reinstatement:
    """Decide what to do with one copy, from the answers of both sites."""
    if log is None or not isinstance(source_log, LogEnds):
        return _refused(key, f"the {'target' if log is None else 'source'} does not report the log of {key}")
    if shared is None:
        return _refused(key, f"no leader epoch shows where the histories diverge; {NEW_COPY}")
    if shared.doubt:
        return _refused(key, f"{shared.doubt}; {NEW_COPY}")
    # The common history lies below the copy's log start, so no part of the copy can be kept.
    if shared.end_offset < log.log_start_offset:
        return _refused(
            key,
            f"the histories part at offset {shared.end_offset}, the copy starts at {log.log_start_offset}; {NEW_COPY}",
        )
    if shared.end_offset >= log.end_offset:
        return replace(
            _nothing(key, "the copy has nothing alone"), from_offset=log.end_offset, end_offset=log.end_offset
        )
    # The source has expired the offsets after the common history: mirroring could not continue
    # there.
    if shared.end_offset < source_log.log_start_offset:
        return _refused(
            key,
            f"the histories part at offset {shared.end_offset}, the source starts at {source_log.log_start_offset}; {NEW_COPY}",
        )
    return Reinstatement(
        key=key,
        outcome=ReinstateOutcome.PLANNED,
        reason=f"the histories part at offset {shared.end_offset}",
        from_offset=shared.end_offset,
        end_offset=log.end_offset,
    )


def _refused(key: TopicPartition, reason: str) -> Reinstatement:
    return Reinstatement(key=key, outcome=ReinstateOutcome.REFUSED, reason=reason)


def _nothing(key: TopicPartition, reason: str) -> Reinstatement:
    return Reinstatement(key=key, outcome=ReinstateOutcome.NOTHING, reason=reason)
