"""Sentinels over a real port: a broker that is presumed dead counts as alive again as soon as it
answers, after any other event.
"""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

from controller.core import commands as ask
from controller.core.state.site_values import Broker
from controller.watching.sentinels import Sentinels
from runtime.grpc_server import GrpcServer
from tests.support.eventually import eventually
from wire.control import broker_pb2, broker_pb2_grpc
from wire.znodes.broker_znodes import BrokerRegistration

OWN, OTHER, EPOCH = 1, 2, 7


class Living(broker_pb2_grpc.BrokerControlServicer):
    """A broker that only answers `Identify`."""

    async def Identify(self, request: Any, context: Any) -> broker_pb2.IdentifyReply:
        """Returns the broker's registration."""
        return broker_pb2.IdentifyReply(node_id=OTHER, broker_epoch=EPOCH)


async def test_a_broker_that_a_takeover_held_for_dead_is_taken_back_though_it_is_never_seen_refusing() -> None:
    server, reported = GrpcServer("127.0.0.1", 0), list[ask.Command]()
    broker_pb2_grpc.add_BrokerControlServicer_to_server(Living(), server.server)  # type: ignore[no-untyped-call]
    port = await server.start()

    async def tell(command: ask.Command) -> None:
        reported.append(command)

    registration = BrokerRegistration(node_id=OTHER, endpoints=(), grpc_address=f"127.0.0.1:{port}")
    cluster: Any = SimpleNamespace(brokers={}, presumed_dead={OTHER: Broker(registration=registration, epoch=EPOCH)})
    sentinels = Sentinels(tell, own_node=OWN)
    sentinels.follow(cluster)
    try:
        await eventually(lambda: reported)
    finally:
        await sentinels.close()
        await server.stop(0)
    assert reported == [ask.BrokerAnswered(node_id=OTHER, broker_epoch=EPOCH)]
