"""Decides the sink's batches and carries decisions out; see `core/sink_decisions.py`.

A task first takes the query's own transactional id: from then on no older driver can decide, so
what the task then reads is final. The driver decides with the newest of the identities that its
tasks took.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Final

from spark_jobs.connector.core.options import WriteOptions
from spark_jobs.connector.core.sink_decisions import (
    Decision,
    Ended,
    Outcome,
    TaskTransaction,
    encoded,
    group_name,
    is_void,
    joined,
    newest,
    transactional_id,
)
from spark_jobs.connector.transaction_coordinator import Fenced, TransactionCoordinator, UnknownTransaction
from wire.client.client_errors import broker_error
from wire.client.raw_client import KafkaClient
from wire.client.requests.group_requests import CommittedOffset
from wire.client.requests.transaction_requests import ProducerIdentity
from wire.protocol.ids import PartitionKey

COMMITS_AT_ONCE: Final = 20


class SinkDecider:
    """One query's decisions. The client stays the caller's."""

    def __init__(self, client: KafkaClient, options: WriteOptions, query: str) -> None:
        self._client = client
        self._options = options
        self._query = query
        self._coordinator = TransactionCoordinator(client)
        self._transactional_id = transactional_id(query, None)

    async def fence(self) -> ProducerIdentity:
        """Fence every older driver, so that it cannot decide."""
        return await self._coordinator.identity(self._transactional_id, self._options.transaction_timeout_ms)

    async def decided(self) -> Decision | None:
        """The newest decision."""
        found = await self._part(0)
        if found is None:
            return None
        first, group_count = found
        others = [await self._part(number) for number in range(1, group_count)]
        return joined(first, [None if part is None else part[0] for part in others])

    async def decide(self, decision: Decision, identity: ProducerIdentity, places: Mapping[PartitionKey, int]) -> None:
        """Make the decision, in one transaction. Fenced when a newer driver has begun."""
        # Any partition of the batch can be used, because only the metadata of the offset counts.
        place = min(places)
        for number, text in enumerate(encoded(decision)):
            offsets = {place: CommittedOffset(max(0, places[place]), metadata=text)}
            group = group_name(self._query, number)
            await self._coordinator.add_group_offsets(self._transactional_id, identity, group, offsets)
        await self._coordinator.commit(self._transactional_id, identity)

    async def carry_out(self, decision: Decision) -> list[Ended]:
        """Commit the decision's transactions; those that are committed already stay so."""
        found: list[Ended] = []
        for at in range(0, len(decision.transactions), COMMITS_AT_ONCE):
            found += await asyncio.gather(*map(self._commit, decision.transactions[at : at + COMMITS_AT_ONCE]))
        return found

    async def finish(self, decision: Decision, place: PartitionKey, end: int) -> None:
        """Note that the decision is carried out. At the other site of a link coordinators do not
        know how transactions ended here, so a batch that is run again there depends on it.
        """
        text = encoded(replace(decision, is_carried_out=True))[0]
        outcomes = await self._client.commit(
            group_name(self._query, 0), {place: CommittedOffset(max(0, end), metadata=text)}
        )
        for code in outcomes.values():
            if code:
                raise broker_error(code, message=group_name(self._query, 0))

    async def carry_out_again(self, decision: Decision) -> bool:
        """Carry out what an earlier driver decided; False when nothing of it can be, and the
        decision is taken back. BatchNotWhole.
        """
        if not is_void(await self.carry_out(decision), query=self._query, batch=decision.batch):
            return True
        # Only the partition that an earlier driver used is known here, and it serves as well.
        found = await self._client.committed(group_name(self._query, 0))
        for place, offset in found.items():
            # Other tasks have fenced the query meanwhile, which does no harm: the batch fails. The
            # previous decision is restored, so that the batch counts as not decided.
            identity = await self.fence()
            previous = replace(
                decision,
                batch=decision.batch - 1,
                transactions=(),
                others=decision.others_than(()),
                producer_id=identity.producer_id,
                is_carried_out=True,
            )
            await self.decide(previous, identity, {place: offset.offset})
        return False

    async def _commit(self, transaction: TaskTransaction) -> Ended:
        identity = ProducerIdentity(transaction.producer_id, transaction.producer_epoch)
        try:
            await self._coordinator.commit(transactional_id(self._query, transaction.task), identity)
        except Fenced:
            return Ended(transaction, Outcome.ABORTED)
        except UnknownTransaction:
            return Ended(transaction, Outcome.UNKNOWN)
        return Ended(transaction, Outcome.COMMITTED)

    async def _part(self, number: int) -> tuple[Decision, int] | None:
        found = await self._client.committed(group_name(self._query, number))
        return newest([offset.metadata for offset in found.values()])


def newest_identity(identities: Sequence[ProducerIdentity]) -> ProducerIdentity:
    """The identity with the highest epoch."""
    return max(identities)
