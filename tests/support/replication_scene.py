"""One partition on three brokers without processes: the real cores of brokers and controller over logs in memory.

Time, messages and faults are the scene's: images, fetch answers and the controller's answers wait until they are delivered or lost;
brokers are killed (what they wrote stays, what they knew goes, the checkpointed high watermark is old), cut off from each
other, or wrongly held for dead; controllers die between two writes. `check` holds the invariants:

R1  an acknowledged record is in the log of whoever leads under the newest leader epoch, where it was acknowledged
R2  below both high watermarks, two logs are equal
R3  a high watermark is never above its log's end
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import NamedTuple

from kio.schema.errors import ErrorCode

from broker.core.cluster_image import PartitionImage
from broker.core.follower import Position, truncation_offset
from broker.core.leader_epochs import UNDEFINED_END, EpochEnd, LeaderEpochs
from broker.core.partition import LeadershipChange, Partition
from controller.core import commands as ask
from controller.core.cluster import Leadership, TopicPartition
from tests.support.controller_scene import Crashed, SiteModel, topic_request

NODES = (1, 2, 3)
T0 = TopicPartition("t", 0)
LAG_MS_MAX = 50.0
FETCHED_MAX = 3


class Record(NamedTuple):
    """A record and the leader epoch that wrote it."""

    epoch: int
    value: int


class Answer(NamedTuple):
    """A leader's answer to a fetch, on its way."""

    follower: int
    asked: Position
    error: ErrorCode = ErrorCode.none
    diverging: EpochEnd | None = None
    records: tuple[Record, ...] = ()
    high_watermark: int = -1


class Pending(NamedTuple):
    """A record that its producer waits for."""

    node: int
    offset: int
    led_since: int
    record: Record


class Proposed(NamedTuple):
    """The controller's answer to a proposal, on its way."""

    node: int
    leader_epoch: int
    partition_epoch: int
    state: PartitionImage | None


@dataclass
class Replica:
    """One broker's replica: what is on disk, and what the process knows."""

    node: int
    records: list[Record] = field(default_factory=list)
    epochs: LeaderEpochs = field(default_factory=LeaderEpochs)
    checkpoint: int = 0
    state: Partition = field(init=False)
    broker_epoch: int = -1
    is_running: bool = True
    refused_epoch: int = -1
    images: list[PartitionImage] = field(default_factory=list)
    registered: dict[int, int] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.restart()

    def restart(self) -> None:
        """A new process over the same disk."""
        self.state = Partition(node_id=self.node)
        self.state.log_end_offset = len(self.records)
        self.state.high_watermark = min(self.checkpoint, len(self.records))
        self.refused_epoch = -1
        self.images.clear()

    def append(self, record: Record) -> None:
        """At the log's end; a log refuses older epochs than it has."""
        assert record.epoch >= self.epochs.latest, (
            f"broker {self.node} would refuse {record} after {self.epochs.entries}"
        )
        self.epochs.assign(record.epoch, len(self.records))
        self.records.append(record)

    def truncate(self, offset: int) -> None:
        """Drop the tail."""
        del self.records[offset:]
        self.epochs.truncate_from_end(offset)
        self.state.record_truncation(offset)

    def position(self) -> Position:
        """What a fetch asks for."""
        last_epoch = self.records[-1].epoch if self.records else -1
        return Position(len(self.records), self.state.leader_epoch, last_epoch, 0)


