"""Makes the files of a new segment."""

from __future__ import annotations

from broker.log.segments.descriptors import DescriptorCache
from broker.log.segments.segment import Segment
from broker.settings.core.topic_configs import LogConfig


def create_segment(
    directory: str, base_offset: int, descriptors: DescriptorCache, config: LogConfig, *, now_ms: int
) -> Segment:
    """A new, empty segment with its files; that of the batches has its full length at once where
    the configuration wants it.
    """
    segment = Segment(directory, base_offset, descriptors, size_bytes=0, next_offset=base_offset, created_ms=now_ms)
    segment.file.acquire()
    segment.file.release()
    if config.is_preallocated:
        segment.preallocate(config.segment_bytes)
    return segment
