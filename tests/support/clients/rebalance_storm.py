"""A group whose members come and go while they read and commit: unmodified librdkafka consumers,
each polled by a thread of its own.

A storm is a bounded number of gusts. In each, some members leave (in order, or by silence until the
coordinator removes them) and others join. Then the test writes more records, and the group must
make progress. At the end a few members stay until everything is read, and the history of all of
them is checked (`tests/support/histories/group_history.py`).

Eager members ask the coordinator for the position of each partition that they are assigned, begin
there, and skip strays, which are counted: records that their client delivers from below that
position, or from partitions that they do not have. When leaders die, librdkafka 2.16 was seen to
hand out records of an assignment before (0 to 19, then 30), while the coordinator had answered 30
and no member had asked where the log begins, so no broker had sent it there. The test still checks
everything that brokers are responsible for.

Members of the newer protocol count as strays the records that their client delivers again from
offset 0 on. On a busy machine librdkafka 2.16 asks three times within 10 ms where the log begins,
reads 0 to 9, and 500 ms later asks once more and begins at 0 again: a retry of its own, which no
answer called for (seen in the requests that a broker received; the group's offsets were asked
once). A broker would send it there by OFFSET_OUT_OF_RANGE, so a test asserts that none was
answered.
"""

from __future__ import annotations

import random
import threading
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from tests.support.clients.kafka_clients import Record, librdkafka_produce
from tests.support.eventually import eventually_sync
from tests.support.histories.group_history import Commit, Ownership, violations

PROTOCOLS = {
    "eager": {"partition.assignment.strategy": "range"},
    "cooperative": {"partition.assignment.strategy": "cooperative-sticky"},
    "consumer": {"group.protocol": "consumer"},
}
ASKING_PROTOCOL = "eager"
NEWER_PROTOCOL = "consumer"
CLASSIC_TIMES = {"session.timeout.ms": 6000, "heartbeat.interval.ms": 200}
POLL_S = 0.05
ASK_S = 5
RECORDS_A_POLL = 20
SETTLE_WITHIN_MS = 120_000


