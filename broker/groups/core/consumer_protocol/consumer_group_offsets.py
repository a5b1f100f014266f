"""Rules for committing and reading offsets of KIP-848 groups. Pure. The rules are those of Apache
Kafka 4.3.1; `tests/support/histories/commit_table.py` compares every combination with it.
"""

from __future__ import annotations

from kio.schema.errors import ErrorCode

from broker.groups.core.consumer_protocol.consumer_group_states import ConsumerGroup
from broker.groups.core.group_messages import CommitOffsets, CommitTransactionOffsets
from broker.groups.core.group_states import NO_GENERATION


def commit_error(known: ConsumerGroup, command: CommitOffsets) -> ErrorCode:
    """The error that refuses the whole commit; `none` when the commit is allowed."""
    is_transactional = isinstance(command, CommitTransactionOffsets)
    member_id, epoch = command.member_id, command.generation
    if epoch < 0 and not known.members:
        # a client that only assigns or commits: no member owns the group's partitions
        return ErrorCode.none
    if is_transactional and epoch == NO_GENERATION and not member_id and command.group_instance_id is None:
        # producers before KIP-447 do not send the member: the transactional id alone fences them
        return ErrorCode.none
    member = known.members.get(member_id)
    if member is not None and member.classic is None and not is_transactional and not command.knows_member_epochs:
        return ErrorCode.unsupported_version
    error = fetch_error(known, member_id, epoch)
    if is_transactional and error is ErrorCode.stale_member_epoch:
        return ErrorCode.illegal_generation
    return error


def fetch_error(known: ConsumerGroup, member_id: str | None, epoch: int) -> ErrorCode:
    """The error for a read of offsets by a member with that epoch; `none` if the read is allowed,
    also for readers that name no member.
    """
    if member_id is None and epoch < 0:
        return ErrorCode.none
    member = known.members.get(member_id or "")
    if member_id is None or member is None:
        return ErrorCode.unknown_member_id
    if epoch == known.reached_by(member_id).epoch:
        return ErrorCode.none
    return ErrorCode.stale_member_epoch if member.classic is None else ErrorCode.illegal_generation
