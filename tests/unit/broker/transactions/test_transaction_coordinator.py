"""The transaction coordinator over an in-memory log: markers that are slow or fail, appends that
fail, a coordinator that moves.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterator

import pytest
from kio.schema.errors import ErrorCode

from broker.coordination.state_shard import CoordinatorRefusal
from broker.groups.coordinator import GroupCoordinator
from broker.groups.core.group_turn import GroupLimits
from broker.groups.group_routing import ImageRouting
from broker.metadata.core.cluster_image import ClusterImage
from broker.metadata.core.image_updates import apply_batch
from broker.site.access_digests import SiteAccess
from broker.site.group_reports import GroupReports
from broker.transactions.core import transaction_records
from broker.transactions.core.producer_ids import PRODUCER_EPOCH_MAX
from broker.transactions.core.transaction_machine import TransactionLimits
from broker.transactions.core.transaction_messages import (
    AddPartitions,
    EndTransaction,
    InitProducer,
    ProducerReply,
    TransactionStored,
)
from broker.transactions.core.transaction_states import Transaction, TransactionState
from broker.transactions.transaction_admission import TransactionAdmission, Writer
from broker.transactions.transaction_coordinator import TransactionCoordinator
from broker.transactions.transaction_routing import TransactionRouting
from tests.support.clock import ManualClock
from tests.support.eventually import eventually
from tests.support.memory.memory_log import MemoryLog
from wire.batches.records import Record, encode_batch
from wire.batches.transaction_records import TRANSACTIONS_TOPIC
from wire.control.broker_pb2 import ControlBatch
from wire.control.cluster_pb2 import BrokerInfo, LinkPhase, LinkRecord, PartitionState, TopicInfo
from wire.protocol.ids import TopicPartition

T0 = TopicPartition("t", 0)


class Ids:
    """Producer ids from 7 on."""

    def __init__(self) -> None:
        self.last = 6
        self.gate = asyncio.Event()
        self.gate.set()
        self.waiting = 0

    async def next_id(self) -> int:
        self.waiting += 1
        await self.gate.wait()
        self.last += 1
        return self.last


class Markers:
    """Notes what is to be marked; `gate` holds it back while it is cleared."""

    def __init__(self) -> None:
        self.sent: list[tuple[TransactionState, int, int]] = []
        self.gate = asyncio.Event()
        self.gate.set()
        self.waiting = 0

    async def send(self, transaction: Transaction, coordinator_epoch: int) -> None:
        self.waiting += 1
        try:
            await self.gate.wait()
        finally:
            self.waiting -= 1
        self.sent.append((transaction.state, transaction.producer_epoch, coordinator_epoch))


class Site:
    """A broker that leads every partition of `__transaction_state`."""

    def __init__(self, clock: ManualClock) -> None:
        self.log = MemoryLog()
        self.log.epochs = {0: 1}
        self.markers = Markers()
        self.ids = Ids()
        partitions = [PartitionState(partition=0, leader=1)]
        batch = ControlBatch(
            is_full=True,
            brokers=[BrokerInfo(node_id=1)],
            topics=[TopicInfo(name=TRANSACTIONS_TOPIC, topic_id=b"x" * 16, partitions=partitions)],
        )
        self.image = apply_batch(ClusterImage(site="a", node_id=1), batch)
        self.routing = TransactionRouting(lambda: self.image)
        self.coordinator = TransactionCoordinator(
            TransactionLimits(),
            self.log,
            self.routing,
            clock,
            producer_ids=self.ids,
            markers=self.markers,
        )

    async def loaded(self) -> None:
        await self.coordinator.on_image(self.image, self.image)
        await eventually(lambda: not self.coordinator.is_loading)

    async def init(self) -> ProducerReply:
        return await self.coordinator.init_producer(InitProducer(transactional_id="tx", timeout_ms=10_000))

    async def add(self, epoch: int) -> ErrorCode:
        command = AddPartitions(
            transactional_id="tx", producer_id=7, producer_epoch=epoch, partitions=frozenset((T0,)), client_version=2
        )
        return (await self.coordinator.add_partitions(command)).error

    async def end(self, epoch: int, *, is_commit: bool = True) -> ProducerReply:
        command = EndTransaction(
            transactional_id="tx", producer_id=7, producer_epoch=epoch, is_commit=is_commit, is_bumped=True
        )
        return await self.coordinator.end(command)

    def state(self) -> TransactionState | None:
        try:
            known = self.coordinator.describe("tx")
        except CoordinatorRefusal:
            return None
        return None if known is None else known.state


@pytest.fixture
async def site(clock: ManualClock) -> AsyncIterator[Site]:
    made = Site(clock)
    await made.loaded()
    yield made
    await made.coordinator.stop()


async def test_a_decision_is_answered_before_its_markers_and_completed_after_them(site: Site) -> None:
    assert await site.init() == ProducerReply(producer_id=7, producer_epoch=0)
    site.markers.gate.clear()
    assert await site.add(0) is ErrorCode.none
    assert await site.end(0) == ProducerReply(producer_id=7, producer_epoch=1)
    assert site.state() is TransactionState.PREPARE_COMMIT
    site.markers.gate.set()
    await eventually(lambda: site.state() is TransactionState.COMPLETE_COMMIT)
    assert site.markers.sent == [(TransactionState.PREPARE_COMMIT, 1, 1)]


async def test_the_next_transaction_waits_for_slow_markers_instead_of_being_refused(site: Site) -> None:
    await site.init()
    await site.add(0)
    site.markers.gate.clear()
    await site.end(0)
    following = asyncio.ensure_future(site.add(1))
    await eventually(lambda: site.markers.waiting == 1)
    assert not following.done()
    site.markers.gate.set()
    assert await following is ErrorCode.none


async def test_markers_that_do_not_get_through_refuse_the_next_transaction_for_now(site: Site) -> None:
    await site.init()
    await site.add(0)
    site.markers.gate.clear()
    await site.end(0)
    for _ in range(3):
        assert await site.add(1) is ErrorCode.concurrent_transactions
    (shard,) = site.coordinator._led
    assert not any(shard._waiting.values()), "whoever asked in vain is not remembered"


async def test_whether_a_partition_takes_part_is_answered_in_place_unless_something_is_on_its_way_into_the_log(
    site: Site,
) -> None:
    admission = TransactionAdmission(1, site.routing, site.coordinator, peers=None)  # type: ignore[arg-type]
    writer, other = Writer("tx", 7, 0), TopicPartition("t", 1)
    await site.init()
    assert await site.add(0) is ErrorCode.none
    assert admission.admit_now(writer, [T0]) == {T0: ErrorCode.none}
    assert admission.admit_now(writer, [other]) is None, "the log confirms a refusal"
    assert await admission.admit(writer, [other], is_added=False) == {other: ErrorCode.transaction_abortable}
    assert admission.admit_now(Writer("tx", 7, 5), [T0]) is None
    site.log.gate.clear()
    ending = asyncio.ensure_future(site.end(0))
    await eventually(lambda: site.log.append_count == 4)
    assert admission.admit_now(writer, [T0]) is None
    site.log.gate.set()
    assert (await ending).error is ErrorCode.none
    elsewhere = TransactionAdmission(2, site.routing, site.coordinator, peers=None)  # type: ignore[arg-type]
    assert elsewhere.admit_now(writer, [T0]) is None
    site.log.epochs.clear()
    await site.loaded()
    assert admission.admit_now(writer, [T0]) == {T0: ErrorCode.not_coordinator}


@pytest.mark.parametrize(
    ("producer_id", "producer_epoch"),
    [
        pytest.param(7, 1, id="nothing to commit"),
        pytest.param(7, 0, id="a repeated end"),
        pytest.param(7, 5, id="fenced"),
        pytest.param(8, 0, id="unknown"),
    ],
)
async def test_a_former_coordinator_that_does_not_know_it_yet_gives_no_final_answer(
    site: Site, producer_id: int, producer_epoch: int
) -> None:
    """Another broker coordinates and knows the newest transaction; this one knows only the one
    before it, which is complete.
    """
    await site.init()
    await site.add(0)
    await site.end(0)
    await eventually(lambda: site.state() is TransactionState.COMPLETE_COMMIT)
    site.log.epochs.clear()
    command = EndTransaction(
        transactional_id="tx",
        producer_id=producer_id,
        producer_epoch=producer_epoch,
        is_commit=True,
        is_bumped=True,
    )
    with pytest.raises(CoordinatorRefusal) as refused:
        await site.coordinator.end(command)
    assert refused.value.code is ErrorCode.not_coordinator


async def test_a_new_coordinator_carries_out_what_the_former_one_decided(site: Site) -> None:
    await site.init()
    await site.add(0)
    site.markers.gate.clear()
    await site.end(0, is_commit=False)
    site.log.epochs = {0: 2}
    await site.coordinator.on_image(site.image, site.image)
    await eventually(lambda: site.state() is TransactionState.PREPARE_ABORT and site.markers.waiting == 1)
    site.markers.gate.set()
    await eventually(lambda: site.state() is TransactionState.COMPLETE_ABORT)
    assert site.markers.sent == [(TransactionState.PREPARE_ABORT, 1, 2)]


@pytest.mark.parametrize("is_in_the_log", [False, True])
async def test_an_append_whose_outcome_is_unknown_is_read_from_the_log(site: Site, is_in_the_log: bool) -> None:
    await site.init()
    await site.add(0)
    site.log.failures = [(ErrorCode.request_timed_out, is_in_the_log)]
    with pytest.raises(CoordinatorRefusal) as refused:
        await site.end(0)
    assert refused.value.code is ErrorCode.coordinator_not_available
    wanted = TransactionState.COMPLETE_COMMIT if is_in_the_log else TransactionState.ONGOING
    await eventually(lambda: site.state() is wanted)
    # the producer asks again, and gets the same answer in either case
    assert await site.end(0) == ProducerReply(producer_id=7, producer_epoch=1)


async def test_a_broker_that_lost_its_partition_answers_not_coordinator(site: Site) -> None:
    await site.init()
    site.log.epochs = {}
    await site.coordinator.on_image(site.image, site.image)
    with pytest.raises(CoordinatorRefusal) as refused:
        await site.add(0)
    assert refused.value.code is ErrorCode.not_coordinator


async def test_a_transaction_times_out_at_a_coordinator_that_was_restarted(site: Site, clock: ManualClock) -> None:
    await site.init()
    await site.add(0)
    site.log.epochs = {0: 2}
    await site.coordinator.on_image(site.image, site.image)
    await eventually(lambda: site.state() is TransactionState.ONGOING)
    clock.advance(10_001)
    (shard,) = site.coordinator._led
    shard.timeouts.run_due()
    await eventually(lambda: site.state() is TransactionState.COMPLETE_ABORT)
    assert (await site.end(0)).error is ErrorCode.producer_fenced


LINK = LinkRecord(
    name="a-b",
    source_site="a",
    target_site="b",
    epoch=1,
    active_site="a",
    phase=LinkPhase.FENCED,
    topic_whitelist=[T0.topic],
)


async def test_nothing_is_committed_under_a_fence_that_came_while_a_producer_id_was_fetched(
    site: Site, clock: ManualClock
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
    site: Site, clock: ManualClock
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


def routed(*, phase: LinkPhase = LinkPhase.MIRRORING, active_site: str = "a") -> LinkRecord:
    record = LinkRecord()
    record.CopyFrom(LINK)
    record.is_routed, record.phase, record.active_site = True, phase, active_site
    return record


async def become(site: Site, link: LinkRecord) -> None:
    before = site.image
    site.image = apply_batch(before, ControlBatch(brokers=[BrokerInfo(node_id=1)], links=[link]))
    await site.coordinator.on_image(before, site.image)


def known(site: Site) -> list[tuple[TransactionState, int, int, bool]]:
    return [
        (found.state, found.producer_id, found.producer_epoch, found.is_carried)
        for found in site.coordinator.list_transactions()
    ]


async def test_an_open_transaction_is_abandoned_when_another_site_becomes_active_and_not_under_the_fence(
    site: Site,
) -> None:
    """Otherwise the producer, which continues at the other site, is fenced when it comes back."""
    await site.init()
    await site.add(0)
    await become(site, routed(phase=LinkPhase.FENCED))
    assert known(site) == [(TransactionState.ONGOING, 7, 0, False)]
    await become(site, routed(active_site="b"))
    await eventually(lambda: known(site) == [(TransactionState.EMPTY, 7, 0, True)])
    assert site.markers.sent == [(TransactionState.PREPARE_ABORT, 0, 1)]


async def test_a_coordinator_that_loads_at_a_passive_site_abandons_what_is_open(site: Site) -> None:
    """The site was lost while the transaction was open, and returns as a standby."""
    await site.init()
    await site.add(0)
    site.log.epochs = {}
    await become(site, routed(active_site="b"))
    assert known(site) == []
    site.log.epochs = {0: 2}
    await site.loaded()
    await eventually(lambda: known(site) == [(TransactionState.EMPTY, 7, 0, True)])


async def test_no_producer_begins_under_the_fence_of_the_only_routed_link(site: Site) -> None:
    """The standby gets the producers as of the fence."""
    await site.init()
    await become(site, routed(phase=LinkPhase.FENCED))
    with pytest.raises(CoordinatorRefusal) as refused:
        await site.init()
    assert refused.value.code is ErrorCode.coordinator_load_in_progress
    assert known(site) == [(TransactionState.EMPTY, 7, 0, False)]
    await become(site, routed())
    assert await site.init() == ProducerReply(producer_id=7, producer_epoch=1)


async def test_a_fence_of_one_link_holds_no_producer_of_a_site_that_is_active_for_another(site: Site) -> None:
    other = routed()
    other.name, other.target_site = "a-c", "c"
    await become(site, other)
    await become(site, routed(phase=LinkPhase.FENCED))
    assert await site.init() == ProducerReply(producer_id=7, producer_epoch=0)


async def test_producers_are_reported_where_a_link_routes_clients(site: Site, clock: ManualClock) -> None:
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


async def test_markers_whose_sending_breaks_are_sent_again(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    await site.init()
    await site.add(0)
    failures: Iterator[BaseException] = iter([ValueError("a defect"), asyncio.CancelledError()])
    send = site.markers.send

    async def moody(transaction: Transaction, coordinator_epoch: int) -> None:
        for failure in failures:
            raise failure
        await send(transaction, coordinator_epoch)

    monkeypatch.setattr(site.markers, "send", moody)
    await site.end(0)
    await eventually(lambda: site.state() is TransactionState.COMPLETE_COMMIT)
