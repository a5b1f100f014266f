"""Producer ids: each once, the next block in time, epochs up to their end."""

from __future__ import annotations

import pytest

from broker.transactions.core.producer_ids import PRODUCER_EPOCH_MAX, ProducerIds, bumped_epoch


def test_ids_of_a_block_are_handed_out_once_and_in_order() -> None:
    ids = ProducerIds()
    assert ids.take() is None
    ids.add_block(5000, 3)
    assert [ids.take() for _ in range(4)] == [5000, 5001, 5002, None]


def test_the_next_block_is_wanted_before_the_last_is_used_up() -> None:
    ids = ProducerIds()
    assert ids.wants_block
    ids.add_block(0, 1000)
    taken = 0
    while not ids.wants_block:
        ids.take()
        taken += 1
    assert taken == 900
    ids.add_block(7000, 1000)
    assert not ids.wants_block
    assert [ids.take() for _ in range(101)][-2:] == [999, 7000]


@pytest.mark.parametrize(("first", "count"), [(0, 0), (-1, 10)])
def test_an_empty_or_negative_block_is_refused(first: int, count: int) -> None:
    with pytest.raises(ValueError, match="block"):
        ProducerIds().add_block(first, count)


@pytest.mark.parametrize(
    ("producer_id", "epoch", "expected"),
    [
        (-1, -1, None),
        (7, -1, None),
        (7, 0, 1),
        (7, PRODUCER_EPOCH_MAX - 1, PRODUCER_EPOCH_MAX),
        (7, PRODUCER_EPOCH_MAX, None),
    ],
)
def test_an_epoch_is_bumped_until_epochs_are_used_up(producer_id: int, epoch: int, expected: int | None) -> None:
    assert bumped_epoch(producer_id, epoch) == expected
