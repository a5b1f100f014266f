"""Connects a mirror to its two ends: deadlines, socket buffers, security and compression, as
configured for each.

Compression is for the end behind the slow network. Connections to an end that does not offer it
(any broker other than Antipode's) are not compressed; they are counted and logged.
"""

from __future__ import annotations

from dataclasses import replace

from mirror.settings.config import MirrorConfig
from mirror.settings.values import CompressionType
from runtime.logs import get_logger
from wire.client.connection import ConnectionOptions
from wire.client.security import secured
from wire.protocol.streams.compressed_stream import Compression, CompressionTally
from wire.protocol.streams.frame_stream import FrameBuffers

FETCHED_FRAMES_MAX = 12
"""Number of receive buffers that are kept for the next fetches: as many as fill the default queue,
and those of the fetches in flight.
"""

_log = get_logger("mirror")


class Dialing:
    """Options for connections to the source and to the target, and what compression saves at
    each.
    """

    def __init__(self, config: MirrorConfig, *, client_id: str) -> None:
        self.tallies = {"source": CompressionTally(), "target": CompressionTally()}
        plain = ConnectionOptions(
            client_id=client_id,
            request_timeout_ms=config.request_timeout_ms,
            receive_buffer_bytes=config.socket_receive_buffer_bytes,
            send_buffer_bytes=config.socket_send_buffer_bytes,
        )
        self.source = replace(
            secured(plain, config.source_security),
            frame_buffers=FrameBuffers(kept_max=FETCHED_FRAMES_MAX),
            compression=self._wish("source", config.source_compression_type, config.source_compression_level),
        )
        self.target = replace(
            secured(plain, config.target_security),
            compression=self._wish("target", config.target_compression_type, config.target_compression_level),
        )

    def appends(self, *, in_flight_max: int) -> ConnectionOptions:
        """Options of the connections that carry batches to the target."""
        return replace(self.target, in_flight_max=in_flight_max)

    def _wish(self, end: str, kind: CompressionType, level: int) -> Compression | None:
        if kind is CompressionType.NONE:
            return None
        return Compression(level=level, tally=self.tallies[end], on_refused=lambda address: self._warn(end, address))

    def _warn(self, end: str, address: str) -> None:
        if self.tallies[end].refusals == 1:
            _log.warning("the broker does not offer compression, so connections go without", end=end, broker=address)
