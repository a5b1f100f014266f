"""The cluster in ZooKeeper: read whole when a controller takes over, many nodes at a time; single
nodes when a watch fires.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence

from kazoo.exceptions import NoNodeError
from msgspec import Struct

from controller.core.state.cluster import UNCLEAN_ELECTION, Cluster
from controller.core.state.site_values import Broker, EpochRaise, Leadership, SiteRules, Topic
from controller.stored.acl_store import read_acls
from controller.stored.batched_reads import Answer, Arguments, Item, in_flight, windows
from controller.stored.tenure import Tenure
from controller.stored.token_store import read_tokens
from runtime.logs import get_logger
from runtime.zookeeper.client import ZooKeeper
from runtime.zookeeper.handler import Watch
from runtime.zookeeper.nodes import NodeStat
from wire.control.cluster_pb2 import LinkRecord
from wire.protocol.ids import TopicPartition
from wire.rules.client_quotas import CLIENT_ID, IP, USER, QuotaEntity, QuotaValues
from wire.rules.links import stand_in
from wire.rules.scram import HASHES
from wire.znodes import layout as znodes
from wire.znodes.broker_znodes import decode_broker
from wire.znodes.config_znodes import (
    client_quota_path,
    decode_config,
    decode_config_change,
    decode_entity_config,
    decode_topic_config,
    entity_name,
    quotas_in,
    user_clients_path,
)
from wire.znodes.controller_znodes import EPOCH_RAISES, UNREGISTERED_BROKERS, decode_epoch_raise, epoch_raise_path
from wire.znodes.documents import MalformedZnode
from wire.znodes.group_configs import (
    GROUP_CONFIGS,
    GroupConfigs,
    decode_group_configs,
    group_config_path,
)
from wire.znodes.link_znodes import decode_link
from wire.znodes.topic_znodes import (
    decode_partition_state,
    decode_replicas,
    decode_topic,
)

WINDOWS_IN_FLIGHT_MAX = 8
"""The number of multi-node requests in flight."""


STATES_PER_READ_MAX = 1000
"""Partition states read by one request: with paths of 300 bytes it stays below ZooKeeper's limit of
1 MiB.
"""

TOPICS_PER_READ_MAX = 50
"""Topics read by one request: assignments of thousands of partitions are large, and the answer is
in memory as a whole.
"""

_log = get_logger("controller.store")


class StoredTopics(Struct, frozen=True, kw_only=True):
    """Stored topics, their leaderships, and the problems of topics that cannot be decoded, by
    name.
    """

    topics: Sequence[Topic]
    leaderships: Mapping[TopicPartition, Leadership]
    problems: Mapping[str, str]


FoundRequest = tuple[bytes, int] | None
"""A tool's request in ZooKeeper with the version of its node; None if the node does not exist."""


