"""The settings of a mirror's transfer: fetches, the queue, appends, compression, priorities."""

from __future__ import annotations

from pydantic import Field

from mirror.link.core.link_roles import GapPolicy
from mirror.settings.values import MIB, CompressionType, Patterns
from runtime.configuration import Settings
from wire.protocol.streams.compressed_stream import LEVEL_MAX, LEVEL_MIN


class TransferSettings(Settings):
    """The part of `MirrorConfig` that concerns batches on their way to the target."""

    streams: int = Field(default=2, alias="num.streams", ge=1, le=64, description="fetchers a source broker, 1 to 64")
    producers: int = Field(default=2, alias="num.producers", ge=1, le=64, description="producers, 1 to 64")
    queue_size_bytes: int = Field(
        default=32 * MIB, alias="queue.byte.size", ge=MIB, description="bytes held between fetch and acknowledgement"
    )
    queue_enqueue_timeout_ms: int = Field(
        default=-1,
        alias="queue.enqueue.timeout.ms",
        ge=-1,
        description="-1 waits for room, 0 does not wait, more waits for that time; batches without room are fetched again",
    )
    is_abort_on_send_failure: bool = Field(
        default=False,
        alias="abort.on.send.failure",
        description="true ends the daemon when the target refuses a partition permanently; false reports it as FAULTED",
    )
    fetch_min_bytes: int = Field(default=1, alias="fetch.min.bytes", ge=0, description="bytes, 0 or more")
    # A little below a power of two: the client receives into buffers of such sizes.
    fetch_max_bytes: int = Field(
        default=4 * MIB - 64 * 1024, alias="fetch.max.bytes", ge=1024, description="bytes, 1024 or more"
    )
    fetch_interval_ms: int = Field(
        default=3,
        alias="antipode.fetch.interval.ms",
        ge=0,
        le=1000,
        description="least time between two fetches of a stream while answers are small, 0 to 1000 ms; not on sync links",
    )
    fetch_wait_max_ms: int = Field(default=500, alias="fetch.wait.max.ms", ge=0, le=30_000, description="0 to 30000 ms")
    partition_fetch_max_bytes: int = Field(
        default=MIB, alias="max.partition.fetch.bytes", ge=1024, description="bytes, 1024 or more"
    )
    request_max_bytes: int = Field(
        default=4 * MIB, alias="max.request.size", ge=1024, description="bytes of batches in one append, 1024 or more"
    )
    in_flight_max: int = Field(
        default=5,
        alias="max.in.flight.requests.per.connection",
        ge=1,
        le=64,
        description="1 to 64; translate links take 64 when it is not given",
    )
    request_timeout_ms: int = Field(default=10_000, alias="request.timeout.ms", ge=100, description="100 ms or more")
    socket_receive_buffer_bytes: int = Field(
        default=-1, alias="socket.receive.buffer.bytes", ge=-1, description="bytes, -1 for the system's default"
    )
    socket_send_buffer_bytes: int = Field(
        default=-1, alias="send.buffer.bytes", ge=-1, description="bytes, -1 for the system's default"
    )
    source_compression_type: CompressionType = Field(
        default=CompressionType.NONE,
        alias="antipode.source.compression.type",
        description="none, or zstd for a narrow line to an Antipode source; batches arrive unchanged",
    )
    source_compression_level: int = Field(
        default=1, alias="antipode.source.compression.level", ge=LEVEL_MIN, le=LEVEL_MAX, description="1 to 19"
    )
    target_compression_type: CompressionType = Field(
        default=CompressionType.NONE,
        alias="antipode.target.compression.type",
        description="none, or zstd for a narrow line to an Antipode target; batches arrive unchanged",
    )
    target_compression_level: int = Field(
        default=1, alias="antipode.target.compression.level", ge=LEVEL_MIN, le=LEVEL_MAX, description="1 to 19"
    )
    gap_policy: GapPolicy = Field(
        default=GapPolicy.HALT, alias="antipode.gap.policy", description="halt or skip-and-record"
    )
    throttle_bytes_per_second: int = Field(
        default=0, alias="antipode.throttle.bytes.per.second", ge=0, description="bytes fetched a second, 0 no limit"
    )
    high_priority_topics: Patterns = Field(
        default=(), alias="antipode.priority.high", description="regular expressions of topics that go first"
    )
    low_priority_topics: Patterns = Field(
        default=(), alias="antipode.priority.low", description="regular expressions of topics that go last"
    )
    backfill_bytes: int = Field(
        default=64 * MIB,
        alias="antipode.backfill.bytes",
        ge=0,
        description="a partition that is further behind counts as backfill and is mirrored after all others",
    )
    stall_timeout_ms: int = Field(
        default=30_000,
        alias="antipode.stall.timeout.ms",
        ge=100,
        description="100 ms or more without progress after which a partition counts as stalled",
    )
