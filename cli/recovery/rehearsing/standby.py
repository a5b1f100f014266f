"""A rehearsal's view of the standby on its machine: the properties files of its brokers, the topics
in its ZooKeeper, and the log directory of each partition.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from kazoo.exceptions import NoNodeError

from broker.log.directories.directory_names import parse_directory_name
from broker.settings.config import BrokerSettings
from broker.settings.loading import load_broker_settings
from runtime.configuration import ConfigurationError, read_properties
from runtime.process import OperationalFailure
from runtime.zookeeper.client import ZooKeeper
from wire.protocol.ids import TopicPartition
from wire.znodes import layout as znodes
from wire.znodes.config_znodes import decode_topic_config
from wire.znodes.documents import MalformedZnode
from wire.znodes.topic_znodes import decode_partition_state, decode_topic


@dataclass(frozen=True, slots=True, kw_only=True)
class StandbyBroker:
    """One broker of the standby whose log directories are on this machine."""

    settings: BrokerSettings
    properties: Mapping[str, str]


@dataclass(frozen=True, slots=True, kw_only=True)
class StandbyTopic:
    """One topic as the standby's ZooKeeper has it; `leaders` and `leader_epochs` by partition."""

    topic_id: bytes
    configs: Mapping[str, str]
    leaders: Mapping[int, int]
    leader_epochs: Mapping[int, int]


def read_brokers(configs: Sequence[Path]) -> list[StandbyBroker]:
    """The brokers of these properties files. OperationalFailure when they are not of one site, or
    share a node id.
    """
    brokers = []
    for path in configs:
        try:
            properties = read_properties(path)
            brokers.append(StandbyBroker(settings=load_broker_settings(properties), properties=properties))
        except ConfigurationError as error:
            raise OperationalFailure(f"{path}: {error}") from error
    sites = {(one.settings.site, one.settings.zookeeper_connect) for one in brokers}
    if len(sites) > 1:
        named = ", ".join(sorted(f"{site} at {connect}" for site, connect in sites))
        raise OperationalFailure(f"the properties files are of {len(sites)} sites ({named}): give those of one")
    if len({one.settings.node_id for one in brokers}) < len(brokers):
        raise OperationalFailure("two of the properties files have the same node.id: give each broker's file once")
    return brokers


async def read_topics(zookeeper: ZooKeeper, wanted: Iterable[str]) -> dict[str, StandbyTopic]:
    """The topics of these names that the site has. OperationalFailure for one that cannot be
    understood.
    """
    topics = {}
    for name in wanted:
        try:
            topics[name] = await _topic(zookeeper, name)
        except NoNodeError:
            continue  # deleted a moment ago, or not made yet
        except MalformedZnode as error:
            raise OperationalFailure(str(error)) from error
    return topics


async def _topic(zookeeper: ZooKeeper, name: str) -> StandbyTopic:
    assignment = decode_topic(name, (await zookeeper.get(znodes.topic_path(name)))[0])
    configs = await zookeeper.get_or_none(znodes.topic_config_path(name))
    numbers = sorted(assignment.partitions)
    stored = await zookeeper.get_many([znodes.partition_state_path(name, number) for number in numbers])
    states = {
        number: decode_partition_state(name, number, found[0])
        for number, found in zip(numbers, stored, strict=True)
        if found is not None
    }
    return StandbyTopic(
        topic_id=assignment.topic_id,
        configs={} if configs is None else decode_topic_config(name, configs[0]),
        leaders={number: state.leader for number, state in states.items()},
        leader_epochs={number: state.leader_epoch for number, state in states.items()},
    )


class LogPlaces:
    """This machine's directories with the partitions' logs: the leader's, else any replica's."""

    def __init__(self, brokers: Sequence[StandbyBroker]) -> None:
        self._by_node: dict[int, dict[TopicPartition, str]] = {}
        for broker in brokers:
            found = self._by_node.setdefault(broker.settings.node_id, {})
            for directory in broker.settings.log_dirs:
                for entry in _names(directory):
                    if (key := parse_directory_name(entry)) is not None:
                        found[TopicPartition(*key)] = f"{directory.rstrip('/')}/{entry}"

    def path_of(self, key: TopicPartition, *, leader: int) -> str | None:
        """None: this machine has no replica."""
        if (path := self._by_node.get(leader, {}).get(key)) is not None:
            return path
        return next((found[key] for _, found in sorted(self._by_node.items()) if key in found), None)


def _names(directory: str) -> list[str]:
    try:
        return sorted(entry.name for entry in Path(directory).iterdir() if entry.is_dir())
    except OSError as error:
        raise OperationalFailure(f"log directory {directory} cannot be read: {error.strerror}") from error
