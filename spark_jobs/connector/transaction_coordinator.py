"""The sink's requests to the coordinators of its transactions, repeated until the coordinators are
ready.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from typing import TypeVar

from kio.schema.errors import ErrorCode

from runtime.retries import jittered_backoff
from spark_jobs.logs.cluster_client import RETRY_BUDGET_MS
from wire.client.client_errors import TRANSIENT, BrokerError, UnsupportedApi, broker_error
from wire.client.connection import Connection
from wire.client.raw_client import KafkaClient
from wire.client.requests.group_requests import CommittedOffset
from wire.client.requests.transaction_descriptions import DESCRIBE_TRANSACTIONS, describe_transaction
from wire.client.requests.transaction_requests import (
    ProducerIdentity,
    request_end,
    request_group,
    request_group_offsets,
    request_identity,
)
from wire.protocol.ids import NO_PRODUCER_ID, PartitionKey

FENCED = (ErrorCode.producer_fenced, ErrorCode.invalid_producer_epoch)
"""A newer producer of the id has begun, or the brokers have aborted the transaction."""
UNKNOWN = (ErrorCode.invalid_txn_state, ErrorCode.invalid_producer_id_mapping)
"""The coordinator has no such transaction: it may have ended at the site that was active before."""
Answer = TypeVar("Answer")


class Fenced(Exception):
    """Another producer of the same transactional id has begun, or the transaction was aborted."""


class UnknownTransaction(Exception):
    """The coordinator does not know the transaction, so its outcome is unknown."""


class TransactionCoordinator:
    """The coordinators of transactional ids. The client stays the caller's."""

    def __init__(self, client: KafkaClient) -> None:
        self._client = client

    async def identity(self, transactional_id: str, timeout_ms: int) -> ProducerIdentity:
        """Fence earlier producers of the id; their open transaction is aborted."""
        return await self.at(transactional_id, lambda at: request_identity(at, transactional_id, timeout_ms=timeout_ms))

    async def commit(self, transactional_id: str, identity: ProducerIdentity) -> None:
        """Commit the transaction, or find it committed. Fenced, UnknownTransaction."""
        await self.at(transactional_id, lambda at: request_end(at, transactional_id, identity, is_commit=True))

    async def producer_id(self, transactional_id: str) -> int:
        """The producer id that the coordinator knows of an id, which may be another site's; -1 if
        it knows none, or brokers before Apache Kafka 3.0 do not say it. KafkaClientError.
        """

        async def described(at: Connection) -> int:
            at.version_for(DESCRIBE_TRANSACTIONS)
            found = await describe_transaction(at, transactional_id)
            if found.error_code is ErrorCode.transactional_id_not_found:
                return NO_PRODUCER_ID
            if found.error_code is ErrorCode.none:
                return found.producer_id
            raise broker_error(found.error_code, message=transactional_id, api_key=DESCRIBE_TRANSACTIONS)

        try:
            return await self.at(transactional_id, described)
        except UnsupportedApi:
            return NO_PRODUCER_ID

    async def add_group_offsets(
        self,
        transactional_id: str,
        identity: ProducerIdentity,
        group_id: str,
        offsets: Mapping[PartitionKey, CommittedOffset],
    ) -> None:
        """Make offsets of a group part of the transaction. Fenced."""
        await self.at(transactional_id, lambda at: request_group(at, transactional_id, identity, group_id))

        async def attempt() -> None:
            try:
                at = await self._client.connection(await self._client.coordinator(group_id))
                await request_group_offsets(at, transactional_id, identity, group_id, offsets)
            except TRANSIENT:
                self._client.forget_coordinator(group_id)
                raise

        await _unfenced(transactional_id, attempt)

    async def at(self, transactional_id: str, ask: Callable[[Connection], Awaitable[Answer]]) -> Answer:
        """The coordinator's answer. Fenced, KafkaClientError."""

        async def attempt() -> Answer:
            node = await self._client.transaction_coordinator(transactional_id)
            return await ask(await self._client.connection(node))

        return await _unfenced(transactional_id, attempt)


async def _unfenced(transactional_id: str, attempt: Callable[[], Awaitable[Answer]]) -> Answer:
    try:
        result: Answer = await jittered_backoff(retry_on=TRANSIENT, budget_ms=RETRY_BUDGET_MS)(attempt)
    except BrokerError as error:
        if error.code in FENCED:
            raise Fenced(
                f"another attempt writes as {transactional_id}, or its transaction is over: {error}"
            ) from error
        if error.code in UNKNOWN:
            raise UnknownTransaction(f"{transactional_id}: {error}") from error
        raise
    return result
