"""Transactions at a site with links: nothing is committed under a fence, open transactions are
abandoned when another site becomes active, and reports have what a failover compares.
"""

from __future__ import annotations

import asyncio

import pytest
from kio.schema.errors import ErrorCode

from broker.coordination.state_shard import CoordinatorRefusal
from broker.groups.coordinator import GroupCoordinator
from broker.groups.core.group_turn import GroupLimits
from broker.groups.group_routing import ImageRouting
from broker.metadata.core.image_updates import apply_batch, confirm_link
from broker.site.access_digests import SiteAccess
from broker.site.group_reports import GroupReports
from broker.transactions.core import transaction_records
from broker.transactions.core.producer_ids import PRODUCER_EPOCH_MAX
from broker.transactions.core.transaction_messages import (
    ProducerReply,
    TransactionStored,
)
from broker.transactions.core.transaction_states import Transaction, TransactionState
from tests.support.clock import ManualClock
from tests.support.eventually import eventually
from tests.support.memory.memory_log import MemoryLog
from tests.unit.broker.transactions.transaction_site import T0, TransactionSite
from wire.batches.records import Record, encode_batch
from wire.control.broker_pb2 import ControlBatch
from wire.control.cluster_pb2 import BrokerInfo, LinkPhase, LinkRecord

LINK = LinkRecord(
    name="a-b",
    source_site="a",
    target_site="b",
    epoch=1,
    active_site="a",
    phase=LinkPhase.FENCED,
    topic_whitelist=[T0.topic],
)


def routed(*, phase: LinkPhase = LinkPhase.MIRRORING, active_site: str = "a") -> LinkRecord:
    record = LinkRecord()
    record.CopyFrom(LINK)
    record.is_routed, record.phase, record.active_site = True, phase, active_site
    return record


async def become(site: TransactionSite, link: LinkRecord) -> None:
    before = site.image
    site.image = apply_batch(before, ControlBatch(brokers=[BrokerInfo(node_id=1)], links=[link]))
    await site.coordinator.on_image(before, site.image)


def confirm(site: TransactionSite) -> None:
    """The other site of a-b says that it was not promoted."""
    image = confirm_link(site.image, LINK.name, LINK.epoch)
    assert image is not None
    site.image = image


def known(site: TransactionSite) -> list[tuple[TransactionState, int, int, bool]]:
    return [
        (found.state, found.producer_id, found.producer_epoch, found.is_carried)
        for found in site.coordinator.list_transactions()
    ]


async def test_nothing_is_committed_under_a_fence_that_came_while_a_producer_id_was_fetched(
    site: TransactionSite, clock: ManualClock
) -> None:
    """A failover may already have counted the transactions that still need markers."""
    last_epoch = Transaction(
        transactional_id="tx",
        producer_id=7,
        producer_epoch=PRODUCER_EPOCH_MAX,
        timeout_ms=10_000,
        state=TransactionState.ONGOING,
        partitions=frozenset((T0,)),
        started_ms=clock.now_ms(),
        updated_ms=clock.now_ms(),
        client_version=2,
    )
    key, value = transaction_records.encode(TransactionStored(transaction=last_epoch))
    site.log.appends[0] = [encode_batch([Record(key, value, clock.now_ms())])]
    site.log.epochs = {0: 2}
    await site.loaded()
    site.ids.gate.clear()
    committing = asyncio.ensure_future(site.end(PRODUCER_EPOCH_MAX))
    await eventually(lambda: site.ids.waiting == 1)
    site.image = apply_batch(site.image, ControlBatch(brokers=[BrokerInfo(node_id=1)], links=[LINK]))
    site.ids.gate.set()
    with pytest.raises(CoordinatorRefusal) as refused:
        await committing
    assert refused.value.code is ErrorCode.coordinator_load_in_progress
    assert site.state() is TransactionState.ONGOING


async def test_nothing_is_committed_under_a_fence_and_what_was_committed_before_is_counted_until_it_is_marked(
    site: TransactionSite, clock: ManualClock
) -> None:
    """F-f."""
    groups = GroupCoordinator(GroupLimits(), MemoryLog(), ImageRouting(lambda: site.image), clock)
    reports = GroupReports(
        lambda: site.image,
        groups,
        site.coordinator,
        clock,
        SiteAccess(lambda: site.image, has_authorizer=True),
    )
    await site.init()
    await site.add(0)
    site.image = apply_batch(site.image, ControlBatch(brokers=[BrokerInfo(node_id=1)], links=[LINK]))
    with pytest.raises(CoordinatorRefusal) as refused:
        await site.end(0)
    assert refused.value.code is ErrorCode.coordinator_load_in_progress
    assert (await reports.describe("a-b")).committing_transactions == 0
    site.image = apply_batch(site.image, ControlBatch(brokers=[BrokerInfo(node_id=1)], deleted_links=["a-b"]))
    site.markers.gate.clear()
    committing = asyncio.create_task(site.end(0))
    await eventually(lambda: site.markers.waiting == 1)
    site.image = apply_batch(site.image, ControlBatch(brokers=[BrokerInfo(node_id=1)], links=[LINK]))
    reported = await reports.describe("a-b")
    assert (reported.committing_transactions, list(reported.transaction_partitions)) == (1, [0])
    site.markers.gate.set()
    assert (await committing).error is ErrorCode.none

    async def is_marked() -> bool:
        return (await reports.describe("a-b")).committing_transactions == 0

    await eventually(is_marked)


