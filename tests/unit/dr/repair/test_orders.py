"""The orders of a repair, from the batches of both sites: damage is replaced by proof alone, a copy
is truncated if the active site's history is known to count, and all other cases are refused.
"""

from __future__ import annotations

from dataclasses import replace

import pytest

from dr.repair.core.orders import (
    Judged,
    LogBatch,
    LogPart,
    Refused,
    RepairSides,
    ReplaceBatch,
    TruncateCopy,
    judge_partition,
)
from dr.repair.core.suspects import Suspect, by_partition, of_document
from tests.support.disks.log_batches import batch

SIDES = RepairSides(active_site="b", standby_site="a", leader_epoch_floor=10)
TRUSTING = replace(SIDES, is_active_trusted=True)


def stored(offset: int, value: bytes = b"v", *, epoch: int = 10, count: int = 1) -> LogBatch:
    content = batch([value] * count, base_offset=offset, leader_epoch=epoch)
    return LogBatch(
        base_offset=offset, last_offset=offset + count - 1, leader_epoch=epoch, content=content, is_sound=True
    )


def damaged(sound: LogBatch, *positions: int) -> LogBatch:
    content = bytearray(sound.content)
    for position in positions:
        content[position] ^= 1
    return replace(sound, content=bytes(content), is_sound=False)


def part(*batches: LogBatch, end: int | None = None, start: int = 0, broken_at: int = -1) -> LogPart:
    known_end = batches[-1].last_offset + 1 if batches else start
    return LogPart(
        start_offset=start, end_offset=known_end if end is None else end, batches=batches, broken_at=broken_at
    )


def judged(active: LogPart, standby: LogPart, sides: RepairSides = SIDES) -> list[Judged]:
    return judge_partition("orders", 0, active, standby, sides)


BODY, CRC = 63, 17


def test_equal_logs_and_a_copy_that_is_behind_need_nothing() -> None:
    log = [stored(0), stored(1), stored(2)]
    assert judged(part(*log), part(*log)) == []
    assert judged(part(*log), part(*log[:1])) == []
    assert judged(part(*log), part(*log[1:], start=1)) == []


@pytest.mark.parametrize("position", [BODY, CRC])
@pytest.mark.parametrize("is_at_active", [True, False])
def test_a_damaged_batch_is_replaced_at_either_site(position: int, is_at_active: bool) -> None:
    log = [stored(0), stored(1), stored(2)]
    rotten = [log[0], damaged(log[1], position), log[2]]
    pair = (part(*rotten), part(*log)) if is_at_active else (part(*log), part(*rotten))
    (order,) = judged(*pair)
    assert isinstance(order, ReplaceBatch)
    assert (order.site, order.from_site) == (("b", "a") if is_at_active else ("a", "b"))
    assert (order.first_offset, order.last_offset, order.content) == (1, 1, log[1].content)


def test_several_damaged_batches_are_replaced_each_by_the_site_that_has_it() -> None:
    log = [stored(0), stored(1)]
    orders = judged(part(damaged(log[0], BODY), log[1]), part(log[0], damaged(log[1], BODY)))
    assert [(one.first_offset, one.site) for one in orders if isinstance(one, ReplaceBatch)] == [(0, "b"), (1, "a")]


def test_damage_that_proves_nothing_truncates_the_copy_and_leaves_the_active_log() -> None:
    log = [stored(0), stored(1), stored(2)]
    rotten = [log[0], damaged(log[1], BODY, CRC), log[2]]
    (order,) = judged(part(*log), part(*rotten))
    assert isinstance(order, TruncateCopy)
    assert (order.site, order.first_offset, order.last_offset) == ("a", 1, 2)
    (refusal,) = judged(part(*rotten), part(*log))
    assert isinstance(refusal, Refused)
    assert "does not prove" in refusal.reason
    (refusal,) = judged(part(*rotten), part(*rotten))
    assert isinstance(refusal, Refused)
    assert "damaged at both sites" in refusal.reason


