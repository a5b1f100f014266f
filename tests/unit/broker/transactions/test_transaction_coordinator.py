"""The transaction coordinator's answers while markers are slow or their sending fails, and while
the log has not confirmed a change.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator

import pytest
from kio.schema.errors import ErrorCode

from broker.transactions.core.transaction_messages import (
    ProducerReply,
)
from broker.transactions.core.transaction_states import Transaction, TransactionState
from broker.transactions.transaction_admission import TransactionAdmission, Writer
from tests.support.eventually import eventually
from tests.unit.broker.transactions.transaction_site import T0, TransactionSite
from wire.protocol.ids import TopicPartition


async def test_a_decision_is_answered_before_its_markers_and_completed_after_them(site: TransactionSite) -> None:
    assert await site.init() == ProducerReply(producer_id=7, producer_epoch=0)
    site.markers.gate.clear()
    assert await site.add(0) is ErrorCode.none
    assert await site.end(0) == ProducerReply(producer_id=7, producer_epoch=1)
    assert site.state() is TransactionState.PREPARE_COMMIT
    site.markers.gate.set()
    await eventually(lambda: site.state() is TransactionState.COMPLETE_COMMIT)
    assert site.markers.sent == [(TransactionState.PREPARE_COMMIT, 1, 1)]


async def test_the_next_transaction_waits_for_slow_markers_instead_of_being_refused(site: TransactionSite) -> None:
    await site.init()
    await site.add(0)
    site.markers.gate.clear()
    await site.end(0)
    following = asyncio.ensure_future(site.add(1))
    await eventually(lambda: site.markers.waiting == 1)
    assert not following.done()
    site.markers.gate.set()
    assert await following is ErrorCode.none


async def test_markers_that_do_not_get_through_refuse_the_next_transaction_for_now(site: TransactionSite) -> None:
    await site.init()
    await site.add(0)
    site.markers.gate.clear()
    await site.end(0)
    for _ in range(3):
        assert await site.add(1) is ErrorCode.concurrent_transactions
    (shard,) = site.coordinator._led
    assert not any(shard._waiting.values()), "the shard forgets callers that gave up"


async def test_markers_whose_sending_breaks_are_sent_again(
    site: TransactionSite, monkeypatch: pytest.MonkeyPatch
) -> None:
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


async def test_whether_a_partition_takes_part_is_answered_in_place_unless_something_is_on_its_way_into_the_log(
    site: TransactionSite,
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
