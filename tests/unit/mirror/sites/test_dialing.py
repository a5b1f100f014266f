"""How a mirror connects, from the keys of its file to the sockets that it opens."""

from __future__ import annotations

import socket
from collections.abc import AsyncIterator, Mapping

import pytest
from prometheus_client import CollectorRegistry

from mirror.settings.config import MirrorConfig, load_config, load_configs
from mirror.settings.values import MIB
from mirror.sites.dialing import Dialing
from mirror.translate_ends import PIPELINED_REQUESTS_MAX, TranslateEnds
from runtime.clock import SystemClock
from tests.support.clients.scripted_broker import ScriptedBroker
from wire.client.connection import ConnectionOptions, connected

EXACT = {"link.name": "a-b", "site.agents": "h:1"}
TRANSLATE = {
    "link.name": "a-b",
    "link.mode": "translate",
    "source.alias": "a",
    "target.alias": "b",
    "source.bootstrap.servers": "127.0.0.1:1",
    "target.bootstrap.servers": "127.0.0.1:2",
}
MIRROR_MAKER = {
    "clusters": "a,b",
    "a.bootstrap.servers": "127.0.0.1:1",
    "b.bootstrap.servers": "127.0.0.1:2",
    "a->b.enabled": "true",
}
IN_FLIGHT = "max.in.flight.requests.per.connection"


@pytest.fixture
async def broker() -> AsyncIterator[ScriptedBroker]:
    async with ScriptedBroker() as running:
        yield running


async def buffers_of(broker: ScriptedBroker, options: ConnectionOptions) -> tuple[int, int]:
    """Sizes of a connected socket's buffers, receive and send, as they were asked for: Linux
    doubles them.
    """
    async with connected(broker.address, options) as connection:
        live = connection._stream.transport.get_extra_info("socket")
        receive, send = (live.getsockopt(socket.SOL_SOCKET, name) for name in (socket.SO_RCVBUF, socket.SO_SNDBUF))
    return receive // 2, send // 2


@pytest.mark.parametrize(
    "config",
    [
        load_config({**EXACT, "socket.receive.buffer.bytes": "40000", "send.buffer.bytes": "60000"}),
        *load_configs(
            {**MIRROR_MAKER, "a.consumer.receive.buffer.bytes": "40000", "b.producer.send.buffer.bytes": "60000"}
        ),
    ],
    ids=["own file", "MirrorMaker file"],
)
async def test_sockets_to_both_ends_have_the_buffers_of_the_file(broker: ScriptedBroker, config: MirrorConfig) -> None:
    dialing = Dialing(config, client_id="test")
    for options in (dialing.source, dialing.target, dialing.appends(in_flight_max=1)):
        assert await buffers_of(broker, options) == (40_000, 60_000)


@pytest.mark.parametrize("transactions", ["true", "false"])
@pytest.mark.parametrize(
    ("given", "in_force"), [({IN_FLIGHT: "1"}, 1), ({IN_FLIGHT: "7"}, 7), ({}, PIPELINED_REQUESTS_MAX)]
)
async def test_a_translate_link_has_as_many_requests_in_flight_as_its_file_says(
    given: Mapping[str, str], in_force: int, transactions: str
) -> None:
    config = load_config({**TRANSLATE, **given, "antipode.target.transactions": transactions})
    assert await in_flight_max_of(config) == in_force


async def test_requests_in_flight_of_a_mirror_maker_file_count_for_its_links() -> None:
    (config,) = load_configs({**MIRROR_MAKER, f"b.producer.{IN_FLIGHT}": "3"})
    assert await in_flight_max_of(config) == 3


@pytest.mark.parametrize(
    ("given", "in_force"),
    [
        ({}, (1, 1, 8 * MIB - 64 * 1024, 8 * MIB)),
        ({"num.streams": "2", "num.producers": "3", "fetch.max.bytes": "5000"}, (2, 3, 5000, 8 * MIB)),
        ({"antipode.target.transactions": "true"}, (2, 2, 4 * MIB - 64 * 1024, 4 * MIB)),
    ],
)
async def test_one_path_carries_the_partitions_of_a_broker_unless_the_file_says_more(
    given: Mapping[str, str], in_force: tuple[int, ...]
) -> None:
    config = load_config({**TRANSLATE, **given})
    link = TranslateEnds(config, client_id="test", registry=CollectorRegistry(), clock=SystemClock())
    try:
        used = link.mirror_config()
    finally:
        await link.close()
    assert (used.streams, used.producers, used.fetch_max_bytes, used.request_max_bytes) == in_force


async def in_flight_max_of(config: MirrorConfig) -> int:
    link = TranslateEnds(config, client_id="test", registry=CollectorRegistry(), clock=SystemClock())
    try:
        return link.append_options().in_flight_max
    finally:
        await link.close()
