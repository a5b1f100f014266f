"""The Controller service of one candidate: it passes requests to the active controller as commands,
and replies with the outcomes.

A candidate that is not active refuses with FAILED_PRECONDITION and names the active one in trailing
metadata; one that is deposed meanwhile answers UNAVAILABLE, because the request may have taken
effect. The reply to a change waits a bounded time until the living brokers have applied it, so that
the client finds it at each broker.
"""

from __future__ import annotations

from collections.abc import Callable, Collection
from typing import TYPE_CHECKING, Any, NoReturn

import grpc
from kio.schema.errors import ErrorCode

from controller.brokers.images import broker_info
from controller.config import ControllerSettings
from controller.core import commands as ask
from controller.core.decisions import Decision
from controller.core.link_claims import LinkClaim
from controller.core.producer_ids import ProducerIdsExhausted
from controller.event_loop import ActiveController
from controller.requests.entity_messages import (
    acl_changes,
    acl_results,
    entity_results,
    group_config_changes,
    quota_changes,
    scram_changes,
    token_changes,
)
from controller.requests.service_messages import (
    altered,
    brokers_awaited,
    config_change,
    growth_request,
    partition_results,
    pending_deletions,
    proposal,
    quarantines,
    refused_ids,
    still_awaited,
    topic_request,
    topic_results,
)
from controller.stored.tenure import Deposed
from wire.control import controller_pb2 as pb
from wire.control.clients import ACTIVE_CONTROLLER_KEY
from wire.control.controller_pb2_grpc import ControllerServicer
from wire.protocol.ids import NO_NODE, TopicPartition
from wire.rules.producer_ids import PRODUCER_IDS_PER_SITE
from wire.znodes.cluster_znodes import ControllerRegistration

if TYPE_CHECKING:
    Context = grpc.aio.ServicerContext[Any, Any]

WAIT_MS_MAX = 300_000
"""The upper bound of a client's timeout for a deletion."""
CONTROLLED_SHUTDOWN_WITHIN_MS = 2_000
"""Time (ms) that a broker's controlled shutdown waits for brokers that do not answer the
controller; the stopping broker waits 3 s for the controller's answer
(`broker/site/controlled_shutdown.py`).
"""


