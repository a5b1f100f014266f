"""The extra records of a returning site make the account of its failover final."""

from __future__ import annotations

import pytest
from msgspec.structs import replace

from dr.sites.core.loss import LossAccount, PartitionLoss
from dr.sites.core.positions import PartitionPosition
from dr.sites.core.settlement import settled
from wire.batches.log_histories import EpochStart
from wire.control.broker_pb2 import QuarantinedEnd
from wire.protocol.ids import UNKNOWN, TopicPartition

KEY = TopicPartition("flights", 0)
FLOOR = 1 << 16
NOW_MS = 5_000


def account(
    *, known: int = 3, is_exact: bool = False, kept_below: int = 100, floor: int = FLOOR, partitions: int = 1
) -> LossAccount:
    losses = tuple(
        PartitionLoss(
            topic=KEY.topic,
            partition=index,
            kept_below=kept_below,
            source_end=kept_below + known,
            is_source_end_exact=is_exact,
            known_lost_records=known,
            last_contact_ms=40,
        )
        for index in range(partitions)
    )
    return LossAccount(
        link="a-b", epoch=2, from_site="a", to_site="b", accounted_at_ms=0, partitions=losses, leader_epoch_floor=floor
    )


def position(end: int, *epochs: tuple[int, int]) -> PartitionPosition:
    """A log from offset 0 on, with its leader epochs by their first offsets."""
    return PartitionPosition(
        leader_epoch=FLOOR,
        last_log_epoch=epochs[-1][0] if epochs else -1,
        log_start_offset=0,
        log_end_offset=end,
        is_writable=False,
        epochs=tuple(EpochStart(epoch, start) for epoch, start in epochs),
    )


def kept(first: int, end: int, *, epoch: int = 2, size_bytes: int = 900, name: str = "one") -> QuarantinedEnd:
    return QuarantinedEnd(
        topic=KEY.topic,
        partition=KEY.partition,
        first_offset=first,
        end_offset=end,
        size_bytes=size_bytes,
        link_epoch=epoch,
        name=name,
    )


FOLLOWS = position(170, (0, 0), (FLOOR, 100))


def final(given: LossAccount, *ends: QuarantinedEnd, at: PartitionPosition = FOLLOWS) -> LossAccount:
    found = settled(given, {KEY: at}, ends, topics=[KEY.topic], link_epoch=3, now_ms=NOW_MS)
    assert found is not None
    assert LossAccount.from_json(found.to_json()) == found
    return found


def test_the_records_in_the_quarantine_are_those_that_were_lost() -> None:
    found = final(account(), kept(100, 140))
    assert (found.is_final, found.found_records, found.found_bytes, found.settled_at_ms) == (True, 40, 900, NOW_MS)
    assert found.differences == []
    assert "final: only the old site had 40 records (900 bytes, offsets 100 to 139)" in found.partitions[0].sentence
    assert found.document()["found_records"] == 40


def test_nothing_alone_is_said_so() -> None:
    found = final(account(known=0, is_exact=True))
    assert (found.is_final, found.found_records, found.differences) == (True, 0, [])
    assert "the old site is back and had no records of its own" in found.partitions[0].sentence


@pytest.mark.parametrize("end", [100, 60])
def test_a_log_that_ends_where_the_histories_part_has_nothing_alone(end: int) -> None:
    assert final(account(known=0), at=position(end, (0, 0))).is_final


@pytest.mark.parametrize(
    "at",
    [
        pytest.param(
            replace(position(170, (FLOOR, 150)), log_start_offset=150), id="only the promoted site's are left"
        ),
        pytest.param(replace(position(170, (FLOOR, 170)), log_start_offset=170), id="nothing is left"),
        pytest.param(replace(position(170), log_start_offset=170), id="nothing was ever copied"),
    ],
)
def test_a_copy_whose_head_has_expired_above_the_kept_offset_has_nothing_alone(at: PartitionPosition) -> None:
    assert final(account(), kept(100, 140), at=at).found_records == 40


