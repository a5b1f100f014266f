"""A failover to a time changes no log while a part of the site does not answer: the records of that
part would stay, and nothing would look for them again.
"""

from __future__ import annotations

from collections.abc import Iterable
from types import SimpleNamespace
from typing import Any, Self, cast

import pytest
from kio.schema.errors import ErrorCode
from msgspec.structs import replace

from dr.failover import log_ends
from dr.failover.core.steps import FailoverPolicy
from dr.failover.core.torn_transactions import TornSurvey
from dr.failover.core.truncation_check import TruncationCheck
from dr.failover.log_ends import truncate_logs
from dr.sites.core.evidence import Evidence, GroupPartition, SiteEvidence, SiteGroups
from dr.sites.core.positions import PartitionPosition
from runtime.process import OperationalFailure
from wire.client.raw_client import KafkaClient
from wire.client.requests.group_requests import CommittedOffset
from wire.control.cluster_pb2 import LinkRecord, SiteView
from wire.protocol.ids import DEBUGGING_CONSUMER, PartitionKey, TopicPartition

LED, OTHER = TopicPartition("flights", 0), TopicPartition("flights", 1)
PLACE = GroupPartition("board", *LED)
RECORD = LinkRecord(
    name="a-b", source_site="a", target_site="b", epoch=2, active_site="b", kept_before_ms=700, leader_epoch_floor=8
)
EVIDENCE = SiteEvidence(
    site="b",
    seen_at_ms=1_000,
    record=RECORD,
    partitions={
        LED: PartitionPosition(
            leader_epoch=8, last_log_epoch=1, log_start_offset=0, log_end_offset=20, is_writable=False
        )
    },
    groups=SiteGroups(offsets={PLACE: 25}),
)


class Site:
    """A client of a site whose logs have no record of the time or later."""

    def __init__(self) -> None:
        self.committed: dict[str, dict[PartitionKey, CommittedOffset]] = {}
        self.asked: dict[TopicPartition, int] = {}
        """The ends that the leaders were asked for."""
        self.refusal = 0

    async def metadata(self, topics: Iterable[str]) -> Any:
        return SimpleNamespace(topics={name: SimpleNamespace(topic_id=None) for name in topics})

    async def leader(self, *_: Any) -> int:
        return 1

    async def connection(self, _: int) -> Self:
        return self

    async def call(self, _key: int, values: dict[str, Any], *, timeout_ms: int) -> Any:
        asked = {
            TopicPartition(topic["name"], one["index"]): one["first_offset"]
            for topic in values["topics"]
            for one in topic["partitions"]
        }
        self.asked |= asked
        return SimpleNamespace(
            outcomes=[
                SimpleNamespace(
                    topic=key.topic, index=key.partition, error_code=self.refusal, error_message="", log_end_offset=end
                )
                for key, end in asked.items()
            ]
        )

    async def offsets_at(self, keys: Iterable[PartitionKey], at_ms: int, *, replica_id: int) -> dict[PartitionKey, int]:
        return dict.fromkeys(keys, -1)

    async def mirror_offset_commit(
        self, group: str, offsets: dict[PartitionKey, CommittedOffset], **_: Any
    ) -> dict[PartitionKey, int]:
        self.committed[group] = offsets
        return dict.fromkeys(offsets, 0)


async def truncated(evidence: SiteEvidence, *, refusal: int = 0) -> tuple[Site, str]:
    """The site after a truncation, and its problem; `refusal` is the error of the leaders."""
    site = Site()
    site.refusal = refusal
    _, problem = await truncate_logs(cast("KafkaClient", site), RECORD, evidence)
    return site, problem


async def test_groups_go_back_to_the_ends_of_the_logs() -> None:
    site, problem = await truncated(EVIDENCE)
    assert not problem
    assert site.committed == {"board": {LED: CommittedOffset(20)}}


