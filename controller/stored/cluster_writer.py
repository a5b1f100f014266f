"""Writes facts under the controller's epoch.

Facts become steps of a multi that begins with a check of `/controller_epoch`, so that a controller
which has been replaced without noticing cannot write anything. Facts that exceed one multi are
split in order, between facts; their order lets the next controller finish after each of them. (If
the znode of a partition were stored without its state, the next controller could not create both.)
"""

from __future__ import annotations

import asyncio
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence

from controller.core.state import facts
from controller.core.state.cluster import Cluster
from controller.core.state.site_values import EpochRaise, Topic
from controller.stored.acl_store import acl_steps
from controller.stored.batched_reads import in_flight
from controller.stored.entity_configs import entity_config_steps, group_config_steps
from controller.stored.multis import split_steps
from controller.stored.tenure import Tenure
from controller.stored.token_store import token_steps
from runtime.zookeeper.client import ZooKeeper
from runtime.zookeeper.nodes import CheckNode, CreateNode, DeleteNode, SetNode, TransactionStep
from wire.rules.client_quotas import QUOTA_KEYS, USER, quota_texts
from wire.rules.scram import HASHES
from wire.znodes import layout as znodes
from wire.znodes.config_znodes import encode_topic_config
from wire.znodes.controller_znodes import encode_epoch_raise, epoch_raise_path, unregistered_broker_path
from wire.znodes.topic_znodes import StoredPartitionState, encode_partition_state, encode_topic

FACTS_PER_TURN = 200
"""The number of facts converted to steps before the task yields to the event loop."""


class ClusterWriter:
    """Writes facts under one tenure."""

    def __init__(self, zookeeper: ZooKeeper, tenure: Tenure) -> None:
        self._zookeeper = zookeeper
        self._guard = CheckNode(path=znodes.CONTROLLER_EPOCH, version=tenure.epoch_version)

    async def commit(self, changes: Sequence[facts.Fact], *, before: Cluster) -> None:
        """Make the facts durable, in order; `before` is the cluster as it was. Errors are kazoo's:
        BadVersionError on the guard means that another controller has taken over; a connection
        error leaves the outcome unknown.
        """
        groups: list[Sequence[TransactionStep]] = []
        topics = dict(before.topics)
        known_zxid = _newest_registration(before, changes)
        # other tools create and delete these nodes too
        configs = set(await self._existing(map(znodes.topic_config_path, _configured(changes))))
        for number, change in enumerate(changes, 1):
            if number % FACTS_PER_TURN == 0:
                await asyncio.sleep(0)
            if isinstance(change, facts.PartitionMoved | facts.ReplicaMoved):
                continue  # in memory only
            if isinstance(change, facts.LeadershipChanged):
                groups.append(_leadership_steps(change, known_zxid))
            else:
                groups.append(await self._steps(change, before, topics, configs))
        for chunk in split_steps(groups):
            await self.write(chunk)

    async def write(self, steps: Sequence[TransactionStep]) -> None:
        """One guarded multi."""
        await self._zookeeper.transaction([self._guard, *steps])

    async def _steps(
        self, change: facts.Fact, before: Cluster, topics: dict[str, Topic], configs: Collection[str]
    ) -> Sequence[TransactionStep]:
        """Steps of one fact. `topics` has the result of the earlier facts, and is updated with this
        one; `configs` are the paths of the topics' configs that exist.
        """
        match change:
            case facts.TopicCreated(must_store=True):
                return _topic_steps(change.topic, configs)
            case facts.TopicCreated() | facts.TopicReleased():
                return await self._missing_parents(change.topic.name)
            case facts.PartitionsAdded():
                topics[change.topic] = topics[change.topic].grown(change.assignment, change.over_version)
                return [_assignment_step(topics[change.topic])]
            case facts.PartitionsReassigned():
                topics[change.topic] = change.of(topics[change.topic])
                return [_assignment_step(topics[change.topic])]
            case facts.TopicConfigsReplaced(must_store=True):
                return [_configs_step(change.topic, change.configs, configs)]
            case facts.LeaderEpochsRaised():
                return [await self._raise_step(change.epoch_raise)]
            case facts.EpochRaiseEnded():
                return [DeleteNode(path=epoch_raise_path(change.name))]
            case facts.BrokerUnregistered() | facts.UnregistrationEnded():
                return await self._registration_steps(change)
            case facts.TopicDeletionRequested(must_store=True):
                return [CreateNode(path=znodes.delete_topic_path(change.topic))]
            case facts.TopicDeleted():
                return await self._deletion_steps(before.topics[change.topic], before)
            case facts.DeletionMarkDropped():
                return await self._delete_existing([znodes.delete_topic_path(change.topic)])
            case _:
                return await self._entity_steps(change)

    async def _entity_steps(self, change: facts.Fact) -> list[TransactionStep]:
        """Configs of clients and groups; nothing for facts that are not stored."""
        match change:
            case facts.ClientQuotaReplaced(must_store=True):
                return await entity_config_steps(self._zookeeper, change.entity, QUOTA_KEYS, quota_texts(change.values))
            case facts.ScramUserReplaced(must_store=True):
                return await entity_config_steps(self._zookeeper, ((USER, change.user),), HASHES, change.credentials)
            case facts.AclsReplaced(must_store=True):
                return await acl_steps(self._zookeeper, change)
            case facts.DelegationTokenReplaced(must_store=True):
                return await token_steps(self._zookeeper, change)
            case facts.GroupConfigsReplaced(must_store=True):
                return await group_config_steps(self._zookeeper, change.group, change.configs)
            case _:
                return []

    async def _raise_step(self, epoch_raise: EpochRaise) -> TransactionStep:
        path, value = epoch_raise_path(epoch_raise.name), encode_epoch_raise(epoch_raise.floor, epoch_raise.topics)
        # a raise that could not be decoded is not in force, and its node may have this name
        is_malformed = await self._zookeeper.exists(path) is not None
        return SetNode(path=path, value=value) if is_malformed else CreateNode(path=path, value=value)

    async def _registration_steps(
        self, change: facts.BrokerUnregistered | facts.UnregistrationEnded
    ) -> list[TransactionStep]:
        path = unregistered_broker_path(change.node_id)
        return (
            [CreateNode(path=path)]
            if isinstance(change, facts.BrokerUnregistered)
            else await self._delete_existing([path])
        )

    async def prepare_partitions(self, cluster: Cluster) -> None:
        """Make it possible to store the first states of partitions without one: create the parents
        of topics that another tool created while no controller was active, and delete the znodes of
        partitions that have no state below them.
        """
        for topic in cluster.topics.values():
            stateless = [partition for partition in topic.partitions() if partition not in cluster.leaderships]
            if stateless:
                parents = await self._missing_parents(topic.name)
                paths = [] if parents else await self._existing(znodes.partition_path(*each) for each in stateless)
                for chunk in split_steps([[step] for step in [*parents, *map(_deletion, paths)]]):
                    await self.write(chunk)

    async def _missing_parents(self, topic: str) -> list[TransactionStep]:
        path = znodes.partitions_path(topic)
        return [] if await self._zookeeper.exists(path) else [CreateNode(path=path)]

    async def _deletion_steps(self, topic: Topic, before: Cluster) -> list[TransactionStep]:
        """Steps that delete a topic's znodes, leaves first and the deletion mark last: after an
        interruption the mark remains, and the deletion starts again.
        """
        stored: list[TransactionStep] = []
        uncertain: list[str] = []
        for partition in topic.partitions():
            paths = [znodes.partition_state_path(*partition), znodes.partition_path(*partition)]
            # a state that was read exists; other nodes may be missing, and a multi fails on a
            # missing node
            if partition in before.leaderships:
                stored += [DeleteNode(path=path) for path in paths]
            else:
                uncertain += paths
        uncertain += [
            znodes.partitions_path(topic.name),
            znodes.topic_path(topic.name),
            znodes.topic_config_path(topic.name),
            znodes.delete_topic_path(topic.name),
        ]
        return [*stored, *await self._delete_existing(uncertain)]

    async def _delete_existing(self, paths: Sequence[str]) -> list[TransactionStep]:
        return [_deletion(path) for path in await self._existing(paths)]

    async def _existing(self, paths: Iterable[str]) -> list[str]:
        asked = list(paths)
        stats = await in_flight(self._zookeeper.exists, asked)
        return [path for path, stat in zip(asked, stats, strict=True) if stat is not None]


