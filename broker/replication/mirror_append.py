"""Append a mirror's batches to one partition exactly once, also when they are sent again.

The answers follow the table in `wire/protocol/messages/private.py`. Called by the MirrorAppend
handler; a mirror reports on thousands of partitions at once, so this runs compiled.
"""

from __future__ import annotations

import contextlib
from typing import Final

from kio.schema.errors import ErrorCode

from broker.log.core.batch_checks import BatchRejected
from broker.log.errors import OffsetOutOfRange, StorageError
from broker.metadata.core.access import mirror_error
from broker.metadata.core.cluster_image import ClusterImage
from broker.replication.core.mirror_continuity import Continuity, first_difference, meet
from broker.replication.core.wake_ups import Change
from broker.replication.hosted_partition import HostedPartition, PartitionFailure
from broker.replication.partition_failures import failure_of
from broker.replication.replicas import Replicas
from runtime.logs import get_logger
from wire.batches.record_batch import BatchHeader, Buffer, InvalidBatch, iterate_headers
from wire.protocol.byte_writer import uuid_bytes
from wire.protocol.ids import NO_EPOCH, UNKNOWN
from wire.protocol.messages.mirror_append_codec import (
    MirrorAppend,
    PartitionAppended,
    PartitionToMirror,
    TopicToMirror,
)
from wire.protocol.messages.mirror_append_messages import NO_DIVERGENCE

_NO_ERROR: Final = ErrorCode.none

log = get_logger(__name__)


class Diverged(PartitionFailure):
    """The log's history contradicts what the source has; says what the log knows."""

    def __init__(self, reason: str, *, epoch: int, end_offset: int) -> None:
        super().__init__(ErrorCode.offset_out_of_range, reason)
        self.epoch = epoch
        self.end_offset = end_offset


class Outcome:
    """One partition's result, until it is encoded."""

    def __init__(self, index: int, link_epoch: int) -> None:
        self.index = index
        self.link_epoch = link_epoch
        self.error: ErrorCode = _NO_ERROR
        self.message: str | None = None
        self.hosted: HostedPartition | None = None
        self.log_end_offset = UNKNOWN
        self.divergence: Diverged | None = None
        self._led_since_epoch = NO_EPOCH

    def took(self, hosted: HostedPartition) -> None:
        """Record that the partition has the batches; the record is valid only while the partition
        is led without interruption.
        """
        self.log_end_offset = hosted.log.log_end_offset
        self._led_since_epoch = hosted.state.led_since_epoch

    def is_missing(self) -> bool:
        """True while followers still lack appended batches. Fails the partition if its followers
        cannot get the batches from this broker.
        """
        if self.hosted is None or self.error is not _NO_ERROR:
            return False
        state = self.hosted.state
        if not state.is_leader or state.led_since_epoch != self._led_since_epoch:
            # no mirror knows which batches those are: it asks for the log's end again, because the
            # log may have been truncated in between and have other batches there
            self.fail(PartitionFailure(ErrorCode.not_leader_or_follower))
            return False
        return state.high_watermark < self.log_end_offset

    def fail(self, failure: PartitionFailure) -> None:
        """Remember why it failed."""
        self.error, self.message = failure.code, failure.reason
        if isinstance(failure, Diverged):
            self.divergence = failure

    def _end(self) -> int:
        """The log end offset after the append; the current one if nothing was appended."""
        if self.log_end_offset >= 0 or self.hosted is None:
            return self.log_end_offset
        return self.hosted.log.log_end_offset

    def appended(self) -> PartitionAppended:
        """The partition's entry of the response."""
        divergence = self.divergence
        return tuple.__new__(
            PartitionAppended,
            (
                self.index,
                self.error,
                self.message,
                self._end(),
                self.link_epoch,
                NO_DIVERGENCE if divergence is None else divergence.epoch,
                UNKNOWN if divergence is None else divergence.end_offset,
            ),
        )


