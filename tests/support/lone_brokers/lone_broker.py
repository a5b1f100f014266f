"""A broker process without ZooKeeper and without our controller: for the broker's own tests and
measurements.

`python -m tests.support.lone_brokers.lone_broker key=value...` runs a Broker with those properties
beside a small controller that creates, deletes and grows topics by sending control batches to it
over gRPC, as the real one does. Prints one line of JSON with the ports once the broker accepts
clients. SIGTERM stops it cleanly.
"""

from __future__ import annotations

import asyncio
import json
import os
import sys
import uuid
from collections import Counter
from pathlib import Path
from typing import Any, NoReturn, TypeAlias

import grpc

from broker.assembly.doors import Doors
from broker.main import Broker
from broker.settings.loading import load_broker_settings
from cli.embedding.hosting import until_stopped_or_failed
from runtime.grpc_server import GrpcServer, open_channel
from runtime.logs import configure
from runtime.metrics import MetricsServer, new_registry
from runtime.process import run_daemon
from runtime.zookeeper.sessions import SessionState
from tests.support.memory.memory_configs import FileConfigStore
from wire.control import broker_pb2, cluster_pb2, controller_pb2, controller_pb2_grpc
from wire.control.broker_pb2_grpc import BrokerControlStub
from wire.rules.client_quotas import QuotaEntity, entity_from_message, quota_message
from wire.znodes.broker_znodes import BrokerRegistration
from wire.znodes.group_configs import group_configs_message

CLUSTER_ID = "lone-cluster-0000000000"
_UNKNOWN_TOPIC, _TOPIC_EXISTS = 3, 36
Context: TypeAlias = "grpc.aio.ServicerContext[Any, Any]"


class LoneMembership:
    """Stands in for ZooKeeper: the broker is always registered."""

    def __init__(self, configs_path: Path) -> None:
        self.configs = FileConfigStore(configs_path)
        self.broker_epoch = 1
        self.session_changes: Counter[SessionState] = Counter()
        self.address = ""
        self.registration: BrokerRegistration | None = None

    async def cluster_id(self, *, known: str | None) -> str:
        return known or CLUSTER_ID

    async def register(self, registration: BrokerRegistration) -> None:
        self.registration = registration

    async def is_registered(self) -> bool:
        return self.registration is not None

    async def controller_address(self) -> str:
        return self.address

    async def unregister(self) -> None:
        self.registration = None