async def test_a_log_without_records_to_remove_waits_for_its_replicas_too() -> None:
    """An earlier attempt may have removed the records at the leader alone."""
    site, problem = await truncated(EVIDENCE, refusal=int(ErrorCode.request_timed_out))
    assert site.asked == {LED: 20}
    assert problem == "flights-0: request_timed_out"
    assert not site.committed


@pytest.mark.parametrize(
    ("evidence", "named"),
    [
        pytest.param(
            replace(EVIDENCE, leaderless=frozenset({OTHER})),
            "1 partitions have no leader at b (flights-1)",
            id="a partition without a leader may have records that must go",
        ),
        pytest.param(
            replace(EVIDENCE, groups=SiteGroups(problems=("broker 2: DEADLINE_EXCEEDED",))),
            "broker 2: DEADLINE_EXCEEDED",
            id="a coordinator that does not answer may have groups that must go back",
        ),
    ],
)
async def test_a_part_of_the_site_that_does_not_answer_is_a_problem(evidence: SiteEvidence, named: str) -> None:
    site, problem = await truncated(evidence)
    assert named in problem
    assert not site.committed


class LookedUp(Site):
    """A client of a site that has a record of the time in each log."""

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        return None

    async def offsets_at(self, keys: Iterable[PartitionKey], at_ms: int, *, replica_id: int) -> dict[PartitionKey, int]:
        assert (at_ms, replica_id) == (700, DEBUGGING_CONSUMER)
        self.asked |= {TopicPartition(*key): 12 for key in keys}
        return dict.fromkeys(keys, 12)


async def test_only_compacted_logs_are_looked_up_before_a_failover_to_a_time(monkeypatch: pytest.MonkeyPatch) -> None:
    position = EVIDENCE.partitions[LED]
    logs = {LED: replace(position, thinned_to=13), OTHER: position}
    passive = LinkRecord(name="a-b", source_site="a", target_site="b", epoch=1, active_site="a")
    target = replace(EVIDENCE, record=passive, partitions=logs)
    evidence = Evidence(link="a-b", target_site="b", target=target, source=None)
    site, policy = LookedUp(), FailoverPolicy(kept_before_ms=700)
    monkeypatch.setattr(log_ends, "site_client", lambda _view, _security: site)

    async def view(*, asking_site: str) -> SiteView:
        assert asking_site == "a"
        return SiteView()

    check = TruncationCheck(policy)
    for _ in range(2):
        await log_ends.look_up_truncations(check, evidence, cast("Any", SimpleNamespace(view=view)), policy, None)
    assert site.asked == {LED: 12}
    assert "flights-0 at 12 (compacted up to 13)" in check.refusal(target)


@pytest.mark.parametrize("is_readable", [True, False])
async def test_the_consistent_point_of_compacted_logs_is_looked_up_once(
    monkeypatch: pytest.MonkeyPatch, is_readable: bool
) -> None:
    logs = {LED: replace(EVIDENCE.partitions[LED], thinned_to=13)}
    passive = LinkRecord(name="a-b", source_site="a", target_site="b", epoch=1, active_site="a")
    target = replace(EVIDENCE, record=passive, partitions=logs)
    evidence = Evidence(link="a-b", target_site="b", target=target, source=None)
    policy = FailoverPolicy(is_cut_consistent=True)

    async def view(*, asking_site: str) -> SiteView:
        return SiteView()

    async def planned_ends(*_: Any, **options: Any) -> Any:
        assert options == {"kept_before_ms": 0, "is_cut_consistent": True}
        if not is_readable:
            raise OperationalFailure("the logs are too long")
        return {LED: 12}, TornSurvey()

    monkeypatch.setattr(log_ends, "site_client", lambda _view, _security: LookedUp())
    monkeypatch.setattr(log_ends, "planned_ends", planned_ends)
    check, site = TruncationCheck(policy), cast("Any", SimpleNamespace(view=view))
    assert await log_ends.look_up_consistent_point(check, evidence, site, policy, None) is is_readable
    assert not await log_ends.look_up_consistent_point(check, evidence, site, policy, None)
    assert ("flights-0 at 12 (compacted up to 13)" in check.refusal(target)) is is_readable
