"""Permits of links with a lease: a broker takes them, they end, and then the broker acknowledges no
more records.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any, cast

import pytest
from kio.schema.errors import ErrorCode

from broker.dispatch import Dispatcher
from broker.groups.group_routing import ImageRouting
from broker.handlers.records.produce_responses import answer
from broker.handlers.registry import EntityHandler, load_handlers
from broker.metadata.cluster import Cluster
from broker.metadata.core.cluster_image import ClusterImage, LinkRole
from broker.metadata.core.image_updates import apply_batch
from broker.metrics import BrokerMetrics
from broker.site.control_service import BrokerControlService
from runtime.clock import SystemClock
from tests.support.clock import ManualClock
from tests.support.eventually import eventually
from tests.support.memory.no_authorizer import NO_AUTHORIZER
from wire.control.broker_pb2 import ConfirmLinkRequest, ControlBatch
from wire.control.cluster_pb2 import LinkPhase, LinkRecord, PartitionState, TopicInfo
from wire.protocol.messages.produce_codec import (
    API_KEY,
    PartitionProduced,
    TopicProduced,
    parse_produce_response,
)
from wire.protocol.streams.frames import RequestHeader, VersionRange

CONTEXT: Any = None
OWN = 1
END_TXN = 26
VERSION = 9


class NoReplicas:
    """The replicas of a broker without partitions; they take every image."""

    def __init__(self) -> None:
        self.assigned = self.standbys = self

    async def apply(self, *_: object) -> list[object]:
        """Finds no hosted partition."""
        return []

    def is_behind(self, *_: object) -> bool:
        """No request waits."""
        return False

    def wants_mark(self, *_: object) -> bool:
        """No request waits."""
        return False

    def mark_out_of_sync(self, *_: object, is_marked: bool) -> None:
        """Nothing to mark."""


def leased(
    *,
    name: str = "a-b",
    epoch: int = 1,
    active: str = "a",
    phase: LinkPhase = LinkPhase.MIRRORING,
    topics: tuple[str, ...] = ("orders",),
    lease_ms: int = 1_000,
) -> Any:
    return LinkRecord(
        name=name,
        source_site="a",
        target_site="b",
        mode="exact",
        epoch=epoch,
        active_site=active,
        phase=phase,
        is_routed=True,
        topic_whitelist=topics,
        group_whitelist=["billing"],
        lease_ms=lease_ms,
    )


def topic(name: str, letter: bytes) -> TopicInfo:
    states = [PartitionState(partition=0, leader=OWN, replicas=[OWN], isr=[OWN])]
    return TopicInfo(name=name, topic_id=letter * 16, partitions=states)


def with_link(image: ClusterImage, record: LinkRecord) -> ClusterImage:
    topics = [topic("orders", b"o"), topic("home", b"h")]
    return apply_batch(image, ControlBatch(is_full=True, controller_epoch=1, topics=topics, links=[record]))


class Home:
    """A broker's image and its control service."""

    def __init__(self, clock: Any, record: LinkRecord | None = None, *, replicas: NoReplicas | None = None) -> None:
        self.clock = clock
        self.cluster = Cluster(with_link(ClusterImage(site="a", node_id=OWN), record or leased()))
        parts: Any = (OWN, self.cluster, replicas or NoReplicas())
        self.service = BrokerControlService(
            *parts, broker_epoch=lambda: 1, describe_groups=NotImplemented, handover=NotImplemented, clock=clock
        )

    async def confirm(self, *, epoch: int = 1, permit_until_ms: float = 0) -> bool:
        """Confirms the link, as the site agent asks for it."""
        request = ConfirmLinkRequest(link="a-b", epoch=epoch, permit_until_ms=int(permit_until_ms))
        return bool((await self.service.ConfirmLink(request, CONTEXT)).is_confirmed)

    @property
    def role(self) -> LinkRole:
        """The role of this site for the link's topics."""
        return self.cluster.image.role_of_topic("orders")

    def replace_link(self, record: LinkRecord) -> None:
        """The controller sends another record."""
        self.cluster.replace(with_link(self.cluster.image, record))


async def test_under_a_lease_a_confirmation_without_a_permit_confirms_nothing() -> None:
    home = Home(ManualClock())
    assert not await home.confirm()
    assert home.role is LinkRole.UNCONFIRMED
    assert await home.confirm(permit_until_ms=500)
    assert home.role is LinkRole.ACTIVE
    assert await home.confirm()  # only a question: the permit is valid
    await home.service.stop()


