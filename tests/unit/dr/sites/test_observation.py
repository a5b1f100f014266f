"""An observer asks sites again without receiving again what it knows."""

from __future__ import annotations

from typing import Any

import grpc
import pytest
from msgspec.structs import replace

from dr.sites.core.evidence import positions_of
from dr.sites.core.log_columns import LogsInColumns
from dr.sites.core.loss import LossAccount
from dr.sites.observation import LinkObserver
from dr.sites.site_client import SiteClient, SiteRefused
from tests.support.clock import ManualClock
from tests.unit.dr.core.positions_in_columns import described
from wire.control import site_pb2 as site
from wire.control.broker_pb2 import PartitionDescription
from wire.control.cluster_pb2 import LinkPhase, LinkRecord, PartitionState, SiteView, TopicInfo

RECORD = LinkRecord(name="a-b", epoch=3, source_site="a", target_site="b", active_site="b", phase=LinkPhase.MIRRORING)
ACCOUNT = LossAccount(
    link="a-b", epoch=2, from_site="a", to_site="b", accounted_at_ms=0, partitions=(), leader_epoch_floor=1 << 16
)


class Site(SiteClient):
    """A site with a few accounts, which it sends as a site agent does."""

    def __init__(self, *, knows_versions: bool = True) -> None:
        self.name = "b"
        self.accounts = {2: (1, ACCOUNT)}
        self.sent: list[int] = []
        self._knows_versions = knows_versions

    async def _call(self, method: str, request: Any, **_: Any) -> Any:
        assert method == "ObserveLink"
        raise SiteRefused("an agent of an earlier release", grpc.StatusCode.UNIMPLEMENTED)

    async def describe_link(self, name: str) -> site.DescribeLinkReply:
        assert name == "a-b"
        return site.DescribeLinkReply(site="b", record=RECORD)

    async def look(self, *, asking_site: str = "", known_version: int = 0) -> site.GetSiteViewReply:
        assert asking_site == ""
        return site.GetSiteViewReply(view=SiteView(site="b", version=known_version))

    async def links(self) -> site.ListLinksReply:
        return site.ListLinksReply(site="b")

    async def mirror_reports(self, link: str) -> site.DescribeGroupsReply:
        assert link == "a-b"
        return site.DescribeGroupsReply()

    async def changed_failovers(self, link: str, known_versions: Any) -> site.ListFailoversReply:
        assert link == "a-b"
        sent = {
            epoch: account.to_json()
            for epoch, (version, account) in self.accounts.items()
            if known_versions.get(epoch) != version
        }
        self.sent += sent
        if not self._knows_versions:
            return site.ListFailoversReply(json=sent.values())
        versions = {epoch: version for epoch, (version, _) in self.accounts.items()}
        return site.ListFailoversReply(json=sent.values(), epochs=sent.keys(), versions=versions)


async def _epochs(observer: LinkObserver, at: Site) -> list[int]:
    return [promotion.epoch for promotion in (await observer.site_evidence(at)).promotions]


async def test_accounts_that_an_observer_knows_are_not_sent_again() -> None:
    at = Site()
    observer = LinkObserver("a-b", target=at, source=None, clock=ManualClock())
    assert await _epochs(observer, at) == [2]
    assert await _epochs(observer, at) == [2]
    assert at.sent == [2]

    at.accounts = {2: (2, ACCOUNT), 3: (1, replace(ACCOUNT, epoch=3))}
    assert await _epochs(observer, at) == [2, 3]
    assert at.sent == [2, 2, 3]

    del at.accounts[2]  # the link was deleted and made again
    assert await _epochs(observer, at) == [3]


async def test_an_agent_that_knows_no_versions_sends_all_accounts() -> None:
    at = Site(knows_versions=False)
    observer = LinkObserver("a-b", target=at, source=None, clock=ManualClock())
    assert await _epochs(observer, at) == [2]
    assert await _epochs(observer, at) == [2]


