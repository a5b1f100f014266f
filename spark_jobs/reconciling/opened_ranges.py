"""Opens the batches that a comparison by digests found different, at both sites, and names the
records in them that differ. Nothing else of the logs is read.

Caller: `antipode reconcile --quick --deep`.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from spark_jobs.logs.core.splits import LogEnds
from spark_jobs.reconciling.core.extents import Extent
from spark_jobs.reconciling.core.findings import Explanation, Finding, OffsetRange, merged
from spark_jobs.reconciling.core.judging import Judgement, Run
from spark_jobs.reconciling.process_rows import ProcessRows
from spark_jobs.reconciling.request import Request
from wire.protocol.ids import PartitionKey

FINDINGS_MAX = 10_000
ANSWER_BYTES = 128 * 1024
"""A range is often one batch, and a fetch has no last offset: a larger answer would bring more
batches behind the range, which the comparison does not use.
"""


class DifferingRange(NamedTuple):
    """Offsets of one partition, both included, in which the sites hold different batches."""

    topic: str
    partition: int
    first_offset: int
    last_offset: int


@dataclass(frozen=True, slots=True)
class OpenedRanges:
    """The records that differ. `not_opened` has the ranges beyond the most offsets of one run."""

    findings: tuple[Finding, ...]
    explanations: tuple[Explanation, ...]
    not_opened: tuple[DifferingRange, ...]


def open_ranges(request: Request, ranges: Iterable[DifferingRange]) -> OpenedRanges:
    """Compare the records of these ranges, the first ones up to `process_offsets_max` offsets.
    Raises OperationalFailure when a site cannot be read.
    """
    chosen, left = _chosen(ranges, request.process_offsets_max)
    plan = [_extent(one) for one in chosen]
    rows = ProcessRows(request, plan, answer_bytes=ANSWER_BYTES)
    judgement = Judgement(source_site=request.source_site, target_site=request.target_site)
    judgement.judge_defects(_inside(chosen, rows.defects(FINDINGS_MAX)))
    judgement.judge_opened(plan, _inside(chosen, rows.differing_records(plan, FINDINGS_MAX)))
    found = sorted(judgement.findings, key=lambda one: (one.topic, one.partition, one.first_offset, one.kind))
    # equal records under a checksum that does not fit are no legitimate difference
    explained = [one for one in judgement.explanations if not judgement.is_faulty(one.topic, one.partition)]
    return OpenedRanges(tuple(found), tuple(explained), tuple(left))


def _chosen(ranges: Iterable[DifferingRange], offsets_max: int) -> tuple[list[DifferingRange], list[DifferingRange]]:
    """The ranges to open, and those that remain. Touching ranges become one, since a batch of one
    site may reach over several batches of the other one.
    """
    by_partition: dict[PartitionKey, list[OffsetRange]] = defaultdict(list)
    for one in ranges:
        by_partition[one.topic, one.partition].append(OffsetRange(first=one.first_offset, last=one.last_offset))
    chosen: list[DifferingRange] = []
    left: list[DifferingRange] = []
    offsets = 0
    for key, found in sorted(by_partition.items()):
        for whole in merged(found):
            is_chosen = offsets + whole.offsets <= offsets_max
            offsets += whole.offsets if is_chosen else 0
            (chosen if is_chosen else left).append(DifferingRange(*key, whole.first, whole.last))
    return chosen, left


def _extent(one: DifferingRange) -> Extent:
    ends = LogEnds(start_offset=one.first_offset, end_offset=one.last_offset + 1)
    return Extent(
        topic=one.topic,
        partition=one.partition,
        first_offset=one.first_offset,
        source=ends,
        target=ends,
        source_until=ends.end_offset,
        target_until=ends.end_offset,
    )


def _inside(chosen: Sequence[DifferingRange], runs: Iterable[Run]) -> list[Run]:
    """The runs as far as they lie in the ranges: a batch is read whole where it reaches over the
    edge of a range, and the other site was not read there.
    """
    return [inside for run in runs for inside in _pieces(chosen, run)]


def _pieces(chosen: Sequence[DifferingRange], run: Run) -> Iterator[Run]:
    for one in chosen:
        first, last = max(run.first_offset, one.first_offset), min(run.last_offset, one.last_offset)
        if (one.topic, one.partition) == (run.topic, run.partition) and first <= last:
            yield run._replace(first_offset=first, last_offset=last)
