"""AccessChanges (private): the mirror of an exact link waits for a change of this site's access
rules.

Behaviour: the answer comes at once when the mark of the request is not that of this broker's rules.
For a principal with ClusterAction. Versions: 0. Not done: nothing.
"""

from __future__ import annotations

from typing import Any, Final

from kio.schema.errors import ErrorCode
from msgspec import Struct

from broker.metadata.request_context import RequestContext
from broker.site.access_marks import AccessMarks
from wire.protocol.messages.access_change_messages import ACCESS_CHANGES, AccessChangesResponse
from wire.protocol.messages.private import PRIVATE_VERSIONS

API_KEY = ACCESS_CHANGES
MIN_VERSION, MAX_VERSION = PRIVATE_VERSIONS[ACCESS_CHANGES]

WAIT_MAX_MS: Final = 60_000


class Doors(Struct, frozen=True, kw_only=True):
    """The parts of the broker that the handler uses."""

    access_marks: AccessMarks


async def handle(request: Any, _context: RequestContext, doors: Doors) -> Any:
    """Answer an AccessChanges request."""
    await doors.access_marks.differ(request.mark, timeout_ms=min(max(request.max_wait_ms, 0), WAIT_MAX_MS))
    return AccessChangesResponse(error_code=ErrorCode.none, error_message=None, mark=doors.access_marks.mark)