class Asked(SiteClient):
    """A site that notes for which site it is asked how it looks."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.asking_sites: list[str] = []

    async def observe_link(self, request: site.ObserveLinkRequest) -> site.ObserveLinkReply:
        self.asking_sites.append(request.asking_site)
        return site.ObserveLinkReply()


async def test_each_site_is_asked_how_it_looks_to_the_other_one_by_whichever_client() -> None:
    """A view for itself has no topics of the link, so no partition would ever lack a leader."""
    target, source, again = Asked("b"), Asked("a"), Asked("b")
    observer = LinkObserver("a-b", target=target, source=source, clock=ManualClock())
    for client in (target, source, again):
        await observer.site_evidence(client)
    assert (target.asking_sites, source.asking_sites, again.asking_sites) == (["a"], ["b"], ["a"])


class WithoutLink(Asked):
    """A site that has lost its ZooKeeper data."""

    async def observe_link(self, request: site.ObserveLinkRequest) -> site.ObserveLinkReply:
        raise SiteRefused(f"site {self.name}: this site has no link 'a-b'", grpc.StatusCode.NOT_FOUND)


async def test_a_standby_without_the_link_is_evidence_only_if_the_caller_accepts_its_refusal() -> None:
    observer = LinkObserver("a-b", target=WithoutLink("b"), source=Asked("a"), clock=ManualClock())
    with pytest.raises(SiteRefused):
        await observer.evidence()
    found = await observer.evidence(may_target_refuse=True)
    assert found.source is not None
    assert (found.target, found.target_problem) == (None, "site b: this site has no link 'a-b'")


class Logs(SiteClient):
    """A site of one broker, which sends its logs unless the observer knows them."""

    def __init__(self, *, has_versions: bool = True) -> None:
        self.name = "b"
        self.version = 1
        self.has_versions = has_versions
        self.sent = 0

    async def observe_link(self, request: site.ObserveLinkRequest) -> site.ObserveLinkReply:
        if request.with_log_versions and dict(request.known_log_versions) == {1: self.version}:
            return site.ObserveLinkReply(
                description=site.DescribeLinkReply(log_versions={1: self.version}, are_logs_unchanged=True)
            )
        self.sent += 1
        partitions = [PartitionDescription(topic="t", partition=0, log_end_offset=self.version)]
        versions = {1: self.version} if self.has_versions and request.with_log_versions else {}
        return site.ObserveLinkReply(description=site.DescribeLinkReply(partitions=partitions, log_versions=versions))


async def test_a_run_reuses_logs_from_the_fence_on() -> None:
    at = Logs(has_versions=True)
    observer = LinkObserver("a-b", target=at, source=None, clock=ManualClock())
    await observer.site_evidence(at)
    observer.reuse_logs()
    for _ in range(2):
        await observer.site_evidence(at)
        assert at.sent == 2


@pytest.mark.parametrize(("reuses_logs", "has_versions", "sent"), [(True, True, 2), (False, True, 4), (True, False, 4)])
async def test_unchanged_logs_are_sent_once_to_an_observer_that_reuses_them(
    reuses_logs: bool, has_versions: bool, sent: int
) -> None:
    at = Logs(has_versions=has_versions)
    observer = LinkObserver("a-b", target=at, source=None, clock=ManualClock(), reuses_logs=reuses_logs)
    for version in (1, 1, 7, 7):
        at.version = version
        evidence = await observer.site_evidence(at)
        assert [position.log_end_offset for position in evidence.partitions.values()] == [version]
    assert at.sent == sent


class Columns(Logs):
    """A site of three brokers, one of an earlier release, that describe their logs."""

    async def observe_link(self, request: site.ObserveLinkRequest) -> site.ObserveLinkReply:
        assert request.accepts_columns
        reply = await super().observe_link(request)
        one = positions_of([PartitionDescription(topic="t", partition=2, log_end_offset=self.version)])
        another = positions_of([PartitionDescription(topic="t", partition=1, log_end_offset=self.version)])
        reply.description.columns.extend([described(one), described(another)])
        if self.version == 2:
            del reply.description.partitions[:]
        if self.version == 3:
            reply.description.columns[0].flags = b""
        topic = TopicInfo(name="t", partitions=[PartitionState(partition=number) for number in range(5)])
        reply.view.view.MergeFrom(SiteView(topics=[topic]))
        reply.description.record.MergeFrom(replace_whitelist(RECORD))
        return reply


def replace_whitelist(record: LinkRecord) -> LinkRecord:
    """The record of a link that carries topic t."""
    changed = LinkRecord.FromString(record.SerializeToString())
    changed.topic_whitelist.append("t")
    return changed


async def test_logs_in_columns_are_read_beside_those_of_a_broker_of_an_earlier_release() -> None:
    at = Columns()
    observer = LinkObserver("a-b", target=at, source=None, clock=ManualClock())
    mixed = await observer.site_evidence(at)
    assert {key.partition for key in mixed.partitions} == {0, 1, 2}
    assert {key.partition for key in mixed.leaderless} == {3, 4}
    at.version = 2
    for _ in range(2):
        found = await observer.site_evidence(at)
        assert isinstance(found.partitions, LogsInColumns)
        assert {key.partition: one.log_end_offset for key, one in found.partitions.items()} == {1: 2, 2: 2}
        assert {key.partition for key in found.leaderless} == {0, 3, 4}
    at.version = 3
    with pytest.raises(SiteRefused, match="different lengths"):
        await observer.site_evidence(at)


class Viewed(SiteClient):
    """A site without a leader, which sends its topics unless the observer knows them."""

    def __init__(self) -> None:
        self.name = "b"
        self.version = self.topics_version = 1
        self.sent = 0

    async def observe_link(self, request: site.ObserveLinkRequest) -> site.ObserveLinkReply:
        description = site.DescribeLinkReply(record=replace_whitelist(RECORD))
        if request.known_view_version == self.version:
            return site.ObserveLinkReply(description=description, view=site.GetSiteViewReply(is_unchanged=True))
        view = SiteView(version=self.version, topics_version=self.topics_version)
        if request.known_topics_version == self.topics_version:
            view.has_known_topics = True
        else:
            self.sent += 1
            topic = TopicInfo(name="t", partitions=[PartitionState(partition=self.topics_version)])
            view.topics.append(topic)
        return site.ObserveLinkReply(description=description, view=site.GetSiteViewReply(view=view))


async def test_topics_that_an_observer_knows_are_not_sent_again() -> None:
    """A fence changes the link in the view of a site, which may have thousands of partitions."""
    at = Viewed()
    observer = LinkObserver("a-b", target=at, source=None, clock=ManualClock())
    for version, topics_version, sent in [(1, 1, 1), (2, 1, 1), (2, 1, 1), (3, 1, 1), (4, 4, 2)]:
        at.version, at.topics_version = version, topics_version
        evidence = await observer.site_evidence(at)
        assert {key.partition for key in evidence.leaderless} == {topics_version}
        assert at.sent == sent
