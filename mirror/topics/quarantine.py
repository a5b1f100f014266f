"""QuarantinePort over the Kafka protocol: the leaders of copies keep the ends of their logs
(`wire/protocol/messages/quarantine_messages.py`).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from msgspec.structs import replace

from mirror.link.ports import EndToKeep, TruncatedCopy, Unreachable
from mirror.sites.kafka_site import reached
from wire.client.client_errors import error_code
from wire.client.raw_client import KafkaClient
from wire.protocol.ids import TopicPartition
from wire.protocol.messages.quarantine_messages import QUARANTINE_RECORDS

KEEP_TIMEOUT_MS: Final = 60_000
"""Answers take longer, because the brokers first copy bytes to disk."""

OUTDATED: Final = "its broker keeps records and cannot truncate a copy: update the brokers of this site"


class KafkaQuarantine:
    """QuarantinePort of one site."""

    def __init__(self, client: KafkaClient) -> None:
        """The caller owns the client."""
        self._client = client

    async def keep(
        self, ends: Mapping[TopicPartition, EndToKeep], *, link: str, link_epoch: int, reason: str
    ) -> Mapping[TopicPartition, str]:
        """Ask each leader; empty where the records are on disk, else why not. Raises Unreachable
        when a broker does not answer.
        """
        values = {"link": link, "link_epoch": link_epoch, "reason": reason}
        return {key: one.refusal for key, one in (await self._outcomes(ends, values)).items()}

    async def keep_and_truncate(
        self, ends: Mapping[TopicPartition, EndToKeep], *, link: str, link_epoch: int, reason: str
    ) -> Mapping[TopicPartition, TruncatedCopy]:
        """Ask each leader; the new end of the copy, or the reason why it was not truncated. Raises
        Unreachable when a broker does not answer.
        """
        values = {"link": link, "link_epoch": link_epoch, "reason": reason, "must_truncate": True}
        outcomes = await self._outcomes(ends, values)
        return {
            key: replace(one, refusal=OUTDATED) if not one.refusal and one.log_end_offset < 0 else one
            for key, one in outcomes.items()
        }

    async def _outcomes(
        self, ends: Mapping[TopicPartition, EndToKeep], values: Mapping[str, Any]
    ) -> dict[TopicPartition, TruncatedCopy]:
        by_node: dict[int, dict[TopicPartition, EndToKeep]] = {}
        for key, end in ends.items():
            by_node.setdefault(end.leader.node_id, {})[key] = end
        outcomes: dict[TopicPartition, TruncatedCopy] = {}
        for node_id, asked in by_node.items():
            if node_id < 0:
                outcomes |= dict.fromkeys(asked, TruncatedCopy(refusal="it has no leader"))
                continue
            response = await reached(self._ask(node_id, {**values, "topics": _topics(asked)}))
            outcomes |= {TopicPartition(one.topic, one.index): _outcome(one) for one in response.outcomes}
        missing = sorted(ends.keys() - outcomes.keys())
        if missing:
            raise Unreachable(f"the target's brokers do not answer for {missing[0]}")
        return outcomes

    async def _ask(self, node_id: int, values: Mapping[str, Any]) -> Any:
        connection = await self._client.connection(node_id)
        return await connection.call(QUARANTINE_RECORDS, values, timeout_ms=KEEP_TIMEOUT_MS)


def _outcome(one: Any) -> TruncatedCopy:
    code = error_code(one.error_code)
    refusal = f"{code.name}: {one.error_message}" if one.error_message else code.name
    return TruncatedCopy(log_end_offset=one.log_end_offset, entry=one.name, refusal=refusal if code else "")


def _topics(asked: Mapping[TopicPartition, EndToKeep]) -> list[dict[str, Any]]:
    topics: dict[str, dict[str, Any]] = {}
    for key, end in sorted(asked.items()):
        topic = topics.setdefault(key.topic, {"name": key.topic, "topic_id": end.topic_id, "partitions": []})
        topic["partitions"].append({"index": key.partition, "first_offset": end.first_offset})
    return list(topics.values())
