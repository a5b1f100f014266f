"""Quarantine (private): lists, reads and deletes the removed records that this broker keeps
(`broker/replication/quarantine.py`).

Behaviour: log directories that are offline are left out. A piece of an entry has at most one
megabyte. Versions: 0. Not done: nothing.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Any

from kio.schema.errors import ErrorCode
from msgspec import Struct
from msgspec.structs import asdict

from broker.log.directories.log_store import LogStore
from broker.metadata.cluster import Cluster
from broker.metadata.request_context import RequestContext
from broker.replication.replicas import Replicas
from wire.protocol.messages.private import PRIVATE_VERSIONS
from wire.protocol.messages.quarantine_messages import (
    DELETE,
    LIST,
    QUARANTINE,
    READ,
    QuarantineEntry,
    QuarantineResponse,
)

API_KEY = QUARANTINE
MIN_VERSION, MAX_VERSION = PRIVATE_VERSIONS[QUARANTINE]


class Doors(Struct, frozen=True, kw_only=True):
    """The parts of the broker that the handler uses."""

    cluster: Cluster
    logs: LogStore
    replicas: Replicas


async def handle(request: Any, _context: RequestContext, doors: Doors) -> Any:
    """Answer a Quarantine request."""
    directories = [directory.path for directory in doors.logs.directories]
    try:
        return await asyncio.to_thread(_answer, doors, directories, request)
    except LookupError as error:
        return QuarantineResponse(error_code=ErrorCode.resource_not_found, error_message=str(error))
    except OSError as error:
        return QuarantineResponse(error_code=ErrorCode.kafka_storage_error, error_message=str(error))


def _answer(doors: Doors, directories: Sequence[str], request: Any) -> QuarantineResponse:
    quarantine = doors.replicas.cuts.quarantine
    if request.action == LIST:
        found = quarantine.entries(directories, topics=doors.cluster.image.topics)
        entries = tuple(QuarantineEntry(**asdict(entry)) for entry in found)
        return QuarantineResponse(error_code=ErrorCode.none, entries=entries)
    if request.action == READ:
        records = quarantine.read(directories, request.name, request.position)
        return QuarantineResponse(error_code=ErrorCode.none, records=records)
    if request.action == DELETE:
        quarantine.delete(directories, request.name)
        return QuarantineResponse(error_code=ErrorCode.none)
    message = f"action {request.action} is unknown; accepted: {LIST} (list), {READ} (read) and {DELETE} (delete)"
    return QuarantineResponse(error_code=ErrorCode.invalid_request, error_message=message)
