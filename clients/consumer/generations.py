"""The generations of one member: it joins its group, stays by heartbeats, and joins again.

A generation ends when the group rebalances, when the coordinator has expelled the member, or when
no coordinator has answered for a whole session. In each `poll` the consumer checks what is due;
joining and heartbeats are tasks, so that a poll returns in time.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from clients.consumer.consumer_options import ConsumerOptions
from clients.consumer.core.group_protocol import Subscription, decode_assignment, encode_subscription
from clients.consumer.membership import NEVER_A_MEMBER, NO_MEMBER_ANY_MORE, GroupMember, Membership
from clients.consumer.offset_commits import OffsetCommits
from clients.consumer.topic_subscription import TopicSubscription
from clients.reader.core.readings import Start
from runtime.clock import Clock
from runtime.supervision import note_death
from wire.client.client_errors import BrokerError, KafkaClientError
from wire.client.raw_client import KafkaClient
from wire.protocol.ids import PartitionKey

Joining = asyncio.Task[tuple[Membership, dict[PartitionKey, Start]]]


class Generations:
    """`on_news` is called when a poll has something to do; `on_problem` gets messages for a
    person.
    """

    def __init__(
        self,
        client: KafkaClient,
        options: ConsumerOptions,
        clock: Clock,
        *,
        subscription: TopicSubscription,
        commits: OffsetCommits,
        on_news: Callable[[], None],
        on_problem: Callable[[str], None],
    ) -> None:
        self._options = options
        self._clock = clock
        self._subscription = subscription
        self._commits = commits
        self._on_news = on_news
        self._on_problem = on_problem
        self._member = GroupMember(client, options.group_options(), clock)
        self.membership: Membership | None = None
        self.joining: Joining | None = None
        self._staying: asyncio.Task[None] | None = None
        self.needs_join = False
        self.is_expelled = False
        self._join_not_before_ms = 0.0

    @property
    def is_join_due(self) -> bool:
        """True if the member must join, and may after its last failure."""
        return self.needs_join and self._clock.monotonic_ms() >= self._join_not_before_ms

    def wait_ms(self, left_ms: float) -> float:
        """The time to wait for news: at most `left_ms`, and not beyond the next attempt."""
        # a member that was refused must not join in a tight loop
        pause_ms = self._join_not_before_ms - self._clock.monotonic_ms()
        return min(left_ms, pause_ms) if self.needs_join and pause_ms > 0 else left_ms

    def join_soon(self) -> None:
        """Let the next poll join the group again."""
        self.needs_join = True
        self._on_news()

    def begin_join(self) -> None:
        """Join in the background; `joining` is done when the coordinator has answered."""
        self.joining = asyncio.get_running_loop().create_task(self._join())
        self.joining.add_done_callback(lambda _: self._on_news())

    async def take_joined(self) -> dict[PartitionKey, Start] | None:
        """Start the generation that `joining` has brought: the partitions and their starting
        offsets. None if joining failed and is tried again; raises BrokerError if no attempt can
        succeed.
        """
        assert self.joining is not None, "call begin_join before"
        # cleared first: the next poll must be able to join again after an error
        joining, self.joining = self.joining, None
        try:
            membership, starts = await joining
        except KafkaClientError as error:
            self._on_problem(str(error))
            if isinstance(error, BrokerError) and error.code in NEVER_A_MEMBER:
                raise
            self._join_later()
            return None
        except Exception:
            self._join_later()  # raised once; further polls must not wait for a group that is never joined
            raise
        self.membership = membership
        self._staying = asyncio.get_running_loop().create_task(self._stay(membership))
        return starts

    def stop_heartbeats(self) -> None:
        """End the heartbeats of the present generation, because the next one begins."""
        if self._staying is not None:
            self._staying.cancel()

    async def stop(self) -> None:
        """End the tasks; the member is still in its group."""
        tasks = [task for task in (self.joining, self._staying) if task is not None]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    async def leave(self) -> None:
        """Leave the group, so that other members take over at once."""
        await self._member.leave()

    async def _join(self) -> tuple[Membership, dict[PartitionKey, Start]]:
        topics = await self._subscription.topics_to_join()
        subscription = encode_subscription(Subscription(topics=topics))
        membership = await self._member.join(
            [(name, subscription) for name in self._options.assignors], self._subscription.assign
        )
        places = sorted(decode_assignment(membership.assignment))
        starts = await self._commits.starts(places)
        return membership, starts

    def _join_later(self) -> None:
        self.needs_join = True
        self._join_not_before_ms = self._clock.monotonic_ms() + self._options.retry_backoff_ms

    async def _stay(self, membership: Membership) -> None:
        """Send heartbeats; if the coordinator is lost, look for it again until the session must
        have ended.
        """
        # the join itself was an answer of the coordinator
        answered_ms = membership.asked_at_ms

        def note_answer(at_ms: float) -> None:
            nonlocal answered_ms
            answered_ms = at_ms

        while True:
            try:
                await self._member.stay(membership, note_answer)
                break
            except KafkaClientError as error:
                self._on_problem(str(error))
                is_refused = isinstance(error, BrokerError) and error.code in NO_MEMBER_ANY_MORE
                # the coordinator has removed a member that it got no heartbeat from for so long
                is_over = self._clock.monotonic_ms() - answered_ms > self._options.session_timeout_ms
                if is_refused or is_over:
                    self.is_expelled = True
                    break
                await asyncio.sleep(self._options.retry_backoff_ms / 1000)
            except Exception:
                note_death("heartbeats")  # the coordinator gets no heartbeat: others will get these partitions
                self.is_expelled = True
                break
        self.join_soon()
