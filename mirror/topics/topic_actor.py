"""Has the target's active controller create, grow and configure topics, and delete copies, in the
link's name.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol, assert_never

from kio.schema.errors import ErrorCode

from mirror.link.core.topic_plan import Action, AlterConfigs, CreateTopic, DeleteCopy, GrowTopic
from mirror.link.ports import Unreachable
from runtime.addresses import HostPort
from runtime.grpc_server import Dial, open_channel
from wire.control import controller_pb2 as pb
from wire.control.clients import ControllerClient, ControllerUnavailable
from wire.protocol.ids import SITE_DEFAULT

CALL_TIMEOUT_MS = 5_000
# The controller continues a deletion after the timeout of the call; the topic is created again
# after the deletion.
_DONE_BEFORE = (0, ErrorCode.topic_already_exists, ErrorCode.unknown_topic_id, ErrorCode.request_timed_out)


class _Result(Protocol):
    error_code: int
    error_message: str


class ControllerActor:
    """TopicActor over gRPC; any broker of the target forwards to the active controller."""

    def __init__(self, candidates: Sequence[HostPort], dial: Dial = open_channel) -> None:
        seeds = [str(address) for address in candidates]
        self._controller = ControllerClient(lambda: seeds, timeout_ms=CALL_TIMEOUT_MS, dial=dial)

    async def act(self, actions: Sequence[Action], *, link: str, link_epoch: int) -> Sequence[str]:
        """Do actions of one kind; for each empty when done (or done before), else why it was
        refused.
        """
        try:
            results = await self._ask(actions, link, link_epoch)
        except ControllerUnavailable as error:
            raise Unreachable(f"the target's controller: {error}") from error
        return [_refusal(result) for result in results]

    async def close(self) -> None:
        """Drop the connections."""
        await self._controller.close()

    async def _ask(self, actions: Sequence[Action], link: str, link_epoch: int) -> Sequence[_Result]:
        match actions[0]:
            case CreateTopic():
                topics = [_new_topic(action, link, link_epoch) for action in actions if isinstance(action, CreateTopic)]
                request = pb.CreateTopicsRequest(topics=topics, timeout_ms=CALL_TIMEOUT_MS)
                return (await self._controller.create_topics(request)).results
            case GrowTopic():
                grown = [
                    pb.NewPartitions(
                        name=action.name, total_count=action.partition_count, link=link, link_epoch=link_epoch
                    )
                    for action in actions
                    if isinstance(action, GrowTopic)
                ]
                return (await self._controller.create_partitions(pb.CreatePartitionsRequest(topics=grown))).results
            case AlterConfigs():
                changes = [
                    pb.TopicConfigChange(
                        name=action.name, set=dict(action.set), remove=action.remove, link=link, link_epoch=link_epoch
                    )
                    for action in actions
                    if isinstance(action, AlterConfigs)
                ]
                altered = await self._controller.alter_topic_configs(pb.AlterTopicConfigsRequest(changes=changes))
                return altered.results
            case DeleteCopy():
                # One request for each, because the responses to a common request come in another
                # order.
                return [
                    await self._delete(action, link, link_epoch) for action in actions if isinstance(action, DeleteCopy)
                ]
            case _:
                assert_never(actions[0])

    async def _delete(self, action: DeleteCopy, link: str, link_epoch: int) -> _Result:
        request = pb.DeleteTopicsRequest(topic_ids=[action.topic_id.bytes], link=link, link_epoch=link_epoch)
        return (await self._controller.delete_topics(request)).results[0]


def _new_topic(action: CreateTopic, link: str, link_epoch: int) -> pb.NewTopic:
    return pb.NewTopic(
        name=action.name,
        partition_count=action.partition_count,
        replication_factor=SITE_DEFAULT,
        configs=dict(action.configs),
        topic_id=action.topic_id.bytes,
        link=link,
        link_epoch=link_epoch,
    )


def _refusal(result: _Result) -> str:
    if result.error_code in _DONE_BEFORE:
        return ""
    return f"{_name(result.error_code)} {result.error_message}".strip()


def _name(code: int) -> str:
    try:
        return ErrorCode(code).name
    except ValueError:
        return f"error {code}"
