"""Decides whether a copy is a prefix of the source's history, and from which offset on the mirror
promised it. `core/flow.py` calls it before it fetches.

Leader epochs show where two histories differ, as long as each has its own epochs. For two histories
under one epoch the target compares batches: whenever a flow begins to fetch, it first fetches the
last batch of its copy again, and the target refuses a batch that differs from its own.
"""

from __future__ import annotations

from mirror.flow.core.flow_events import SourceChecked
from mirror.flow.core.flow_state import FlowFacts
from mirror.link.core.partitions import BatchRun
from wire.batches.log_histories import EpochEnd, shared_end
from wire.protocol.ids import UNKNOWN


def promised_from(facts: FlowFacts, source: SourceChecked) -> int:
    """The first offset that the copy must have and lacks: the chain's end, or the start of an empty
    copy.
    """
    if facts.chain_offset > 0:
        return facts.chain_offset
    if facts.begins_offset != UNKNOWN:
        return facts.begins_offset
    # A copy that has streamed before and has no records was emptied at the target, so the link
    # still owes all of its records.
    return 0 if facts.has_streamed else source.log_start_offset


def find_divergence(facts: FlowFacts, source: SourceChecked) -> str:
    """Describe where the source's history leaves the chain's; empty if the chain is a prefix of the
    source.

    `source.epoch` is the largest epoch at the source that is not above the epoch of the chain's
    last record (KIP-101). The same epoch must reach at least to the end of the chain; a lower one
    means that the source never had the chain's last batches. An epoch that began at the end of the
    chain without a record is not checked: the target does not name it.
    """
    end, epoch = facts.chain_offset, facts.chain_epoch
    # the source has expired all records of the copy: nothing is left to compare
    if end <= source.log_start_offset:
        return ""
    if epoch < 0:
        # records from before leader epochs: only the ends can be compared
        if end <= source.high_watermark:
            return ""
        return f"the mirror ends at offset {end}, the source at {source.high_watermark}, and no leader epoch explains the difference"
    if source.epoch < 0:
        return f"the mirror ends at offset {end} under leader epoch {epoch}, which the source does not have"
    if shared_end(EpochEnd(epoch, end), EpochEnd(source.epoch, source.epoch_end_offset)) == end:
        return ""
    return (
        f"histories diverge at offset {min(source.epoch_end_offset, end)}: the mirror ends at {end} under leader epoch "
        f"{epoch}, the source's epoch {source.epoch} ends at {source.epoch_end_offset}"
    )


def rereads_last_batch(facts: FlowFacts, source: SourceChecked) -> bool:
    """True if the last batch of the chain is fetched again, so that the target compares it.

    Two histories under one leader epoch look equal to `find_divergence`: a source that was restored
    from a backup, or a copy that something else wrote to. Their last batches differ in offsets or
    checksum. A chain without a leader epoch, and one of which the source has no batch, need no
    comparison.
    """
    return facts.chain_epoch >= 0 and source.log_start_offset < facts.chain_offset


def begins_within(facts: FlowFacts, run: BatchRun) -> bool:
    """The copy begins where the source's log does, and that is inside a batch (DeleteRecords): the
    whole batch is copied.
    """
    is_beginning = facts.chain_epoch == -1 and facts.chain_offset == facts.restart_offset
    return is_beginning and run.first_offset < facts.chain_offset < run.next_offset