class Controller(ControllerServicer):
    """The servicer. `office` returns the active controller of this process; None while it is not
    elected.
    """

    def __init__(
        self,
        settings: ControllerSettings,
        *,
        office: Callable[[], ActiveController | None],
        known_controller: Callable[[], ControllerRegistration | None],
    ) -> None:
        self._settings = settings
        self._office = office
        self._known_controller = known_controller

    async def _active(self, context: Context) -> ActiveController:
        active = self._office()
        if active is not None:
            return active
        known = self._known_controller()
        address = "" if known is None else known.grpc_address
        context.set_trailing_metadata(((ACTIVE_CONTROLLER_KEY, address),))
        await context.abort(
            grpc.StatusCode.FAILED_PRECONDITION,
            f"node {self._settings.node_id} is not the active controller; that is at {address or '(unknown)'}",
        )
        raise AssertionError("abort returned")

    async def _submit(
        self, active: ActiveController, command: ask.Command, context: Context, *, timeout_ms: int = 0
    ) -> Decision:
        """Submit a command and wait until the brokers have applied it, at most as long as the
        client and the settings allow.
        """
        try:
            decision = await active.submit(command)
        except Deposed as error:
            await _abort_deposed(context, error)
        # A request that changes nothing waits too: a client that repeats it after a timeout must
        # find at each broker what its first attempt has changed.
        if decision.effects or any(outcome.error is ErrorCode.none for outcome in decision.reply):
            allowed_ms = self._settings.apply_wait_ms
            await active.wait_applied(timeout_ms=min(timeout_ms, allowed_ms) if timeout_ms > 0 else allowed_ms)
        return decision

    async def CreateTopics(  # noqa: N802 (the service's own name)
        self, request: pb.CreateTopicsRequest, context: Context
    ) -> pb.CreateTopicsReply:
        """Create topics."""
        active = await self._active(context)
        command = ask.CreateTopics(
            topics=tuple(topic_request(topic) for topic in request.topics), is_validate_only=request.is_validate_only
        )
        if refused := refused_ids(request):
            return pb.CreateTopicsReply(results=refused)
        decision = await self._submit(active, command, context, timeout_ms=request.timeout_ms)
        return pb.CreateTopicsReply(results=topic_results(decision.reply))

    async def CreatePartitions(  # noqa: N802
        self, request: pb.CreatePartitionsRequest, context: Context
    ) -> pb.CreatePartitionsReply:
        """Grow topics."""
        active = await self._active(context)
        command = ask.CreatePartitions(
            topics=tuple(growth_request(topic) for topic in request.topics), is_validate_only=request.is_validate_only
        )
        decision = await self._submit(active, command, context, timeout_ms=request.timeout_ms)
        return pb.CreatePartitionsReply(results=topic_results(decision.reply))

    async def AlterTopicConfigs(  # noqa: N802
        self, request: pb.AlterTopicConfigsRequest, context: Context
    ) -> pb.AlterTopicConfigsReply:
        """Change topic configs."""
        active = await self._active(context)
        command = ask.AlterTopicConfigs(
            changes=tuple(config_change(change) for change in request.changes),
            is_validate_only=request.is_validate_only,
        )
        decision = await self._submit(active, command, context)
        return pb.AlterTopicConfigsReply(results=topic_results(decision.reply))

    async def AlterTopicConfigLists(  # noqa: N802
        self, request: pb.AlterTopicConfigsRequest, context: Context
    ) -> pb.AlterTopicConfigsReply:
        """Change topic configs, with lists."""
        return await self.AlterTopicConfigs(request, context)

    async def DeleteTopics(  # noqa: N802
        self, request: pb.DeleteTopicsRequest, context: Context
    ) -> pb.DeleteTopicsReply:
        """Delete topics. A deletion that is not complete in time continues, and the reply is
        REQUEST_TIMED_OUT. The reply waits for living brokers as long as the client allows, and for
        brokers without a registration as long as the settings allow.
        """
        active = await self._active(context)
        command = ask.DeleteTopics(
            names=tuple(request.names),
            topic_ids=tuple(request.topic_ids),
            claim=LinkClaim(link=request.link, epoch=request.link_epoch),
        )
        reply = (await self._submit(active, command, context, timeout_ms=request.timeout_ms)).reply
        accepted = {outcome.topic.topic_id for outcome in reply if outcome.topic is not None}
        try:
            await self._wait_deleted(active, accepted, request.timeout_ms)
        except Deposed as error:
            await _abort_deposed(context, error)
        awaited = brokers_awaited(active.cluster, accepted)
        results = list(topic_results(reply))
        for result in results:
            if result.error_code == ErrorCode.none and result.topic_id in awaited:
                result.error_code = ErrorCode.request_timed_out
                result.error_message = still_awaited(active.cluster, awaited[result.topic_id])
        return pb.DeleteTopicsReply(results=results)

    async def _wait_deleted(self, active: ActiveController, topic_ids: Collection[bytes], timeout_ms: int) -> None:
        """Wait until the topics are gone, as long as the client allows; after the settings' wait,
        only for living brokers.
        """
        first_ms = self._settings.apply_wait_ms
        allowed_ms = min(timeout_ms, WAIT_MS_MAX) if timeout_ms > 0 else first_ms
        is_complete = await active.wait_until(
            lambda cluster: not brokers_awaited(cluster, topic_ids), timeout_ms=min(first_ms, allowed_ms)
        )
        if not is_complete and allowed_ms > first_ms:
            await active.wait_until(
                lambda cluster: (
                    not any(nodes & cluster.brokers.keys() for nodes in brokers_awaited(cluster, topic_ids).values())
                ),
                timeout_ms=allowed_ms - first_ms,
            )

    async def AllocateProducerIds(  # noqa: N802
        self, request: pb.AllocateProducerIdsRequest, context: Context
    ) -> pb.AllocateProducerIdsReply:
        """A block of producer ids from the site's range."""
        active = await self._active(context)
        try:
            block = await active.producer_ids.allocate(
                request.node_id, range_start=self._settings.first_producer_id, range_size=PRODUCER_IDS_PER_SITE
            )
        except Deposed as error:
            await _abort_deposed(context, error)
        except ProducerIdsExhausted as error:
            await context.abort(grpc.StatusCode.RESOURCE_EXHAUSTED, str(error))
        return pb.AllocateProducerIdsReply(
            first_producer_id=block.first_producer_id, count=block.last_producer_id - block.first_producer_id + 1
        )

    async def AlterPartitions(  # noqa: N802
        self, request: pb.AlterPartitionsRequest, context: Context
    ) -> pb.AlterPartitionsReply:
        """Decide in-sync replicas that a leader proposes; replies as soon as they are stored."""
        active = await self._active(context)
        command = ask.AlterPartitions(
            node_id=request.node_id,
            broker_epoch=request.broker_epoch,
            proposals=tuple(proposal(partition) for partition in request.partitions),
        )
        try:
            # Not `_submit`: the leader waits for this reply to move its high watermark, and other
            # brokers need not have the new state for that.
            decision = await active.submit(command)
        except Deposed as error:
            await _abort_deposed(context, error)
        return pb.AlterPartitionsReply(partitions=[altered(active, outcome) for outcome in decision.partitions])

    async def ControlledShutdown(  # noqa: N802
        self, request: pb.ControlledShutdownRequest, context: Context
    ) -> pb.ControlledShutdownReply:
        """Move a broker's leaderships. The reply waits until the living brokers have applied it,
        and comes before the stopping broker's timeout.
        """
        active = await self._active(context)
        command = ask.ControlledShutdown(node_id=request.node_id, broker_epoch=request.broker_epoch)
        decision = await self._submit(active, command, context, timeout_ms=CONTROLLED_SHUTDOWN_WITHIN_MS)
        return pb.ControlledShutdownReply(error_code=decision.error, remaining_count=len(decision.partitions))

    async def ReportOfflineReplicas(  # noqa: N802
        self, request: pb.ReportOfflineReplicasRequest, context: Context
    ) -> pb.ReportOfflineReplicasReply:
        """Record the replicas that a broker lost with a log directory; replies as soon as other
        leaders are stored.
        """
        active = await self._active(context)
        command = ask.ReplicasOffline(
            node_id=request.node_id,
            broker_epoch=request.broker_epoch,
            partitions=frozenset(TopicPartition(name.topic, name.partition) for name in request.partitions),
        )
        try:
            decision = await active.submit(command)
        except Deposed as error:
            await _abort_deposed(context, error)
        return pb.ReportOfflineReplicasReply(error_code=decision.error)

    async def ElectLeaders(  # noqa: N802
        self, request: pb.ElectLeadersRequest, context: Context
    ) -> pb.PartitionResultsReply:
        """Preferred or unclean elections."""
        active = await self._active(context)
        partitions = tuple(TopicPartition(name.topic, name.partition) for name in request.partitions)
        command = ask.ElectLeaders(partitions=None if request.is_all else partitions, is_unclean=request.is_unclean)
        return partition_results(await self._submit(active, command, context, timeout_ms=request.timeout_ms))

    async def AlterReassignments(  # noqa: N802
        self, request: pb.AlterReassignmentsRequest, context: Context
    ) -> pb.PartitionResultsReply:
        """Begin or cancel reassignments."""
        active = await self._active(context)
        command = ask.AlterReassignments(
            targets=tuple(
                (
                    TopicPartition(wanted.topic, wanted.partition),
                    None if wanted.is_cancelled else tuple(wanted.replicas),
                )
                for wanted in request.partitions
            ),
            must_keep_replication_factor=request.must_keep_replication_factor,
        )
        return partition_results(await self._submit(active, command, context, timeout_ms=request.timeout_ms))

    async def ListReassignments(  # noqa: N802
        self, request: pb.ListReassignmentsRequest, context: Context
    ) -> pb.ListReassignmentsReply:
        """The reassignments in progress."""
        active = await self._active(context)
        named = None if request.is_all else {(name.topic, name.partition) for name in request.partitions}
        return pb.ListReassignmentsReply(
            partitions=[
                pb.OngoingReassignment(
                    topic=topic.name,
                    partition=index,
                    replicas=topic.assignment[index],
                    adding_replicas=topic.adding.get(index, ()),
                    removing_replicas=topic.removing.get(index, ()),
                )
                for topic in active.cluster.topics.values()
                for index in sorted({*topic.adding, *topic.removing})
                if named is None or (topic.name, index) in named
            ]
        )

    async def AlterClientQuotas(  # noqa: N802
        self, request: pb.AlterClientQuotasRequest, context: Context
    ) -> pb.AlterClientQuotasReply:
        """Change client quotas."""
        active = await self._active(context)
        decision = await self._submit(active, quota_changes(request), context)
        return pb.AlterClientQuotasReply(results=entity_results(decision))

    async def AlterScramUsers(  # noqa: N802
        self, request: pb.AlterScramUsersRequest, context: Context
    ) -> pb.AlterScramUsersReply:
        """Change SCRAM credentials of users."""
        active = await self._active(context)
        decision = await self._submit(active, scram_changes(request), context)
        return pb.AlterScramUsersReply(results=entity_results(decision))

    async def AlterDelegationTokens(  # noqa: N802
        self, request: pb.AlterDelegationTokensRequest, context: Context
    ) -> pb.AlterDelegationTokensReply:
        """Make, renew and remove delegation tokens."""
        active = await self._active(context)
        try:
            command = token_changes(request)
        except ValueError as error:
            await context.abort(grpc.StatusCode.INVALID_ARGUMENT, str(error))
        decision = await self._submit(active, command, context)
        return pb.AlterDelegationTokensReply(results=entity_results(decision))

    async def AlterAcls(  # noqa: N802
        self, request: pb.AlterAclsRequest, context: Context
    ) -> pb.AlterAclsReply:
        """Add and remove ACLs."""
        active = await self._active(context)
        try:
            command = acl_changes(request)
        except ValueError as error:
            await context.abort(grpc.StatusCode.INVALID_ARGUMENT, str(error))
        decision = await self._submit(active, command, context)
        return pb.AlterAclsReply(results=acl_results(decision))

    async def AlterGroupConfigs(  # noqa: N802
        self, request: pb.AlterGroupConfigsRequest, context: Context
    ) -> pb.AlterGroupConfigsReply:
        """Change configs of groups."""
        active = await self._active(context)
        decision = await self._submit(active, group_config_changes(request), context)
        return pb.AlterGroupConfigsReply(results=entity_results(decision))

    async def DescribeController(  # noqa: N802
        self,
        request: pb.DescribeControllerRequest,  # noqa: ARG002 (gRPC's signature)
        context: Context,  # noqa: ARG002
    ) -> pb.DescribeControllerReply:
        """The active controller as this candidate knows it; only the active one lists brokers."""
        active = self._office()
        if active is None:
            known = self._known_controller()
            return pb.DescribeControllerReply(controller_id=NO_NODE if known is None else known.controller_id)
        return pb.DescribeControllerReply(
            controller_id=active.tenure.controller_id,
            controller_epoch=active.tenure.epoch,
            is_active=True,
            brokers=[broker_info(active.cluster.brokers[node]) for node in sorted(active.cluster.brokers)],
            deletions=pending_deletions(active.cluster),
            unregistered_brokers=sorted(active.cluster.unregistered),
            quarantines=quarantines(active.cluster),
        )

    async def UnregisterBroker(  # noqa: N802
        self, request: pb.UnregisterBrokerRequest, context: Context
    ) -> pb.UnregisterBrokerReply:
        """Unregister a broker that will not return."""
        active = await self._active(context)
        command = ask.UnregisterBroker(node_id=request.node_id)
        decision = await self._submit(active, command, context, timeout_ms=request.timeout_ms)
        return pb.UnregisterBrokerReply(error_code=decision.error, error_message=decision.message)


async def _abort_deposed(context: Context, error: Deposed) -> NoReturn:
    await context.abort(grpc.StatusCode.UNAVAILABLE, f"{error}; whether the request took effect is unknown")
    raise error
