"""The coordinator of groups that a link carries: the site that answers, the offsets that mirrors
bring, and the eviction of members.
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any

import pytest
from kio.schema.errors import ErrorCode
from msgspec.structs import replace

from broker.coordination.state_shard import CoordinatorRefusal
from broker.groups.core.group_messages import (
    CommitOffsets,
    CommittedOffset,
    MirrorOffsets,
)
from broker.groups.core.group_states import GroupState
from broker.metadata.core.image_updates import confirm_link
from broker.site.access_digests import SiteAccess
from broker.site.group_reports import GroupReports
from broker.transactions.core.transaction_machine import TransactionLimits
from broker.transactions.transaction_coordinator import TransactionCoordinator
from broker.transactions.transaction_routing import TransactionRouting
from tests.support.clock import ManualClock
from tests.support.eventually import eventually
from tests.support.memory.coordinator_site import GROUP, PARTITIONS, T0, Site, outcome, refusal
from tests.support.memory.memory_log import MemoryLog
from wire.control.cluster_pb2 import LinkPhase, LinkRecord
from wire.protocol.ids import TopicPartition
from wire.rules.sync_reports import SyncReport


def link(
    *,
    active: str = "a",
    epoch: int = 1,
    phase: LinkPhase = LinkPhase.MIRRORING,
    is_routed: bool = True,
    made_at_ms: int = 0,
) -> LinkRecord:
    return LinkRecord(
        name="a-b",
        source_site="a",
        target_site="b",
        epoch=epoch,
        active_site=active,
        phase=phase,
        group_whitelist=[GROUP],
        topic_whitelist=["t"],
        is_routed=is_routed,
        made_at_ms=made_at_ms,
    )


@pytest.fixture
async def site(clock: ManualClock) -> AsyncIterator[Site]:
    made = Site(clock)
    yield made
    await made.coordinator.stop()
    assert made.coordinator.timer_count == 0


async def test_the_passive_site_sends_clients_away_and_takes_the_mirrors_offsets(site: Site) -> None:
    await site.loaded()
    await site.link(link(active="b", epoch=3))
    assert await refusal(site.commit(1)) is ErrorCode.not_coordinator
    assert await refusal(site.join()) is ErrorCode.not_coordinator
    mirrored = MirrorOffsets(group_id=GROUP, offsets={T0: CommittedOffset(9, 2, "")})

    def mirror(link_name: str, epoch: int) -> Any:
        return site.coordinator.commit_mirrored(mirrored, link=link_name, link_epoch=epoch)

    assert outcome(await mirror("a-b", 3)) is ErrorCode.none
    assert await refusal(mirror("a-b", 2)) is ErrorCode.fenced_leader_epoch
    assert await refusal(mirror("a-b", 4)) is ErrorCode.unknown_leader_epoch
    assert await refusal(mirror("x", 3)) is ErrorCode.unknown_leader_epoch
    assert site.committed() == 9
    with pytest.raises(CoordinatorRefusal):
        site.committed(is_own_tool=False)
    assert [group.group_id for group in site.coordinator.list_groups(is_own_tool=True)] == [GROUP]
    assert not list(site.coordinator.list_groups(is_own_tool=False))


async def test_offsets_of_a_link_that_was_deleted_do_not_count_for_a_new_one_of_its_name(site: Site) -> None:
    mirrored = MirrorOffsets(group_id=GROUP, offsets={T0: CommittedOffset(9, 2, "")})
    marks = []
    await site.loaded()
    for made_at_ms in (0, 1_000, 2_000):  # an earlier release stored no time
        await site.link(link(active="b", made_at_ms=made_at_ms))
        mark = site.coordinator.mirror_mark("a-b", 1)
        marks.append(mark)
        before = site.coordinator.offsets_of(GROUP, is_own_tool=True)
        assert all(offset.carried_by in marks[:-1] for offset in before.values())
        await site.coordinator.commit_mirrored(mirrored, link="a-b", link_epoch=1)
        (written,) = site.coordinator.offsets_of(GROUP, is_own_tool=True).values()
        assert written.carried_by == mark
    assert marks[0] == "a-b@1"
    assert len(set(marks)) == 3


async def test_offsets_that_a_link_brings_live_as_long_as_at_the_active_site_and_grow_old_from_a_promotion_on(
    site: Site,
) -> None:
    """M3: at the standby no commit moves the offset of a quiet partition, and its group has no
    members there.
    """
    await site.loaded()
    await site.link(link(active="b", epoch=3))
    mirrored = MirrorOffsets(group_id=GROUP, offsets={T0: CommittedOffset(9, 2, "")})
    await site.coordinator.commit_mirrored(mirrored, link="a-b", link_epoch=3)
    site.clock.advance(5000)
    await site.coordinator.expire_offsets()
    assert site.committed() == 9
    promoted = link(active="a", epoch=4)
    promoted.updated_at_ms = site.clock.now_ms()
    await site.link(promoted)
    site.image = confirm_link(site.image, "a-b", 4) or site.image
    for _ in range(2):
        await site.coordinator.expire_offsets()
        assert site.committed() == 9
        site.clock.advance(500)
    await site.coordinator.expire_offsets()
    await eventually(lambda: site.committed() is None)


async def test_offsets_that_the_active_site_has_forgotten_are_forgotten_at_the_passive_site(site: Site) -> None:
    await site.loaded()
    await site.link(link(active="b", epoch=3))
    t1 = TopicPartition("t", 1)

    async def mirror(**offsets: int) -> None:
        places = {"t0": T0, "t1": t1}
        wanted = {places[name]: CommittedOffset(offset, -1, "") for name, offset in offsets.items()}
        mirrored = MirrorOffsets(group_id=GROUP, offsets=wanted)
        reply = await site.coordinator.commit_mirrored(mirrored, link="a-b", link_epoch=3)
        assert dict(reply.errors) == dict.fromkeys(wanted, ErrorCode.none)

    await mirror(t0=9, t1=4)
    await mirror(t0=-1)
    assert site.coordinator.offsets_of(GROUP, is_own_tool=True).keys() == {t1}
    await mirror(t0=-1, t1=-1)
    assert not site.coordinator.offsets_of(GROUP, is_own_tool=True)
    assert not list(site.coordinator.list_groups(is_own_tool=True))
    await mirror(t0=10)
    await mirror(t0=-1, t1=3)
    assert site.coordinator.offsets_of(GROUP, is_own_tool=True).keys() == {t1}


async def test_an_active_site_takes_no_mirrors_offsets(site: Site) -> None:
    await site.loaded()
    await site.link(link(epoch=3))
    mirrored = MirrorOffsets(group_id=GROUP, offsets={T0: CommittedOffset(9, 2, "")})
    refused = site.coordinator.commit_mirrored(mirrored, link="a-b", link_epoch=3)
    assert await refusal(refused) is ErrorCode.not_coordinator


async def test_members_are_evicted_when_the_other_site_becomes_active(site: Site) -> None:
    await site.loaded()
    await site.link(link(epoch=1))
    await site.with_member()
    await site.link(link(active="b", epoch=2))
    assert await refusal(site.sync()) is ErrorCode.not_coordinator

    def is_empty() -> bool:
        found = site.coordinator.describe(GROUP, is_own_tool=True)
        return found is not None and found.state is GroupState.EMPTY

    await eventually(is_empty)
    mirrored = MirrorOffsets(group_id=GROUP, offsets={T0: CommittedOffset(9, 2, "")})
    assert outcome(await site.coordinator.commit_mirrored(mirrored, link="a-b", link_epoch=2)) is ErrorCode.none


async def test_members_found_in_a_passive_sites_log_are_evicted(site: Site) -> None:
    await site.loaded()
    await site.with_member()
    await site.coordinator.stop()
    site.image = replace(site.image, links={"a-b": link(active="b", epoch=2)})
    site.coordinator = site.made()
    await site.loaded()

    def is_empty() -> bool:
        found = site.coordinator.describe(GROUP, is_own_tool=True)
        return found is not None and found.state is GroupState.EMPTY

    await eventually(is_empty)


@pytest.mark.parametrize("phase", [LinkPhase.MIRRORING, LinkPhase.FENCED])
async def test_an_unconfirmed_or_fenced_site_commits_nothing_and_keeps_its_members(
    site: Site, phase: LinkPhase
) -> None:
    await site.loaded()
    await site.with_member()
    await site.link(link(phase=phase))
    assert await refusal(site.commit(1, member_id="m-1", generation=1)) is ErrorCode.coordinator_load_in_progress
    if phase is LinkPhase.MIRRORING:
        confirmed = confirm_link(site.image, "a-b", 1)
        assert confirmed is not None
        site.image = confirmed
        assert await site.commit(1, member_id="m-1", generation=1) is ErrorCode.none


async def test_no_member_joins_a_group_under_a_fence(site: Site) -> None:
    await site.loaded()
    await site.link(link(phase=LinkPhase.FENCED))
    assert await refusal(site.join()) is ErrorCode.coordinator_load_in_progress


async def test_the_groups_of_a_link_are_described_with_every_accepted_commit(site: Site) -> None:
    await site.loaded()
    await site.link(link(is_routed=False))
    transactions = TransactionCoordinator(
        TransactionLimits(),
        MemoryLog(),
        TransactionRouting(lambda: site.image),
        site.clock,
        producer_ids=None,  # type: ignore[arg-type]
        markers=None,  # type: ignore[arg-type]
    )
    reports = GroupReports(
        lambda: site.image,
        site.coordinator,
        transactions,
        site.clock,
        SiteAccess(lambda: site.image, has_authorizer=True),
    )
    carried = CommitOffsets(group_id=GROUP, offsets={T0: CommittedOffset(7, 3, "")})
    other = CommitOffsets(group_id="not carried", offsets={T0: CommittedOffset(8, 3, "")})
    confirmed = confirm_link(site.image, "a-b", 1)
    assert confirmed is not None
    site.image = confirmed
    begun = [site.coordinator.commit(command) for command in (carried, other)]
    for ago_ms in (50, 70):
        reports.note_report("a-b", SyncReport(synced_at_ms=1, synced_ms_ago=ago_ms), link_epoch=1)
    reported = await reports.describe("a-b")
    assert all(commit.done() for commit in begun)
    assert [(group.group, [item.offset for item in group.offsets]) for group in reported.groups] == [(GROUP, [7])]
    assert (list(reported.partitions), reported.partition_count) == (list(range(PARTITIONS)), PARTITIONS)
    assert set(reported.synced_ms_ago) == {50}
    assert not (await reports.describe("unknown")).groups


async def test_a_passive_site_that_is_not_routed_answers_for_itself(site: Site) -> None:
    await site.loaded()
    await site.link(link(active="b", is_routed=False))
    assert await site.commit(5) is ErrorCode.none
    assert site.committed(is_own_tool=False) == 5