def test_damage_that_the_copy_has_not_reached_is_refused_and_named() -> None:
    log = [stored(0), stored(1)]
    (refused,) = judged(part(log[0], damaged(log[1], BODY)), part(log[0]))
    assert isinstance(refused, Refused)
    assert (refused.first_offset, refused.last_offset) == (1, 1)
    assert "no other replica has it" in refused.reason


def test_bytes_that_are_no_batches_truncate_the_copy_only() -> None:
    log = [stored(0), stored(1), stored(2)]
    (order,) = judged(part(*log), part(log[0], end=3, broken_at=1))
    assert isinstance(order, TruncateCopy)
    assert order.first_offset == 1
    (refusal,) = judged(part(log[0], end=3, broken_at=1), part(*log))
    assert isinstance(refusal, Refused)
    assert "are not valid batches" in refusal.reason


def test_a_hole_in_the_copy_is_copied_again_from_its_first_offset() -> None:
    (order,) = judged(part(stored(0), stored(1), stored(2)), part(stored(0), stored(2)))
    assert isinstance(order, TruncateCopy)
    assert order.first_offset == 1


@pytest.mark.parametrize(
    ("mine", "copy"),
    [
        ((stored(0, epoch=3), stored(1, b"new")), (stored(0, epoch=3), stored(1, b"old", epoch=3))),
        ((stored(0, epoch=3),), (stored(0, epoch=3), stored(1, b"old", epoch=3))),
        ((stored(0, epoch=3), stored(1), stored(2)), (stored(0, epoch=3), stored(1, epoch=3, count=2))),
    ],
)
def test_a_copy_of_an_epoch_that_ended_with_the_promotion_is_truncated(
    mine: tuple[LogBatch, ...], copy: tuple[LogBatch, ...]
) -> None:
    (order,) = judged(part(*mine), part(*copy))
    assert isinstance(order, TruncateCopy)
    assert order.first_offset == 1
    assert "ended with the promotion of site b" in order.reason


@pytest.mark.parametrize(
    ("mine", "copy"),
    [
        ((stored(0), stored(1, b"x")), (stored(0), stored(1, b"y"))),
        ((stored(0),), (stored(0), stored(1))),
        ((stored(0), stored(1, epoch=3)), (stored(0), stored(1, b"y", epoch=3))),
        ((stored(0), stored(1, epoch=10)), (stored(0), stored(1, epoch=11))),
        ((stored(0), stored(2)), (stored(0), stored(1), stored(2))),
    ],
)
def test_where_both_sites_could_be_right_the_operator_has_to_say_which(
    mine: tuple[LogBatch, ...], copy: tuple[LogBatch, ...]
) -> None:
    (refusal,) = judged(part(*mine), part(*copy))
    assert isinstance(refusal, Refused)
    assert refusal.reason.startswith("either site could be right")
    (order,) = judged(part(*mine), part(*copy), TRUSTING)
    assert isinstance(order, TruncateCopy)
    assert order.first_offset == 1


def test_a_copy_is_not_truncated_below_what_the_active_site_still_has() -> None:
    mine = part(stored(2), start=2)
    copy = part(stored(1, epoch=3, count=2), stored(3, epoch=3), start=0)
    (refusal,) = judged(mine, copy)
    assert isinstance(refusal, Refused)
    assert "links reset" in refusal.reason


def test_findings_are_joined_by_partition_and_other_files_are_refused() -> None:
    text = '{"findings": [{"topic": "t", "partition": 0, "first_offset": 5, "last_offset": 6, "kind": "x"}]}'
    (one,) = of_document(text)
    assert by_partition([one, Suspect("t", 0, 1, 2), Suspect("t", 1, 7, 7)]) == {("t", 0): (1, 6), ("t", 1): (7, 7)}
    for other in ("[]", "{}", "no JSON", '{"findings": [{"topic": "t"}]}'):
        with pytest.raises(ValueError, match=r"accepted: the report\.json"):
            of_document(other)