class ReplicationScene:
    """See the module."""

    def __init__(self, *, min_insync_replicas: int = 1) -> None:
        self.now_ms = 0.0
        self.min_insync_replicas = min_insync_replicas
        self.model = SiteModel()
        self.replicas = {node: Replica(node) for node in NODES}
        self.cuts: set[frozenset[int]] = set()
        self.answers: list[Answer] = []
        self.proposed: list[Proposed] = []
        self.pending: list[Pending] = []
        self.acknowledged: dict[int, Record] = {}
        self._next_value = 0
        self.model.alive(*NODES)
        self.model.take_over()
        self.model.give(ask.CreateTopics(topics=(topic_request("t", 1, 3),)))
        for replica in self.replicas.values():
            replica.broker_epoch = self.model.brokers[replica.node].epoch
        self._publish()

    # --- the controller

    def _give(self, command: ask.Command) -> ask.Decision | None:
        """None when there is no controller, or when it dies over the command."""
        if self.model.machine is None:
            return None
        try:
            decision = self.model.give(command)
        except Crashed:
            return None
        self._publish()
        return decision

    def _image(self) -> PartitionImage:
        known: Leadership = self.model.cluster.leaderships[T0]
        return PartitionImage(
            index=0,
            leader=known.leader,
            leader_epoch=known.leader_epoch,
            partition_epoch=known.partition_epoch,
            replicas=self.model.cluster.replicas_of(T0),
            isr=known.isr,
        )

    def _publish(self) -> None:
        for node, broker in self.model.cluster.brokers.items():
            replica = self.replicas[node]
            if replica.is_running and broker.epoch == replica.broker_epoch:
                replica.images.append(self._image())

    def lose_controller(self, commits: int = 0) -> None:
        """The controller dies, at once or after so many more writes."""
        if commits:
            self.model.crash_after = self.model.commits + commits
        else:
            self.model.machine = None

    def elect_controller(self) -> None:
        """Another one takes over, when there is none."""
        if self.model.machine is not None:
            return
        self.model.crash_after = None
        self.model.take_over()
        self._publish()

    def expire_sessions(self) -> None:
        """Registrations of the dead end, and the controller hears who is left."""
        running = [node for node in self.model.brokers if self.replicas[node].is_running]
        self._give(ask.BrokersListed(brokers=self.model.alive(*running)))

    def suspect(self, node: int) -> None:
        """A refused connection, whether the broker is dead or not."""
        if node in self.model.brokers:
            self._give(ask.BrokerUnreachable(node_id=node, broker_epoch=self.model.brokers[node].epoch))

    def find_alive(self, node: int) -> None:
        """A broker that was held for dead answers."""
        replica = self.replicas[node]
        if replica.is_running:
            self._give(ask.BrokerAnswered(node_id=node, broker_epoch=replica.broker_epoch))

    def prepare_stop(self, node: int) -> None:
        """A broker asks for its leaderships to be moved."""
        self._give(ask.ControlledShutdown(node_id=node, broker_epoch=self.replicas[node].broker_epoch))

    # --- brokers

    def kill(self, node: int) -> None:
        """kill -9: answers on the way to it are lost, and its registration stands until it is noticed."""
        self.replicas[node].is_running = False
        self.answers = [answer for answer in self.answers if answer.follower != node]
        self.proposed = [answer for answer in self.proposed if answer.node != node]
        self.pending = [pending for pending in self.pending if pending.node != node]

    def start(self, node: int) -> None:
        """The process comes back under a new registration."""
        replica = self.replicas[node]
        if replica.is_running:
            return
        others = [other for other in self.model.brokers if other != node]
        self.model.alive(*others)
        self.model.alive(*others, node)
        replica.is_running = True
        replica.broker_epoch = self.model.brokers[node].epoch
        replica.restart()

    def checkpoint(self, node: int) -> None:
        """Write the high watermark down."""
        self.replicas[node].checkpoint = self.replicas[node].state.high_watermark

    def deliver_image(self, node: int) -> None:
        """The next image that waits for the broker."""
        replica = self.replicas[node]
        if replica.is_running and replica.images:
            self._change(replica, replica.images.pop(0))
            replica.registered = {other: broker.epoch for other, broker in self.model.brokers.items()}

    def _change(self, replica: Replica, image: PartitionImage) -> None:
        change = replica.state.change(image, now_ms=self.now_ms)
        if change is LeadershipChange.BECAME_LEADER and replica.state.leader_epoch > replica.epochs.latest:
            replica.epochs.assign(replica.state.leader_epoch, len(replica.records))
        if change is LeadershipChange.BECAME_FOLLOWER:
            replica.epochs.truncate_from_end(len(replica.records))
        replica.state.refresh_high_watermark()
        self._acknowledge()

    # --- records

    def produce(self, node: int) -> None:
        """One record with acks=all to a broker that believes to lead."""
        replica = self.replicas[node]
        state = replica.state
        if not (replica.is_running and state.is_leader and state.has_enough_in_sync(self.min_insync_replicas)):
            return
        self._next_value += 1
        record = Record(state.leader_epoch, self._next_value)
        replica.append(record)
        self.pending.append(Pending(node, len(replica.records) - 1, state.led_since_epoch, record))
        state.record_append(len(replica.records))
        self._acknowledge()

    def _acknowledge(self) -> None:
        """As `WaitingProduce` does: answered when the high watermark is past the record in an unbroken leadership."""
        waiting = []
        for pending in self.pending:
            state = self.replicas[pending.node].state
            if not state.is_leader or state.led_since_epoch != pending.led_since:
                continue
            if state.high_watermark <= pending.offset:
                waiting.append(pending)
            elif state.has_enough_in_sync(self.min_insync_replicas):
                self.acknowledged[pending.offset] = pending.record
        self.pending = waiting

    def fetch(self, node: int) -> None:
        """A follower asks the broker that it takes for the leader; the answer is then on its way."""
        follower = self.replicas[node]
        state = follower.state
        leader = self.replicas.get(state.leader)
        is_asking = follower.is_running and state.is_follower and state.leader_epoch > follower.refused_epoch
        if leader is None or not is_asking or not leader.is_running or frozenset((node, leader.node)) in self.cuts:
            return
        self.answers.append(self._serve(leader, follower))

    def _serve(self, leader: Replica, follower: Replica) -> Answer:
        """As the Fetch handler does."""
        asked = follower.position()
        if not leader.state.is_leader or follower.node not in leader.state.followers:
            return Answer(follower.node, asked, ErrorCode.not_leader_or_follower)
        if asked.leader_epoch < leader.state.leader_epoch:
            return Answer(follower.node, asked, ErrorCode.fenced_leader_epoch)
        if asked.leader_epoch > leader.state.leader_epoch:
            return Answer(follower.node, asked, ErrorCode.unknown_leader_epoch)
        end = len(leader.records)
        if asked.last_fetched_epoch >= 0:
            ends = leader.epochs.end_of(asked.last_fetched_epoch, end)
            if ends.epoch < asked.last_fetched_epoch or ends.end_offset < asked.fetch_offset:
                return Answer(follower.node, asked, diverging=ends)
        if asked.fetch_offset > end:
            return Answer(follower.node, asked, ErrorCode.offset_out_of_range)
        leader.state.record_fetch(
            follower.node, asked.fetch_offset, now_ms=self.now_ms, broker_epoch=follower.broker_epoch
        )
        self._acknowledge()
        expanded = leader.state.expanded_isr(follower.node, leader.registered)
        if expanded is not None:
            leader.state.propose_isr(expanded)
        records = tuple(leader.records[asked.fetch_offset : asked.fetch_offset + FETCHED_MAX])
        return Answer(follower.node, asked, records=records, high_watermark=leader.state.high_watermark)

    def deliver_answer(self, number: int) -> None:
        """One of the answers arrives; it counts only if the follower still stands where it asked."""
        if not self.answers:
            return
        answer = self.answers.pop(number % len(self.answers))
        follower = self.replicas[answer.follower]
        if not (follower.is_running and follower.state.is_follower and follower.position() == answer.asked):
            return
        if answer.error is ErrorCode.fenced_leader_epoch:
            follower.refused_epoch = follower.state.leader_epoch
        elif answer.diverging is not None:
            self._cut(follower, answer.diverging)
        elif answer.error is ErrorCode.none:
            for record in answer.records:
                follower.append(record)
            follower.state.record_append(len(follower.records))
            follower.state.follow_high_watermark(answer.high_watermark)

    def _cut(self, follower: Replica, leader_end: EpochEnd) -> None:
        end = len(follower.records)
        own_end = UNDEFINED_END if leader_end.epoch < 0 else follower.epochs.end_of(leader_end.epoch, end)
        follower.truncate(
            truncation_offset(
                leader_end=leader_end,
                own_end=own_end,
                log_end_offset=end,
                high_watermark=follower.state.high_watermark,
            )
        )

    # --- in-sync replicas

    def look_for_laggards(self, node: int) -> None:
        """The leader's shrinking pass."""
        replica = self.replicas[node]
        isr = replica.state.shrunk_isr(now_ms=self.now_ms, lag_ms_max=LAG_MS_MAX) if replica.is_running else None
        if isr is not None:
            replica.state.propose_isr(isr)

    def propose(self, node: int) -> None:
        """An open proposal reaches the controller; its answer is then on its way. Sent again for as long as it is open."""
        replica = self.replicas[node]
        state = replica.state
        if not replica.is_running or not state.is_leader or state.proposed_isr is None:
            return
        proposal = ask.IsrProposal(
            partition=T0,
            topic_id=self.model.topics["t"].topic_id,
            leader_epoch=state.leader_epoch,
            partition_epoch=state.partition_epoch,
            isr=tuple((member, replica.registered.get(member, -1)) for member in state.proposed_isr),
        )
        command = ask.AlterPartitions(node_id=node, broker_epoch=replica.broker_epoch, proposals=(proposal,))
        sent = state.leader_epoch, state.partition_epoch
        if self._give(command) is not None:
            self.proposed.append(Proposed(node, *sent, self._image()))

    def deliver_proposed(self, number: int) -> None:
        """One of the controller's answers arrives."""
        if not self.proposed:
            return
        answer = self.proposed.pop(number % len(self.proposed))
        state = self.replicas[answer.node].state
        if (state.leader_epoch, state.partition_epoch) == (answer.leader_epoch, answer.partition_epoch):
            state.withdraw_proposal()
        if answer.state is not None:
            self._change(self.replicas[answer.node], answer.state)

    # --- what must hold

    def check(self) -> None:
        """R1 to R3; see the module."""
        for replica in self.replicas.values():
            assert replica.state.high_watermark <= len(replica.records), f"R3: {replica}"
        for one in self.replicas.values():
            for other in self.replicas.values():
                common = min(one.state.high_watermark, other.state.high_watermark)
                assert one.records[:common] == other.records[:common], f"R2: {one} {other}"
        newest = max(known.leader_epoch for known in self.model.leaderships.values())
        for replica in self.replicas.values():
            if replica.is_running and replica.state.is_leader and replica.state.leader_epoch == newest:
                self._check_acknowledged(replica)

    def _check_acknowledged(self, replica: Replica) -> None:
        for offset, record in self.acknowledged.items():
            found = replica.records[offset] if offset < len(replica.records) else None
            assert found == record, f"R1: {record} was acknowledged at {offset}, broker {replica.node} has {found}"

    def heal(self) -> None:
        """Everything works again: all replicas become equal, in sync and complete."""
        self.cuts.clear()
        self.model.crash_after = None
        self.elect_controller()
        for node in tuple(self.model.cluster.leaving):
            self.kill(node)  # who was about to stop does
        for node in NODES:
            self.start(node)
        self.expire_sessions()
        for node in NODES:
            self.find_alive(node)
        for _ in range(400):
            self.now_ms += 1
            for node in NODES:
                while self.replicas[node].images:
                    self.deliver_image(node)
                self.fetch(node)
                self.propose(node)
            while self.answers:
                self.deliver_answer(0)
            while self.proposed:
                self.deliver_proposed(0)
            self.check()
            if self._is_whole():
                return
        raise AssertionError(f"the replicas did not become whole: {self.replicas} {self._image()}")

    def _is_whole(self) -> bool:
        image = self._image()
        ends = {replica.state.high_watermark for replica in self.replicas.values()}
        logs = {tuple(replica.records) for replica in self.replicas.values()}
        return set(image.isr) == set(NODES) and len(logs) == 1 and ends == {len(next(iter(logs)))}