class LoneController(controller_pb2_grpc.ControllerServicer):
    """Decides at once and sends the decision to the one broker. Topics are kept in a file, so that
    a restarted process knows them.
    """

    def __init__(self, state_path: str) -> None:
        self._state_path = state_path
        self._topics: dict[str, cluster_pb2.TopicInfo] = {}
        self._group_configs: dict[str, dict[str, str]] = {}
        self._scram_users: dict[str, dict[str, str]] = {}
        self._quotas: dict[QuotaEntity, dict[str, float]] = {}
        self._stub: Any = None
        self._broker: cluster_pb2.BrokerInfo | None = None
        self._epoch = 1
        self._load()
        # ids are not stored, and none may be given out twice
        self._next_producer_id = self._epoch * 1_000_000

    def _load(self) -> None:
        if os.path.exists(self._state_path):
            with open(self._state_path, "rb") as state:
                batch = broker_pb2.ControlBatch.FromString(state.read())
            self._epoch = batch.controller_epoch + 1
            self._topics = {topic.name: topic for topic in batch.topics}
            for topic in self._topics.values():
                for partition in topic.partitions:
                    partition.leader_epoch += 1

    def _save(self) -> None:
        batch = broker_pb2.ControlBatch(controller_epoch=self._epoch, topics=self._topics.values())
        with open(self._state_path + ".new", "wb") as state:
            state.write(batch.SerializeToString())
        os.replace(self._state_path + ".new", self._state_path)

    async def begin(self, registration: BrokerRegistration) -> None:
        self._stub = BrokerControlStub(open_channel(registration.grpc_address))  # type: ignore[no-untyped-call]
        self._broker = cluster_pb2.BrokerInfo(
            node_id=registration.node_id,
            broker_epoch=1,
            endpoints=[
                cluster_pb2.Endpoint(
                    listener=end.listener, host=end.host, port=end.port, security_protocol=end.security_protocol
                )
                for end in registration.endpoints
            ],
            grpc_address=registration.grpc_address,
        )
        await self._send(is_full=True, topics=list(self._topics.values()))

    async def _send(self, **fields: Any) -> None:
        assert self._broker is not None
        self._save()
        batch = broker_pb2.ControlBatch(
            controller_id=self._broker.node_id,
            controller_epoch=self._epoch,
            cluster_id=CLUSTER_ID,
            brokers=[self._broker],
            **fields,
        )
        # gRPC cancels the handler when its client dies, and a stored change must still reach the
        # broker
        await asyncio.shield(asyncio.ensure_future(self._apply(batch)))

    async def _apply(self, batch: broker_pb2.ControlBatch) -> None:
        await self._stub.Apply(batch, wait_for_ready=True)

    def _partitions(self, first: int, end: int) -> list[cluster_pb2.PartitionState]:
        assert self._broker is not None
        node = self._broker.node_id
        return [
            cluster_pb2.PartitionState(partition=index, leader=node, replicas=[node], isr=[node])
            for index in range(first, end)
        ]

    async def CreateTopics(
        self, request: controller_pb2.CreateTopicsRequest, context: Context
    ) -> controller_pb2.CreateTopicsReply:
        reply = controller_pb2.CreateTopicsReply()
        made = []
        for new in request.topics:
            if new.name in self._topics:
                reply.results.add(name=new.name, error_code=_TOPIC_EXISTS, error_message="it exists")
                continue
            count = max(new.partition_count, 1)
            topic = cluster_pb2.TopicInfo(
                name=new.name,
                topic_id=new.topic_id or uuid.uuid4().bytes,
                configs=new.configs,
                partitions=self._partitions(0, count),
            )
            if not request.is_validate_only:
                self._topics[new.name] = topic
                made.append(topic)
            reply.results.add(
                name=new.name, topic_id=topic.topic_id, partition_count=count, replication_factor=1, configs=new.configs
            )
        if made:
            await self._send(topics=made)
        return reply

    async def DeleteTopics(
        self, request: controller_pb2.DeleteTopicsRequest, context: Context
    ) -> controller_pb2.DeleteTopicsReply:
        reply = controller_pb2.DeleteTopicsReply()
        gone = []
        by_id = {topic.topic_id: name for name, topic in self._topics.items()}
        for name in [*request.names, *(by_id.get(topic_id, "") for topic_id in request.topic_ids)]:
            topic = self._topics.pop(name, None)
            reply.results.add(name=name, error_code=0 if topic else _UNKNOWN_TOPIC)
            if topic:
                gone.append(broker_pb2.DeletedTopic(name=name, topic_id=topic.topic_id))
        await self._send(deleted_topics=gone)
        return reply

    async def CreatePartitions(
        self, request: controller_pb2.CreatePartitionsRequest, context: Context
    ) -> controller_pb2.CreatePartitionsReply:
        reply = controller_pb2.CreatePartitionsReply()
        for new in request.topics:
            topic = self._topics[new.name]
            topic.partitions.extend(self._partitions(len(topic.partitions), new.total_count))
            await self._send(topics=[topic])
            reply.results.add(name=new.name)
        return reply

    async def AlterTopicConfigs(
        self, request: controller_pb2.AlterTopicConfigsRequest, context: Context
    ) -> controller_pb2.AlterTopicConfigsReply:
        reply = controller_pb2.AlterTopicConfigsReply()
        for change in request.changes:
            reply.results.add(name=change.name)
            if request.is_validate_only:
                continue
            topic = self._topics[change.name]
            if change.replaces_all:
                topic.configs.clear()
            for name in change.remove:
                topic.configs.pop(name, None)
            for name, value in change.set.items():
                topic.configs[name] = value
            await self._send(topics=[topic])
        return reply

    async def AlterClientQuotas(
        self, request: controller_pb2.AlterClientQuotasRequest, context: Context
    ) -> controller_pb2.AlterClientQuotasReply:
        reply = controller_pb2.AlterClientQuotasReply()
        for change in request.changes:
            reply.results.add()
            if request.is_validate_only:
                continue
            entity = entity_from_message(change.entity)
            values = {**self._quotas.get(entity, {}), **change.set}
            self._quotas[entity] = {key: value for key, value in values.items() if key not in change.remove}
            await self._send(client_quotas=[quota_message(entity, self._quotas[entity])])
        return reply

    async def AlterScramUsers(
        self, request: controller_pb2.AlterScramUsersRequest, context: Context
    ) -> controller_pb2.AlterScramUsersReply:
        reply = controller_pb2.AlterScramUsersReply()
        for change in request.changes:
            reply.results.add()
            credentials = {**self._scram_users.get(change.name, {}), **change.set}
            self._scram_users[change.name] = {
                mechanism: text for mechanism, text in credentials.items() if mechanism not in change.remove
            }
            user = cluster_pb2.ScramUser(name=change.name, credentials=self._scram_users[change.name])
            await self._send(scram_users=[user])
        return reply

    async def AlterGroupConfigs(
        self, request: controller_pb2.AlterGroupConfigsRequest, context: Context
    ) -> controller_pb2.AlterGroupConfigsReply:
        for change in request.changes:
            configs = {} if change.replaces_all else {**self._group_configs.get(change.group, {})}
            configs.update(change.set)
            for name in change.remove:
                configs.pop(name, None)
            self._group_configs[change.group] = configs
            await self._send(group_configs=[group_configs_message(change.group, configs)])
        return controller_pb2.AlterGroupConfigsReply()

    async def ListReassignments(
        self, request: controller_pb2.ListReassignmentsRequest, context: Context
    ) -> controller_pb2.ListReassignmentsReply:
        return controller_pb2.ListReassignmentsReply()

    async def AllocateProducerIds(
        self, request: controller_pb2.AllocateProducerIdsRequest, context: Context
    ) -> controller_pb2.AllocateProducerIdsReply:
        first, self._next_producer_id = self._next_producer_id, self._next_producer_id + 1000
        return controller_pb2.AllocateProducerIdsReply(first_producer_id=first, count=1000)


