"""Producer ids of a broker: taken from blocks of the controller, each id once. Pure.

A broker requests its next block while the present one still has some ids, so that no client waits.
After a crash the remaining ids of a block are not used. A producer that names its id and epoch
continues under the next epoch (KIP-360), until the epochs are used up.
"""

from __future__ import annotations

from typing import Final

from msgspec import Struct, field

PRODUCER_EPOCH_MAX: Final = (1 << 15) - 2
"""The last epoch that may be handed out; Kafka keeps 2^15 - 1 for fencing."""
PREFETCH_SHARE: Final = 0.1
"""A new block is wanted when less than this share of the last one is left."""


class ProducerIds(Struct):
    """Blocks in hand, in the order in which they came."""

    _blocks: list[range] = field(default_factory=list)
    _last_block_size: int = 0

    @property
    def left(self) -> int:
        """Ids in hand."""
        return sum(len(block) for block in self._blocks)

    @property
    def wants_block(self) -> bool:
        """True when the next block should be asked for."""
        return self.left <= self._last_block_size * PREFETCH_SHARE

    def add_block(self, first_producer_id: int, count: int) -> None:
        """A block arrived. ValueError for an empty one."""
        if count < 1 or first_producer_id < 0:
            raise ValueError(f"a block of {count} producer ids from {first_producer_id}")
        self._blocks.append(range(first_producer_id, first_producer_id + count))
        self._last_block_size = count

    def take(self) -> int | None:
        """The next id, None if the block is used up."""
        if not self._blocks:
            return None
        block = self._blocks[0]
        if len(block) == 1:
            self._blocks.pop(0)
        else:
            self._blocks[0] = block[1:]
        return block[0]


def bumped_epoch(producer_id: int, producer_epoch: int) -> int | None:
    """The epoch after the one that the producer names; None when it names none or has used them up:
    it needs a new id.
    """
    if producer_id < 0 or not 0 <= producer_epoch < PRODUCER_EPOCH_MAX:
        return None
    return producer_epoch + 1