def _deletion(path: str) -> TransactionStep:
    return DeleteNode(path=path)


def _configured(changes: Iterable[facts.Fact]) -> Iterator[str]:
    """The topics whose configs are stored."""
    for change in changes:
        match change:
            case facts.TopicCreated(must_store=True):
                yield change.topic.name
            case facts.TopicConfigsReplaced(must_store=True):
                yield change.topic


def _topic_steps(topic: Topic, configs: Collection[str]) -> list[TransactionStep]:
    return [
        _configs_step(topic.name, topic.configs, configs),
        CreateNode(path=znodes.topic_path(topic.name), value=encode_topic(topic.stored())),
        CreateNode(path=znodes.partitions_path(topic.name)),
    ]


def _assignment_step(after: Topic) -> TransactionStep:
    return SetNode(path=znodes.topic_path(after.name), value=encode_topic(after.stored()), version=after.version - 1)


def _configs_step(topic: str, overrides: Mapping[str, str], existing: Collection[str]) -> TransactionStep:
    path, value = znodes.topic_config_path(topic), encode_topic_config(overrides)
    return SetNode(path=path, value=value) if path in existing else CreateNode(path=path, value=value)


def _newest_registration(before: Cluster, changes: Sequence[facts.Fact]) -> int | None:
    """The newest broker epoch that the controller knows with these changes; None without a
    broker.
    """
    known = [*before.brokers.values(), *before.presumed_dead.values()]
    known += [change.broker for change in changes if isinstance(change, facts.BrokerJoined)]
    return max((broker.epoch for broker in known), default=None)


def _leadership_steps(change: facts.LeadershipChanged, known_zxid: int | None) -> list[TransactionStep]:
    leadership = change.leadership
    path = znodes.partition_state_path(*change.partition)
    value = encode_partition_state(
        StoredPartitionState(
            leader=leadership.leader,
            leader_epoch=leadership.leader_epoch,
            isr=leadership.isr,
            controller_epoch=leadership.controller_epoch,
            registrations_zxid=known_zxid,
        )
    )
    if leadership.partition_epoch > 0:
        return [SetNode(path=path, value=value, version=leadership.partition_epoch - 1)]
    return [CreateNode(path=znodes.partition_path(*change.partition)), CreateNode(path=path, value=value)]