async def test_a_permit_of_another_epoch_or_of_the_past_is_none() -> None:
    home = Home(ManualClock())
    home.clock.advance(100)
    assert not await home.confirm(epoch=2, permit_until_ms=500)
    assert not await home.confirm(permit_until_ms=100)
    assert home.role is LinkRole.UNCONFIRMED


async def test_a_permit_that_is_not_renewed_ends_by_itself() -> None:
    home = Home(SystemClock())
    assert await home.confirm(permit_until_ms=home.clock.monotonic_ms() + 100)

    async def has_ended() -> bool:
        return home.role is LinkRole.UNCONFIRMED

    await eventually(has_ended)
    assert await home.confirm(permit_until_ms=home.clock.monotonic_ms() + 60_000)
    assert home.role is LinkRole.ACTIVE
    await home.service.stop()


async def test_a_permit_that_was_extended_outlives_its_first_end() -> None:
    home = Home(SystemClock())
    await home.confirm(permit_until_ms=home.clock.monotonic_ms() + 50)
    await home.confirm(permit_until_ms=home.clock.monotonic_ms() + 60_000)
    ends_at_ms = home.clock.monotonic_ms() + 100

    async def has_passed() -> bool:
        return bool(home.clock.monotonic_ms() >= ends_at_ms)

    await eventually(has_passed)
    assert home.role is LinkRole.ACTIVE
    await home.service.stop()


async def test_a_permit_may_be_withdrawn() -> None:
    home = Home(ManualClock())
    await home.confirm(permit_until_ms=500)
    assert not await home.confirm(permit_until_ms=-1)
    assert home.role is LinkRole.UNCONFIRMED
    await home.service.stop()


class SlowReplicas(NoReplicas):
    """The replicas of a broker with so many partitions that an image takes longer than a request
    waits.
    """

    def __init__(self) -> None:
        super().__init__()
        self.has_begun, self.may_end = asyncio.Event(), asyncio.Event()

    async def apply(self, *_: object) -> list[object]:
        """Ends when the test lets it."""
        self.has_begun.set()
        await self.may_end.wait()
        return []


async def test_a_permit_is_taken_although_its_request_ends_before_all_partitions_have_it() -> None:
    replicas = SlowReplicas()
    home = Home(ManualClock(), replicas=replicas)
    request = asyncio.create_task(home.confirm(permit_until_ms=500))
    await replicas.has_begun.wait()
    request.cancel()
    await asyncio.sleep(0)
    assert home.role is LinkRole.UNCONFIRMED
    replicas.may_end.set()
    with pytest.raises(asyncio.CancelledError):
        await request
    assert home.role is LinkRole.ACTIVE
    assert await home.confirm()
    await home.service.stop()


async def test_a_permit_whose_request_has_ended_early_ends_by_itself() -> None:
    replicas = SlowReplicas()
    home = Home(SystemClock(), replicas=replicas)
    request = asyncio.create_task(home.confirm(permit_until_ms=home.clock.monotonic_ms() + 50))
    await replicas.has_begun.wait()
    request.cancel()
    replicas.may_end.set()
    await eventually(lambda: request.done() and home.role is LinkRole.UNCONFIRMED)
    await home.service.stop()


async def test_a_valid_permit_is_renewed_while_partitions_follow_an_image() -> None:
    replicas = SlowReplicas()
    replicas.may_end.set()
    home = Home(ManualClock(), replicas=replicas)
    await home.confirm(permit_until_ms=500)
    replicas.has_begun.clear()
    replicas.may_end.clear()
    full = ControlBatch(is_full=True, controller_epoch=1, topics=[topic("new", b"n")], links=[leased()])
    image = asyncio.create_task(home.service.Apply(full, CONTEXT))
    await replicas.has_begun.wait()
    renewal = asyncio.create_task(home.confirm(permit_until_ms=1_500))
    await asyncio.sleep(0)
    home.clock.advance(1_000)
    await asyncio.sleep(0)
    assert answered(home)["orders"] == 0
    replicas.may_end.set()
    await image
    assert await renewal
    await home.service.stop()


