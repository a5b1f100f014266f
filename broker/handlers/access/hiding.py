"""Functions that remove entries from a finished response: entries about resources that the client
may not describe. The table of rights (`table.py`) uses them.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from kio.schema.errors import ErrorCode
from kio.static.primitive import i16, i32

from broker.authorization.authorizer import Authorizer, Check, topics
from broker.metadata.request_context import RequestContext
from broker.network.entities import topic_id_bytes
from wire.rules.acls import Operation, ResourceType


def without_configs(authorizer: Authorizer, context: RequestContext, _: Any, answer: Any) -> Any:
    """CreateTopics: only clients that may describe a topic's configs see them in the response
    (KIP-525).
    """
    checks = {
        one.name: Check(Operation.DESCRIBE_CONFIGS, ResourceType.TOPIC, one.name)
        for one in answer.topics
        if hasattr(one, "topic_config_error_code") and one.error_code is ErrorCode.none
    }
    denied = authorizer.denied(context, checks.values(), is_logged=False)
    hidden = {
        "topic_config_error_code": i16(ErrorCode.topic_authorization_failed),
        "num_partitions": i32(-1),
        "replication_factor": i16(-1),
        "configs": (),
    }
    return replace(
        answer,
        topics=tuple(replace(one, **hidden) if checks.get(one.name) in denied else one for one in answer.topics),
    )


def without_hidden_members(authorizer: Authorizer, context: RequestContext, _: Any, answer: Any) -> Any:
    """ConsumerGroupDescribe: a group that reads a topic which the client may not describe is
    refused.
    """

    def names(group: Any) -> set[str]:
        return {
            topic.topic_name
            for member in group.members
            for assignment in (member.assignment, member.target_assignment)
            for topic in assignment.topic_partitions
        } | {name for member in group.members for name in member.subscribed_topic_names}

    def shown(group: Any) -> Any:
        # a topic that was just deleted has no name here
        if not authorizer.denied(context, topics(Operation.DESCRIBE, sorted(names(group) - {""}))):
            return group
        message = "The group has described topic(s) that the client is not authorized to describe."
        return replace(group, error_code=ErrorCode.topic_authorization_failed, error_message=message, members=())

    return replace(answer, groups=tuple(map(shown, answer.groups)))


def without_hidden_assignment(authorizer: Authorizer, context: RequestContext, _: Any, answer: Any) -> Any:
    """ConsumerGroupHeartbeat: a member that subscribes by a regular expression gets no partitions
    of topics that it may not describe.
    """
    if answer.assignment is None:
        return answer
    known = authorizer.image.topic_names
    names = {
        topic.topic_id: known.get(topic_id_bytes(topic.topic_id), "") for topic in answer.assignment.topic_partitions
    }
    checks = topics(Operation.DESCRIBE, {*names.values()} - {""})
    denied = {check.name for check in authorizer.denied(context, checks, is_logged=False)}
    shown = tuple(topic for topic in answer.assignment.topic_partitions if names[topic.topic_id] not in denied)
    return replace(answer, assignment=replace(answer.assignment, topic_partitions=shown))


def without_hidden_partitions(authorizer: Authorizer, context: RequestContext, _: Any, answer: Any) -> Any:
    """DescribeTransactions: partitions of topics that the client may not describe are removed."""

    def shown(state: Any) -> Any:
        checks = topics(Operation.DESCRIBE, [topic.topic for topic in state.topics])
        denied = {check.name for check in authorizer.denied(context, checks, is_logged=False)}
        return replace(state, topics=tuple(topic for topic in state.topics if topic.topic not in denied))

    return replace(answer, transaction_states=tuple(map(shown, answer.transaction_states)))


def without_hidden_offsets(authorizer: Authorizer, context: RequestContext, request: Any, answer: Any) -> Any:
    """OffsetFetch: offsets of topics that the client may not describe are refused if the request
    names the topics, and removed if it asks for all.
    """
    if not hasattr(answer, "groups"):
        return _shown_offsets(authorizer, context, request.topics, answer)
    asked = {group.group_id: group.topics for group in request.groups}
    return replace(
        answer,
        groups=tuple(_shown_offsets(authorizer, context, asked.get(group.group_id), group) for group in answer.groups),
    )


def _shown_offsets(authorizer: Authorizer, context: RequestContext, asked: Any, group: Any) -> Any:
    image = authorizer.image

    def name(topic: Any) -> str:
        found: str = topic.name if hasattr(topic, "name") else image.topic_names.get(topic_id_bytes(topic.topic_id), "")
        return found

    checks = topics(Operation.DESCRIBE, {name(topic) for topic in group.topics} - {""})
    denied = {check.name for check in authorizer.denied(context, checks, is_logged=asked is not None)}
    if not denied:
        return group
    if asked is None:
        return replace(group, topics=tuple(topic for topic in group.topics if name(topic) not in denied))
    return replace(group, topics=tuple(_refused(topic) if name(topic) in denied else topic for topic in group.topics))


def _refused(topic: Any) -> Any:
    return replace(
        topic,
        partitions=tuple(
            replace(
                partition,
                committed_offset=type(partition.committed_offset)(-1),
                metadata="",
                error_code=ErrorCode.topic_authorization_failed,
            )
            for partition in topic.partitions
        ),
    )
