"""Sets the ends of a promoted site's logs before it takes writes: truncates them at a time or at
the latest point without torn transactions, and completes the transactions that the lost site had
decided.

The leaders move removed records to quarantine, and answer when the in-sync replicas have removed
them too. Groups that are ahead of the new ends continue at the ends. The offsets follow from the
logs: the first record of each partition at or after the time, the first commit marker of a torn
transaction. So an interrupted run is repeated as a whole: a truncated log has no such record.
Batches are removed whole.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

from kio.schema.errors import ErrorCode

from dr.failover.core.completion import leaderless_sentence
from dr.failover.core.refusals import UNTRUNCATED
from dr.failover.core.steps import FailoverPolicy
from dr.failover.core.torn_transactions import CommitMarker, TornSurvey
from dr.failover.core.truncation_check import TruncationCheck
from dr.failover.marker_scan import survey_transactions
from dr.sites.core.evidence import Evidence, SiteEvidence
from dr.sites.site_client import SiteClient
from runtime.process import OperationalFailure
from runtime.times import iso_time
from wire.batches.transaction_members import encode_members
from wire.client.client_errors import KafkaClientError, error_code
from wire.client.connection import ConnectionOptions
from wire.client.raw_client import KafkaClient
from wire.client.requests.group_requests import CommittedOffset
from wire.client.security import ClientSecurity, secured
from wire.control.cluster_pb2 import LinkRecord, SiteView
from wire.protocol.ids import DEBUGGING_CONSUMER, TopicPartition
from wire.protocol.messages.quarantine_messages import QUARANTINE_RECORDS
from wire.protocol.messages.transaction_end_messages import END_TRANSACTIONS

TRUNCATE_TIMEOUT_MS: Final = 60_000
BUDGET_MS: Final = 20_000
PROBLEMS_NAMED_MAX: Final = 3
OVER: Final = (ErrorCode.none, ErrorCode.invalid_producer_epoch)
"""Answers after which the transaction has ended in the partition."""
CLIENT_LISTENER: Final = "CLIENT"


def bootstrap_of(view: SiteView) -> str:
    """Client addresses of a site's brokers."""
    return ",".join(
        f"{end.host}:{end.port}"
        for broker in view.brokers
        for end in broker.endpoints
        if end.listener == CLIENT_LISTENER or len(broker.endpoints) == 1
    )


def site_client(view: SiteView, security: ClientSecurity | None = None) -> KafkaClient:
    """A client of this site's own brokers; without `security` it uses that of the process."""
    options = None if security is None else secured(ConnectionOptions(), security)
    return KafkaClient(bootstrap_of(view), options, site_local=True, retry_budget_ms=BUDGET_MS)


async def truncation_offsets(
    client: KafkaClient,
    evidence: SiteEvidence,
    *,
    kept_before_ms: int,
    among: Sequence[TopicPartition] | None = None,
) -> dict[TopicPartition, int]:
    """Return the offset of each partition's first record at or after the time `kept_before_ms`, for
    partitions that have such records; of those `among` these if given. OperationalFailure.

    A log with writes since the promotion is left out: it was truncated before them.
    """
    keys = _without_writes(evidence) if among is None else among
    if not keys:
        return {}
    try:
        await client.metadata(sorted({key.topic for key in keys}))
        found = await client.offsets_at(keys, kept_before_ms, replica_id=DEBUGGING_CONSUMER)
    except KafkaClientError as error:
        raise OperationalFailure(
            f"site {evidence.site} does not report its offsets at {iso_time(kept_before_ms)}: {error}"
        ) from error
    return {TopicPartition(*key): offset for key, offset in found.items() if offset >= 0}


async def look_up_truncations(
    check: TruncationCheck,
    evidence: Evidence,
    target: SiteClient,
    policy: FailoverPolicy,
    security: ClientSecurity | None,
) -> None:
    """Look up where a run would truncate logs that compaction has thinned. OperationalFailure."""
    keys = check.unknown(evidence)
    if not keys or evidence.target is None:
        return
    async with site_client(await target.view(asking_site=evidence.source_site), security) as client:
        ends = await truncation_offsets(client, evidence.target, kept_before_ms=policy.kept_before_ms, among=keys)
    check.note(keys, ends)


async def look_up_consistent_point(
    check: TruncationCheck,
    evidence: Evidence,
    target: SiteClient,
    policy: FailoverPolicy,
    security: ClientSecurity | None,
) -> bool:
    """Look up where a run to the latest point without torn transactions would truncate logs that
    compaction has thinned; True if the check knows more than before.
    """
    keys = check.unknown_of_point(evidence)
    if not keys or evidence.target is None:
        return False
    # the truncation after the raise reads the same logs, reports a failure, and gives writes back
    try:
        async with site_client(await target.view(asking_site=evidence.source_site), security) as client:
            ends, _ = await planned_ends(
                client, evidence.target, kept_before_ms=policy.kept_before_ms, is_cut_consistent=True
            )
    except OperationalFailure:
        check.note_point([], {})
        return False
    check.note_point(keys, ends)
    return True


def _without_writes(evidence: SiteEvidence) -> list[TopicPartition]:
    """The logs without a record of the promoted epoch, sorted: an earlier run has truncated the
    others.
    """
    is_promoted = evidence.record.active_site == evidence.site
    floor = evidence.record.leader_epoch_floor
    return sorted(
        key for key, one in evidence.copies.items() if not (is_promoted and floor and one.last_log_epoch >= floor)
    )