class Member:
    """One consumer and its thread. It notes its ownerships and commits in lists of its own."""

    def __init__(self, bootstrap_servers: str, topic: str, group: str, name: str, protocol: str) -> None:
        from confluent_kafka import Consumer

        times = {} if protocol == "consumer" else CLASSIC_TIMES
        self.name = name
        self.ownerships: list[Ownership] = []
        self.commits: list[Commit] = []
        self.refused_commits = 0
        self.stray_count = 0
        """Records that its client delivered although they are not from its present partitions."""
        self.failure: Exception | None = None
        self._owned: dict[int, Ownership] = {}
        self._asks_positions = protocol == ASKING_PROTOCOL
        self._may_begin_again = protocol == NEWER_PROTOCOL
        self._stop = threading.Event()
        self._consumer = Consumer(
            {
                "bootstrap.servers": bootstrap_servers,
                "group.id": group,
                "client.id": name,
                "auto.offset.reset": "earliest",
                "enable.auto.commit": False,
                "log_level": 2,
                **times,
                **PROTOCOLS[protocol],
            }
        )
        self._consumer.subscribe([topic], on_assign=self._assigned, on_revoke=self._revoked, on_lost=self._lost)
        self._thread = threading.Thread(target=self._run, name=name, daemon=True)
        self._thread.start()

    def ask_to_leave(self) -> None:
        """Leave after the present poll; `join` waits for it."""
        self._stop.set()

    def join(self) -> None:
        """Wait until it has left. Raises the error that ended its thread."""
        self._thread.join(SETTLE_WITHIN_MS / 1000)
        assert not self._thread.is_alive(), f"{self.name} does not leave"
        if self.failure is not None:
            raise self.failure

    @property
    def partitions(self) -> set[int]:
        """The partitions that it owns, as far as it knows."""
        return set(self._owned)

    @property
    def read_count(self) -> int:
        """The number of records that it has read."""
        return sum(len(one.offsets) for one in self.ownerships)

    def _run(self) -> None:
        try:
            is_committed = True
            while not self._stop.is_set():
                if self._read() or not is_committed:
                    is_committed = self._commit()
            self._consumer.close()
        except Exception as error:
            self.failure = error

    def _read(self) -> int:
        count = 0
        message = self._consumer.poll(POLL_S)
        while message is not None:
            if message.error() is None:
                count += self._take(message.partition() or 0, message.offset() or 0)
            if count >= RECORDS_A_POLL:
                break
            message = self._consumer.poll(0)
        return count

    def _take(self, partition: int, offset: int) -> bool:
        """Note a record that was read; False for a stray."""
        one = self._owned.get(partition) if self._asks_positions else self._owned[partition]
        expected = None if one is None or not self._asks_positions else one.next_offset
        if one is None or (expected is not None and offset < expected) or self._is_begun_again(one, offset):
            self.stray_count += 1
            return False
        one.offsets.append(offset)
        return True

    def _is_begun_again(self, one: Ownership, offset: int) -> bool:
        """True if the client is again at the log's beginning, where this ownership began."""
        return self._may_begin_again and one.offsets[:1] == [0] and offset <= one.offsets[-1]

    def _commit(self) -> bool:
        """The position of each partition. The coordinator may refuse the commit, which is counted;
        False says to try again.
        """
        from confluent_kafka import KafkaException, TopicPartition

        began_s = time.monotonic()
        try:
            offsets = [
                TopicPartition(owned.topic, owned.partition, self._owned[owned.partition].offsets[-1] + 1)
                for owned in self._consumer.assignment()
                if owned.partition in self._owned and self._owned[owned.partition].offsets
            ]
            if not offsets:
                return True
            answered = self._consumer.commit(offsets=offsets, asynchronous=False)
        except KafkaException:
            self.refused_commits += 1
            return False
        ended_s = time.monotonic()
        refused = [each for each in answered or () if each.error is not None]
        self.refused_commits += len(refused)
        for each in answered or ():
            if each.error is not None:
                continue
            self.commits.append(
                Commit(
                    member=self.name,
                    partition=each.partition,
                    offset=each.offset,
                    began_s=began_s,
                    ended_s=ended_s,
                )
            )
        return not refused

    def _assigned(self, consumer: Any, partitions: list[Any]) -> None:
        for each in partitions:
            one = Ownership(member=self.name, partition=each.partition, began_s=time.monotonic())
            self._owned[each.partition] = one
            self.ownerships.append(one)
        if self._asks_positions:
            self._begin_where_the_coordinator_says(consumer, partitions)

    def _begin_where_the_coordinator_says(self, consumer: Any, partitions: list[Any]) -> None:
        """The group's present coordinator, however long the lookup takes."""
        from confluent_kafka import KafkaException

        deadline_s = time.monotonic() + SETTLE_WITHIN_MS / 1000
        found = None
        while found is None and not self._stop.is_set():
            try:
                answered = consumer.committed(partitions, timeout=ASK_S)
            except KafkaException:
                assert time.monotonic() < deadline_s, f"{self.name} is not told its positions"
                continue
            if all(each.error is None for each in answered):
                found = answered
        for each in found or ():
            each.offset = max(each.offset, 0)
            self._owned[each.partition].position = each.offset
        consumer.assign(found if found is not None else partitions)

    def _revoked(self, consumer: Any, partitions: list[Any]) -> None:
        began_s = time.monotonic()
        self._commit()
        confirmed = {commit.partition for commit in self.commits if commit.began_s >= began_s}
        # only an acknowledged commit proves that the coordinator still took it for the owner
        for each in partitions:
            self._give_up([each], ended_s=began_s, is_lost=each.partition not in confirmed)

    def _lost(self, consumer: Any, partitions: list[Any]) -> None:
        self._give_up(partitions, ended_s=time.monotonic(), is_lost=True)

    def _give_up(self, partitions: list[Any], *, ended_s: float, is_lost: bool) -> None:
        for each in partitions:
            one = self._owned.pop(each.partition, None)
            if one is not None:
                one.ended_s = ended_s
                one.is_lost = is_lost


