"""The target's coordinator of one transactional id: the requests of a producer that writes in
transactions, each until it is answered.

Called by `transactions.py`, for the mirror's own id and for those of mirrors that it fences.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from typing import TypeVar

from kio.schema.errors import ErrorCode

from mirror.sites.kafka_site import reached
from runtime.retries import jittered_backoff
from wire.client.client_errors import TRANSIENT, BrokerError, KafkaClientError
from wire.client.connection import Connection
from wire.client.raw_client import KafkaClient
from wire.client.requests.transaction_requests import (
    ProducerIdentity,
    request_end,
    request_identity,
    request_partitions,
)
from wire.protocol.ids import PartitionKey

Result = TypeVar("Result")


class TransactionCoordinator:
    """The coordinator is looked up again after a failure."""

    def __init__(self, client: KafkaClient, transactional_id: str, *, timeout_ms: int) -> None:
        self._client = client
        self._timeout_ms = timeout_ms
        self._node_id = -1
        self.transactional_id = transactional_id

    async def fence(self) -> ProducerIdentity:
        """A new epoch: fences every earlier producer of the id, and aborts what was open.
        Unreachable.
        """
        return await self._asked(
            lambda connection: request_identity(connection, self.transactional_id, timeout_ms=self._timeout_ms)
        )

    async def add(self, stamp: ProducerIdentity, places: Sequence[PartitionKey]) -> None:
        """Add these places to the open transaction, or to a new one. Raises Unreachable."""
        await self._asked(lambda connection: request_partitions(connection, self.transactional_id, stamp, places))

    async def end(self, stamp: ProducerIdentity, *, is_commit: bool) -> None:
        """End the open transaction. Unreachable: its outcome is not known."""
        await self._asked(lambda connection: request_end(connection, self.transactional_id, stamp, is_commit=is_commit))

    async def _asked(self, ask: Callable[[Connection], Awaitable[Result]]) -> Result:
        """Repeat the request while the coordinator moves, loads, or still ends the previous
        transaction.
        """

        async def once() -> Result:
            if self._node_id < 0:
                self._node_id = await self._client.transaction_coordinator(self.transactional_id)
            node_id = self._node_id
            try:
                return await ask(await self._client.connection(node_id))
            except KafkaClientError as error:
                if not is_still_ending(error):
                    self._node_id = -1
                raise

        retrying = jittered_backoff(retry_on=TRANSIENT, initial_ms=4, max_ms=200, budget_ms=self._timeout_ms / 2)
        result: Result = await reached(retrying(once))
        return result


def is_still_ending(error: KafkaClientError) -> bool:
    """True if the coordinator only has to finish the previous transaction."""
    return isinstance(error, BrokerError) and error.code is ErrorCode.concurrent_transactions