Outcomes = list[tuple[str, list[Outcome]]]
"""The outcomes of one request, by topic name."""


def append_all(image: ClusterImage, replicas: Replicas, request: MirrorAppend, *, now_ms: int) -> Outcomes:
    """Append what a request brings, partition by partition."""
    return [(topic.name, _append_topic(image, replicas, request, topic, now_ms)) for topic in request.topics]


def _append_topic(
    image: ClusterImage, replicas: Replicas, request: MirrorAppend, topic: TopicToMirror, now_ms: int
) -> list[Outcome]:
    link = image.links.get(request.link)
    link_epoch = NO_EPOCH if link is None else link.epoch
    topic_id = uuid_bytes(topic.topic_id)
    # the roles of a topic's partitions are those of the topic
    refused = mirror_error(image, topic.name, link_name=request.link, link_epoch=request.link_epoch)
    outcomes = []
    for sent in topic.partitions:
        outcome = Outcome(sent.partition_index, link_epoch)
        outcomes.append(outcome)
        if refused is not _NO_ERROR:
            outcome.fail(_refusal(refused, link=request.link, link_epoch=request.link_epoch))
            continue
        try:
            here = replicas.find(topic.name, sent.partition_index)
            hosted = outcome.hosted = require_led(image, here, topic.name, topic_id, sent.partition_index)
            append_mirrored(replicas, hosted, sent, now_ms=now_ms)
            outcome.took(hosted)
        except PartitionFailure as failure:
            outcome.fail(failure)
    return outcomes


def to_be_flushed(outcomes: Outcomes) -> list[Outcome]:
    """The partitions that have new batches, and whose topics demand a flush before the answer."""
    return [
        outcome
        for _, partitions in outcomes
        for outcome in partitions
        if outcome.hosted is not None and outcome.error is _NO_ERROR and outcome.hosted.log.needs_flush
    ]


def unreplicated(outcomes: Outcomes) -> list[Outcome]:
    """The partitions whose followers still lack appended batches."""
    return [outcome for _, partitions in outcomes for outcome in partitions if outcome.is_missing()]


def errors_of(outcomes: Outcomes) -> list[ErrorCode]:
    """The error code of each partition."""
    return [outcome.error for _, partitions in outcomes for outcome in partitions]


def answers(outcomes: Outcomes) -> list[tuple[str, list[PartitionAppended]]]:
    """The entries of the response."""
    return [(name, [outcome.appended() for outcome in partitions]) for name, partitions in outcomes]


def restarting(
    image: ClusterImage, replicas: Replicas, request: MirrorAppend
) -> list[tuple[HostedPartition, PartitionToMirror]]:
    """The partitions whose logs are restarted empty at the offset where their sources begin."""
    found = []
    for topic in request.topics:
        for sent in topic.partitions:
            if not _is_gap_of_the_source(sent):
                continue
            hosted = replicas.find(topic.name, sent.partition_index)
            if hosted is not None and restart_wanted(hosted, sent) is not None:
                place = topic.name, uuid_bytes(topic.topic_id), sent.partition_index
                with contextlib.suppress(PartitionFailure):
                    require_mirrored(image, hosted, *place, link=request.link, link_epoch=request.link_epoch)
                    found.append((hosted, sent))
    return found


def require_mirrored(
    image: ClusterImage,
    hosted: HostedPartition | None,
    topic: str,
    topic_id: bytes,
    index: int,
    *,
    link: str,
    link_epoch: int,
) -> HostedPartition:
    """The partition found under this name, if this broker leads it and the link's mirror may change
    it; else raises PartitionFailure.
    """
    error = mirror_error(image, topic, link_name=link, link_epoch=link_epoch)
    if error is not _NO_ERROR:
        raise _refusal(error, link=link, link_epoch=link_epoch)
    return require_led(image, hosted, topic, topic_id, index)


