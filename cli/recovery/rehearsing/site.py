"""The sandbox of a rehearsal as a site: its ZooKeeper chroot laid out from the standby's, and its
one broker process.

It has nothing in common with another site but content. Its link record has no address of another
site, so it neither asks another site nor reports its epoch to one; it has a cluster id of its own.
"""

from __future__ import annotations

import contextlib
import os
import secrets
import sys
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Final

from kazoo.exceptions import KazooException, NoNodeError

from cli.embedding.part_processes import is_healthy
from cli.embedding.part_properties import properties_text
from cli.embedding.parts import STOP_LIMIT_MS, STOP_TIMEOUT_MS, Part, log_size, until_ready
from cli.recovery.rehearsing.clones import data_directory, sandbox_directory
from cli.recovery.rehearsing.standby import StandbyBroker, StandbyTopic
from deploy.ports import LOOPBACK, free_ports
from dr.rehearsal.sandbox import PLAIN_MODULE, SANDBOX_USER, SandboxAddresses
from runtime.children import Child
from runtime.compiled import ROOT
from runtime.process import OperationalFailure
from runtime.zookeeper.client import ZooKeeper
from runtime.zookeeper.nodes import CreateNode, TransactionStep
from wire.control.cluster_pb2 import LinkRecord
from wire.protocol.ids import TopicPartition
from wire.znodes import layout as znodes
from wire.znodes.cluster_znodes import encode_cluster_id
from wire.znodes.config_znodes import encode_topic_config
from wire.znodes.link_znodes import encode_link
from wire.znodes.topic_znodes import StoredPartitionState, TopicAssignment, encode_partition_state, encode_topic

CHROOT: Final = f"{znodes.ANTIPODE}/rehearsal"
NODES_AT_A_TIME: Final = 200
NEVER: Final = str(100_000_000_000)
ONLY_OWNER: Final = 0o600
PASSWORD_BYTES: Final = 24
KEPT_KEYS: Final = (
    "num.partitions",
    "compression.type",
    "socket.request.max.bytes",
    "unclean.leader.election.enable",
    "antipode.allow.plaintext",
)
KEPT_PREFIXES: Final = (
    "antipode.control.",
    "zookeeper.sasl.",
    "zookeeper.set.",
    "zookeeper.ssl.",
    "log.",
    "message.",
    "group.",
    "offsets.",
    "transaction.",
    "transactional.",
    "producer.",
    "fetch.",
)
"""The standby's own properties that decide how its logs and coordinators behave. Listeners,
security, quotas and peers are not among them.
"""


def sandbox_connect(connect: str) -> str:
    """The ZooKeeper connect string of the sandbox."""
    return f"{connect.rstrip('/')}{CHROOT}"


def sandbox_properties(
    broker: StandbyBroker, log_directories: Sequence[str], ports: Sequence[int], *, password: str
) -> dict[str, str]:
    """The server.properties of the sandbox's broker, which has the node id of one of the
    standby's; `ports` are two, `password` is that of its only user.
    """
    users = f'username="{SANDBOX_USER}" password="{password}" user_{SANDBOX_USER}="{password}"'
    kept = {key: value for key, value in broker.properties.items() if key in KEPT_KEYS or key.startswith(KEPT_PREFIXES)}
    return {
        **kept,
        "node.id": str(broker.settings.node_id),
        "listeners": f"CLIENT://{LOOPBACK}:{ports[0]}",
        # on loopback alone, so without TLS; the login keeps other users of the machine out
        "listener.security.protocol.map": "CLIENT:SASL_PLAINTEXT",
        "inter.broker.listener.name": "CLIENT",
        "sasl.enabled.mechanisms": "PLAIN",
        "sasl.mechanism.inter.broker.protocol": "PLAIN",
        "listener.name.client.plain.sasl.jaas.config": f"{PLAIN_MODULE} required {users};",
        "log.dirs": ",".join(str(data_directory(one)) for one in log_directories),
        "log.retention.check.interval.ms": NEVER,
        "log.cleaner.enable": "false",
        "zookeeper.connect": sandbox_connect(broker.settings.zookeeper_connect),
        "default.replication.factor": "1",
        "min.insync.replicas": "1",
        "offsets.topic.replication.factor": "1",
        "transaction.state.log.replication.factor": "1",
        "transaction.state.log.min.isr": "1",
        "group.initial.rebalance.delay.ms": "0",
        "antipode.site.name": broker.settings.site,
        "antipode.site.number": str(broker.settings.site_number),
        "antipode.grpc.listener": f"{LOOPBACK}:{ports[1]}",
        "antipode.log.scrub.max.bytes.per.second": "0",
    }


@asynccontextmanager
async def zookeeper_at(connect: str) -> AsyncIterator[ZooKeeper]:
    """A session for the time of the block. OperationalFailure if it fails meanwhile."""
    zookeeper = ZooKeeper(connect)
    await zookeeper.start()
    try:
        yield zookeeper
    except KazooException as error:
        raise OperationalFailure(f"ZooKeeper at {connect}: {error!r}") from error
    finally:
        await zookeeper.stop()


async def remove_chroot(connect: str) -> None:
    """Remove an earlier sandbox from the standby's ZooKeeper."""
    async with zookeeper_at(connect) as zookeeper:
        with contextlib.suppress(NoNodeError):
            await zookeeper.delete(CHROOT, recursive=True)