class FaultyReplicas(NoReplicas):
    """The replicas of a broker that fails at some images."""

    def __init__(self) -> None:
        super().__init__()
        self.failures = 0

    async def apply(self, *_: object) -> list[object]:
        """Fails as often as the test wants."""
        if self.failures:
            self.failures -= 1
            raise RuntimeError("a partition fails")
        return []


async def test_all_permits_that_have_ended_lose_their_roles_although_one_fails() -> None:
    replicas = FaultyReplicas()
    home = Home(SystemClock(), replicas=replicas)
    other = leased(name="a-c", topics=("home",))
    links = [leased(), other]
    home.cluster.replace(apply_batch(home.cluster.image, ControlBatch(controller_epoch=1, links=[other])))
    ends_ms = int(home.clock.monotonic_ms() + 100)
    for link in links:
        request = ConfirmLinkRequest(link=link.name, epoch=1, permit_until_ms=ends_ms)
        assert (await home.service.ConfirmLink(request, CONTEXT)).is_confirmed
    replicas.failures = 1
    await eventually(lambda: all(home.cluster.image.role_in(link) is LinkRole.UNCONFIRMED for link in links))
    await home.service.stop()


async def test_a_link_that_gets_a_lease_needs_a_permit_and_one_that_loses_it_keeps_its_role() -> None:
    home = Home(ManualClock(), leased(lease_ms=0))
    assert await home.confirm()
    assert home.role is LinkRole.ACTIVE
    home.replace_link(leased())
    assert home.role is LinkRole.UNCONFIRMED
    await home.confirm(permit_until_ms=500)
    home.replace_link(leased(lease_ms=0))
    home.clock.advance(1_000)
    await home.service.confirmations.end_permits()
    assert home.role is LinkRole.ACTIVE
    await home.service.stop()


class Asked:
    """A client's request, and the error codes of its answer."""

    def __init__(self) -> None:
        self.connection = SimpleNamespace(listener="CLIENT")
        self.header = RequestHeader(API_KEY, VERSION, 1, None, 0)
        self.codes: dict[str, int] = {}
        self.may_be_sent: Callable[[], bool] = NotImplemented

    def check_before_send(self, may_be_sent: Callable[[], bool]) -> None:
        """What is asked before the response leaves."""
        self.may_be_sent = may_be_sent

    def throttle_time_ms(self, _bandwidth_ms: float) -> int:
        return 0

    def count_errors(self, codes: object) -> None:
        """Ignores the counts of the metrics."""

    def reply_body(self, parts: list[bytes], *, body_size: int) -> None:
        del body_size
        for found in parse_produce_response(b"".join(parts), 0, VERSION).topics:
            self.codes[found.name] = found.partitions[0].error_code


def asked_for(home: Home, *names: str) -> Asked:
    """An answered request whose records were appended when the permit was valid."""
    doors: Any = SimpleNamespace(
        cluster=home.cluster,
        clock=home.clock,
        quotas=SimpleNamespace(produce=SimpleNamespace(is_in_use=False)),
    )
    asked: Any = Asked()
    answer(
        doors,
        asked,
        [TopicProduced(name, None, [PartitionProduced(0, base_offset=4)]) for name in names],
    )
    return cast("Asked", asked)


def answered(home: Home) -> dict[str, int]:
    """The error codes of such a request, by topic."""
    return dict(asked_for(home, "orders", "home").codes)


async def test_a_process_that_wakes_after_its_lease_acknowledges_nothing_that_it_appended_before() -> None:
    home = Home(ManualClock())
    await home.confirm(permit_until_ms=500)
    assert answered(home) == {"orders": 0, "home": 0}
    home.clock.advance(500)  # stopped, and no timer has run yet: the role is what it was
    assert home.role is LinkRole.ACTIVE
    assert answered(home) == {"orders": int(ErrorCode.not_leader_or_follower), "home": 0}
    await home.service.stop()


