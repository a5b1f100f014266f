"""SitePort, GroupPort and GroupConfigPort over the raw-batch client: topics, positions and groups
of one site. Nothing is decided here.

A client error about a broker or the site becomes `Unreachable`; an error about one partition
becomes that partition's answer.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Final, TypeVar

from kio.schema.errors import ErrorCode

from mirror.link.core.committed_offsets import GroupOffset
from mirror.link.core.topic_plan import Absence
from mirror.link.group_ports import ConfigRefused, GroupReading, GroupStates
from mirror.link.ports import Leader, LogAnswer, LogEnds, Refused, SiteTopic, Unreachable
from mirror.sites.commit_batches import CommitBatches
from runtime.addresses import HostPort
from wire.batches.log_histories import EpochEnd
from wire.client.client_errors import BrokerError, KafkaClientError
from wire.client.cluster_metadata import ClusterMetadata
from wire.client.connection import ConnectionOptions
from wire.client.raw_client import KafkaClient
from wire.client.requests.broker_requests import EpochQuery, OffsetQuery
from wire.client.requests.group_config_requests import group_configs
from wire.client.requests.group_requests import CommittedOffset, FetchedOffset
from wire.client.requests.standby_rule_requests import Claim, write_group_configs
from wire.protocol.ids import DEBUGGING_CONSUMER, EARLIEST_TIMESTAMP, LATEST_TIMESTAMP, PartitionKey, TopicPartition
from wire.rules.sync_reports import SyncReport

RETRY_BUDGET_MS = 1_000
"""The client's own retries are short, because flows and syncs retry by themselves with more
knowledge.
"""

SILENT_PAUSE_S = 10
"""Time (s) for which the mirror skips a broker that did not list its groups: waiting for it delays
the groups of all other brokers.
"""

_ABSENCES = {
    ErrorCode.unknown_topic_or_partition: Absence.GONE,
    ErrorCode.topic_authorization_failed: Absence.HIDDEN,
}

_WITHOUT_CONFIGS: Final = (ErrorCode.unknown_topic_or_partition, ErrorCode.topic_authorization_failed)

Result = TypeVar("Result")


def new_client(bootstrap: Sequence[HostPort], options: ConnectionOptions) -> KafkaClient:
    """A client of one end of a link, which asks the brokers of that site alone."""
    return KafkaClient(bootstrap, options, site_local=True, retry_budget_ms=RETRY_BUDGET_MS)


class KafkaSite:
    """SitePort and GroupPort of one site, through any of its brokers."""

    def __init__(
        self, bootstrap: Sequence[HostPort], options: ConnectionOptions, *, replica_id: int = DEBUGGING_CONSUMER
    ) -> None:
        """`replica_id` goes into requests about logs. With the id of a tool a broker always
        answers; with the id of a mirror it refuses topics for which the site is not active.
        """
        self._replica_id = replica_id
        self._client = new_client(bootstrap, options)
        self._commits = CommitBatches(self._client)
        self._last: tuple[ClusterMetadata, Mapping[str, SiteTopic]] | None = None
        # Brokers that did not list their groups: the time until which they are skipped, and the
        # reason.
        self._silent: dict[int, tuple[float, str]] = {}

    async def topics(self) -> Mapping[str, SiteTopic]:
        """All topics that this site itself has, by name; the same object while nothing has
        changed, which callers must not change. Unreachable also when it gives them no
        ids: such topics cannot be identified.
        """
        metadata = await reached(self._client.metadata())
        # The client returns the same object while the site's answers are the same.
        if self._last is not None and self._last[0] is metadata:
            return self._last[1]
        found: dict[str, SiteTopic] = {}
        for name, topic in metadata.topics.items():
            # a topic with an error is not missing: `absences` finds out why
            if topic.error_code is not ErrorCode.none:
                continue
            # a name may be used again after a deletion: only ids show whose copy it is
            if topic.topic_id is None:
                raise Unreachable(f"the cluster gives topics no ids, among them {name}: Apache Kafka does from 2.8 on")
            leaders = {
                index: Leader(partition.leader_id, partition.leader_epoch)
                for index, partition in topic.partitions.items()
            }
            found[name] = SiteTopic(topic_id=topic.topic_id, leaders=leaders)
        self._last = metadata, found
        return found

    async def absences(self, names: Sequence[str]) -> Mapping[str, Absence]:
        """The reasons why topics are not in `topics`, from a request by name. A client without the
        right to see a topic gets the same error whether or not it exists.
        """
        metadata = await reached(self._client.metadata(names))
        found = {name: topic.error_code for name, topic in metadata.topics.items()}
        return {name: _ABSENCES.get(found.get(name, ErrorCode.none), Absence.UNSURE) for name in names}

    async def configs(self, names: Sequence[str]) -> Mapping[str, Mapping[str, str]]:
        """The configs that are set on the topics themselves; a topic that is gone, or whose configs
        the site hides from the mirror, is left out.
        """
        found = await reached(self._client.topic_configs(names, left_out=_WITHOUT_CONFIGS))
        return {
            topic: {name: value for name, value in configs.items() if value is not None}
            for topic, configs in found.items()
        }

    async def log_ends(self, leaders: Mapping[TopicPartition, Leader]) -> Mapping[TopicPartition, LogAnswer]:
        """Start and end of each log."""

        async def ask(node_id: int, keys: Sequence[TopicPartition]) -> dict[TopicPartition, LogEnds | Refused]:
            # in this order, because retention may move the start between the two requests
            first, last = [
                await self._client.list_offsets(
                    node_id, {key: OffsetQuery(timestamp) for key in keys}, replica_id=self._replica_id
                )
                for timestamp in (EARLIEST_TIMESTAMP, LATEST_TIMESTAMP)
            ]
            answers: dict[TopicPartition, LogEnds | Refused] = {}
            for key in keys:
                if key not in first or key not in last:
                    continue
                start, end = first[key], last[key]
                refused = start.error_code or end.error_code
                answers[key] = (
                    Refused(refused)
                    if refused
                    else LogEnds(
                        log_start_offset=start.offset,
                        end_offset=end.offset,
                        last_epoch=end.leader_epoch,
                    )
                )
            return answers

        return await _by_node({key: leader.node_id for key, leader in leaders.items()}, ask)

    async def epoch_ends(
        self, asked: Mapping[TopicPartition, tuple[Leader, int]]
    ) -> Mapping[TopicPartition, EpochEnd | Refused | Unreachable]:
        """The end of each partition's epoch at its leader."""

        async def ask(node_id: int, keys: Sequence[TopicPartition]) -> dict[TopicPartition, EpochEnd | Refused]:
            queries: dict[PartitionKey, EpochQuery] = {key: EpochQuery(asked[key][1]) for key in keys}
            found = await self._client.epoch_ends(node_id, queries, replica_id=self._replica_id)
            return {
                TopicPartition(*key): Refused(end.error_code)
                if end.error_code
                else EpochEnd(end.leader_epoch, end.end_offset)
                for key, end in found.items()
            }

        return await _by_node({key: leader.node_id for key, (leader, _) in asked.items()}, ask)

    async def groups(self) -> GroupStates:
        """Groups by id with their state; brokers that do not list theirs are problems."""
        states: dict[str, str] = {}
        now_s = asyncio.get_running_loop().time()
        # a skipped broker is asked again after the pause
        self._silent = {node_id: silent for node_id, silent in self._silent.items() if silent[0] > now_s}
        for node_id, listed in (await reached(self._client.groups_by_broker(self._silent))).items():
            if isinstance(listed, KafkaClientError):
                self._silent[node_id] = now_s + SILENT_PAUSE_S, str(listed)
            else:
                states |= {group.group_id: group.state for group in listed}
        return GroupStates(states, {f"broker {node_id}": reason for node_id, (_, reason) in self._silent.items()})

    async def offsets(self, group: str) -> Mapping[TopicPartition, GroupOffset]:
        """All committed offsets of a group."""
        return _group_offsets(await reached(self._client.committed(group)))

    async def offsets_of(self, groups: Sequence[str]) -> GroupReading:
        """All committed offsets of several groups, in one request to each coordinator."""
        found = await reached(self._client.committed_by_groups(groups))
        problems = {group: str(answer) for group, answer in found.items() if isinstance(answer, KafkaClientError)}
        return GroupReading(
            {group: _group_offsets(answer) for group, answer in found.items() if isinstance(answer, dict)}, problems
        )

    async def commit(
        self, group: str, offsets: Mapping[TopicPartition, GroupOffset], *, link: str, link_epoch: int
    ) -> Mapping[TopicPartition, ErrorCode]:
        """Write offsets as the link's mirror; the outcome by partition."""
        wanted: dict[PartitionKey, CommittedOffset] = {
            key: CommittedOffset(at.offset, at.leader_epoch, at.metadata) for key, at in offsets.items()
        }
        written = self._commits.commit(group, wanted, link=link, link_epoch=link_epoch)
        return {TopicPartition(*key): code for key, code in (await reached(written)).items()}

    @property
    def keeps_offsets(self) -> bool:
        """True: offsets do not expire at a passive site."""
        return True

    async def carried(
        self, groups: Sequence[str], *, link: str, link_epoch: int
    ) -> Mapping[str, Mapping[TopicPartition, GroupOffset]]:
        """Of these groups, the offsets that the link's mirrors have written at this epoch."""
        found = await reached(self._client.carried_offsets(groups, link=link, link_epoch=link_epoch))
        return {
            group: {TopicPartition(*key): GroupOffset(offset) for key, offset in offsets.items()}
            for group, offsets in found.items()
        }

    def note_in_sync(self, group: str, offsets: Mapping[TopicPartition, GroupOffset]) -> None:
        """A site keeps nothing of that."""

    async def outgrown(self, carried: Mapping[str, Mapping[TopicPartition, GroupOffset]]) -> Sequence[str]:  # noqa: ARG002
        """None: offsets are the same at both sites."""
        return ()

    async def send_report(self, report: SyncReport, *, link: str, link_epoch: int) -> None:
        """Report to a broker which offsets of groups this daemon has mirrored, and which it cannot
        mirror.
        """
        await reached(self._client.send_sync_report(report, link=link, link_epoch=link_epoch))

    async def group_configs(self) -> Mapping[str, Mapping[str, str]]:
        """The configs of each group."""
        return await reached(group_configs(self._client))

    async def alter_group_configs(
        self, group: str, *, to_set: Mapping[str, str], to_remove: Sequence[str], link: str, link_epoch: int
    ) -> None:
        """Set and remove configs of a group as the link's mirror."""
        claim = Claim(link, link_epoch)
        try:
            await reached(write_group_configs(self._client, claim, group, to_set=to_set, to_remove=to_remove))
        except Unreachable as error:
            cause = error.__cause__
            if isinstance(cause, BrokerError) and cause.code is ErrorCode.invalid_config:
                raise ConfigRefused(str(cause)) from error
            raise

    async def close(self) -> None:
        """Drop all connections."""
        await self._commits.close()
        await self._client.close()


