"""The topics of one peer site: its last view, and the later reports of its brokers.

A view comes each second and names every topic; a report (`broker/site/topic_change_reports.py`)
comes before a client gets the answer to a change, and names what changed. Views and reports may
overtake each other, so the result must not depend on their order: a deleted topic id does not
return, and of two states of a partition the one with the higher leader epoch, then partition epoch,
counts. A report is valid until a view shows the same, at most until a view that was requested much
later (`without_old_reports`). The cost of a report depends on the topics that it names, not on the
size of the view.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping

from msgspec import Struct, field
from msgspec.structs import replace

from broker.metadata.core.topic_images import PartitionImage, TopicImage, shared

NO_IDS: frozenset[bytes] = frozenset()


class TopicReport(Struct, frozen=True, kw_only=True):
    """The report of the peer's brokers about one name: the topic, if any, and deleted topic ids.
    `at_ms` is the time of receipt (monotonic ms).
    """

    topic: TopicImage | None
    deleted_ids: frozenset[bytes] = NO_IDS
    at_ms: float


class PeerTopics(Struct, frozen=True):
    """Topics by name, in the order of the view and then of the reports. Immutable; changes yield
    new values.
    """

    viewed: Mapping[str, TopicImage] = field(default_factory=dict)
    viewed_names: Mapping[bytes, str] = field(default_factory=dict)
    reports: Mapping[str, TopicReport] = field(default_factory=dict)
    _reported: Mapping[str, TopicImage | None] = field(default_factory=dict)
    """The result of view and report for each reported name; None when the topic is gone."""

    def get(self, name: str) -> TopicImage | None:
        """The topic, None when the peer does not have it."""
        return self._reported[name] if name in self._reported else self.viewed.get(name)

    def __iter__(self) -> Iterator[str]:
        for name in self.viewed:
            if self._reported.get(name, name) is not None:
                yield name
        for name, topic in self._reported.items():
            if topic is not None and name not in self.viewed:
                yield name

    def name_of(self, topic_id: bytes) -> str | None:
        """The name of the topic with the id, None when there is none."""
        name = self.viewed_names.get(topic_id)
        viewed = None if name is None else self.get(name)
        if viewed is not None and viewed.topic_id == topic_id:
            return name
        found = (name for name, topic in self._reported.items() if topic is not None and topic.topic_id == topic_id)
        return next(found, None)

    def with_view(self, topics: Iterable[TopicImage]) -> PeerTopics:
        """The topics after a new view. Reports that it has caught up with are dropped."""
        viewed = {topic.name: shared(topic, self.viewed.get(topic.name)) for topic in topics}
        reports = {
            name: report for name, report in self.reports.items() if not _has_caught_up(viewed.get(name), report)
        }
        names = {topic.topic_id: name for name, topic in viewed.items()}
        return _combined(PeerTopics(viewed, names), reports)

    def with_report(self, topic: TopicImage, *, is_deleted: bool, at_ms: float) -> PeerTopics:
        """The topics after a report about one."""
        known = self.reports.get(topic.name)
        deleted = known.deleted_ids if known is not None else NO_IDS
        reported = known.topic if known is not None else None
        if is_deleted:
            deleted |= {topic.topic_id}
        else:
            reported = _newer(reported, topic)
        if reported is not None and reported.topic_id in deleted:
            reported = None
        report = TopicReport(topic=reported, deleted_ids=deleted, at_ms=at_ms)
        found = {**self._reported, topic.name: _current(self.viewed.get(topic.name), report)}
        return replace(self, reports={**self.reports, topic.name: report}, _reported=found)

    def without_old_reports(self, *, before_ms: float) -> PeerTopics:
        """The topics without old reports; the same object if there are none."""
        kept = {name: report for name, report in self.reports.items() if report.at_ms >= before_ms}
        return self if len(kept) == len(self.reports) else _combined(self, kept)


def _combined(topics: PeerTopics, reports: Mapping[str, TopicReport]) -> PeerTopics:
    found = {name: _current(topics.viewed.get(name), report) for name, report in reports.items()}
    return replace(topics, reports=reports, _reported=found)


def _current(viewed: TopicImage | None, report: TopicReport) -> TopicImage | None:
    if viewed is not None and viewed.topic_id in report.deleted_ids:
        viewed = None
    return viewed if report.topic is None else _newer(viewed, report.topic)


def _has_caught_up(viewed: TopicImage | None, report: TopicReport) -> bool:
    """True if the view shows everything that the report says. A report with deleted ids stays until
    it is old, because an older view may still arrive.
    """
    return not report.deleted_ids and viewed is not None and _newer(viewed, report.topic or viewed) == viewed


def _newer(known: TopicImage | None, reported: TopicImage) -> TopicImage:
    """The reported topic, with the newer parts of the known state of the same topic."""
    if known is None or known.topic_id != reported.topic_id:
        return reported
    partitions = dict(known.partitions)
    for index, partition in reported.partitions.items():
        former = partitions.get(index)
        if former is None or _age(partition) > _age(former):
            partitions[index] = partition
    if partitions == known.partitions:
        return known
    return replace(reported, partitions=dict(sorted(partitions.items())))


def _age(partition: PartitionImage) -> tuple[int, int]:
    return partition.leader_epoch, partition.partition_epoch
