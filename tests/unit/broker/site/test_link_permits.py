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

from broker.handlers.records.produce_responses import answer
from broker.metadata.core.cluster_image import LinkRole
from broker.metadata.core.image_updates import apply_batch
from runtime.clock import SystemClock
from tests.support.clock import ManualClock
from tests.support.eventually import eventually
from tests.support.memory.leased_site import CONTEXT, Home, NoReplicas, leased, topic
from wire.control.broker_pb2 import ConfirmLinkRequest, ControlBatch
from wire.control.cluster_pb2 import LinkPhase, LinkRecord
from wire.protocol.messages.produce_codec import (
    API_KEY,
    PartitionProduced,
    TopicProduced,
    parse_produce_response,
)
from wire.protocol.streams.frames import RequestHeader

VERSION = 9


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