@pytest.mark.parametrize(
    ("known", "is_exact", "found", "differs"),
    [
        (3, False, 40, False),  # more than was known
        (3, False, 2, True),
        (3, False, 0, True),
        (3, True, 3, False),
        (3, True, 4, True),
    ],
)
def test_a_contradiction_is_named(known: int, is_exact: bool, found: int, differs: bool) -> None:
    ends = [kept(100, 100 + found)] if found else []
    settled_account = final(account(known=known, is_exact=is_exact), *ends)
    wanted = f"flights-0: {known} records were accounted as lost, and the old site had {found} alone"
    assert settled_account.differences == ([wanted] if differs else [])


def test_the_longest_of_several_brokers_entries_counts_and_those_of_other_failovers_do_not() -> None:
    others = (kept(100, 190, epoch=1, name="earlier"), kept(100, 190, epoch=4, name="later"))
    ends = (kept(100, 130), kept(100, 140, epoch=3, name="two"), *others)
    assert final(account(), *ends).found_records == 40


@pytest.mark.parametrize(
    "at",
    [
        pytest.param(position(140, (0, 0)), id="not truncated yet"),
        pytest.param(position(170, (0, 0), (FLOOR, 140)), id="the bands meet above"),
    ],
)
def test_an_account_is_not_final_while_a_partition_has_records_alone(at: PartitionPosition) -> None:
    assert settled(account(), {KEY: at}, [kept(100, 140)], topics=[KEY.topic], link_epoch=2, now_ms=NOW_MS) is None


def test_an_account_is_not_final_while_a_partition_is_not_there() -> None:
    assert settled(account(partitions=2), {KEY: FOLLOWS}, [], topics=[KEY.topic], link_epoch=2, now_ms=NOW_MS) is None


@pytest.mark.parametrize(("ends", "records"), [([], 0), ([kept(100, 140)], 40)])
def test_a_topic_that_was_deleted_since_has_records_in_quarantine_at_most(
    ends: list[QuarantinedEnd], records: int
) -> None:
    found = settled(account(), {}, ends, topics=["other"], link_epoch=2, now_ms=NOW_MS)
    assert found is not None
    assert (found.is_final, found.found_records) == (True, records)


def test_an_account_of_an_earlier_release_never_becomes_final() -> None:
    assert settled(account(floor=0), {KEY: FOLLOWS}, [], topics=[KEY.topic], link_epoch=2, now_ms=NOW_MS) is None


UNPROVEN = account(known=0, kept_below=UNKNOWN)
RETURNING = replace(account(known=0), partitions=(replace(account().partitions[0], returning_records=6),))


@pytest.mark.parametrize("given", [UNPROVEN, RETURNING])
@pytest.mark.parametrize(
    ("at", "ends", "found"),
    [
        pytest.param(position(140, (0, 0)), [], None, id="the copy is not compared yet"),
        pytest.param(position(140, (0, 0)), [kept(100, 140)], None, id="its own end is kept and not truncated yet"),
        pytest.param(position(100, (0, 0)), [kept(100, 140)], (100, 140), id="it is truncated"),
        pytest.param(position(103, (0, 0)), [kept(100, 140)], None, id="abandoned records come back"),
        pytest.param(position(170, (0, 0), (FLOOR, 106)), [kept(100, 140)], (100, 140), id="it follows"),
        pytest.param(position(170, (0, 0), (FLOOR, 100)), [], (100, 100), id="it follows and had nothing alone"),
    ],
)
def test_a_copy_that_follows_settles_an_account_that_does_not_say_what_is_kept(
    given: LossAccount, at: PartitionPosition, ends: list[QuarantinedEnd], found: tuple[int, int] | None
) -> None:
    account_after = settled(given, {KEY: at}, ends, topics=[KEY.topic], link_epoch=2, now_ms=NOW_MS)
    if found is None:
        assert account_after is None
        return
    assert account_after is not None
    (loss,) = account_after.partitions
    assert (loss.found_first, loss.found_end) == found


def test_an_account_that_does_not_say_what_is_kept_says_what_it_waits_for() -> None:
    waits = "the old site's copy shows it when the old site is back"
    assert waits in UNPROVEN.partitions[0].sentence
    after = final(UNPROVEN, kept(100, 140))
    assert waits not in after.partitions[0].sentence
    assert "final: only the old site had 40 records" in after.partitions[0].sentence
    assert after.differences == []
