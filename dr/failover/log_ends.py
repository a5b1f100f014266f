"""Truncating the logs of a promoted site at a time, before it takes writes: later records go to
quarantine at the leaders, and groups that are ahead of the new ends go back to them.

The offsets follow from the logs: the first record of each partition with that time or a later one.
So a run that was interrupted is repeated as a whole: a truncated log has no such record any more.
Batches are removed whole.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from dr.sites.core.evidence import SiteEvidence, TopicPartition
from runtime.process import OperationalFailure
from runtime.times import iso_time
from wire.client.broker_requests import CommittedOffset
from wire.client.client_errors import KafkaClientError, error_code
from wire.client.raw_client import KafkaClient
from wire.control.cluster_pb2 import LinkRecord, SiteView
from wire.protocol.quarantine_messages import QUARANTINE_RECORDS

TOOL: Final = -2
"""Replica id of a reader that a passive site answers."""
TRUNCATE_TIMEOUT_MS: Final = 60_000
BUDGET_MS: Final = 20_000
PROBLEMS_NAMED_MAX: Final = 3
CLIENT_LISTENER: Final = "CLIENT"


def bootstrap_of(view: SiteView) -> str:
    """Client addresses of a site's brokers."""
    return ",".join(
        f"{end.host}:{end.port}"
        for broker in view.brokers
        for end in broker.endpoints
        if end.listener == CLIENT_LISTENER or len(broker.endpoints) == 1
    )


def site_client(view: SiteView) -> KafkaClient:
    """A client of this site alone."""
    return KafkaClient(bootstrap_of(view), site_local=True, retry_budget_ms=BUDGET_MS)


async def truncation_offsets(
    client: KafkaClient, evidence: SiteEvidence, *, kept_before_ms: int
) -> dict[TopicPartition, int]:
    """Return the offset of each partition's first record at or after the time `kept_before_ms`, for
    partitions that have such records. OperationalFailure.
    """
    keys = sorted(evidence.copies)
    try:
        await client.metadata(sorted({key.topic for key in keys}))
        found = await client.offsets_at(keys, kept_before_ms, replica_id=TOOL)
    except KafkaClientError as error:
        raise OperationalFailure(
            f"site {evidence.site} does not say what lies behind {iso_time(kept_before_ms)}: {error}"
        ) from error
    return {TopicPartition(*key): offset for key, offset in found.items() if offset >= 0}


async def truncate_logs(client: KafkaClient, record: LinkRecord, evidence: SiteEvidence) -> str:
    """Truncate every log of the link's active site, and bring groups back. What did not work, in a
    sentence; empty: everything did. OperationalFailure.
    """
    offsets = await truncation_offsets(client, evidence, kept_before_ms=record.kept_before_ms)
    try:
        ends, problems = await _truncate_at_leaders(client, record, offsets)
        if not problems:
            ends = {key: position.log_end_offset for key, position in evidence.copies.items()} | ends
            problems = await _rewind_groups(client, record, evidence, ends)
    except KafkaClientError as error:
        raise OperationalFailure(f"site {evidence.site}: {error}") from error
    more = f" (and {len(problems) - PROBLEMS_NAMED_MAX} more)" if len(problems) > PROBLEMS_NAMED_MAX else ""
    return "; ".join(problems[:PROBLEMS_NAMED_MAX]) + more


async def _truncate_at_leaders(
    client: KafkaClient, record: LinkRecord, offsets: Mapping[TopicPartition, int]
) -> tuple[dict[TopicPartition, int], list[str]]:
    """Truncate logs at their leaders. Return the new log ends, and the partitions that could not be
    truncated.
    """
    topics = (await client.metadata(sorted({key.topic for key in offsets}))).topics if offsets else {}
    by_leader: dict[int, dict[str, dict[str, Any]]] = {}
    for key, offset in sorted(offsets.items()):
        asked = by_leader.setdefault(await client.leader(*key), {})
        topic = asked.setdefault(
            key.topic, {"name": key.topic, "topic_id": topics[key.topic].topic_id, "partitions": []}
        )
        topic["partitions"].append({"index": key.partition, "first_offset": offset})
    reason = f"failover of link {record.name} to {iso_time(record.kept_before_ms)}"
    ends: dict[TopicPartition, int] = {}
    problems = []
    for node, asked in sorted(by_leader.items()):
        values = {"link": record.name, "link_epoch": record.epoch, "reason": reason, "must_truncate": True}
        connection = await client.connection(node)
        response = await connection.call(
            QUARANTINE_RECORDS, {**values, "topics": list(asked.values())}, timeout_ms=TRUNCATE_TIMEOUT_MS
        )
        for one in response.outcomes:
            if one.error_code:
                problems.append(f"{one.topic}-{one.index}: {one.error_message or error_code(one.error_code).name}")
            else:
                ends[TopicPartition(one.topic, one.index)] = one.log_end_offset
    return ends, problems


async def _rewind_groups(
    client: KafkaClient, record: LinkRecord, evidence: SiteEvidence, ends: Mapping[TopicPartition, int]
) -> list[str]:
    """Groups that have read further than the logs reach now continue at the end."""
    assert evidence.groups is not None
    ahead: dict[str, dict[tuple[str, int], CommittedOffset]] = {}
    for place, offset in evidence.groups.offsets.items():
        key = TopicPartition(place.topic, place.partition)
        if key in ends and offset > ends[key]:
            ahead.setdefault(place.group, {})[key] = CommittedOffset(ends[key])
    problems = []
    for group, offsets in sorted(ahead.items()):
        outcome = await client.mirror_offset_commit(group, offsets, link=record.name, link_epoch=record.epoch)
        refused = [f"{key[0]}-{key[1]}" for key, code in outcome.items() if code]
        if refused:
            problems.append(f"group {group} keeps its offsets of {', '.join(refused)}")
    return problems
