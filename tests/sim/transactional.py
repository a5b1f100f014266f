"""Transactional producers: transactions over several partitions, with outcomes that alternate more
often than not, by both of Kafka's protocols.

A producer behaves as Kafka's clients do: it repeats what has no answer or a retriable one, for
ever; an abort may overtake its own records; and only errors that Kafka gives as well may end it. An
instance is killed now and then, or is replaced while it continues, with requests in flight. The
older protocol has one epoch for many transactions, so a request of one that arrives late could
touch the next one, at Kafka as well (KIP-890): after a transaction with an unanswered request such
a producer asks for another epoch.
"""

from __future__ import annotations

import asyncio
import datetime as dt
from dataclasses import dataclass, field
from typing import Any, Final
from uuid import UUID

from kio.schema.errors import ErrorCode

from clients.reader.core.committed import skipped_batches
from tests.sim.clients import Consumer, Router
from tests.sim.coordinator_client import UNANSWERED, CoordinatorClient, code_of_commit, fetch_offset, offset_topics
from tests.sim.ledger import Key
from tests.sim.transaction_ledger import Outcome, Place, Transaction, TransactionLedger
from tests.sim.virtual_loop import Process
from tests.sim.world import EPOCH_MS, World
from tests.support.disks.log_batches import TRANSACTIONAL, batch
from wire.batches.record_batch import iterate_headers
from wire.client.client_errors import KafkaClientError, error_code
from wire.client.requests.group_requests import TRANSACTION_KEY_TYPE
from wire.client.requests.transaction_requests import ADD_PARTITIONS_TO_TXN, END_TXN, INIT_PRODUCER_ID
from wire.protocol.messages import produce_codec
from wire.protocol.messages.produce_codec import PartitionRecords, ProduceRequest, TopicRecords

NO_ID: Final = -1
ADD_OFFSETS_TO_TXN: Final = 25
TXN_OFFSET_COMMIT: Final = 28
OFFSETS_CHANCE: Final = 0.3
DEATH_CHANCE: Final = 0.08
REPLACEMENT_CHANCE: Final = 0.05
ALTERNATION_CHANCE: Final = 0.75
HASTE_CHANCE: Final = 0.4
"""Of an abort that does not wait for its own records."""


class InstanceEnds(Exception):
    """This instance of the producer is over: it died, or an error ended it."""


@dataclass(frozen=True, slots=True)
class Protocol:
    """The versions that a client of one of Kafka's two transaction protocols uses."""

    produce: int
    offsets: int
    end: int
    is_bumping: bool


FIRST: Final = Protocol(produce=11, offsets=3, end=4, is_bumping=False)
SECOND: Final = Protocol(produce=13, offsets=5, end=5, is_bumping=True)
"""KIP-890's: every transaction has an epoch of its own, leaders add partitions."""


@dataclass
class TransactionalProducer:
    """One transactional id: its instances, one after the other."""

    world: World
    ledger: TransactionLedger
    process: Process
    nodes: tuple[int, ...]
    name: str
    places: tuple[Place, ...]
    protocol: Protocol
    timeout_ms: int
    pace_s: float
    is_wanted: bool = True
    transactions: int = 0
    instances: int = 0
    is_idle: bool = False
    replaced: list[asyncio.Task[None]] = field(default_factory=list)
    """Transactions of former instances that go on."""

    @property
    def group(self) -> str:
        """The group whose offsets it commits in its transactions."""
        return f"group of {self.name}"

    @property
    def is_waiting(self) -> bool:
        """True while a transaction has not ended."""
        return not self.ledger.is_waived and not (self.is_idle and all(task.done() for task in self.replaced))

    async def run(self) -> None:
        """Run one instance after another. The last one ends the transaction that the one before it
        has left open.
        """
        has_ended = False
        while not has_ended:
            self.instances += 1
            try:
                await Instance(self).run()
                has_ended = True
            except InstanceEnds as end:
                self.world.tell(f"{self.name} begins anew: {end}")
        if self.replaced:
            await asyncio.wait(self.replaced)
        await self._look()
        self.is_idle = True

    async def _look(self) -> None:
        """Ask until the group's coordinator answers with the committed offset. A former coordinator
        that does not know it yet answers with an older one, in Kafka as well.
        """
        groups = CoordinatorClient(self.world, Router(self.world, self.nodes), self.nodes, self.group, 0)
        while not self.ledger.is_waived:
            code, found = await fetch_offset(groups, self.group, self.places[0])
            if code is ErrorCode.none and found in self.ledger.possible_offsets(self.name):
                return
            await self.world.pause(0.2)

    def next_transaction(self) -> Transaction:
        """The next one; numbers grow over all instances."""
        self.transactions += 1
        return self.ledger.begin(self.name, self.transactions)


