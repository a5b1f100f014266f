"""The differences of a failover's target from the known source: missing records, and parts that no
count of records shows (partitions without a leader or a copy, groups' offsets, producers, access
rules). Pure; caller: `playbook.py`.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from msgspec import Struct

from dr.failover.core.known_source import KnownSource
from dr.failover.core.source_ends import best_source_end
from dr.failover.core.steps import NAMED_IN_A_REASON_MAX
from dr.sites.core.access_rules import access_lacking
from dr.sites.core.evidence import Evidence, SiteEvidence
from dr.sites.core.group_offsets import offsets_behind
from dr.sites.core.log_columns import LogsInColumns
from dr.sites.core.positions import PartitionPosition
from dr.sites.core.transactional_ids import producers_lacking
from wire.protocol.ids import TopicPartition


class Completion(Struct, frozen=True, kw_only=True):
    """How far the target lags behind the known state of the source. `remaining` counts offsets of
    the known source that the target lacks. `problem` names other parts that are missing or not
    known to be there: partitions without a record, groups' offsets. It is empty if the target has
    everything, or if that is unknown. `is_complete`: the target is known to have all that the
    fenced source has.
    """

    remaining: Mapping[TopicPartition, int]
    is_exact: bool
    is_complete: bool
    problem: str = ""

    @property
    def remaining_records(self) -> int:
        """Sum over all partitions."""
        return sum(self.remaining.values())


def completion(evidence: Evidence, known: KnownSource) -> Completion:
    """Compare the target with the known source."""
    target = evidence.target
    assert target is not None
    copies = target.copies
    remaining: dict[TopicPartition, int] = {}
    is_exact = known.is_fence_proven
    for key in _maybe_incomplete(copies, known):
        copy, source_end = copies.get(key), known.end(key)
        here = 0 if copy is None else copy.safe_end_offset
        if source_end is not None and source_end.is_exact and source_end.end_offset <= here:
            continue
        end = best_source_end(copy, source_end)
        if end is None or not end.is_exact:
            is_exact = False
        # Records that the source has deleted by retention are no loss: the copy may begin after
        # them.
        if end is not None and end.end_offset > max(here, end.log_start_offset):
            remaining[key] = end.end_offset - max(here, end.log_start_offset)
    problem = "" if remaining else lack(evidence, known)
    # A single look under the fence cannot show a log that grows in spite of it; two looks are
    # needed (F-k).
    is_complete = is_exact and not remaining and not problem and not known.needs_second_look
    return Completion(remaining=remaining, is_exact=is_exact, is_complete=is_complete, problem=problem)


def _maybe_incomplete(
    copies: Mapping[TopicPartition, PartitionPosition], known: KnownSource
) -> Iterable[TopicPartition]:
    """The partitions without those that the columns show to be complete, or to end where the mirror
    saw the end of a source that has not reported a log.
    """
    if isinstance(copies, LogsInColumns):
        if known.is_unknown and not known.is_fence_proven:
            return copies.source_ends.above(copies.safe_ends)
        if known.columns is not None and known.are_columns_exact and known.columns.order is copies.order:
            return known.columns.ends.above(copies.safe_ends)
    return {*known.ends, *copies}


def lack(evidence: Evidence, known: KnownSource) -> str:
    """The missing parts other than records, in a sentence; empty when nothing is missing."""
    return _leaderless(evidence, known) or absent(evidence, known) or _groups_problem(evidence, known)


def absent(evidence: Evidence, known: KnownSource) -> str:
    """Partitions of the source that the target does not have at all. They count separately, because
    a partition without a record adds nothing to the lag.
    """
    target = evidence.target
    if evidence.source is None or target is None:
        return ""
    logs = target.partitions
    if isinstance(logs, LogsInColumns) and known.columns is not None and known.columns.order is logs.order:
        return ""
    missing = sorted(known.ends.keys() - target.partitions.keys() - target.leaderless)
    names = ", ".join(map(str, missing[:NAMED_IN_A_REASON_MAX]))
    return f"{len(missing)} partitions are not here yet ({names})" if missing else ""


def leaderless_sentence(site: SiteEvidence, *, consequence: str = "their records cannot be copied") -> str:
    """The partitions without a leader, in a sentence; empty when every partition has one."""
    if not site.leaderless:
        return ""
    names = ", ".join(map(str, sorted(site.leaderless)[:NAMED_IN_A_REASON_MAX]))
    return f"{len(site.leaderless)} partitions have no leader at {site.site} ({names}): {consequence}"


def _leaderless(evidence: Evidence, known: KnownSource) -> str:
    """Partitions of a fenced source without a leader there: their logs cannot be copied."""
    source = evidence.source
    return leaderless_sentence(source) if source is not None and known.is_fence_proven else ""


def _groups_problem(evidence: Evidence, known: KnownSource) -> str:
    """The reason why offsets that groups committed, or access rules that operators changed, before
    the fence may be missing at the target; unknown when the source does not answer.
    """
    source, target = evidence.source, evidence.target
    if not known.is_fence_proven or source is None or target is None:
        return ""
    reported = known.groups
    if reported is None or target.groups is None:
        return f"the offsets of groups at {source.site} are not known yet"
    if reported.committing_transactions:
        return f"{reported.committing_transactions} committed transactions are not marked at {source.site} yet"
    if problems := (*reported.problems, *reported.transaction_problems, *target.groups.problems):
        return f"the offsets of groups cannot be compared: {'; '.join(problems)}"
    behind = offsets_behind(reported, target.groups, target.partitions, is_routed=evidence.governing.is_routed)
    if not behind:
        return producers_lacking(reported, target.groups) or access_lacking(known.access, target.access)
    return f"{len(behind)} committed offsets are not here yet ({'; '.join(map(str, behind[:NAMED_IN_A_REASON_MAX]))})"
