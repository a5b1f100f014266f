"""What a broker acknowledges of groups and transactions under a lease."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace
from typing import Any

from kio.schema.errors import ErrorCode

from broker.dispatch import Dispatcher
from broker.groups.group_routing import ImageRouting
from broker.handlers.registry import EntityHandler, load_handlers
from broker.metrics import BrokerMetrics
from runtime.clock import SystemClock
from tests.support.clock import ManualClock
from tests.support.memory.leased_site import Home, leased
from tests.support.memory.no_authorizer import NO_AUTHORIZER
from wire.protocol.streams.frames import VersionRange

END_TXN = 26


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
