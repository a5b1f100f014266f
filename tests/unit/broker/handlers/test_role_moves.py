"""Writes wait while the role of their link moves, and are forwarded to the site that is active
then.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from types import SimpleNamespace
from typing import Any

import pytest
from kio.schema.errors import ErrorCode
from msgspec.structs import replace

from broker.handlers.records import produce, role_moves
from broker.handlers.records.role_moves import FORWARDED_MS, RoleMoves
from broker.metadata.cluster import Cluster
from broker.metadata.core.cluster_image import ClusterImage
from broker.metadata.core.image_updates import apply_batch, with_peer_view
from broker.metadata.request_context import FORWARDED_CLIENT_ID
from broker.metrics import BrokerMetrics
from broker.network.exchange import Exchange
from broker.network.response_slots import Place
from tests.support.clock import ManualClock
from tests.support.eventually import eventually
from wire.control.broker_pb2 import ControlBatch
from wire.control.cluster_pb2 import BrokerInfo, LinkPhase, LinkRecord, PartitionState, SiteView, TopicInfo
from wire.protocol.ids import ACKS_ALL
from wire.protocol.messages.leader_hints import LeaderHint
from wire.protocol.messages.produce_codec import PartitionProduced, PartitionRecords, ProduceRequest, TopicProduced
from wire.protocol.messages.produce_codec import TopicRecords as Topic
from wire.protocol.streams.frames import RequestHeader
from wire.rules.links import LinkEpoch

OWN, THEIRS, FLOOR = 1, 1001, 8
RECORDS = b"records"
LINK = {"name": "a-b", "source_site": "a", "target_site": "b", "topic_whitelist": ["carried.*"], "is_routed": True}


class SiteB:
    """Answers forwarded requests, and notes them."""

    def __init__(self) -> None:
        self.requests: list[ProduceRequest] = []
        self.error = ErrorCode.none
        self.answers: list[asyncio.Future[None]] = []

    async def results(self, _: ClusterImage, request: ProduceRequest) -> list[TopicProduced]:
        self.requests.append(request)
        if self.answers:
            await self.answers.pop(0)
        return [
            TopicProduced(topic.name, None, [PartitionProduced(0, self.error, base_offset=7)])
            for topic in request.topics
        ]


def produce_exchange(waiting: list[Exchange], finished: list[Exchange]) -> Exchange:
    """A request that is in `waiting` once it has a place for its response, later in `finished`."""
    dispatcher: Any = SimpleNamespace(clock=ManualClock(), finish=lambda exchange, _: finished.append(exchange))

    def reserve_slot(_api_key: int, frame_bytes: int) -> Place:
        waiting.append(exchange)
        return Place(lambda _: None, frame_bytes, None)

    connection: Any = SimpleNamespace(reserve_slot=reserve_slot)
    header = RequestHeader(api_key=produce.API_KEY, api_version=9, correlation_id=1, client_id="c", body_position=0)
    exchange = Exchange(dispatcher, connection, header, BrokerMetrics().api("Produce"), 0)
    return exchange


class SiteA:
    """A broker of site a, whose link changes."""

    def __init__(self) -> None:
        self.clock = ManualClock()
        self.site_b = SiteB()
        writes: Any = self.site_b
        view = SiteView(site="b", version=1, brokers=[BrokerInfo(node_id=THEIRS)], topics=[topic("carried", THEIRS)])
        batch = ControlBatch(is_full=True, topics=[topic("carried", OWN), topic("own", OWN)], links=[record("a", 1)])
        self.cluster = Cluster(with_peer_view(apply_batch(ClusterImage(site="a", node_id=OWN), batch), view))
        self.moves = RoleMoves(self.cluster, writes, self.clock)
        self.turn(record("a", 1), confirmed=1)

    def turn(self, link: LinkRecord, *, confirmed: int) -> None:
        image = self.cluster.image
        self.cluster.replace(
            replace(image, links={"a-b": link}, carriers={}, confirmed_epochs={"a-b": LinkEpoch(confirmed, 0)})
        )

    def fence(self) -> None:
        self.turn(record("a", 1, phase=LinkPhase.FENCED), confirmed=1)

    def move(self) -> None:
        self.turn(record("b", 2), confirmed=1)

    @contextmanager
    def moving(self) -> Iterator[None]:
        """While partitions change to the roles of the move."""
        with self.cluster.applying(replace(self.cluster.image, links={"a-b": record("b", 2)}, carriers={})):
            yield

    def give_back(self) -> None:
        self.turn(record("a", 2), confirmed=2)

    async def send(self, request: ProduceRequest, client_id: str = "c") -> asyncio.Task[list[TopicProduced] | None]:
        task = asyncio.create_task(self.moves.results(request, client_id))
        await asyncio.sleep(0)
        return task


def topic(name: str, leader: int) -> TopicInfo:
    return TopicInfo(
        name=name, topic_id=name.encode().ljust(16), partitions=[PartitionState(partition=0, leader=leader)]
    )


def record(active: str, epoch: int, phase: LinkPhase = LinkPhase.MIRRORING) -> LinkRecord:
    return LinkRecord(**LINK, active_site=active, epoch=epoch, phase=phase, leader_epoch_floor=FLOOR)


def to(*names: str, transactional_id: str | None = None, acks: int = ACKS_ALL) -> ProduceRequest:
    return ProduceRequest(
        transactional_id, acks, 1000, [Topic(name, None, [PartitionRecords(0, RECORDS)]) for name in names]
    )


def offsets(results: Iterable[TopicProduced] | None) -> list[int] | None:
    return None if results is None else [one.base_offset for topic in results for one in topic.partitions]


@pytest.fixture
def site() -> SiteA:
    return SiteA()


async def test_a_write_waits_for_the_move_and_gets_the_other_site_s_results(site: SiteA) -> None:
    assert not site.moves.concern(to("carried"))
    site.fence()
    assert site.moves.concern(to("carried"))
    assert not site.moves.concern(to("own"))
    waiting = await site.send(to("carried"))
    assert not waiting.done()
    assert site.site_b.requests == []
    site.move()
    assert offsets(await waiting) == [7]


async def test_writes_that_follow_are_forwarded_for_a_while(site: SiteA) -> None:
    site.fence()
    waiting = await site.send(to("carried"))
    site.move()
    await waiting
    site.clock.advance(FORWARDED_MS - 1)
    assert site.moves.concern(to("carried"))
    assert not site.moves.concern(to("own"))
    assert not site.moves.concern(to("carried", "own"))
    assert offsets(await site.moves.results(to("carried"), "c")) == [7]
    site.clock.advance(1)
    assert not site.moves.concern(to("carried"))


async def test_writes_are_forwarded_while_partitions_here_still_change_their_roles(site: SiteA) -> None:
    site.fence()
    first, forwarded_once = await site.send(to("carried")), await site.send(to("carried"), FORWARDED_CLIENT_ID)
    with site.moving():
        assert offsets(await first) == [7]
        assert site.moves.route(to("carried"), "c") is site.cluster.coming
        assert offsets(await site.moves.results(to("carried"), "c")) == [7]
        # it is refused with the new leader, which only the whole image names
        assert not forwarded_once.done()
    site.move()
    assert await forwarded_once is None
    assert site.moves.route(to("carried"), "c") is site.cluster.image


async def test_writes_that_follow_one_that_came_during_the_change_of_roles_are_forwarded_too(site: SiteA) -> None:
    site.fence()
    with site.moving():
        assert offsets(await site.moves.results(to("carried"), "c")) == [7]
    site.move()
    assert offsets(await site.moves.results(to("carried"), "c")) == [7]


async def test_a_write_with_a_known_route_does_not_hold_up_the_next_one(site: SiteA) -> None:
    site.fence()
    waiting = await site.send(to("carried"))
    site.move()
    await waiting
    answers = [asyncio.get_running_loop().create_future() for _ in range(2)]
    site.site_b.answers = list(answers)
    doors: Any = SimpleNamespace(role_moves=site.moves)
    held: list[Exchange] = []
    finished: list[Exchange] = []
    exchanges = [produce_exchange(held, finished) for _ in answers]
    for exchange in exchanges:
        produce._wait_for_role(doors, exchange, to("carried"), ())
    await eventually(lambda: len(site.site_b.requests) == 3)
    # both were sent before the first was answered
    assert (held, finished) == (exchanges, [])
    for answer in answers:
        answer.set_result(None)
    await eventually(lambda: finished == exchanges)


async def test_a_move_that_is_given_back_forwards_nothing(site: SiteA) -> None:
    site.fence()
    waiting = await site.send(to("carried"))
    site.give_back()
    assert await waiting is None
    assert site.site_b.requests == []
    assert not site.moves.concern(to("carried"))


async def test_a_move_that_takes_too_long_refuses_the_write(site: SiteA, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(role_moves, "SUSPENDED_MS_MAX", 1)
    site.fence()
    assert await site.moves.results(to("carried"), "c") is None
    assert site.site_b.requests == []


@pytest.mark.parametrize(
    ("request_", "client_id"),
    [
        (to("carried", acks=0), "c"),
        (to("carried", transactional_id="t"), "c"),
        (to("carried", "own"), "c"),
        (to("carried"), FORWARDED_CLIENT_ID),
    ],
)
async def test_some_writes_wait_and_are_not_forwarded(site: SiteA, request_: ProduceRequest, client_id: str) -> None:
    site.fence()
    waiting = await site.send(request_, client_id)
    site.move()
    assert await waiting is None
    assert site.site_b.requests == []


@pytest.mark.parametrize("bound", ["WAITING_COUNT_MAX", "WAITING_BYTES_MAX"])
async def test_writes_above_the_bounds_do_not_wait(site: SiteA, monkeypatch: pytest.MonkeyPatch, bound: str) -> None:
    monkeypatch.setattr(role_moves, bound, 1)
    site.fence()
    waiting = await site.send(to("carried"))
    assert not site.moves.concern(to("carried"))
    waiting.cancel()
    await asyncio.gather(waiting, return_exceptions=True)
    assert site.moves.concern(to("carried"))


async def test_a_refusal_of_the_other_site_gets_this_broker_s_hints(site: SiteA) -> None:
    site.site_b.error = ErrorCode.not_leader_or_follower
    site.fence()
    waiting = await site.send(to("carried"))
    site.move()
    results = await waiting
    assert results is not None
    assert results[0].partitions[0].current_leader == LeaderHint(THEIRS, FLOOR)
