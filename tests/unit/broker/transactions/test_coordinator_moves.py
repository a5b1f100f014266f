"""A transaction coordinator that moves to another broker, returns or restarts: it continues from
what the log has, and a former one gives no final answer.
"""

from __future__ import annotations

import pytest
from kio.schema.errors import ErrorCode

from broker.coordination.state_shard import CoordinatorRefusal
from broker.transactions.core.transaction_messages import (
    EndTransaction,
    ProducerReply,
)
from broker.transactions.core.transaction_states import TransactionState
from tests.support.clock import ManualClock
from tests.support.eventually import eventually
from tests.unit.broker.transactions.transaction_site import TransactionSite


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
    site: TransactionSite, producer_id: int, producer_epoch: int
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


async def test_a_broker_that_lost_its_partition_answers_not_coordinator(site: TransactionSite) -> None:
    await site.init()
    site.log.epochs = {}
    await site.coordinator.on_image(site.image, site.image)
    with pytest.raises(CoordinatorRefusal) as refused:
        await site.add(0)
    assert refused.value.code is ErrorCode.not_coordinator


async def test_a_new_coordinator_carries_out_what_the_former_one_decided(site: TransactionSite) -> None:
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
async def test_an_append_whose_outcome_is_unknown_is_read_from_the_log(
    site: TransactionSite, is_in_the_log: bool
) -> None:
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


async def test_a_transaction_times_out_at_a_coordinator_that_was_restarted(
    site: TransactionSite, clock: ManualClock
) -> None:
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
