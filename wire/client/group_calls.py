"""A client's calls about groups and their offsets: asked of coordinators, or of every broker."""

import asyncio
import contextlib
from collections.abc import Awaitable, Callable, Collection, Iterable, Mapping, Sequence
from typing import Final

from kio.schema.errors import ErrorCode

from wire.client.client_errors import BrokerError, KafkaClientError, Unreachable, UnsupportedApi, broker_error
from wire.client.cluster_access import ClusterAccess, Result
from wire.client.connection import Connection
from wire.client.requests.group_requests import (
    NO_MEMBER,
    CommittedOffset,
    Committer,
    FetchedOffset,
    GroupListing,
    request_carried_offsets,
    request_commit,
    request_committed,
    request_committed_by_groups,
    request_groups,
    request_mirror_commit,
    request_mirror_groups,
    request_sync_report,
)
from wire.protocol.ids import PartitionKey
from wire.rules.sync_reports import SyncReport

_NOT_READY: Final = (
    ErrorCode.not_coordinator,
    ErrorCode.coordinator_not_available,
    ErrorCode.coordinator_load_in_progress,
)


class GroupCalls(ClusterAccess):
    """Groups and offsets; retried unless the method's docstring excludes it."""

    async def list_groups(self) -> list[GroupListing]:
        """The groups of all brokers."""

        async def attempt() -> list[GroupListing]:
            await self._refresh([])
            found: list[GroupListing] = []
            for node_id in sorted(self._cluster.brokers):
                found += await request_groups(await self.connection(node_id))
            return found

        return await self._retried(attempt)

    async def groups_by_broker(
        self, leave_out: Collection[int] = ()
    ) -> dict[int, list[GroupListing] | KafkaClientError]:
        """The groups of each broker, or why it does not list them. One attempt; raises when no
        broker names the others.
        """
        await self._refresh([])
        nodes = sorted(self._cluster.brokers.keys() - set(leave_out))

        async def ask(node_id: int) -> list[GroupListing] | KafkaClientError:
            try:
                return await request_groups(await self.connection(node_id))
            except KafkaClientError as error:
                return error

        return dict(zip(nodes, await asyncio.gather(*map(ask, nodes)), strict=True))

    async def committed(
        self, group_id: str, partitions: Iterable[PartitionKey] | None = None
    ) -> dict[PartitionKey, FetchedOffset]:
        """The group's offsets of these partitions, or all its offsets."""
        wanted = None if partitions is None else list(partitions)
        return await self._at_coordinator(group_id, lambda connection: request_committed(connection, group_id, wanted))

    async def committed_by_groups(
        self, group_ids: Iterable[str]
    ) -> dict[str, dict[PartitionKey, FetchedOffset] | KafkaClientError]:
        """Return all offsets of several groups, with one request to each coordinator, or the error
        of a group. One attempt; the result leaves out groups whose coordinator has moved.
        """
        found: dict[str, dict[PartitionKey, FetchedOffset] | KafkaClientError] = {}

        async def ask(node_id: int, of_node: Sequence[str]) -> None:
            try:
                found.update(await request_committed_by_groups(await self.connection(node_id), of_node))
            except KafkaClientError as error:
                found.update(dict.fromkeys(of_node, error))

        wanted = list(group_ids)
        try:
            by_node, unknown = await self._by_coordinator(wanted)
            found.update(unknown)
            await asyncio.gather(*(ask(node_id, of_node) for node_id, of_node in by_node.items()))
        finally:
            # also after an error or a cancellation: the coordinator may have moved, so it is looked
            # up again
            for group_id in wanted:
                if not isinstance(found.get(group_id), dict):
                    self.forget_coordinator(group_id)
        return found

    async def commit(
        self,
        group_id: str,
        offsets: Mapping[PartitionKey, CommittedOffset],
        committer: Committer = NO_MEMBER,
    ) -> dict[PartitionKey, ErrorCode]:
        """Write a group's offsets, as a member or while there is none; the outcome by partition."""

        async def ask(connection: Connection) -> dict[PartitionKey, ErrorCode]:
            return _coordinated(await request_commit(connection, group_id, offsets, committer), group_id)

        return await self._at_coordinator(group_id, ask)

    async def send_sync_report(self, report: SyncReport, *, link: str, link_epoch: int) -> None:
        """Report to any broker what a daemon of the link's mirror has carried of groups' offsets,
        and at what it fails. One attempt.
        """
        connection = await self._any_connection()
        await request_sync_report(connection, report, link=link, link_epoch=link_epoch)

    async def mirror_offset_commit(
        self, group_id: str, offsets: Mapping[PartitionKey, CommittedOffset], *, link: str, link_epoch: int
    ) -> dict[PartitionKey, ErrorCode]:
        """Write a group's offsets as the link's mirror; the outcome by partition."""

        async def ask(connection: Connection) -> dict[PartitionKey, ErrorCode]:
            outcomes = await request_mirror_commit(connection, group_id, offsets, link=link, link_epoch=link_epoch)
            return _coordinated(outcomes, group_id)

        return await self._at_coordinator(group_id, ask)

    async def mirror_group_offsets(
        self, groups: Mapping[str, Mapping[PartitionKey, CommittedOffset]], *, link: str, link_epoch: int
    ) -> dict[str, dict[PartitionKey, ErrorCode] | KafkaClientError]:
        """Write the offsets of several groups as the link's mirror, with one request to each
        coordinator; the outcome of each group, or its error. A group whose coordinator has moved or
        does not answer is written by itself, with retries; so are all groups where the broker has
        no such request.
        """
        found: dict[str, dict[PartitionKey, ErrorCode] | KafkaClientError] = {}

        async def ask(node_id: int, names: Sequence[str]) -> None:
            wanted = {name: groups[name] for name in names}
            try:
                connection = await self.connection(node_id)
                found.update(await request_mirror_groups(connection, wanted, link=link, link_epoch=link_epoch))
            # these groups are written alone below, with retries
            except (BrokerError, Unreachable, UnsupportedApi):
                return

        async def write_alone(group_id: str) -> None:
            try:
                found[group_id] = await self.mirror_offset_commit(
                    group_id, groups[group_id], link=link, link_epoch=link_epoch
                )
            except KafkaClientError as error:
                found[group_id] = error

        by_node, unknown = await self._by_coordinator(groups)
        found.update(unknown)
        await asyncio.gather(*(ask(node_id, names) for node_id, names in by_node.items()))
        alone = [name for name in groups if name not in found or _is_elsewhere(found[name])]
        await asyncio.gather(*map(write_alone, alone))
        return found

    async def carried_offsets(
        self, group_ids: Iterable[str], *, link: str, link_epoch: int
    ) -> dict[str, dict[PartitionKey, int]]:
        """The offsets of these groups that mirrors of the link have written at this epoch and that
        are unchanged since, with one request to each coordinator. One attempt; the result leaves
        out groups whose coordinator has moved, does not answer, or does not know the request.
        """
        found: dict[str, dict[PartitionKey, int]] = {}

        async def ask(node_id: int, of_node: Sequence[str]) -> None:
            with contextlib.suppress(BrokerError, Unreachable, UnsupportedApi):
                connection = await self.connection(node_id)
                found.update(await request_carried_offsets(connection, of_node, link=link, link_epoch=link_epoch))

        wanted = list(group_ids)
        by_node, _ = await self._by_coordinator(wanted)
        await asyncio.gather(*(ask(node_id, of_node) for node_id, of_node in by_node.items()))
        for group_id in wanted:
            if group_id not in found:
                self.forget_coordinator(group_id)
        return found

    async def _by_coordinator(
        self, group_ids: Iterable[str]
    ) -> tuple[dict[int, list[str]], dict[str, KafkaClientError]]:
        """The groups by the node id of their coordinator, and the errors of groups without one."""
        by_node: dict[int, list[str]] = {}
        unknown: dict[str, KafkaClientError] = {}

        async def find(group_id: str) -> None:
            try:
                by_node.setdefault(await self.coordinator(group_id), []).append(group_id)
            except KafkaClientError as error:
                unknown[group_id] = error

        await asyncio.gather(*map(find, group_ids))
        return by_node, unknown

    async def _at_coordinator(
        self,
        group_id: str,
        ask: Callable[[Connection], Awaitable[dict[PartitionKey, Result]]],
    ) -> dict[PartitionKey, Result]:
        async def once() -> dict[PartitionKey, Result]:
            try:
                answer = await ask(await self.connection(await self.coordinator(group_id)))
            except (BrokerError, Unreachable):
                # it may have moved: the next attempt looks it up again
                self.forget_coordinator(group_id)
                raise
            return answer

        result: dict[PartitionKey, Result] = await self._retrying()(once)
        return result


def _is_elsewhere(outcome: Mapping[PartitionKey, ErrorCode] | KafkaClientError) -> bool:
    return isinstance(outcome, dict) and any(code in _NOT_READY for code in outcome.values())


def _coordinated(outcomes: dict[PartitionKey, ErrorCode], group_id: str) -> dict[PartitionKey, ErrorCode]:
    """The outcomes; a transient error if the coordinator is elsewhere or not ready."""
    # one such code concerns the whole request, so all of it is repeated at another coordinator
    for code in outcomes.values():
        if code in _NOT_READY:
            raise broker_error(code, message=group_id)
    return outcomes
