"""Lists, reads in pieces and deletes the entries of removed records that a site's brokers keep."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import TYPE_CHECKING, Any

from runtime.process import OperationalFailure

if TYPE_CHECKING:
    from wire.batches.record_batch import BatchHeader
    from wire.client.raw_client import KafkaClient


async def entries(client: KafkaClient, broker: int | None) -> list[dict[str, Any]]:
    """The entries of all brokers, or of this broker."""
    from wire.protocol.messages.quarantine_messages import LIST

    nodes = sorted((await client.metadata([])).brokers) if broker is None else [broker]
    found = []
    for node in nodes:
        response = await _ask(client, node, LIST, "")
        found += [{"broker": node, **_fields(entry)} for entry in response.entries]
    return found


async def one(client: KafkaClient, name: str, broker: int | None) -> dict[str, Any]:
    """The entry of that name. OperationalFailure if no entry matches, or more than one."""
    found = [entry for entry in await entries(client, broker) if entry["name"] == name]
    if not found:
        raise OperationalFailure(f"nothing is kept under the name {name!r}: `antipode quarantine list` shows all")
    if len(found) > 1:
        brokers = ", ".join(str(entry["broker"]) for entry in found)
        raise OperationalFailure(f"brokers {brokers} keep entries of the name {name!r}: say which with --broker")
    return found[0]


async def whole(client: KafkaClient, name: str, broker: int | None) -> tuple[dict[str, Any], bytes]:
    """The entry of that name, and its batches."""
    entry = await one(client, name, broker)
    return entry, b"".join([piece async for piece in _pieces(client, entry)])


async def batches(client: KafkaClient, entry: dict[str, Any]) -> AsyncIterator[tuple[int, BatchHeader, bytes]]:
    """Each batch with its position in the entry and its header. OperationalFailure when the entry
    is damaged.
    """
    from wire.batches.record_batch import InvalidBatch, iterate_headers

    left, at = b"", 0
    try:
        async for piece in _pieces(client, entry):
            left += piece
            taken = 0
            for position, header in iterate_headers(left, may_end_in_partial=True):
                taken = position + header.size_bytes
                yield at + position, header, left[position:taken]
            left, at = left[taken:], at + taken
    except InvalidBatch as error:
        raise OperationalFailure(f"{entry['name']}, from byte {at} on: {error}") from error
    if left:
        raise OperationalFailure(f"{entry['name']} ends within a batch: {len(left)} bytes are left")


async def delete(client: KafkaClient, entry: dict[str, Any]) -> None:
    """Give the entry up."""
    from wire.protocol.messages.quarantine_messages import DELETE

    await _ask(client, entry["broker"], DELETE, entry["name"])


async def _pieces(client: KafkaClient, entry: dict[str, Any]) -> AsyncIterator[bytes]:
    from wire.protocol.messages.quarantine_messages import READ

    position = 0
    while position < entry["size_bytes"]:
        piece = (await _ask(client, entry["broker"], READ, entry["name"], position)).records
        if not piece:
            raise OperationalFailure(f"{entry['name']} ends at {position} of {entry['size_bytes']} bytes")
        yield bytes(piece)
        position += len(piece)


async def _ask(client: KafkaClient, node: int, action: int, name: str, position: int = 0) -> Any:
    from wire.protocol.messages.quarantine_messages import QUARANTINE

    values = {"action": action, "name": name, "position": position}
    response = await (await client.connection(node)).call(QUARANTINE, values)
    if response.error_code:
        raise OperationalFailure(f"broker {node}: {response.error_message or response.error_code.name}")
    return response


def _fields(entry: Any) -> dict[str, Any]:
    names = ("name", "kind", "topic", "topic_id", "partition", "first_offset", "end_offset", "size_bytes", "at_ms")
    return {field: getattr(entry, field) for field in (*names, "reason", "origin_site", "link", "link_epoch")}