@dataclass(slots=True, kw_only=True)
class Storm:
    """An action on a group. `committed` asks for the group's offsets."""

    bootstrap_servers: str
    topic: str
    partition_count: int
    protocol: str
    member_count: int
    gust_count: int
    seed: int
    committed: Callable[[str], dict[int, int]]
    records_a_gust: int = 10
    members: list[Member] = field(default_factory=list)
    everybody: list[Member] = field(default_factory=list)
    written: int = 0

    @property
    def group(self) -> str:
        """One for each protocol."""
        return f"storm-{self.protocol}"

    def run(self) -> str:
        """Run the storm from the first member to the last check. Returns a line of figures. Raises
        AssertionError with every violation.
        """
        chance = random.Random(self.seed)
        try:
            self._join(self.member_count)
            self._write_and_get_on()
            for _ in range(self.gust_count):
                leaving = chance.sample(self.members, chance.randint(1, max(1, len(self.members) // 2)))
                for member in leaving:
                    member.ask_to_leave()
                    self.members.remove(member)
                self._join(self.member_count - len(self.members))
                self._write_and_get_on()
            self._settle()
        finally:
            for member in self.everybody:
                member.ask_to_leave()
            for member in self.everybody:
                member.join()
        return self._checked()

    def _join(self, count: int) -> None:
        for _ in range(count):
            name = f"member-{len(self.everybody)}"
            member = Member(self.bootstrap_servers, self.topic, self.group, name, self.protocol)
            self.members.append(member)
            self.everybody.append(member)

    def _write_and_get_on(self) -> None:
        """Wait until more has been read than before the writing: the next gust may hit a rebalance
        that is not over.
        """
        before = sum(member.read_count for member in self.everybody)
        records = [
            Record(value=b"%d" % number, partition=partition)
            for partition in range(self.partition_count)
            for number in range(self.written, self.written + self.records_a_gust)
        ]
        once = {"enable.idempotence": True}  # a record sent again because its answer was late would be there twice
        librdkafka_produce(self.bootstrap_servers, self.topic, records, within_ms=SETTLE_WITHIN_MS, settings=once)
        self.written += self.records_a_gust
        eventually_sync(lambda: sum(member.read_count for member in self.everybody) > before, SETTLE_WITHIN_MS)

    def _settle(self) -> None:
        """Wait until the remaining members own all partitions and have committed the end of
        each.
        """
        wanted = dict.fromkeys(range(self.partition_count), self.written)

        def are_committed() -> bool:
            found = self.committed(self.group)
            behind = {index: found.get(index) for index in wanted if found.get(index) != self.written}
            failures = [f"{member.name}: {member.failure}" for member in self.everybody if member.failure]
            assert not behind, f"committed instead of {self.written}: {behind}; {failures}"
            return True

        eventually_sync(are_committed, SETTLE_WITHIN_MS)
        eventually_sync(self._is_shared_out, SETTLE_WITHIN_MS)

    def _is_shared_out(self) -> bool:
        owned = Counter(partition for member in self.members for partition in member.partitions)
        wrong = {index: owned[index] for index in range(self.partition_count) if owned[index] != 1}
        assert not wrong, f"owners by partition: {wrong}"
        return True

    def _checked(self) -> str:
        ownerships = [one for member in self.everybody for one in member.ownerships]
        commits = [one for member in self.everybody for one in member.commits]
        found = violations(ownerships, commits, dict.fromkeys(range(self.partition_count), self.written))
        assert not found, "\n".join(found)
        refused = sum(member.refused_commits for member in self.everybody)
        read = sum(member.read_count for member in self.everybody)
        strays = sum(member.stray_count for member in self.everybody)
        return (
            f"{len(self.everybody)} members, {len(ownerships)} ownerships, {len(commits)} commits acknowledged, "
            f"{refused} refused, {read} reads of {self.written * self.partition_count} records, {strays} strays"
        )