async def run(properties: dict[str, str], stop: asyncio.Event, *, doors: Doors | None = None) -> None:
    """Run until `stop`."""
    settings = load_broker_settings(properties)
    os.makedirs(settings.log_dir, exist_ok=True)
    membership = LoneMembership(Path(settings.log_dir).parent / "broker-configs.json")
    server = GrpcServer(settings.grpc_listener.host, settings.grpc_listener.port)
    broker = Broker(settings, server, membership, doors=doors)
    controller = LoneController(f"{settings.log_dir}/../lone-controller.state")
    controller_pb2_grpc.add_ControllerServicer_to_server(controller, server.server)  # type: ignore[no-untyped-call]
    registry = new_registry()
    registry.register(broker.metrics)
    metrics = MetricsServer(registry, host="127.0.0.1", port=0)
    metrics_port = metrics.start()
    grpc_port = await server.start()
    membership.address = f"127.0.0.1:{grpc_port}"
    try:
        await broker.start(grpc_port=grpc_port)
        assert membership.registration is not None
        await controller.begin(membership.registration)
        await broker.ready.wait()
        ready = {"ports": broker.ports, "grpc": grpc_port, "metrics": metrics_port, "pid": os.getpid()}
        print(json.dumps(ready), flush=True)
        await until_stopped_or_failed(broker, stop)
    finally:
        await broker.stop()
        await server.stop()
        metrics.stop()


def run_from_command_line(doors: Doors | None = None) -> NoReturn:
    """Run with the settings that the command line gives, until a signal ends the process."""
    configure("lone-broker", level=os.environ.get("LOG_LEVEL", "INFO"))
    given = dict(argument.split("=", 1) for argument in sys.argv[1:])
    sys.exit(run_daemon(lambda stop: run(given, stop, doors=doors)))


if __name__ == "__main__":
    run_from_command_line()
