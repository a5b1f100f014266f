"""An entry's batches, read in pieces, and the fate of each record."""

from __future__ import annotations

from types import SimpleNamespace
from typing import TYPE_CHECKING, Any, cast

import pytest

from cli.recovery.quarantined.entries import batches
from cli.recovery.quarantined.replay import Replay, ReplayPlan
from cli.recovery.quarantined.replayed import Origin, Replayed, TargetLog
from runtime.process import OperationalFailure
from wire.batches.record_batch import TRANSACTIONAL_BIT
from wire.batches.records import Record, encode_batch
from wire.batches.transaction_records import encode_marker

if TYPE_CHECKING:
    from wire.client.raw_client import KafkaClient

TOPIC_ID = "1f3c"
LEADER_EPOCH = 0


class Broker:
    """A client of one broker that keeps one entry and returns it in pieces of this many bytes."""

    def __init__(self, content: bytes, piece_bytes: int) -> None:
        self._content, self._piece_bytes = content, piece_bytes

    async def connection(self, _node: int) -> Broker:
        return self

    async def call(self, _api: int, values: dict[str, Any]) -> Any:
        at = values["position"]
        return SimpleNamespace(error_code=0, records=self._content[at : at + self._piece_bytes])


def placed(batch: bytes, base_offset: int) -> bytes:
    """The batch as a leader writes it: offset and leader epoch are outside of the checksum."""
    return base_offset.to_bytes(8) + batch[8:12] + LEADER_EPOCH.to_bytes(4) + batch[16:]


def data(base_offset: int, *values: bytes, producer_id: int = -1) -> bytes:
    is_in_transaction = producer_id >= 0
    batch = encode_batch(
        [Record(None, value, 1_000) for value in values],
        producer_id=producer_id,
        producer_epoch=0 if is_in_transaction else -1,
        attributes=TRANSACTIONAL_BIT if is_in_transaction else 0,
    )
    return placed(batch, base_offset)


def marker(base_offset: int, producer_id: int, *, is_commit: bool) -> bytes:
    batch = encode_marker(producer_id=producer_id, producer_epoch=0, is_commit=is_commit, coordinator_epoch=0, now_ms=1)
    return placed(batch, base_offset)


CONTENT = b"".join(
    (
        data(98, b"below", b"below", b"first"),
        data(101, b"committed", producer_id=7),
        data(102, b"aborted", b"aborted", producer_id=8),
        marker(104, 7, is_commit=True),
        marker(105, 8, is_commit=False),
        data(106, b"open", producer_id=9),
        data(107, b"last"),
    )
)
ENTRY = {
    "name": "entry",
    "broker": 1,
    "topic": "orders",
    "topic_id": TOPIC_ID,
    "partition": 3,
    "first_offset": 100,
    "end_offset": 108,
    "size_bytes": len(CONTENT),
    "origin_site": "a",
}


def client(content: bytes = CONTENT, piece_bytes: int = 1 << 20) -> KafkaClient:
    return cast("KafkaClient", Broker(content, piece_bytes))


def origin(offset: int) -> Origin:
    return Origin("a", "orders", TOPIC_ID, 3, LEADER_EPOCH, offset)


class Target:
    """The answers of the active site's log, instead of a `TargetLog`'s."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, *, start: int = 0, there: tuple[int, ...] = ()) -> None:
        self.asked: list[tuple[int, int]] = []
        known = Replayed()
        for offset in there:
            known.add(origin(offset))

        def replayed(_: TargetLog, first: int, end: int) -> Replayed:
            self.asked.append((first, end))
            return known

        monkeypatch.setattr(TargetLog, "bounds", lambda _: (start, 500))
        monkeypatch.setattr(TargetLog, "replayed", replayed)


async def counted(topic_id: str = TOPIC_ID, **plan: Any) -> dict[str, int]:
    replay = Replay(ENTRY, ReplayPlan(to="b:9092", is_dry_run=True, **plan))
    await replay.run(client(), topic_id=topic_id, advance=lambda _: None)
    found = replay.document()
    return {kind: found[kind] for kind in ("replayed", "present", "aborted", "open", "markers")}


@pytest.mark.parametrize("piece_bytes", [1, 13, 61, 100, 1 << 20])
async def test_batches_are_whole_however_the_pieces_fall(piece_bytes: int) -> None:
    found = [one async for one in batches(client(piece_bytes=piece_bytes), ENTRY)]
    assert b"".join(batch for _, _, batch in found) == CONTENT
    assert [header.base_offset for _, header, _ in found] == [98, 101, 102, 104, 105, 106, 107]
    assert [position for position, _, _ in found] == [CONTENT.index(batch) for _, _, batch in found]


async def test_an_entry_that_ends_within_a_batch_is_not_replayed_in_part() -> None:
    with pytest.raises(OperationalFailure, match="ends within a batch"):
        await Replay({**ENTRY, "size_bytes": len(CONTENT) - 3}, ReplayPlan(to="b:9092", is_dry_run=True)).run(
            client(CONTENT[:-3]), topic_id=TOPIC_ID, advance=lambda _: None
        )


async def test_records_of_aborted_and_open_transactions_are_left_out_and_counted(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    target = Target(monkeypatch)
    assert await counted() == {"replayed": 3, "present": 0, "aborted": 2, "open": 1, "markers": 2}
    assert target.asked == [(100, 500)]  # below, both logs are the same


async def test_they_go_too_where_that_is_asked_for_and_markers_never_do(monkeypatch: pytest.MonkeyPatch) -> None:
    Target(monkeypatch)
    found = await counted(with_aborted=True, with_open=True)
    assert found == {"replayed": 6, "present": 0, "aborted": 0, "open": 0, "markers": 2}


async def test_a_second_run_with_aborted_records_adds_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    """The first one has written all of them, or all but those of aborted transactions."""
    Target(monkeypatch, there=(100, 101, 102, 103, 106, 107))
    every = {"replayed": 0, "present": 6, "aborted": 0, "open": 0, "markers": 2}
    assert await counted(with_aborted=True, with_open=True) == every
    Target(monkeypatch, there=(100, 101, 107))
    assert await counted(with_aborted=True) == {"replayed": 2, "present": 3, "aborted": 0, "open": 1, "markers": 2}


async def test_records_that_the_target_has_are_not_written_again(monkeypatch: pytest.MonkeyPatch) -> None:
    Target(monkeypatch, there=(100, 101))
    assert await counted() == {"replayed": 1, "present": 2, "aborted": 2, "open": 1, "markers": 2}


@pytest.mark.parametrize("plan", [{"topic_id": "2a2a"}, {"topic": "orders-again"}])
async def test_another_topic_is_searched_from_its_beginning(
    monkeypatch: pytest.MonkeyPatch, plan: dict[str, str]
) -> None:
    target = Target(monkeypatch)
    await counted(**plan)
    assert target.asked == [(0, 500)]


async def test_a_log_that_may_have_lost_an_earlier_replay_is_not_written_to_unasked(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    Target(monkeypatch, start=200)
    with pytest.raises(OperationalFailure, match="begins at offset 200 now"):
        await counted()
    assert (await counted(may_repeat=True))["replayed"] == 3


async def test_a_log_that_has_the_end_of_an_earlier_replay_is_gone_on_with(monkeypatch: pytest.MonkeyPatch) -> None:
    """Retention removes what was written first."""
    Target(monkeypatch, start=200, there=(101,))
    found = await counted()
    assert (found["present"], found["replayed"]) == (2, 1)