class SandboxSite:
    """The site of one rehearsal. `directory` is for its broker's file and log."""

    def __init__(self, broker: StandbyBroker, log_directories: Sequence[str]) -> None:
        self._broker = broker
        self._log_directories = tuple(log_directories)
        self._directory = sandbox_directory(log_directories[0]) / "broker"
        self._connect = broker.settings.zookeeper_connect

    @property
    def child(self) -> Child:
        """The broker process, also one that an interrupted rehearsal has left."""
        configuration = self._directory / "server.properties"
        return Child(
            name="rehearsal",
            command=[sys.executable, "-m", "cli.main", "broker", "--config", str(configuration)],
            directory=self._directory,
            log=self._directory / "broker.log",
            environment={"PYTHONPATH": str(ROOT)},
        )

    async def lay_out(
        self, record: LinkRecord, topics: Mapping[str, StandbyTopic], partitions: Sequence[TopicPartition]
    ) -> None:
        """Write the sandbox's znodes: topics with these partitions, each led by the sandbox's
        broker in the epoch that its leader has at the standby.
        """
        async with zookeeper_at(self._connect) as outside:
            await outside.ensure_path(CHROOT)
            producer_ids = await outside.get_or_none(znodes.PRODUCER_ID_BLOCK)
        async with zookeeper_at(sandbox_connect(self._connect)) as zookeeper:
            for path in (*znodes.PERSISTENT_PATHS, znodes.link_path(record.name)):
                await zookeeper.ensure_path(path)
            await zookeeper.set(znodes.link_path(record.name), encode_link(alone(record)))
            cluster_id = encode_cluster_id(f"rehearsal-{self._broker.settings.node_id}")
            steps: list[TransactionStep] = [CreateNode(path=znodes.CLUSTER_ID, value=cluster_id)]
            if producer_ids is not None:
                steps.append(CreateNode(path=znodes.PRODUCER_ID_BLOCK, value=producer_ids[0]))
            steps += self._topic_steps(topics, partitions)
            for at in range(0, len(steps), NODES_AT_A_TIME):
                await zookeeper.transaction(steps[at : at + NODES_AT_A_TIME])

    def _topic_steps(
        self, topics: Mapping[str, StandbyTopic], partitions: Sequence[TopicPartition]
    ) -> list[TransactionStep]:
        node = self._broker.settings.node_id
        by_topic: dict[str, list[int]] = {}
        for key in partitions:
            by_topic.setdefault(key.topic, []).append(key.partition)
        steps: list[TransactionStep] = []
        for name, numbers in sorted(by_topic.items()):
            topic = topics[name]
            assignment = TopicAssignment(topic_id=topic.topic_id, partitions=dict.fromkeys(numbers, (node,)))
            configs = {**topic.configs, "min.insync.replicas": "1"}
            steps.append(CreateNode(path=znodes.topic_config_path(name), value=encode_topic_config(configs)))
            steps.append(CreateNode(path=znodes.topic_path(name), value=encode_topic(assignment)))
            steps.append(CreateNode(path=znodes.partitions_path(name)))
            for number in numbers:
                state = StoredPartitionState(
                    leader=node, leader_epoch=topic.leader_epochs.get(number, 0), isr=(node,), controller_epoch=0
                )
                steps.append(CreateNode(path=znodes.partition_path(name, number)))
                payload = encode_partition_state(state)
                steps.append(CreateNode(path=znodes.partition_state_path(name, number), value=payload))
        return steps

    async def start(self) -> SandboxAddresses:
        """Start the broker and wait until it serves. OperationalFailure with the end of its log."""
        ports = free_ports(2)
        self._directory.mkdir(parents=True, exist_ok=True)
        password = secrets.token_urlsafe(PASSWORD_BYTES)
        properties = sandbox_properties(self._broker, self._log_directories, ports, password=password)
        write_private(self._directory / "server.properties", properties_text(properties))
        child, address = self.child, f"{LOOPBACK}:{ports[1]}"
        log_start = log_size(child)
        child.start()
        await until_ready(Part(child=child, is_ready=lambda: is_healthy(address, service="")), log_start=log_start)
        return SandboxAddresses(bootstrap_servers=f"{LOOPBACK}:{ports[0]}", agent=address, password=password)

    def stop(self) -> bool:
        """Stop the broker, which may take as long as it works on its logs; True if it ran."""
        child = self.child
        is_running = child.pid() is not None
        child.stop(timeout_ms=STOP_TIMEOUT_MS, limit_ms=STOP_LIMIT_MS)
        return is_running


def write_private(path: Path, text: str) -> None:
    """Write a file that only its owner can read: it has the passwords of the standby's file too."""
    # made anew: the mode counts only for a file that is not there yet
    path.unlink(missing_ok=True)
    with open(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, ONLY_OWNER), "w", encoding="utf-8") as file:
        file.write(text)


def alone(record: LinkRecord) -> LinkRecord:
    """The link as a site has it that can reach no other one, and no arbiter."""
    found = LinkRecord()
    found.CopyFrom(record)
    found.lease_ms, found.failover_mode = 0, ""
    for site in found.sites.values():
        site.bootstrap_servers = ""
        del site.agents[:]
    return found
