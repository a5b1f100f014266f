"""Plans a restore from the manifests of an archive: topics, and the files of each log in order.
Pure.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from uuid import UUID

from spark_jobs.archiving.core.manifest import (
    BATCHES,
    ArchivedRange,
    ArchivedTopic,
    Hole,
    LogId,
    Manifest,
    by_log,
    newest_topics,
)


@dataclass(frozen=True, slots=True, kw_only=True)
class LogToRestore:
    """A partition's ranges in order, each with its files. Of batches they hold the offsets from
    `first_offset` to `end_offset` without a hole.
    """

    topic: str
    topic_id: UUID
    partition: int
    first_offset: int
    end_offset: int
    ranges: tuple[tuple[str, ...], ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class RestorePlan:
    """The plan of a restore. `skipped` are sentences about offsets that are left out: a log of
    batches cannot have a hole in its middle, so it begins with the first file after the last hole
    between its files.
    """

    topics: tuple[ArchivedTopic, ...]
    logs: tuple[LogToRestore, ...]
    highest_leader_epoch: int
    skipped: tuple[str, ...]


def restore_plan(manifests: Sequence[Manifest], is_wanted: Callable[[str], bool]) -> RestorePlan:
    """The wanted topics of the archive in their last life. Records get new offsets, so that holes
    leave none of them out.
    """
    is_of_batches = all(manifest.format == BATCHES for manifest in manifests)
    topics = tuple(topic for name, topic in sorted(newest_topics(manifests).items()) if is_wanted(name))
    ids = {topic.topic_id for topic in topics}
    holes = [hole for manifest in manifests for hole in manifest.holes]
    logs, skipped, epochs = [], [], [0]
    for log, ranges in sorted(by_log(manifests).items()):
        if log.topic_id not in ids:
            continue
        begin = _begin(log, ranges, holes) if is_of_batches else 0
        kept = [one for one in ranges if one.first_offset >= begin]
        for one in ranges[: len(ranges) - len(kept)]:
            place = f"{one.topic}-{one.partition}"
            skipped.append(
                f"{place}: offsets {one.first_offset} to {one.end_offset - 1} are in a file with or before a hole"
            )
        epochs += [epoch for one in ranges for epoch, _ in one.leader_epochs]
        if kept:
            logs.append(
                LogToRestore(
                    topic=kept[0].topic,
                    topic_id=UUID(log.topic_id),
                    partition=log.partition,
                    first_offset=kept[0].first_offset,
                    end_offset=kept[-1].end_offset,
                    ranges=tuple(tuple(file.path for file in one.files) for one in kept),
                )
            )
    return RestorePlan(topics=topics, logs=tuple(logs), highest_leader_epoch=max(epochs), skipped=tuple(skipped))


def _begin(log: LogId, ranges: Sequence[ArchivedRange], holes: Iterable[Hole]) -> int:
    """The end of the last hole of a log that is before or in its ranges. A hole behind them, as of
    a log that retention has emptied, leaves no gap between them.
    """
    end_offset = ranges[-1].end_offset
    return max((one.end_offset for one in holes if one.log == log and one.first_offset < end_offset), default=0)


def refusals(
    plan: RestorePlan, there: Mapping[str, ArchivedTopic], offsets: Mapping[str, int], *, is_of_batches: bool
) -> list[str]:
    """The reasons why the site cannot take the topics. `there` has the topics of the site by name,
    `offsets` how many their logs hold.
    """
    problems = []
    for topic in plan.topics:
        present = there.get(topic.name)
        if present is None:
            continue
        if offsets.get(topic.name):
            problems.append(f"topic {topic.name} is not empty at the site: delete it there, or restore elsewhere")
        elif is_of_batches and present.topic_id != topic.topic_id:
            problems.append(f"topic {topic.name} exists at the site with another topic id: delete it there")
        elif present.partition_count < topic.partition_count:
            counts = f"{present.partition_count} partitions, the archive has {topic.partition_count}"
            problems.append(f"topic {topic.name} exists at the site with {counts}: delete it there")
    return problems
