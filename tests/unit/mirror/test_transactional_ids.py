"""Transactional ids on their way: what is told, what is told again, and what is no news."""

from __future__ import annotations

from collections.abc import Mapping

import pytest
from kio.schema.errors import ErrorCode

from mirror.core.flow_events import LinkRole
from mirror.kafka_producers import producers_in
from mirror.link_watch import LinkStanding, stand
from mirror.ports import TransactionalProducer, Unreachable
from mirror.transactional_ids import TOLD_AT_ONCE, TransactionalIdSync
from wire.control.cluster_pb2 import LinkPhase, LinkRecord
from wire.records import Record
from wire.transaction_records import TransactionValue, encode_transaction_key, encode_transaction_value

FIRST, SECOND = TransactionalProducer(7, 1, 60_000), TransactionalProducer(7, 2, 60_000)


class Source:
    def __init__(self) -> None:
        self.written: list[dict[str, TransactionalProducer | None]] = []
        self.position = 0

    async def news(self) -> Mapping[str, TransactionalProducer | None]:
        if self.position == len(self.written):
            return {}
        self.position += 1
        return self.written[self.position - 1]

    def begin_anew(self) -> None:
        self.position = 0

    async def close(self) -> None:
        return


class Target:
    def __init__(self) -> None:
        self.requests: list[dict[str, TransactionalProducer]] = []
        self.refusals: dict[str, ErrorCode] = {}
        self.is_up = True

    async def carry(
        self, producers: Mapping[str, TransactionalProducer], *, link: str, link_epoch: int
    ) -> Mapping[str, ErrorCode]:
        assert (link, link_epoch) == ("a-b", 3)
        if not self.is_up:
            raise Unreachable("down")
        self.requests.append(dict(producers))
        return {name: self.refusals.get(name, ErrorCode.none) for name in producers}

    async def close(self) -> None:
        return


class Scene:
    """A sync between both, round by round."""

    def __init__(self) -> None:
        self.source, self.target = Source(), Target()
        self.record = LinkRecord(
            name="a-b", source_site="a", target_site="b", active_site="a", epoch=3, phase=LinkPhase.MIRRORING
        )
        self.record.is_routed = True
        self.sync = TransactionalIdSync(self.source, self.target, link=self.link, interval_ms=1)

    def link(self) -> LinkStanding:
        return stand(self.record, "b")

    async def told(self) -> list[dict[str, TransactionalProducer]]:
        """What a round tells."""
        self.target.requests.clear()
        await self.sync.round()
        return self.target.requests


async def test_the_last_word_on_each_id_is_told_once() -> None:
    scene = Scene()
    scene.source.written += [{"one": FIRST, "two": FIRST}, {"one": SECOND}]
    assert await scene.told() == [{"one": SECOND, "two": FIRST}]
    assert await scene.told() == []
    scene.source.written.append({"one": SECOND, "two": SECOND})
    assert await scene.told() == [{"two": SECOND}]


async def test_what_was_refused_or_not_answered_is_told_again() -> None:
    scene = Scene()
    scene.source.written.append({"one": FIRST, "two": FIRST})
    scene.target.refusals = {"one": ErrorCode.concurrent_transactions}
    assert await scene.told() == [{"one": FIRST, "two": FIRST}]
    scene.target.is_up = False
    with pytest.raises(Unreachable):
        await scene.told()
    scene.target.is_up, scene.target.refusals = True, {}
    assert await scene.told() == [{"one": FIRST}]
    assert await scene.told() == []


async def test_many_ids_go_in_requests_of_a_bounded_size() -> None:
    scene = Scene()
    scene.source.written.append({f"id-{number}": FIRST for number in range(2 * TOLD_AT_ONCE + 1)})
    assert [len(request) for request in await scene.told()] == [TOLD_AT_ONCE, TOLD_AT_ONCE, 1]


async def test_an_id_that_the_source_has_forgotten_is_no_news() -> None:
    scene = Scene()
    scene.source.written += [{"one": FIRST}, {"one": None}]
    assert await scene.told() == []


async def test_nothing_is_told_once_the_link_has_turned_and_everything_when_it_turns_back() -> None:
    scene = Scene()
    scene.source.written.append({"one": FIRST})
    assert len(await scene.told()) == 1
    scene.record.active_site = "b"
    assert scene.link().role is LinkRole.TURNED
    assert await scene.told() == []
    scene.record.active_site = "a"
    assert await scene.told() == [{"one": FIRST}]


async def test_nothing_is_told_on_a_link_that_does_not_route_clients() -> None:
    scene = Scene()
    scene.record.is_routed = False
    scene.source.written.append({"one": FIRST})
    assert await scene.told() == []


def test_records_of_the_coordinator_are_read_and_what_a_mirror_wrote_there_is_no_news() -> None:
    def value(producer_epoch: int, *, is_carried: bool = False) -> bytes:
        return encode_transaction_value(
            TransactionValue(7, producer_epoch, 60_000, 0, None, 1, 1, is_carried=is_carried)
        )

    records = [
        Record(encode_transaction_key("one"), value(1)),
        Record(encode_transaction_key("one"), value(2)),
        Record(encode_transaction_key("carried"), value(3, is_carried=True)),
        Record(encode_transaction_key("gone"), value(4)),
        Record(encode_transaction_key("gone"), None),
        Record(b"\x00", value(5)),
        Record(encode_transaction_key("torn"), b"\x00\x01"),
    ]
    assert producers_in(records, 0) == {"one": SECOND, "carried": None, "gone": None}
