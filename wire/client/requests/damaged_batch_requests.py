"""DamagedBatches requests: what the scrubber of one broker has found on its disks. The message is
in wire/protocol/messages/damaged_batch_messages.py.
"""

from __future__ import annotations

from typing import NamedTuple

from wire.client.connection import Connection
from wire.protocol.messages.damaged_batch_messages import DAMAGED_BATCHES


class DamagedReplica(NamedTuple):
    """A damaged batch of one broker's replica; both offsets are included."""

    topic: str
    partition: int
    node_id: int
    is_leader: bool
    base_offset: int
    last_offset: int
    reason: str


async def request_damaged_batches(connection: Connection, node_id: int) -> tuple[list[DamagedReplica], int]:
    """The damaged batches of this broker, and the number of those that its answer leaves out.
    UnsupportedApi from a broker that does not have the request.
    """
    response = await connection.call(DAMAGED_BATCHES, {})
    found = [
        DamagedReplica(
            topic=one.topic,
            partition=one.index,
            node_id=node_id,
            is_leader=one.is_leader,
            base_offset=one.base_offset,
            last_offset=one.last_offset,
            reason=one.reason,
        )
        for one in response.batches
    ]
    return found, response.count - len(found)
