"""KIP-848 groups under random members, lost answers, crashes and growing topics: no partition is
owned twice, and in the end all are owned.

Members are modelled as real clients: they release revoked partitions before they acknowledge it,
and keep their partitions when an answer is lost. The assignors are also tried alone.
"""

from __future__ import annotations

from dataclasses import dataclass

from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule
from kio.schema.errors import ErrorCode

from broker.groups.core.consumer_protocol.consumer_groups import HeartbeatReply, MemberHeartbeat
from broker.groups.core.consumer_protocol.server_assignors import (
    AssignmentInput,
    Owned,
    TopicIdPartition,
    range_by_topic,
    uniform,
)
from broker.groups.core.group_messages import ConsumerHeartbeat
from tests.support.examples import examples
from tests.support.memory.group_scene import GroupScene

NAMES = st.sampled_from(["a", "b", "c", "d"])
TOPICS = {"t": (b"t" * 16, 4), "u": (b"u" * 16, 3)}
SUBSCRIPTIONS = st.sampled_from([("t",), ("u",), ("t", "u")])


@dataclass
class Client:
    """A consumer: its epoch, the partitions that it owns, the topics that it subscribes to."""

    topics: tuple[str, ...]
    epoch: int = 0
    owned: Owned = frozenset()
    says_owned: bool = True


class ConsumerHistory(RuleBasedStateMachine):
    """Random histories of one group of the consumer protocol."""

    def __init__(self) -> None:
        super().__init__()
        self.scene = GroupScene()
        self.scene.topics = dict(TOPICS)
        self.clients: dict[str, Client] = {}

    def heartbeat_of(self, name: str) -> MemberHeartbeat:
        client = self.clients[name]
        is_joining = client.epoch == 0
        return MemberHeartbeat(
            member_id=name,
            member_epoch=client.epoch,
            instance_id=None,
            rack_id=None,
            client_id=name,
            client_host="/127.0.0.1",
            rebalance_timeout_ms=60_000 if is_joining else -1,
            topic_names=client.topics if is_joining or client.says_owned else None,
            topic_regex=None,
            server_assignor=None,
            owned=frozenset() if is_joining else client.owned if client.says_owned else None,
        )

    def take(self, name: str, reply: HeartbeatReply) -> None:
        client = self.clients[name]
        client.says_owned = False
        if reply.error:
            assert reply.error in (ErrorCode.unknown_member_id, ErrorCode.fenced_member_epoch)
            self.clients[name] = Client(client.topics)
            return
        client.epoch = reply.member_epoch
        if reply.assigned is not None and reply.assigned != client.owned:
            client.owned = reply.assigned
            client.says_owned = True

    def beat(self, name: str) -> None:
        self.take(name, self.scene.beat("g", self.heartbeat_of(name)))

    @rule(name=NAMES, topics=SUBSCRIPTIONS)
    def start_or_beat(self, name: str, topics: tuple[str, ...]) -> None:
        self.clients.setdefault(name, Client(topics))
        self.beat(name)

    @rule(name=NAMES)
    def beat_and_lose_the_answer(self, name: str) -> None:
        if name in self.clients:
            self.scene.beat("g", self.heartbeat_of(name))
            self.clients[name].says_owned = True

    @rule(name=NAMES)
    def beat_and_lose_the_answer_to_one_that_says_it_all_again(self, name: str) -> None:
        """librdkafka does so when the response is late: it sends the same bytes again, which need
        not list its partitions.
        """
        if name in self.clients:
            self.scene.beat("g", self.heartbeat_of(name))

    @rule(name=NAMES)
    def beat_and_crash_the_coordinator(self, name: str) -> None:
        if name in self.clients:
            command = ConsumerHeartbeat(group_id="g", said=self.heartbeat_of(name), topics=self.scene.topics)
            self.scene.commit(self.scene.groups.decide(command, now_ms=self.scene.now_ms, token=1))
            self.scene.restart()
            self.clients[name].says_owned = True

    @rule()
    def coordinator_moves_unnoticed(self) -> None:
        """No heartbeat was in flight: it would have added no information."""
        self.scene.restart()

    @rule()
    def another_site_coordinates(self) -> None:
        """A planned move: each member continues where it was."""
        if self.scene.groups.get("g") is not None:
            self.scene.move()

    @rule(name=NAMES)
    def leave(self, name: str) -> None:
        if name in self.clients and self.clients[name].epoch > 0:
            said = self.heartbeat_of(name)
            self.clients.pop(name)
            leaving = MemberHeartbeat(
                **{
                    field: getattr(said, field)
                    for field in said.__struct_fields__
                    if field not in ("member_epoch", "owned", "topic_names")
                },
                member_epoch=-1,
                owned=None,
                topic_names=None,
            )
            self.scene.beat("g", leaving)

    @rule(name=NAMES, topics=SUBSCRIPTIONS)
    def subscribe_to_something_else(self, name: str, topics: tuple[str, ...]) -> None:
        if name in self.clients:
            self.clients[name].topics = topics
            self.clients[name].says_owned = True

    @rule(name=NAMES)
    def die(self, name: str) -> None:
        self.clients.pop(name, None)

    @rule()
    def topic_grows(self) -> None:
        topic_id, count = self.scene.topics["t"]
        self.scene.topics = {**self.scene.topics, "t": (topic_id, min(count + 1, 7))}

    @rule(elapsed_ms=st.sampled_from([1_000, 30_000, 50_000]))
    def time_passes(self, elapsed_ms: int) -> None:
        for name in tuple(self.clients):
            self.beat(name)
        self.scene.advance(elapsed_ms)

    @invariant()
    def no_partition_is_owned_twice(self) -> None:
        group = self.scene.groups.consumers("g")
        seen: set[TopicIdPartition] = set()
        for name, client in self.clients.items():
            if group is None or name not in group.members:
                continue  # it was removed, and gets this error with its next heartbeat
            assert not seen & client.owned
            seen |= client.owned

    @invariant()
    def the_log_replays_to_the_same_group(self) -> None:
        assert self.scene.replayed().consumers("g") == self.scene.groups.consumers("g")

    def teardown(self) -> None:
        """After the last change of members, the live members own all wanted partitions, and the
        group is stable, also with lost answers.
        """
        for is_lossy in (True, True, False, False, False):
            self.scene.advance(20_000)
            if is_lossy:
                self.coordinator_moves_unnoticed()
            for turn in range(12):
                for position, name in enumerate(tuple(self.clients)):
                    if is_lossy and (turn + position) % 2:
                        self.beat_and_lose_the_answer_to_one_that_says_it_all_again(name)
                    else:
                        self.beat(name)
        group = self.scene.groups.consumers("g")
        if group is None:
            return
        assert set(group.members) == set(self.clients)
        if self.clients:
            assert group.state == "Stable"
        wanted = {
            TopicIdPartition(self.scene.topics[topic][0], index)
            for client in self.clients.values()
            for topic in client.topics
            for index in range(self.scene.topics[topic][1])
        }
        owned = [found for client in self.clients.values() for found in client.owned]
        assert sorted(owned) == sorted(wanted)


