"""Moves groups at the standby back to the new end of a copy, before a repair truncates the copy.

A returning site does the same with its copies (`mirror/groups/truncated_copies.py`). The repair
writes the offsets by the mirror's request: a standby takes a group's offsets by no other request.
"""

from __future__ import annotations

from collections.abc import Callable

from kio.schema.errors import ErrorCode

from runtime.process import OperationalFailure
from wire.client.client_errors import KafkaClientError
from wire.client.raw_client import KafkaClient
from wire.client.requests.group_requests import CommittedOffset, FetchedOffset
from wire.control.cluster_pb2 import LinkRecord
from wire.protocol.ids import PartitionKey
from wire.rules.links import carries_group
from wire.rules.truncated_groups import offsets_beyond


async def move_groups_back(
    client: KafkaClient, key: PartitionKey, end: int, record: LinkRecord, progress: Callable[[str], None]
) -> None:
    """Move every group of the link whose offset is beyond `end` back to it. A group with members at
    the standby keeps its offset: its members commit there. Raises OperationalFailure unless all
    others have been moved, KafkaClientError when the standby does not answer; a repeated call moves
    nothing twice.
    """
    names: list[str] = []
    for node_id, listed in (await client.groups_by_broker()).items():
        if isinstance(listed, KafkaClientError):
            raise OperationalFailure(f"the groups of broker {node_id} are not known: {listed}")
        names += [group.group_id for group in listed if carries_group(record, group.group_id)]
    found = await client.committed_by_groups(sorted(names))
    for name in sorted(names):
        offsets = found.get(name)
        if not isinstance(offsets, dict):
            raise OperationalFailure(f"the offsets of group {name} are not known: {offsets or 'its coordinator moves'}")
        for moved in await _moved(client, name, offsets, ends={key: end}, record=record):
            progress(moved)


async def _moved(
    client: KafkaClient,
    group: str,
    offsets: dict[PartitionKey, FetchedOffset],
    *,
    ends: dict[PartitionKey, int],
    record: LinkRecord,
) -> list[str]:
    """Move one group; a sentence for each of its offsets that moved."""
    known = {key: at.offset for key, at in offsets.items() if not at.error_code}
    moved = {
        key: CommittedOffset(offset, -1, offsets[key].metadata) for key, offset in offsets_beyond(known, ends).items()
    }
    if not moved:
        return []
    outcomes = await client.mirror_offset_commit(group, moved, link=record.name, link_epoch=record.epoch)
    done: list[str] = []
    for key, at in moved.items():
        code = outcomes.get(key, ErrorCode.unknown_server_error)
        if code is ErrorCode.none:
            done.append(
                f"group {group} of {key[0]}-{key[1]} goes back from offset {known[key]} to {at.offset}, where the copy ends"
            )
        elif code is not ErrorCode.non_empty_group:
            raise OperationalFailure(f"group {group} keeps its offset {known[key]}: {code.name}")
    return done
