"""Transactional ids on their way: reports, repeated reports, and changes that are not reported."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping, Sequence
from types import SimpleNamespace
from typing import TYPE_CHECKING, cast

import pytest
from kio.schema.errors import ErrorCode
from structlog.testing import capture_logs

from mirror.groups.transactional_ids import REPORTED_AT_ONCE, TransactionalIdSync
from mirror.link.core.link_roles import LinkRole
from mirror.link.link_watch import LinkView, stand
from mirror.link.ports import ProducerUpdates, TransactionalProducer, Unreachable
from mirror.sites.kafka_producers import KafkaProducersOfSource, producers_in
from tests.support.eventually import eventually
from wire.batches.records import Record, encode_batch
from wire.batches.transaction_records import TransactionValue, encode_transaction_key, encode_transaction_value
from wire.client.client_errors import Unreachable as ClientUnreachable
from wire.client.requests.fetch_requests import FetchRequest
from wire.control.cluster_pb2 import LinkPhase, LinkRecord

if TYPE_CHECKING:
    from wire.client.raw_client import KafkaClient

FIRST, SECOND = TransactionalProducer(7, 1, 60_000), TransactionalProducer(7, 2, 60_000)


class Source:
    def __init__(self) -> None:
        self.written: list[dict[str, TransactionalProducer | None]] = []
        self.position = 0
        self.written_meanwhile = 0
        self.on_read: Callable[[], None] = lambda: None

    async def news(self) -> ProducerUpdates:
        if self.position < len(self.written):
            self.position += 1
            self.on_read()
            return ProducerUpdates(self.written[self.position - 1], is_all=self.position >= self.end_when_read)
        return ProducerUpdates({}, is_all=True)

    @property
    def end_when_read(self) -> int:
        """Records written during the read are for the next round."""
        return len(self.written) - self.written_meanwhile

    def begin_anew(self) -> None:
        self.position = 0


class Target:
    def __init__(self) -> None:
        self.requests: list[dict[str, TransactionalProducer]] = []
        self.refusals: dict[str, ErrorCode] = {}
        self.is_up = True

    async def carry(
        self, producers: Mapping[str, TransactionalProducer], *, link: str, link_epoch: int
    ) -> Mapping[str, ErrorCode]:
        assert (link, link_epoch) in (("a-b", 3), ("a-b", 5))
        if not self.is_up:
            raise Unreachable("down")
        self.requests.append(dict(producers))
        return {name: self.refusals.get(name, ErrorCode.none) for name in producers}


class Scene:
    """A sync between both, round by round."""

    def __init__(self) -> None:
        self.source, self.target = Source(), Target()
        self.record = LinkRecord(
            name="a-b", source_site="a", target_site="b", active_site="a", epoch=3, phase=LinkPhase.MIRRORING
        )
        self.record.is_routed = True
        self.sync = TransactionalIdSync(self.source, self.target, link=self.link, interval_ms=1)

    def link(self) -> LinkView:
        return stand(self.record, "b")

    async def reported(self) -> list[dict[str, TransactionalProducer]]:
        """The reports of a round."""
        self.target.requests.clear()
        await self.sync.round()
        return self.target.requests


async def test_the_last_state_of_each_id_is_reported_once() -> None:
    scene = Scene()
    scene.source.written += [{"one": FIRST, "two": FIRST}, {"one": SECOND}]
    assert await scene.reported() == [{"one": SECOND, "two": FIRST}]
    assert await scene.reported() == []
    scene.source.written.append({"one": SECOND, "two": SECOND})
    assert await scene.reported() == [{"two": SECOND}]


async def test_refused_and_unanswered_reports_are_repeated() -> None:
    scene = Scene()
    scene.source.written.append({"one": FIRST, "two": FIRST})
    scene.target.refusals = {"one": ErrorCode.concurrent_transactions}
    assert await scene.reported() == [{"one": FIRST, "two": FIRST}]
    scene.target.is_up = False
    with pytest.raises(Unreachable):
        await scene.reported()
    scene.target.is_up, scene.target.refusals = True, {}
    assert await scene.reported() == [{"one": FIRST}]
    assert await scene.reported() == []


async def test_ids_that_stay_refused_are_logged_once() -> None:
    scene = Scene()
    scene.source.written.append({f"id-{number}": FIRST for number in range(REPORTED_AT_ONCE + 1)})
    scene.target.refusals = dict.fromkeys(scene.source.written[0], ErrorCode.concurrent_transactions)
    with capture_logs() as logged:
        running = asyncio.create_task(scene.sync.run())
        await eventually(lambda: len(scene.target.requests) > 6)
        running.cancel()
        await asyncio.gather(running, return_exceptions=True)
    (line,) = logged
    names = ", ".join(f"{name} (concurrent_transactions)" for name in ("id-0", "id-1", "id-10"))
    assert line["reason"] == f"the target refuses {REPORTED_AT_ONCE + 1} transactional ids: {names}"


async def test_a_target_that_was_active_in_between_gets_everything_anew() -> None:
    """The target has given out ids of its own, even if there was no round in that time."""
    scene = Scene()
    scene.source.written.append({"one": FIRST})
    assert await scene.reported() == [{"one": FIRST}]
    scene.record.epoch = 5
    assert await scene.reported() == [{"one": FIRST}]


async def test_many_ids_go_in_requests_of_a_bounded_size() -> None:
    scene = Scene()
    scene.source.written.append({f"id-{number}": FIRST for number in range(2 * REPORTED_AT_ONCE + 1)})
    assert [len(request) for request in await scene.reported()] == [REPORTED_AT_ONCE, REPORTED_AT_ONCE, 1]


async def test_a_busy_source_does_not_delay_reports() -> None:
    scene = Scene()

    def write_more() -> None:
        scene.source.written.append({"one": TransactionalProducer(7, 2 + len(scene.source.written), 60_000)})
        scene.source.written_meanwhile = 1

    scene.source.written.append({"one": FIRST})
    scene.source.on_read = write_more
    assert await scene.reported() == [{"one": FIRST}]
    assert len(await scene.reported()) == 1


async def test_an_id_that_the_source_has_forgotten_is_no_news() -> None:
    scene = Scene()
    scene.source.written += [{"one": FIRST}, {"one": None}]
    assert await scene.reported() == []


async def test_nothing_is_reported_on_a_turned_link_and_everything_when_it_turns_back() -> None:
    scene = Scene()
    scene.source.written.append({"one": FIRST})
    assert len(await scene.reported()) == 1
    scene.record.active_site = "b"
    assert scene.link().role is LinkRole.TURNED
    assert await scene.reported() == []
    scene.record.active_site = "a"
    assert await scene.reported() == [{"one": FIRST}]


async def test_nothing_is_reported_on_a_link_that_does_not_route_clients() -> None:
    scene = Scene()
    scene.record.is_routed = False
    scene.source.written.append({"one": FIRST})
    assert await scene.reported() == []


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


class Client:
    """The part of a client that the tail of a topic with two partitions uses: partition 0 at broker
    1, partition 1 at broker 2.
    """

    def __init__(self) -> None:
        self.logs: dict[int, list[bytes]] = {0: [], 1: []}
        self.errors: dict[int, ErrorCode] = {}
        self.down: set[int] = set()
        self.lookups = 0
        self.cluster = SimpleNamespace(topics={})

    def write(self, partition: int, name: str, producer_epoch: int) -> None:
        value = TransactionValue(7, producer_epoch, 60_000, 0, None, 1, 1)
        record = Record(encode_transaction_key(name), encode_transaction_value(value))
        self.logs[partition].append(encode_batch([record], base_offset=len(self.logs[partition])))

    async def metadata(self, topics: Sequence[str]) -> SimpleNamespace:
        self.lookups += 1
        partitions = {index: SimpleNamespace(leader_id=index + 1) for index in self.logs}
        self.cluster = SimpleNamespace(topics={topics[0]: SimpleNamespace(partitions=partitions, topic_id=None)})
        return self.cluster

    def forget_leaders(self, topics: Sequence[str]) -> None:
        self.cluster = SimpleNamespace(topics={})

    async def offsets_at(self, keys: Sequence[tuple[str, int]], timestamp: int) -> dict[tuple[str, int], int]:
        return dict.fromkeys(keys, 0)

    async def fetch(self, node_id: int, request: FetchRequest) -> SimpleNamespace:
        if node_id in self.down:
            raise ClientUnreachable("refused")
        partitions = []
        for wanted in request.topics[0].partitions:
            log = self.logs[wanted.partition_index]
            code = self.errors.get(wanted.partition_index, ErrorCode.none)
            if wanted.fetch_offset > len(log):
                code = ErrorCode.offset_out_of_range
            records = b"" if code else b"".join(log[wanted.fetch_offset : wanted.fetch_offset + 2])
            partitions.append(
                SimpleNamespace(
                    partition_index=wanted.partition_index, error_code=code, records=records, high_watermark=len(log)
                )
            )
        return SimpleNamespace(topics=[SimpleNamespace(partitions=partitions)])


async def all_news(source: KafkaProducersOfSource) -> dict[str, int]:
    """The epochs that a round reads."""
    found: dict[str, int] = {}
    is_all = False
    while not is_all:
        producers, is_all = await source.news()
        found |= {name: it.producer_epoch for name, it in producers.items() if it is not None}
    return found


async def test_the_tail_is_read_in_pieces_and_each_record_once() -> None:
    client = Client()
    source = KafkaProducersOfSource(cast("KafkaClient", client))
    for number in range(5):
        client.write(number % 2, f"id-{number}", number)
    assert await all_news(source) == {f"id-{number}": number for number in range(5)}
    assert await all_news(source) == {}
    client.write(1, "id-1", 9)
    assert await all_news(source) == {"id-1": 9}
    assert client.lookups == 1


async def test_a_broker_that_is_gone_takes_nothing_with_it_that_the_others_said() -> None:
    client = Client()
    source = KafkaProducersOfSource(cast("KafkaClient", client))
    client.write(0, "here", 1)
    client.write(1, "there", 1)
    client.down = {2}
    assert await all_news(source) == {"here": 1}
    with pytest.raises(Unreachable):
        await source.news()
    client.down = set()
    assert await all_news(source) == {"there": 1}
    assert client.lookups == 3


async def test_a_partition_that_answers_with_an_error_is_asked_again_and_a_log_made_anew_is_read_from_its_start() -> (
    None
):
    client = Client()
    source = KafkaProducersOfSource(cast("KafkaClient", client))
    for number in range(3):
        client.write(0, "here", number)
    client.write(1, "there", 1)
    client.errors = {1: ErrorCode.not_leader_or_follower}
    assert await all_news(source) == {"here": 2}
    client.errors = {}
    assert await all_news(source) == {"there": 1}
    client.logs[0].clear()
    client.write(0, "anew", 4)
    assert await all_news(source) == {}
    assert await all_news(source) == {"anew": 4}
