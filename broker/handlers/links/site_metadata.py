"""SiteMetadata (private): the unmerged metadata of this site, which gives the places of the local
logs.

Behaviour: as Metadata, without the peers, and without creating anything. A list of
all topics needs ClusterAction, which shows them all; named topics are shown as Metadata shows them.
Versions: 12. Asked by mirrors, reconciliation and
commands. Not done: nothing.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from broker.handlers.topics import metadata
from broker.metadata.metadata_encoding import MetadataCache
from wire.protocol.messages.private import PRIVATE_VERSIONS, SITE_METADATA
from wire.protocol.streams.frames import decode_request_body

if TYPE_CHECKING:
    from broker.network.connection_owner import Frame
    from broker.network.exchange import Exchange

API_KEY = SITE_METADATA
MIN_VERSION, MAX_VERSION = PRIVATE_VERSIONS[SITE_METADATA]


class Doors(metadata.Doors, frozen=True, kw_only=True):
    """The parts of the broker that the handler uses: those of Metadata, and another cache."""

    site_metadata: MetadataCache


def handle_frame(frame: Frame, exchange: Exchange, doors: Doors) -> None:
    """Answer a SiteMetadata request."""
    request = decode_request_body(frame, exchange.header)
    metadata.answer(doors, exchange, request, doors.site_metadata, version=exchange.header.api_version)