async def test_an_open_transaction_is_abandoned_when_another_site_becomes_active_and_not_under_the_fence(
    site: TransactionSite,
) -> None:
    """Otherwise the producer, which continues at the other site, is fenced when it comes back."""
    await site.init()
    await site.add(0)
    await become(site, routed(phase=LinkPhase.FENCED))
    assert known(site) == [(TransactionState.ONGOING, 7, 0, False)]
    await become(site, routed(active_site="b"))
    await eventually(lambda: known(site) == [(TransactionState.EMPTY, 7, 0, True)])
    assert site.markers.sent == [(TransactionState.PREPARE_ABORT, 0, 1)]


async def test_a_coordinator_that_loads_at_a_passive_site_abandons_what_is_open(site: TransactionSite) -> None:
    """The site was lost while the transaction was open, and returns as a standby."""
    await site.init()
    await site.add(0)
    site.log.epochs = {}
    await become(site, routed(active_site="b"))
    assert known(site) == []
    site.log.epochs = {0: 2}
    await site.loaded()
    await eventually(lambda: known(site) == [(TransactionState.EMPTY, 7, 0, True)])


async def test_a_site_whose_role_is_not_confirmed_commits_nothing_and_fences_no_producer(
    site: TransactionSite,
) -> None:
    """It may return after a failover: the promoted site has aborted the transaction, and commits
    others of the producer, which has an id of that site.
    """
    await site.init()
    await site.add(0)
    await become(site, routed())
    with pytest.raises(CoordinatorRefusal) as uncommitted:
        await site.end(0)
    with pytest.raises(CoordinatorRefusal) as unknown:
        await site.end(5)
    assert {uncommitted.value.code, unknown.value.code} == {ErrorCode.not_coordinator}
    assert site.state() is TransactionState.ONGOING
    confirm(site)
    assert (await site.end(5)).error is ErrorCode.producer_fenced
    assert (await site.end(0)).error is ErrorCode.none


async def test_a_site_that_is_active_in_one_link_commits_while_another_link_is_not_confirmed(
    site: TransactionSite,
) -> None:
    other = routed()
    other.name, other.target_site = "a-c", "c"
    other.topic_whitelist[:] = ["other"]
    await site.init()
    await site.add(0)
    await become(site, other)
    await become(site, routed())
    confirm(site)
    assert (await site.end(0)).error is ErrorCode.none


async def test_no_producer_begins_under_the_fence_of_the_only_routed_link(site: TransactionSite) -> None:
    """The standby gets the producers as of the fence."""
    await site.init()
    await become(site, routed(phase=LinkPhase.FENCED))
    with pytest.raises(CoordinatorRefusal) as refused:
        await site.init()
    assert refused.value.code is ErrorCode.coordinator_load_in_progress
    assert known(site) == [(TransactionState.EMPTY, 7, 0, False)]
    await become(site, routed())
    assert await site.init() == ProducerReply(producer_id=7, producer_epoch=1)


async def test_a_fence_of_one_link_holds_no_producer_of_a_site_that_is_active_for_another(
    site: TransactionSite,
) -> None:
    other = routed()
    other.name, other.target_site = "a-c", "c"
    await become(site, other)
    await become(site, routed(phase=LinkPhase.FENCED))
    assert await site.init() == ProducerReply(producer_id=7, producer_epoch=0)


async def test_producers_are_reported_where_a_link_routes_clients(site: TransactionSite, clock: ManualClock) -> None:
    """A planned failover compares the producers of both sites."""
    groups = GroupCoordinator(GroupLimits(), MemoryLog(), ImageRouting(lambda: site.image), clock)
    reports = GroupReports(
        lambda: site.image,
        groups,
        site.coordinator,
        clock,
        SiteAccess(lambda: site.image, has_authorizer=True),
    )
    await site.init()
    await become(site, LINK)
    reported = await reports.describe("a-b")
    assert reported.HasField("transactional_producers")
    assert list(reported.transactional_producers.producers) == []
    await become(site, routed())
    (found,) = (await reports.describe("a-b")).transactional_producers.producers
    assert (found.transactional_id, found.producer_id, found.producer_epoch, found.is_carried) == ("tx", 7, 0, False)
    assert not (await reports.describe("a-b", is_brief=True)).HasField("transactional_producers")
