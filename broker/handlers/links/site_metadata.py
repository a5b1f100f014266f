"""SiteMetadata (private): the metadata of this site alone, unmerged, which says where the local
logs are.

Behaviour: as Metadata, without the peers, and without creating anything. Versions: 12. Asked by
mirrors and reconciliation. Not done: nothing.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from broker.handlers.topics import metadata
from broker.services import BrokerServices
from wire.protocol.frames import decode_request_body
from wire.protocol.private import PRIVATE_VERSIONS, SITE_METADATA

if TYPE_CHECKING:
    from broker.network.connections import Frame
    from broker.network.exchange import Exchange

API_KEY = SITE_METADATA
MIN_VERSION, MAX_VERSION = PRIVATE_VERSIONS[SITE_METADATA]


def handle_frame(services: BrokerServices, exchange: Exchange, frame: Frame) -> None:
    """Answer a SiteMetadata request."""
    request = decode_request_body(frame, exchange.header)
    metadata.answer(services, exchange, request, services.site_metadata, version=exchange.header.api_version)
