"""Creates, extends, moves and deletes topics under faults: the real client sends requests to the
real controller service.
"""

from __future__ import annotations

from collections.abc import Awaitable
from typing import Any

from kio.schema.errors import ErrorCode

from tests.sim.broker_process import RPC_PORT
from tests.sim.world import World
from wire.control import controller_pb2 as pb
from wire.control.clients import ControllerClient, ControllerUnavailable

STANDING = (("t", 2), ("u", 1))
"""Topics that clients write to, with their partitions."""
PASSING = ("x", "y")
"""Topics that come and go."""


class Administrator:
    """The client that administers the topics of a run."""

    def __init__(self, world: World, nodes: tuple[int, ...]) -> None:
        self._world = world
        self._nodes = nodes
        self.standing = tuple((topic, index) for topic, count in STANDING for index in range(count))
        self.is_ready = False
        self.is_wanted = True
        self.is_busy = False

    def _client(self) -> ControllerClient:
        return ControllerClient(
            lambda: [f"b{node}:{RPC_PORT}" for node in self._nodes], timeout_ms=3000, dial=self._world.dial
        )

    async def create_standing_topics(self) -> None:
        """Create them, and wait until they exist."""
        client = self._client()
        topics = [pb.NewTopic(name=name, partition_count=count, replication_factor=3) for name, count in STANDING]
        while not self.is_ready:
            try:
                reply = await client.create_topics(pb.CreateTopicsRequest(topics=topics))
            except ControllerUnavailable:
                await self._world.pause(0.1)
                continue
            codes = {ErrorCode(result.error_code) for result in reply.results}
            self.is_ready = codes <= {ErrorCode.none, ErrorCode.topic_already_exists}
            await self._world.pause(0.1)

    async def work(self) -> None:
        """Send one request after the other, until stopped."""
        chance = self._world.chance
        client = self._client()
        kinds = (
            self._create,
            self._create,
            self._delete,
            self._grow,
            self._move,
            self._move,
            self._cancel,
            self._elect,
        )
        while self.is_wanted:
            await self._world.pause(chance.uniform(0.1, 1.5))
            kind = chance.choice(kinds)
            self.is_busy = True
            try:
                await kind(client)
            except ControllerUnavailable as error:
                self._world.tell(f"{kind.__name__.strip('_')} got no answer: {error}")
            self.is_busy = False
        await client.close()

    def _create(self, client: ControllerClient) -> Awaitable[Any]:
        chance = self._world.chance
        name = chance.choice(PASSING)
        self._world.tell(f"asks for topic {name}")
        topic = pb.NewTopic(
            name=name, partition_count=chance.choice((1, 3)), replication_factor=chance.choice((1, 2, 3))
        )
        return client.create_topics(pb.CreateTopicsRequest(topics=[topic]))

    def _delete(self, client: ControllerClient) -> Awaitable[Any]:
        name = self._world.chance.choice(PASSING)
        self._world.tell(f"asks for topic {name} to be deleted")
        return client.delete_topics(pb.DeleteTopicsRequest(names=[name]))

    def _grow(self, client: ControllerClient) -> Awaitable[Any]:
        name = self._world.chance.choice(PASSING)
        self._world.tell(f"asks for topic {name} to grow")
        return client.create_partitions(pb.CreatePartitionsRequest(topics=[pb.NewPartitions(name=name, total_count=4)]))

    def _move(self, client: ControllerClient) -> Awaitable[Any]:
        chance = self._world.chance
        topic, index = chance.choice(self.standing)
        replicas = chance.sample(self._nodes, 3)
        self._world.tell(f"asks for {topic}-{index} to move to {replicas}")
        wanted = pb.Reassignment(topic=topic, partition=index, replicas=replicas)
        return client.alter_reassignments(pb.AlterReassignmentsRequest(partitions=[wanted]))

    def _cancel(self, client: ControllerClient) -> Awaitable[Any]:
        topic, index = self._world.chance.choice(self.standing)
        self._world.tell(f"asks for the move of {topic}-{index} to be cancelled")
        wanted = pb.Reassignment(topic=topic, partition=index, is_cancelled=True)
        return client.alter_reassignments(pb.AlterReassignmentsRequest(partitions=[wanted]))

    def _elect(self, client: ControllerClient) -> Awaitable[Any]:
        self._world.tell("asks for preferred leaders")
        return client.elect_leaders(pb.ElectLeadersRequest(is_all=True))