class ClusterReader:
    """Reads parts of the cluster; used by a controller that takes over and by its watches."""

    def __init__(self, zookeeper: ZooKeeper) -> None:
        self._zookeeper = zookeeper

    async def _get(self, path: str, watch: Watch | None = None) -> tuple[bytes, int, int, int] | None:
        """Data, version, creation and modification zxid; None when the node is missing."""
        try:
            payload, stat = await self._zookeeper.get(path, watch=watch)
        except NoNodeError:
            return None
        return payload, stat.version, stat.czxid, stat.mzxid

    async def load(self, *, rules: SiteRules, tenure: Tenure) -> Cluster:
        """The whole cluster with phases derived. A topic with a node that cannot be decoded is in
        quarantine, else brokers would delete its logs. A link that cannot be decoded has a
        stand-in, else a passive site would accept writes.
        """
        cluster = Cluster(rules=rules, controller_id=tenure.controller_id, controller_epoch=tenure.epoch)
        cluster.brokers, cluster.registrations_zxid = await self.brokers()
        cluster.links, cluster.link_problems = await self.links(site=rules.site)
        cluster.quotas = await self.quotas()
        cluster.scram_users = await self.scram_users()
        cluster.acls = await read_acls(self._zookeeper)
        cluster.delegation_tokens = await read_tokens(self._zookeeper)
        cluster.group_configs = await self.group_configs()
        cluster.unregistered = await self._unregistered()
        found = await self.stored_topics(await self._zookeeper.children(znodes.TOPICS))
        cluster.topics = {topic.name: topic for topic in found.topics}
        cluster.leaderships = dict(found.leaderships)
        cluster.quarantine = dict(found.problems)
        cluster.raises = await self._epoch_raises()
        cluster.apply_raises(cluster.topics)
        if rules.may_delete_topics:
            cluster.deletions = set(await self.deletion_marks()) & cluster.topics.keys()
        cluster.derive_phases()
        return cluster

    async def stored_topics(self, names: Sequence[str]) -> StoredTopics:
        """The existing ones of these topics, and the states of their partitions that ever had a
        leader.
        """
        read = await self._in_windows(self._topics_or_problems, names, size=TOPICS_PER_READ_MAX)
        problems = {name: found for name, found in read if isinstance(found, str)}
        topics = [found for _, found in read if isinstance(found, Topic)]
        partitions = [partition for topic in topics for partition in topic.partitions()]
        states = await self._in_windows(self._leaderships, partitions, size=STATES_PER_READ_MAX)
        problems.update({partition.topic: found for partition, found in states if isinstance(found, str)})
        return StoredTopics(
            topics=[topic for topic in topics if topic.name not in problems],
            leaderships={
                partition: found
                for partition, found in states
                if isinstance(found, Leadership) and partition.topic not in problems
            },
            problems=problems,
        )

    async def _in_windows(
        self, read: Callable[[Sequence[Item]], Awaitable[list[Answer]]], items: Sequence[Item], *, size: int
    ) -> list[Answer]:
        answers = await in_flight(read, windows(items, size), at_once=WINDOWS_IN_FLIGHT_MAX)
        return [answer for window in answers for answer in window]

    async def brokers(self, watch: Watch | None = None) -> tuple[dict[int, Broker], int]:
        """Registered brokers, and the zxid of the newest change among them; a malformed
        registration is skipped, with an error in the log.
        """
        names, stat = await self._zookeeper.children_and_stat(znodes.BROKER_IDS, watch=watch)
        brokers = await in_flight(self._broker, znodes.broker_ids(names))
        return {broker.node_id: broker for broker in brokers if broker is not None}, stat.children_zxid

    async def _broker(self, node_id: int) -> Broker | None:
        found = await self._get(znodes.broker_path(node_id))
        if found is None:
            return None
        payload, _, created_zxid, _ = found
        try:
            return Broker(registration=decode_broker(node_id, payload), epoch=created_zxid)
        except MalformedZnode as error:
            _log.error("malformed broker registration is ignored", problem=str(error))
            return None

    async def _unregistered(self) -> set[int]:
        """Brokers that an operator gave up."""
        names = await self._zookeeper.children(UNREGISTERED_BROKERS)
        return set(znodes.broker_ids(names))

    async def _epoch_raises(self) -> dict[str, EpochRaise]:
        """The raises of leader epochs in force. A malformed one is skipped, with an error in the
        log: it was in force only at a site that a link made active, which raises again.
        """
        names = await self._zookeeper.children(EPOCH_RAISES)
        found = await self._zookeeper.get_many([epoch_raise_path(name) for name in names])
        raises: dict[str, EpochRaise] = {}
        for name, stored in zip(names, found, strict=True):
            decoded = "it is gone" if stored is None else _or_problem(decode_epoch_raise, name, stored[0])
            if isinstance(decoded, str):
                _log.error("malformed raise of leader epochs is ignored", problem=decoded)
                continue
            raises[name] = EpochRaise(name=name, floor=decoded[0], topics=decoded[1])
        return raises

    async def topic_names(self, watch: Watch | None = None) -> list[str]:
        """Names of all topics."""
        return await self._zookeeper.children(znodes.TOPICS, watch=watch)

    async def topics(self, names: Sequence[str]) -> list[Topic]:
        """The existing ones of these topics, with their configs, by one request. Raises
        MalformedZnode.
        """
        return [_topic(*stored) for stored in await self._stored(names)]

    async def _topics_or_problems(self, names: Sequence[str]) -> list[tuple[str, Topic | str]]:
        """Like `topics`, but returns each topic by its name, or the problem with it."""
        return [(stored[0], _or_problem(_topic, *stored)) for stored in await self._stored(names)]

    async def _stored(self, names: Sequence[str]) -> list[tuple[str, bytes, NodeStat, bytes | None]]:
        assignments = await self._zookeeper.get_many([znodes.topic_path(name) for name in names])
        configs = await self._zookeeper.get_many([znodes.topic_config_path(name) for name in names])
        return [
            (name, *found, None if stored is None else stored[0])
            for name, found, stored in zip(names, assignments, configs, strict=True)
            if found is not None
        ]

    async def topic_version(self, name: str, watch: Watch) -> int | None:
        """Version of a topic's assignment, None if there is none; the watch fires when the node is
        created, changed or deleted.
        """
        stat = await self._zookeeper.exists(znodes.topic_path(name), watch=watch)
        return None if stat is None else stat.version

    async def assignment(self, name: str) -> tuple[dict[int, tuple[int, ...]], int] | None:
        """Replicas by partition and the version; None if the topic does not exist. Another tool may
        have written them, so they are not checked. Raises MalformedZnode.
        """
        found = await self._get(znodes.topic_path(name))
        return None if found is None else (decode_replicas(name, found[0]), found[1])

    async def topic_configs(self, name: str) -> dict[str, str] | None:
        """Overrides of a topic; None when none are stored."""
        found = await self._get(znodes.topic_config_path(name))
        return None if found is None else decode_topic_config(name, found[0])

    async def _leaderships(self, partitions: Sequence[TopicPartition]) -> list[tuple[TopicPartition, Leadership | str]]:
        """States of the partitions that ever had a leader, or the problem with a malformed one."""
        states = await self._zookeeper.get_many([znodes.partition_state_path(*partition) for partition in partitions])
        return [
            (partition, _or_problem(_leadership, partition, *found))
            for partition, found in zip(partitions, states, strict=True)
            if found is not None
        ]

    async def deletion_marks(self, watch: Watch | None = None) -> list[str]:
        """Topics whose deletion is marked."""
        return await self._zookeeper.children(znodes.DELETE_TOPICS, watch=watch)

    async def links(self, watch: Watch | None = None, *, site: str) -> tuple[dict[str, LinkRecord], dict[str, str]]:
        """Return all links, and why some have only their stand-in; the watch fires on changes."""
        names = await self._zookeeper.children(znodes.LINKS, watch=watch)
        links: dict[str, LinkRecord] = {}
        problems: dict[str, str] = {}
        for name in names:
            found = await self._get(znodes.link_path(name), watch)
            if found is None:
                continue
            record = _or_problem(decode_link, name, found[0])
            if isinstance(record, str):
                problems[name], record = record, stand_in(name, site)
            links[name] = record
        return links, problems

    async def quotas(self) -> dict[QuotaEntity, QuotaValues]:
        """All client quotas. A malformed one is skipped, with a line in the log."""
        users = await self._nodes(znodes.USER_CONFIGS)
        entities: list[QuotaEntity] = []
        for user in users:
            part = (USER, entity_name(user))
            clients = await self._nodes(user_clients_path(user))
            entities += [(part,), *((part, (CLIENT_ID, entity_name(client))) for client in clients)]
        for kind, parent in ((CLIENT_ID, znodes.CLIENT_CONFIGS), (IP, znodes.IP_CONFIGS)):
            entities += [((kind, entity_name(node)),) for node in await self._nodes(parent)]
        found = await in_flight(self._quota, entities)
        return {entity: values for entity, values in zip(entities, found, strict=True) if values}

    async def _nodes(self, parent: str) -> list[str]:
        try:
            return await self._zookeeper.children(parent)
        except NoNodeError:
            return []

    async def _quota(self, entity: QuotaEntity) -> QuotaValues:
        path = client_quota_path(entity)
        found = await self._get(path)
        try:
            return {} if found is None else quotas_in(path, found[0])
        except MalformedZnode as error:
            _log.error("malformed client quota is ignored", problem=str(error))
            return {}

    async def scram_users(self) -> dict[str, Mapping[str, str]]:
        """SCRAM credentials of all users that have some, by mechanism."""
        names = [entity_name(node) for node in await self._nodes(znodes.USER_CONFIGS)]
        users = [name for name in names if name is not None]
        found = await in_flight(self._scram_credentials, users)
        return {user: credentials for user, credentials in zip(users, found, strict=True) if credentials}

    async def _scram_credentials(self, user: str) -> Mapping[str, str]:
        path = client_quota_path(((USER, user),))
        found = await self._get(path)
        try:
            configs = {} if found is None else decode_entity_config(path, found[0])
        except MalformedZnode as error:
            _log.error("malformed credentials are ignored", problem=str(error))
            return {}
        return {mechanism: configs[mechanism] for mechanism in HASHES if mechanism in configs}

    async def group_configs(self) -> dict[str, GroupConfigs]:
        """Configs of all groups that have some. Malformed ones are skipped, with an error in the
        log.
        """
        names = [entity_name(node) for node in await self._nodes(GROUP_CONFIGS)]
        groups = [name for name in names if name is not None]
        found = await in_flight(self._group_configs, groups)
        return {group: configs for group, configs in zip(groups, found, strict=True) if configs}

    async def _group_configs(self, group: str) -> GroupConfigs:
        found = await self._get(group_config_path(group))
        try:
            return {} if found is None else decode_group_configs(group, found[0])
        except MalformedZnode as error:
            _log.error("malformed group configs are ignored", problem=str(error))
            return {}

    async def unclean_election(self, node_id: int, watch: Watch | None = None) -> bool | None:
        """The altered config that allows or forbids unclean elections: this broker's, else all
        brokers'; None for neither.
        """
        found: list[bool] = []
        for name in (str(node_id), ""):
            path = znodes.broker_config_path(name)
            stored = await self._zookeeper.get_or_none(path, watch=watch)
            try:
                text = None if stored is None else decode_config(path, stored[0]).get(UNCLEAN_ELECTION)
            except MalformedZnode as error:
                _log.error("malformed broker configs are ignored", problem=str(error))
                continue
            if text is not None:
                found.append(text.lower() == "true")
        return found[0] if found else None

    async def request(self, path: str, watch: Watch | None = None) -> FoundRequest:
        """A request that another tool has written; the watch fires when it is created, changed or
        deleted.
        """
        found = await self._zookeeper.get_or_none(path, watch=watch)
        return None if found is None else (found[0], found[1].version)

    async def config_changes(self, watch: Watch | None = None) -> dict[str, str]:
        """Pending notices of config changes: path to entity, which is empty for a malformed
        notice.
        """
        notices: dict[str, str] = {}
        for name in await self._zookeeper.children(znodes.CONFIG_CHANGES, watch=watch):
            path = f"{znodes.CONFIG_CHANGES}/{name}"
            found = await self._get(path)
            if found is None:
                continue
            try:
                notices[path] = decode_config_change(path, found[0])
            except MalformedZnode as error:
                _log.error("malformed config change notice is dropped", problem=str(error))
                notices[path] = ""
        return notices


def _or_problem(
    decode: Callable[Arguments, Answer], *stored: Arguments.args, **named: Arguments.kwargs
) -> Answer | str:
    """The decoded content, or the problem with it and its path."""
    try:
        return decode(*stored, **named)
    except MalformedZnode as error:
        return str(error)


def _topic(name: str, payload: bytes, stat: NodeStat, configs: bytes | None) -> Topic:
    assignment = decode_topic(name, payload)
    return Topic(
        name=name,
        topic_id=assignment.topic_id,
        assignment=assignment.partitions,
        adding=assignment.adding_replicas,
        removing=assignment.removing_replicas,
        removed_while_away=assignment.removed_while_away,
        configs={} if configs is None else decode_topic_config(name, configs),
        version=stat.version,
    )


def _leadership(partition: TopicPartition, payload: bytes, stat: NodeStat) -> Leadership:
    state = decode_partition_state(partition.topic, partition.partition, payload)
    return Leadership(
        leader=state.leader,
        leader_epoch=state.leader_epoch,
        isr=state.isr,
        controller_epoch=state.controller_epoch,
        partition_epoch=stat.version,
        known_zxid=stat.mzxid if state.registrations_zxid is None else min(stat.mzxid, state.registrations_zxid),
    )
