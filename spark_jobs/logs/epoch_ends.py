"""Asks leaders where leader epochs end in their logs."""

from __future__ import annotations

from collections.abc import Mapping

from runtime.retries import jittered_backoff
from spark_jobs.logs.cluster_client import RETRY_BUDGET_MS
from wire.client.client_errors import TRANSIENT, broker_error
from wire.client.raw_client import KafkaClient
from wire.client.requests.broker_requests import EpochEndOffset, EpochQuery
from wire.protocol.ids import PartitionKey


async def epoch_ends(
    client: KafkaClient, epochs: Mapping[PartitionKey, int], *, replica_id: int
) -> dict[PartitionKey, EpochEndOffset]:
    """The largest leader epoch of each log that is not above the given one, and its end offset; -1
    for both without one. KafkaClientError.
    """

    async def attempt() -> dict[PartitionKey, EpochEndOffset]:
        by_leader: dict[int, dict[PartitionKey, EpochQuery]] = {}
        for key, epoch in epochs.items():
            by_leader.setdefault(await client.leader(*key), {})[key] = EpochQuery(epoch)
        found: dict[PartitionKey, EpochEndOffset] = {}
        for node, queries in by_leader.items():
            for (topic, partition), end in (await client.epoch_ends(node, queries, replica_id=replica_id)).items():
                if end.error_code:
                    raise broker_error(end.error_code, message=f"{topic}-{partition}")
                found[topic, partition] = end
        return found

    async def once() -> dict[PartitionKey, EpochEndOffset]:
        try:
            return await attempt()
        except TRANSIENT:
            client.forget_leaders(sorted({topic for topic, _ in epochs}))
            raise

    result: dict[PartitionKey, EpochEndOffset] = await jittered_backoff(retry_on=TRANSIENT, budget_ms=RETRY_BUDGET_MS)(
        once
    )
    return result