def _refusal(error: ErrorCode, *, link: str, link_epoch: int) -> PartitionFailure:
    return PartitionFailure(error, f"a mirror of link {link} at epoch {link_epoch} may not append here")


def require_led(
    image: ClusterImage, hosted: HostedPartition | None, topic: str, topic_id: bytes, index: int
) -> HostedPartition:
    """The partition found under this name, if it is of the topic with this id and this broker leads
    it; else raises PartitionFailure.
    """
    # A passive site directs clients to the active one, so this checks whether its own topic exists.
    if hosted is None:
        known = image.partition(topic, index)
        raise PartitionFailure(
            ErrorCode.unknown_topic_or_partition if known is None else ErrorCode.not_leader_or_follower
        )
    if topic_id != hosted.topic_id:
        raise PartitionFailure(ErrorCode.inconsistent_topic_id, "the topic with this name has another topic id")
    if not hosted.state.is_leader:
        raise PartitionFailure(ErrorCode.not_leader_or_follower)
    return hosted


def append_mirrored(replicas: Replicas, hosted: HostedPartition, sent: PartitionToMirror, *, now_ms: int) -> None:
    """Append the batches that are new, follow the source's log start, remember what the source
    said. PartitionFailure.
    """
    try:
        _append(replicas, hosted, sent, now_ms)
        _follow_log_start(replicas, hosted, sent)
    except (BatchRejected, InvalidBatch, OffsetOutOfRange, StorageError) as error:
        hosted.metrics.failed_produce += 1
        raise failure_of(error) from error
    # after the append, so that the report is about a log that has these records
    hosted.source.high_watermark = sent.source_high_watermark
    hosted.source.seen_at_ms = sent.source_seen_at_ms
    hosted.source.log_epoch = hosted.last_record_epoch


def _append(replicas: Replicas, hosted: HostedPartition, sent: PartitionToMirror, now_ms: int) -> None:
    records = sent.records
    # a mirror reports on thousands of partitions of which the source has nothing new
    if not records and sent.expected_log_end_offset <= hosted.log.log_end_offset:
        return
    placed = list(iterate_headers(records)) if records else []
    batches = [header for _, header in placed]
    target = hosted.log
    meeting = meet(
        batches,
        expected_log_end_offset=sent.expected_log_end_offset,
        log_end_offset=target.log_end_offset,
        latest_epoch=target.latest_epoch,
    )
    # a gap is allowed only where the source itself has nothing for it
    if meeting.continuity is Continuity.GAP and not _is_gap_of_the_source(sent):
        raise PartitionFailure(ErrorCode.offset_out_of_range, f"the log ends at {target.log_end_offset}")
    if meeting.continuity is Continuity.TRUNCATED_THROUGH:
        raise PartitionFailure(
            ErrorCode.offset_out_of_range, f"the log ends at {target.log_end_offset}, within a batch"
        )
    # repeated ones are compared before the new ones: a divergence below shows first
    repeated = batches[: meeting.repeated_count]
    differing = _differing(hosted, repeated)
    if differing is not None:
        reason = f"the log has another batch at offset {differing.base_offset}, under leader epoch"
        raise _divergence(hosted, batches, f"{reason} {differing.partition_leader_epoch}")
    if meeting.continuity is Continuity.DIVERGES:
        first = batches[meeting.repeated_count]
        reason = f"the batch at offset {first.base_offset} under leader epoch {first.partition_leader_epoch}"
        raise _divergence(hosted, batches, f"{reason} does not continue the log, which ends at {target.log_end_offset}")
    # an empty request carries only the source's ends
    if records is None or meeting.repeated_count == len(batches):
        return
    if meeting.continuity is Continuity.GAP:
        _restart_at(replicas, hosted, sent.expected_log_end_offset)
    fresh: Buffer = memoryview(records)[placed[meeting.repeated_count][0] :] if repeated else records
    # the broker's clock and not the records' decides when a segment is rolled
    info = target.append_replicated(fresh, now_ms=now_ms)
    target.note_copied(sent.source_high_watermark)
    hosted.metrics.mirrored_bytes_in += len(fresh)
    hosted.metrics.mirrored_messages_in += info.record_count
    replicas.record_growth(hosted, len(fresh))