async def test_an_acknowledgement_that_waits_leaves_only_while_the_permit_is_valid() -> None:
    """It may wait behind the responses of earlier requests, for longer than the lease."""
    home = Home(ManualClock())
    await home.confirm(permit_until_ms=500)
    linked, refused, unlinked = asked_for(home, "orders"), asked_for(home, "orders", "home"), asked_for(home, "home")
    assert all(one.may_be_sent() for one in (linked, refused, unlinked))
    home.clock.advance(499)
    await home.confirm(permit_until_ms=1_000)
    home.clock.advance(1)
    assert linked.may_be_sent(), "the permit was renewed while the acknowledgement waited"
    home.clock.advance(500)
    assert (linked.may_be_sent(), refused.may_be_sent(), unlinked.may_be_sent()) == (False, False, True)
    assert asked_for(home, "orders").may_be_sent(), "an error may always leave"
    await home.service.stop()


@pytest.mark.parametrize(
    ("record", "code"),
    [
        (leased(phase=LinkPhase.FENCED), ErrorCode.none),
        (leased(epoch=2, active="b"), ErrorCode.not_leader_or_follower),
        (leased(epoch=2), ErrorCode.not_leader_or_follower),
    ],
    ids=["fenced: the standby gets it", "another site is active", "another epoch"],
)
async def test_appended_records_are_acknowledged_under_a_fence_and_not_under_another_epoch(
    record: LinkRecord, code: ErrorCode
) -> None:
    home = Home(ManualClock())
    await home.confirm(permit_until_ms=500)
    home.replace_link(record)
    assert answered(home)["orders"] == int(code)
    await home.service.stop()


async def test_a_coordinator_acknowledges_nothing_of_the_links_groups_after_the_lease() -> None:
    home = Home(ManualClock())
    await home.confirm(permit_until_ms=500)
    routing = ImageRouting(lambda: home.cluster.image, home.cluster.permits, home.clock)
    assert (routing.may_acknowledge("billing"), routing.may_acknowledge("other")) == (True, True)
    home.clock.advance(500)
    assert (routing.may_acknowledge("billing"), routing.may_acknowledge("other")) == (False, True)
    image, permits = home.cluster.image, home.cluster.permits
    assert not permits.may_end_transactions(image, now_ms=home.clock.monotonic_ms())
    await asyncio.sleep(0)
    await home.service.stop()


async def test_the_end_of_a_transaction_that_waits_leaves_only_while_the_permit_is_valid() -> None:
    home = Home(ManualClock())
    handler = load_handlers()[END_TXN]
    doors: Any = SimpleNamespace(cluster=home.cluster, clock=home.clock)
    ended, refused = (SimpleNamespace(error_code=code) for code in (ErrorCode.none, ErrorCode.producer_fenced))
    await home.confirm(permit_until_ms=500)
    assert handler.may_be_sent(ended, doors)
    home.clock.advance(500)
    assert (handler.may_be_sent(ended, doors), handler.may_be_sent(refused, doors)) == (False, True)
    await home.service.stop()


async def test_nothing_of_groups_and_transactions_is_acknowledged_after_another_site_became_active() -> None:
    home = Home(ManualClock())
    await home.confirm(permit_until_ms=500)
    routing = ImageRouting(lambda: home.cluster.image, home.cluster.permits, home.clock)
    home.replace_link(leased(epoch=2, active="b"))
    assert (routing.may_acknowledge("billing"), routing.may_acknowledge("other")) == (False, True)
    assert not home.cluster.permits.may_end_transactions(home.cluster.image, now_ms=home.clock.monotonic_ms())
    await home.service.stop()


async def test_the_broker_asks_the_handler_again_before_the_response_leaves() -> None:
    may_leave, checks, replies = [True], [], []
    quotas: Any = SimpleNamespace()
    handler = EntityHandler(VersionRange(0, 0), "doors", handled, lambda response, doors: may_leave[0])
    metrics, authorizer = BrokerMetrics(), NO_AUTHORIZER
    dispatcher = Dispatcher(
        {END_TXN: handler}, authorizer=authorizer, quotas=quotas, metrics=metrics, clock=SystemClock()
    )
    exchange: Any = SimpleNamespace(
        context=SimpleNamespace(api_key=END_TXN),
        header=SimpleNamespace(api_key=END_TXN),
        handled_by=lambda handling: handling,
        check_before_send=checks.append,
        reply=replies.append,
    )
    await dispatcher._run(exchange, handler, "request")
    (check,) = checks
    assert replies == ["response"]
    assert check()
    may_leave[0] = False
    assert not check()


async def handled(request: Any, _context: Any, doors: Any) -> Any:
    assert (request, doors) == ("request", "doors")
    return "response"