async def planned_ends(
    client: KafkaClient, evidence: SiteEvidence, *, kept_before_ms: int, is_cut_consistent: bool
) -> tuple[dict[TopicPartition, int], TornSurvey]:
    """Return where a failover would end the logs that it shortens, and the torn transactions that
    it removes. OperationalFailure.
    """
    ends: dict[TopicPartition, int] = {}
    if kept_before_ms:
        ends = await truncation_offsets(client, evidence, kept_before_ms=kept_before_ms)
    if not is_cut_consistent:
        return ends, TornSurvey()
    found = await survey_transactions(client, evidence.record, evidence, ends=ends, kept_before_ms=kept_before_ms)
    return {**ends, **found.ends}, found


async def truncate_logs(client: KafkaClient, record: LinkRecord, evidence: SiteEvidence) -> tuple[TornSurvey, str]:
    """Truncate every log of the link's active site, and move groups back. Return the removed torn
    transactions, and the problems in a sentence, empty if there is none. Raises
    OperationalFailure.
    """
    if problem := _unanswered(evidence):
        return TornSurvey(), problem
    offsets, found = await planned_ends(
        client, evidence, kept_before_ms=record.kept_before_ms, is_cut_consistent=record.is_cut_consistent
    )
    # Every log is named: after an attempt that ended early the removed records may be at replicas
    # alone, and only the leader knows those.
    unwritten = {TopicPartition(*key): evidence.copies[key].log_end_offset for key in _without_writes(evidence)}
    try:
        ends, problems = await _truncate_at_leaders(client, record, unwritten | offsets)
        if not problems:
            # groups are moved only if all logs have their final ends
            ends = {key: position.log_end_offset for key, position in evidence.copies.items()} | ends
            problems = await _rewind_groups(client, record, evidence, ends)
    except KafkaClientError as error:
        raise OperationalFailure(f"site {evidence.site}: {error}") from error
    more = f" (and {len(problems) - PROBLEMS_NAMED_MAX} more)" if len(problems) > PROBLEMS_NAMED_MAX else ""
    return found, "; ".join(problems[:PROBLEMS_NAMED_MAX]) + more


def _unanswered(evidence: SiteEvidence) -> str:
    """The parts of the site that cannot be changed now, in a sentence. Nothing looks at them again
    after the account.
    """
    assert evidence.groups is not None
    if problem := leaderless_sentence(evidence, consequence=UNTRUNCATED):
        return problem
    if evidence.groups.problems:
        return f"groups cannot be moved back: {'; '.join(evidence.groups.problems)}"
    return ""


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
    wanted = iso_time(record.kept_before_ms) if record.kept_before_ms else "a point without torn transactions"
    reason = f"failover of link {record.name} to {wanted}"
    ends: dict[TopicPartition, int] = {}
    problems = []
    for node, asked in sorted(by_leader.items()):
        # The broker checks link and epoch, so a run that was overtaken by another failover
        # truncates nothing.
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
    """Move groups whose offsets are above the new log ends back to the ends."""
    assert evidence.groups is not None
    ahead: dict[str, dict[tuple[str, int], CommittedOffset]] = {}
    for place, offset in evidence.groups.offsets.items():
        key = TopicPartition(place.topic, place.partition)
        if key in ends and offset > ends[key]:
            ahead.setdefault(place.group, {})[key] = CommittedOffset(ends[key])
    problems = []
    for group, offsets in sorted(ahead.items()):
        # as the link's mirror: a group of a passive site accepts no other commits
        outcome = await client.mirror_offset_commit(group, offsets, link=record.name, link_epoch=record.epoch)
        refused = [f"{key[0]}-{key[1]}" for key, code in outcome.items() if code]
        if refused:
            problems.append(f"group {group} keeps its offsets of {', '.join(refused)}")
    return problems


async def end_torn_transactions(
    client: KafkaClient, record: LinkRecord, evidence: SiteEvidence
) -> tuple[TornSurvey, str]:
    """Commit the promoted site's part of each torn transaction, in every partition. Return the torn
    transactions, and the problems in a sentence. Raises OperationalFailure.
    """
    found = await survey_transactions(client, record, evidence)
    by_leader: dict[int, list[dict[str, Any]]] = {}
    problems = []
    try:
        for key, markers in sorted(found.due.items()):
            if key in evidence.copies:
                by_leader.setdefault(await client.leader(*key), []).extend(_ended(key, one) for one in markers)
        for node, transactions in sorted(by_leader.items()):
            values = {"link": record.name, "link_epoch": record.epoch, "transactions": transactions}
            response = await (await client.connection(node)).call(
                END_TRANSACTIONS, values, timeout_ms=TRUNCATE_TIMEOUT_MS
            )
            problems += [
                f"{one.topic}-{one.index}: {error_code(one.error_code).name}"
                for one in response.outcomes
                # A repeated run meets transactions that the first one has ended.
                if one.error_code not in OVER
            ]
    except KafkaClientError as error:
        raise OperationalFailure(f"site {evidence.site}: {error}") from error
    return found, "; ".join(problems[:PROBLEMS_NAMED_MAX])


def _ended(key: TopicPartition, marker: CommitMarker) -> dict[str, Any]:
    return {
        "producer_id": marker.producer_id,
        "producer_epoch": marker.producer_epoch,
        "is_commit": True,
        "coordinator_epoch": marker.coordinator_epoch,
        "transaction_version": 0,
        "members": encode_members(marker.members),
        "topics": [{"name": key.topic, "partition_indexes": [key.partition]}],
    }
