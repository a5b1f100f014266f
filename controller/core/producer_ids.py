"""Allocates blocks of producer ids in order, each once, within the range of the site."""

from __future__ import annotations

from wire.znodes.cluster_znodes import ProducerIdBlock

PRODUCER_ID_BLOCK_SIZE = 1000


class ProducerIdsExhausted(Exception):
    """The stored block is beyond the site's range: the site's number was changed, or a range of
    2^40 ids is used up.
    """


def next_block(latest: ProducerIdBlock | None, *, broker_id: int, range_start: int, range_size: int) -> ProducerIdBlock:
    """The block after `latest`, or the first of the range."""
    first = range_start if latest is None else max(range_start, latest.last_producer_id + 1)
    last = first + PRODUCER_ID_BLOCK_SIZE - 1
    if last >= range_start + range_size:
        raise ProducerIdsExhausted(
            f"producer ids {first} to {last} are outside the site's range from {range_start} to {range_start + range_size - 1}"
        )
    return ProducerIdBlock(broker_id=broker_id, first_producer_id=first, last_producer_id=last)
