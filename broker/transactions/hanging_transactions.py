"""Aborts open transactions in the mirrored log that no coordinator can end, after a promotion.

The coordinator of such a transaction is at the formerly active site, and its state is not mirrored.
A promoted leader finds transactions that began below the offset of its own first epoch and aborts
them; otherwise a read-committed reader waits for them for ever. The marker carries the next
producer epoch, which fences the producer in this partition if it still writes under its former id.
An image listener: a partition without such transactions costs one look at an empty dict.
"""

from __future__ import annotations

import asyncio
from functools import partial
from typing import Final

from kio.schema.errors import ErrorCode

from broker.log.core.producer_values import SnapshotEntry
from broker.metadata.core.cluster_image import ClusterImage
from broker.replication.hosted_partition import HostedPartition, PartitionFailure
from broker.replication.replicas import Replicas
from broker.transactions.core.transaction_states import FENCING_EPOCH_MAX
from broker.transactions.marker_groups import TransactionEnd
from broker.transactions.transaction_markers import TransactionMarkers
from runtime.logs import get_logger
from runtime.retries import jittered_backoff
from runtime.supervision import until_done
from wire.batches.group_records import OFFSETS_TOPIC

log = get_logger(__name__)

BACKOFF_INITIAL_MS: Final = 100
BACKOFF_MAX_MS: Final = 5000


class HangingTransactions:
    """Finds and aborts these transactions after each change of the image."""

    def __init__(self, replicas: Replicas, markers: TransactionMarkers) -> None:
        self._replicas = replicas
        self._markers = markers
        self._ending: dict[tuple[str, int], asyncio.Task[None]] = {}

    async def on_image(self, _before: ClusterImage, after: ClusterImage) -> None:
        """Look for transactions that a promotion left open (an `ImageListener`)."""
        # Only where clients may write after a promotion: writers wait for the images of a move, and
        # there may be thousands of partitions.
        promoted = {
            name
            for name in after.topics
            if (link := after.link_of(name)) is not None and link.leader_epoch_floor and after.role_in(link).may_write
        }
        for hosted in self._replicas if promoted else ():
            # of thousands of partitions few have a transaction
            has_open = hosted.log.producers.has_open_transactions
            if has_open and hosted.topic in promoted and hosted.key not in self._ending and _left_open(hosted, after):
                work = until_done("hanging transactions", partial(self._end_all, hosted, after))
                task = asyncio.get_running_loop().create_task(work)
                self._ending[hosted.key] = task
                task.add_done_callback(partial(self._forget, hosted.key))

    async def _end_all(self, hosted: HostedPartition, image: ClusterImage) -> None:
        retrying = jittered_backoff(retry_on=PartitionFailure, initial_ms=BACKOFF_INITIAL_MS, max_ms=BACKOFF_MAX_MS)
        async for attempt in retrying:
            with attempt:
                if not hosted.state.is_leader or hosted.write_error is not ErrorCode.none:
                    return
                for producer in _left_open(hosted, image):
                    await self._markers.append(hosted, _abort(producer))
                    log.warning(
                        "transaction aborted: its coordinator is at the formerly active site",
                        topic=hosted.topic,
                        partition=hosted.index,
                        producer_id=producer.producer_id,
                        first_offset=producer.transaction_first_offset,
                    )

    def _forget(self, key: tuple[str, int], _task: asyncio.Task[None]) -> None:
        self._ending.pop(key, None)

    async def stop(self) -> None:
        """Cancel the work that is under way; the next start finds these transactions again."""
        tasks = tuple(self._ending.values())
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


def _left_open(hosted: HostedPartition, image: ClusterImage) -> list[SnapshotEntry]:
    """Open transactions that began before this site was promoted for the topic."""
    found = hosted.log.producers.open_transactions()
    if not found or hosted.topic == OFFSETS_TOPIC:
        return []
    link = image.link_of(hosted.topic)
    if link is None or not link.leader_epoch_floor:
        return []
    if not hosted.state.is_leader or hosted.write_error is not ErrorCode.none:
        return []
    promoted_at = hosted.log.first_offset_since_epoch(link.leader_epoch_floor)
    if promoted_at is None:
        return []
    return [producer for producer in found if producer.transaction_first_offset < promoted_at]


def _abort(producer: SnapshotEntry) -> TransactionEnd:
    return TransactionEnd(
        producer_id=producer.producer_id,
        producer_epoch=min(producer.producer_epoch + 1, FENCING_EPOCH_MAX),
        is_commit=False,
        coordinator_epoch=producer.coordinator_epoch,
    )
