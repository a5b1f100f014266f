"""Membership in a group of the classic protocol: join, sync, heartbeat, leave, each once, for
programs that are their own assignor.

No state and no retries: the caller keeps member id and generation, and decides what an error means.
Errors of the coordinator are raised as BrokerError. Called by `clients/consumer/membership.py`,
which keeps a member's state.
"""

import datetime as dt
from collections.abc import Mapping, Sequence
from typing import Final, NamedTuple

from kio.schema.errors import ErrorCode

from wire.client.connection import Connection
from wire.client.requests.answer_checks import check_code

JOIN_GROUP: Final = 11
HEARTBEAT: Final = 12
LEAVE_GROUP: Final = 13
SYNC_GROUP: Final = 14

NO_MEMBER: Final = ""
_GRACE_MS: Final = 5_000


class Joined(NamedTuple):
    """A generation of the group and its protocol; `members` (metadata by member id) is empty for
    all but the leader.
    """

    generation_id: int
    member_id: str
    leader: str
    members: Mapping[str, bytes]
    protocol: str = ""


async def join(
    connection: Connection,
    group_id: str,
    *,
    member_id: str,
    protocol_type: str,
    protocols: Sequence[tuple[str, bytes]],
    session_timeout_ms: int,
    rebalance_timeout_ms: int,
    group_instance_id: str | None = None,
) -> Joined:
    """Join; answered when all members have. The first time the coordinator only gives a member id:
    it is used at once.
    """
    values = {
        "group_id": group_id,
        "session_timeout": dt.timedelta(milliseconds=session_timeout_ms),
        "rebalance_timeout": dt.timedelta(milliseconds=rebalance_timeout_ms),
        "member_id": member_id,
        "group_instance_id": group_instance_id,
        "protocol_type": protocol_type,
        "protocols": [{"name": name, "metadata": metadata} for name, metadata in protocols],
    }
    timeout_ms = rebalance_timeout_ms + session_timeout_ms + _GRACE_MS
    response = await connection.call(JOIN_GROUP, values, timeout_ms=timeout_ms)
    if response.error_code == ErrorCode.member_id_required:
        response = await connection.call(JOIN_GROUP, {**values, "member_id": response.member_id}, timeout_ms=timeout_ms)
    check_code(response.error_code, connection, JOIN_GROUP)
    members = {member.member_id: member.metadata for member in response.members}
    return Joined(response.generation_id, response.member_id, response.leader, members, response.protocol_name or "")


async def sync(
    connection: Connection,
    group_id: str,
    joined: Joined,
    *,
    protocol_type: str,
    assignments: Mapping[str, bytes],
    timeout_ms: int,
    group_instance_id: str | None = None,
) -> bytes:
    """Give the leader's assignments, or none; the own one."""
    values = {
        "group_id": group_id,
        "generation_id": joined.generation_id,
        "member_id": joined.member_id,
        "group_instance_id": group_instance_id,
        "protocol_type": protocol_type,
        "protocol_name": joined.protocol,
        "assignments": [{"member_id": member, "assignment": data} for member, data in assignments.items()],
    }
    response = await connection.call(SYNC_GROUP, values, timeout_ms=timeout_ms + _GRACE_MS)
    check_code(response.error_code, connection, SYNC_GROUP)
    assignment: bytes = response.assignment
    return assignment


async def heartbeat(
    connection: Connection, group_id: str, joined: Joined, *, group_instance_id: str | None = None
) -> None:
    """Stay a member. REBALANCE_IN_PROGRESS: join again; ILLEGAL_GENERATION, UNKNOWN_MEMBER_ID: the
    membership has ended.
    """
    values = {
        "group_id": group_id,
        "generation_id": joined.generation_id,
        "member_id": joined.member_id,
        "group_instance_id": group_instance_id,
    }
    response = await connection.call(HEARTBEAT, values)
    check_code(response.error_code, connection, HEARTBEAT)


async def leave(connection: Connection, group_id: str, member_id: str) -> None:
    """Leave immediately, so that other members need not wait until the session expires."""
    values = {
        "group_id": group_id,
        "member_id": member_id,
        "members": [{"member_id": member_id, "group_instance_id": None}],
    }
    response = await connection.call(LEAVE_GROUP, values)
    check_code(response.error_code, connection, LEAVE_GROUP)