class Instance:
    """One process of a transactional producer, as far as the brokers know."""

    def __init__(self, owner: TransactionalProducer) -> None:
        self._owner = owner
        self._world = owner.world
        self._ledger = owner.ledger
        self._router = Router(owner.world, owner.nodes)
        self._coordinator = CoordinatorClient(owner.world, self._router, owner.nodes, owner.name, TRANSACTION_KEY_TYPE)
        self._groups = CoordinatorClient(owner.world, self._router, owner.nodes, owner.group, 0)
        self._id = NO_ID
        self._epoch = NO_ID
        self._sequences: dict[Place, int] = {}
        self._has_unanswered = False
        self._is_replaced = False
        self._commits = False
        self._parts = 0

    async def run(self) -> None:
        """Run transactions as long as they are wanted. Raises InstanceEnds."""
        chance, owner = self._world.chance, self._owner
        await self._initialize(is_named=False)
        while owner.is_wanted:
            await self._world.pause(chance.uniform(0, 2 * owner.pace_s))
            self._commits = not self._commits if chance.random() < ALTERNATION_CHANCE else self._commits
            draw = chance.random()
            if draw < REPLACEMENT_CHANCE:
                self._is_replaced = True
                owner.replaced.append(owner.process.spawn(self._go_on(), name=f"{owner.name} replaced"))
                await self._world.pause(chance.uniform(0, 0.3))
                raise InstanceEnds("it is replaced")
            await self._transact(is_dying=draw < REPLACEMENT_CHANCE + DEATH_CHANCE)

    async def _go_on(self) -> None:
        """A last transaction of an instance that does not know that there is another one."""
        try:
            await self._transact(is_dying=False)
        except InstanceEnds as end:
            self._world.tell(f"{self._owner.name}: a former instance ends: {end}")

    # --- one transaction

    async def _transact(self, *, is_dying: bool) -> None:
        chance, owner = self._world.chance, self._owner
        transaction = owner.next_transaction()
        self._parts = 0
        places = chance.sample(owner.places, chance.randint(1, len(owner.places)))
        if not self.protocol.is_bumping:
            await self._add(transaction, places)
        writes = [owner.process.spawn(self._write(transaction, place)) for place in places]
        if chance.random() < OFFSETS_CHANCE:
            writes.append(owner.process.spawn(self._commit_offset(transaction)))
        has_haste = not self._commits and chance.random() < HASTE_CHANCE
        if is_dying or has_haste:
            await self._world.pause(chance.uniform(0, chance.choice((0.0005, 0.05))))
            self._has_unanswered = True
        else:
            await asyncio.wait(writes)
        dies_at_end = is_dying and self._commits and chance.random() < 0.5
        if is_dying and not dies_at_end:
            _leave(writes)
            raise InstanceEnds(f"it dies in transaction {transaction.number}")
        if dies_at_end:
            await asyncio.wait(writes)
        commits = self._commits and not has_haste
        ends = [str(error) for write in writes if write.done() and (error := write.exception()) is not None]
        _leave(writes)
        if ends:
            raise InstanceEnds(ends[0])
        if dies_at_end:
            transaction.outcome = Outcome.ASKED
            asked = owner.process.spawn(self._end_once(commits))
            await self._world.pause(chance.uniform(0, 0.02))
            _leave([asked])
            raise InstanceEnds(f"it dies while it commits transaction {transaction.number}")
        await self._end(transaction, commits)

    @property
    def protocol(self) -> Protocol:
        """The protocol of the producer."""
        return self._owner.protocol

    async def _write(self, transaction: Transaction, place: Place) -> None:
        chance = self._world.chance
        for _ in range(chance.choice((1, 1, 2))):
            self._parts += 1
            label = f"{transaction.name}:{self._parts}"
            sequence = self._sequences.get(place, 0)
            self._sequences[place] = sequence + 1
            content = batch(
                [f"<{label}>".encode()],
                timestamp_ms=EPOCH_MS,
                producer_id=self._id,
                producer_epoch=self._epoch,
                sequence=sequence,
                attributes=TRANSACTIONAL,
            )
            while (code := await self._attempt(place, content)) is not ErrorCode.none:
                await self._judge(code, f"Produce of {label} to {place}", transaction)
            transaction.written[place].append(label)

    async def _attempt(self, place: Place, content: bytes) -> ErrorCode:
        topic, index = place
        leader, _, topic_id = self._router.leader_of(f"{topic}-{index}")
        if leader < 0:
            return UNANSWERED
        records = TopicRecords(topic, UUID(hex=topic_id), [PartitionRecords(index, content)])
        request = ProduceRequest(self._owner.name, -1, 1000, [records])
        version = self.protocol.produce
        parts, size = produce_codec.produce_request_parts(request, version)
        try:
            connection = await self._router.connection(leader)
            answer = await connection.request(produce_codec.API_KEY, version, parts, body_size=size)
        except KafkaClientError:
            return UNANSWERED
        response = produce_codec.parse_produce_response(answer.frame, answer.body_position, version)
        return error_code(response.topics[0].partitions[0].error_code)

    async def _add(self, transaction: Transaction, places: list[Place]) -> None:
        topics: dict[str, list[int]] = {}
        for topic, index in places:
            topics.setdefault(topic, []).append(index)
        named = {
            "transactional_id": self._owner.name,
            "producer_id": self._id,
            "producer_epoch": self._epoch,
            "topics": [{"name": name, "partitions": tuple(indexes)} for name, indexes in topics.items()],
        }
        values = {f"v3_and_below_{name}": value for name, value in named.items()}
        while True:
            response = await self._coordinator.ask(ADD_PARTITIONS_TO_TXN, values, version=3)
            codes = [UNANSWERED]
            if response is not None:
                codes = [
                    error_code(partition.partition_error_code)
                    for topic in response.results_by_topic_v3_and_below
                    for partition in topic.results_by_partition
                ]
            wrong = [code for code in codes if code not in (ErrorCode.none, ErrorCode.operation_not_attempted)]
            if not wrong:
                return
            await self._judge(wrong[0], "AddPartitionsToTxn", transaction)

    async def _commit_offset(self, transaction: Transaction) -> None:
        """The number of the transaction as the group's position."""
        named = {
            "transactional_id": self._owner.name,
            "group_id": self._owner.group,
            "producer_id": self._id,
            "producer_epoch": self._epoch,
        }
        if not self.protocol.is_bumping:
            while True:
                response = await self._coordinator.ask(ADD_OFFSETS_TO_TXN, named, version=3)
                code = UNANSWERED if response is None else error_code(response.error_code)
                if code is ErrorCode.none:
                    break
                await self._judge(code, "AddOffsetsToTxn", transaction)
        named |= {"generation_id": -1, "member_id": "", "group_instance_id": None}
        named |= {"topics": offset_topics(self._owner.places[0], transaction.number)}
        while True:
            code = code_of_commit(await self._groups.ask(TXN_OFFSET_COMMIT, named, version=self.protocol.offsets))
            if code is ErrorCode.none:
                break
            await self._judge(code, f"TxnOffsetCommit of {transaction.name}", transaction)
        transaction.has_offset = True

    # --- its end

    async def _end(self, transaction: Transaction, commits: bool) -> None:
        if commits:
            transaction.outcome = Outcome.ASKED
        while (code := await self._end_once(commits)) is not ErrorCode.none:
            await self._judge(code, f"EndTxn of {transaction.name} ({'commit' if commits else 'abort'})", transaction)
        transaction.outcome = Outcome.COMMITTED if commits else Outcome.ABORTED
        if self._has_unanswered and not self.protocol.is_bumping:
            await self._initialize(is_named=True)
        self._has_unanswered = False

    async def _end_once(self, commits: bool) -> ErrorCode:
        values = {
            "transactional_id": self._owner.name,
            "producer_id": self._id,
            "producer_epoch": self._epoch,
            "committed": commits,
        }
        response = await self._coordinator.ask(END_TXN, values, version=self.protocol.end)
        if response is None:
            return UNANSWERED
        code = error_code(response.error_code)
        if code is ErrorCode.none and self.protocol.is_bumping:
            self._take(response)
        return code

    async def _initialize(self, *, is_named: bool) -> None:
        """A new epoch, which fences all earlier requests."""
        attempts = 0
        while True:
            attempts += 1
            values = {
                "transactional_id": self._owner.name,
                "transaction_timeout": dt.timedelta(milliseconds=self._owner.timeout_ms),
                "producer_id": self._id if is_named else NO_ID,
                "producer_epoch": self._epoch if is_named else NO_ID,
            }
            response = await self._coordinator.ask(INIT_PRODUCER_ID, values, version=5)
            code = UNANSWERED if response is None else error_code(response.error_code)
            if code is ErrorCode.none:
                self._take(response)
                return
            if code is ErrorCode.producer_fenced and is_named and attempts > 1:
                # a repeated request whose first one was carried out: a new coordinator does not
                # know that it is one, nor does Kafka's
                raise InstanceEnds("its request for another epoch was carried out unheard")
            await self._judge(code, "InitProducerId", None)

    def _take(self, response: Any) -> None:
        identity = int(response.producer_id), int(response.producer_epoch)
        if identity != (self._id, self._epoch):
            self._id, self._epoch = identity
            self._sequences = {}

    async def _judge(self, code: ErrorCode, request: str, transaction: Transaction | None) -> None:
        """Wait before the next attempt. InstanceEnds for an error that is none to be repeated."""
        if self._ledger.is_waived:
            raise InstanceEnds("nothing is promised any more")
        if code is UNANSWERED:
            self._has_unanswered = True
        self._coordinator.note(code)
        self._groups.note(code)
        if not (code.retriable or code is UNANSWERED):
            age_s = 0.0 if transaction is None else self._world.loop.now_s - transaction.began_s
            if not self._is_replaced and age_s * 1000 < self._owner.timeout_ms:
                self._world.violate("clients-live", f"{request} is answered {code.name} after {age_s:.3f} s")
            raise InstanceEnds(f"{request} is answered {code.name}")
        await self._world.pause(self._world.chance.uniform(0.01, 0.1))
        await self._router.refresh()


@dataclass
class CommittedReader(Consumer):
    """Reads one partition as `isolation.level=read_committed` does."""

    isolation_level: int = 1
    transactions: TransactionLedger = field(kw_only=True)

    def _take(self, key: Key, fetched: Any) -> None:
        records = fetched.records or b""
        skipped = skipped_batches(records, aborted=fetched.aborted_transactions or ())
        for position, header in iterate_headers(records):
            if header.base_offset < self.position:
                continue
            if header.base_offset not in skipped:
                content = bytes(records[position : position + header.size_bytes])
                self.transactions.see((self.topic, key[1]), header.base_offset, content)
            self.position = header.next_offset


def _leave(tasks: list[Any]) -> None:
    """Their requests stay in flight; the outcome does not matter."""
    for task in tasks:
        if task.done():
            task.cancelled() or task.exception()
        else:
            task.cancel()