def _group_offsets(found: Mapping[PartitionKey, FetchedOffset]) -> dict[TopicPartition, GroupOffset]:
    return {
        TopicPartition(*key): GroupOffset(at.offset, at.leader_epoch, at.metadata or "")
        for key, at in found.items()
        if not at.error_code and at.offset >= 0
    }


async def reached(call: Awaitable[Result]) -> Result:
    """The call's result; errors of the site or of a whole broker become `Unreachable`."""
    try:
        return await call
    except KafkaClientError as error:
        raise Unreachable(str(error)) from error


async def _by_node(
    nodes: Mapping[TopicPartition, int],
    ask: Callable[[int, Sequence[TopicPartition]], Awaitable[Mapping[TopicPartition, Result | Refused]]],
) -> dict[TopicPartition, Result | Refused | Unreachable]:
    """Ask each node about its partitions, all nodes concurrently; if a node fails, the outcome of
    each of its partitions is `Unreachable`.
    """
    by_node: dict[int, list[TopicPartition]] = {}
    for key, node_id in nodes.items():
        by_node.setdefault(node_id, []).append(key)
    answers: dict[TopicPartition, Result | Refused | Unreachable] = {}

    async def one(node_id: int, keys: Sequence[TopicPartition]) -> None:
        try:
            answers.update(await reached(ask(node_id, keys)))
        except Unreachable as error:
            answers.update(dict.fromkeys(keys, error))

    await asyncio.gather(*(one(node_id, keys) for node_id, keys in by_node.items()))
    return answers