ConsumerHistory.TestCase.settings = settings(max_examples=examples(60), stateful_step_count=30, deadline=None)
TestConsumerHistory = ConsumerHistory.TestCase

SUBSCRIBED = st.dictionaries(
    st.text("abcdefgh", min_size=1, max_size=2),
    st.sets(st.sampled_from([b"t", b"u", b"v"]), min_size=1),
    min_size=1,
    max_size=6,
)
COUNTS = st.fixed_dictionaries({topic: st.integers(1, 9) for topic in (b"t", b"u", b"v")})


@given(SUBSCRIBED, COUNTS)
def test_both_assignors_give_each_wanted_partition_to_one_subscriber(
    subscriptions: dict[str, set[bytes]], counts: dict[bytes, int]
) -> None:
    wanted = {
        TopicIdPartition(topic, index)
        for topic in set().union(*subscriptions.values())
        for index in range(counts[topic])
    }
    for assignor in (uniform, range_by_topic):
        assigned = assignor(AssignmentInput(subscriptions, counts, {}))
        assert sorted(found for owned in assigned.values() for found in owned) == sorted(wanted)
        for member, owned in assigned.items():
            assert {found.topic_id for found in owned} <= subscriptions[member]


@given(st.sets(st.text("abcdefgh", min_size=1, max_size=2), min_size=2, max_size=7), COUNTS)
def test_uniform_is_even_and_moves_no_more_than_it_must(members: set[str], counts: dict[bytes, int]) -> None:
    names = sorted(members)
    before = uniform(AssignmentInput(dict.fromkeys(names[1:], frozenset(counts)), counts, {}))
    after = uniform(AssignmentInput(dict.fromkeys(names, frozenset(counts)), counts, before))
    sizes = [len(owned) for owned in after.values()]
    assert max(sizes) - min(sizes) <= 1
    moved = sum(len(before[name] - after[name]) for name in names[1:])
    assert moved == len(after[names[0]])