def restart_wanted(hosted: HostedPartition, sent: PartitionToMirror) -> int | None:
    """The offset above its end at which the log restarts empty; None if the log continues without a
    gap.
    """
    is_gap = sent.expected_log_end_offset > hosted.log.log_end_offset and _is_gap_of_the_source(sent)
    return sent.expected_log_end_offset if is_gap else None


async def restart_in_threads(replicas: Replicas, hosted: HostedPartition, sent: PartitionToMirror) -> None:
    """Restart the log where that is wanted, before `append_mirrored`, which would do it holding the
    loop. StorageError.
    """
    offset = restart_wanted(hosted, sent)
    if offset is None:
        return
    # other tasks ran in between: the log may have grown, or its leader changed
    async with hosted.log.truncation(offset):
        if restart_wanted(hosted, sent) == offset and hosted.state.is_leader:
            _restart_at(replicas, hosted, offset)


def _is_gap_of_the_source(sent: PartitionToMirror) -> bool:
    """The source has none of the missing records: its log begins where the mirror continues. If it
    began earlier, there would be batches in between that this log did not accept or has lost.
    """
    return sent.source_log_start_offset == sent.expected_log_end_offset


def _differing(hosted: HostedPartition, repeated: list[BatchHeader]) -> BatchHeader | None:
    """The first repeated batch that differs from the log's batch at the same offset; None if all
    are the same.
    """
    target = hosted.log
    wanted = [batch for batch in repeated if batch.base_offset >= target.log_start_offset]
    if not wanted:
        return None
    size = sum(batch.size_bytes for batch in wanted)
    with target.read(wanted[0].base_offset, max_bytes=size, end_offset=wanted[-1].next_offset) as piece:
        stored = [header for _, header in iterate_headers(piece.read_bytes())]
    return first_difference(
        wanted, stored, log_start_offset=target.log_start_offset, is_compacted=hosted.config.is_compacted
    )


def _divergence(hosted: HostedPartition, batches: list[BatchHeader], reason: str) -> Diverged:
    epoch, end_offset = hosted.log.epoch_end_offset(batches[0].partition_leader_epoch)
    if epoch < 0:
        epoch, end_offset = max(hosted.log.latest_epoch, 0), hosted.log.log_end_offset
    log.error(
        "mirrored history diverges",
        topic=hosted.topic,
        partition=hosted.index,
        reason=reason,
        epoch=epoch,
        end_offset=end_offset,
    )
    return Diverged(reason, epoch=epoch, end_offset=end_offset)


def _follow_log_start(replicas: Replicas, hosted: HostedPartition, sent: PartitionToMirror) -> None:
    start = sent.source_log_start_offset
    if start <= hosted.log.log_start_offset:
        return
    if sent.expected_log_end_offset > hosted.log.log_end_offset:
        _restart_at(replicas, hosted, start)
    else:
        hosted.log.advance_log_start_offset(min(start, hosted.state.high_watermark))
        replicas.changed(hosted, Change.LOG_START)


def _restart_at(replicas: Replicas, hosted: HostedPartition, offset: int) -> None:
    """The source deleted everything that this log has and more: the log goes on empty where the
    source begins.
    """
    log.warning(
        "log restarts at the source's log start offset, which is above this log's end",
        topic=hosted.topic,
        partition=hosted.index,
        log_end_offset=hosted.log.log_end_offset,
        restart_at=offset,
    )
    hosted.log.truncate_fully_and_start_at(offset)
    replicas.act(hosted, hosted.state.restart_at(offset))
