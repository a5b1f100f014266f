"""One active controller: one queue of commands, one task that owns the cluster.

For each command the task decides, commits to ZooKeeper, applies, and passes the effects to the
channels; then it answers the caller. Watches, brokers' answers and clients all put commands into
the same bounded queue. Any failure of a commit ends the tenure: the outcome may be unknown, so the
state is dropped and read again by the next active controller.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterable
from functools import partial

from kazoo.exceptions import KazooException

from controller.balance_rule import BalanceRule
from controller.brokers.channels import BrokerChannels
from controller.brokers.state_changes import log_state_changes
from controller.core import commands as ask
from controller.core.decisions import Decision, Effect, Publish, PublishImage
from controller.core.entity_commands import RemoveExpiredTokens
from controller.core.machine import ControllerMachine
from controller.core.state.cluster import Cluster
from controller.core.state.site_values import Broker
from controller.metrics import ControllerMetrics
from controller.stored.acl_store import acl_changes
from controller.stored.cluster_reader import ClusterReader
from controller.stored.cluster_writer import ClusterWriter
from controller.stored.producer_id_blocks import ProducerIdBlocks
from controller.stored.tenure import Deposed, Tenure
from controller.stored.token_store import token_changes
from controller.watching.admin_requests import AdminRequests
from controller.watching.notices import Notices, Reading
from controller.watching.quarantine_looks import look_again_and_again
from controller.watching.sentinels import Sentinels, refusing
from controller.watching.topic_watches import TopicWatches
from controller.watching.watches import follow
from runtime.doors import ProcessDoors
from runtime.logs import get_logger
from runtime.supervision import not_broken_off
from runtime.zookeeper.client import ZooKeeper
from wire.control.cluster_pb2 import LinkRecord
from wire.znodes.acl_znodes import ACL_CHANGES, EXTENDED_ACL_CHANGES
from wire.znodes.admin_znodes import PREFERRED_ELECTION, REASSIGN_PARTITIONS
from wire.znodes.documents import MalformedZnode

COMMANDS_QUEUED_MAX = 1000
RAISES_STORED_AFTER_S = 2.0
RAISES_STORED_AFTER_EACH_S = 0.0005
"""Time (s) from a raise of leader epochs until its partitions' states are stored, and more for each
partition of the site: first come the writers that waited, and their clients' questions.
"""
RAISED_PER_WRITE_MAX = 500
RAISED_PAUSE_S = 0.05
"""Pause (s) after the states of so many partitions: other commands and brokers go first."""
FIRST_BALANCE_AFTER_S = 5
"""Time (s) from the start of a tenure to its first balance, as in Kafka's controller."""

Work = Callable[[], Awaitable[None]]

_log = get_logger(__name__)


class ActiveController:
    """An elected controller with the cluster that it loaded. It ends with `Deposed`, or when `run`
    is cancelled.
    """

    def __init__(
        self,
        *,
        tenure: Tenure,
        cluster: Cluster,
        zookeeper: ZooKeeper,
        metrics: ControllerMetrics,
        doors: ProcessDoors,
        deletion_retry_ms: int,
        apply_timeout_ms: int,
        token_expiry_check_ms: int = 3_600_000,
        balance: BalanceRule | None = None,
        heeds_altered_configs: bool = False,
    ) -> None:
        self.tenure = tenure
        self._zookeeper = zookeeper
        self._metrics = metrics
        self._deletion_retry_ms = deletion_retry_ms
        self._token_expiry_check_ms = token_expiry_check_ms
        self._balance = balance
        self._heeds_altered_configs = heeds_altered_configs
        self._doors = doors
        self._sentinels = Sentinels(self._tell, own_node=tenure.controller_id, dial=doors.dial)
        self._machine = ControllerMachine(cluster)
        self._reader = ClusterReader(zookeeper)
        self._writer = ClusterWriter(zookeeper, tenure)
        self._channels = BrokerChannels(
            lambda: self._machine.cluster,
            on_answer=self._on_answer,
            metrics=metrics,
            dial=doors.dial,
            apply_timeout_ms=apply_timeout_ms,
        )
        self._queue: asyncio.Queue[tuple[ask.Command | Reading, asyncio.Future[Decision], float]] = asyncio.Queue(
            COMMANDS_QUEUED_MAX
        )
        self._has_changed = asyncio.Condition()
        self._topic_watches = TopicWatches(
            self._reader, self._tell, discover=self._discover, cluster=lambda: self.cluster
        )
        self._requests = AdminRequests(
            self.submit, self._writer, cluster=lambda: self.cluster, changed=self._has_changed
        )
        self._notices = Notices(zookeeper, self._reader, self._writer, self._tell, cluster=lambda: self.cluster)
        self.producer_ids = ProducerIdBlocks(zookeeper, self._writer)
        self._is_over = False

    @property
    def cluster(self) -> Cluster:
        """The cluster as committed; read only."""
        return self._machine.cluster

    async def submit(self, command: ask.Command) -> Decision:
        """Queue a command, and return its committed decision.

        Raises Deposed if the tenure ends first; the command may have taken effect.
        """
        if self._is_over:
            raise Deposed("this controller has ceased to be active")
        future: asyncio.Future[Decision] = asyncio.get_running_loop().create_future()
        await self._queue.put((command, future, self._now_s()))
        return await future

    async def _tell(self, command: ask.Command | Reading) -> None:
        """Queue a command whose outcome no caller awaits; a reading becomes one in its turn."""
        future: asyncio.Future[Decision] = asyncio.get_running_loop().create_future()
        # read the exception, else asyncio logs that it was never retrieved
        future.add_done_callback(lambda done: done.cancelled() or done.exception())
        await self._queue.put((command, future, self._now_s()))

    async def _on_answer(self, answer: ask.DeletionsAnswered) -> None:
        await self._tell(answer)

    async def wait_applied(self, *, timeout_ms: float) -> bool:
        """Wait until every living broker has applied all decisions made so far; False after the
        timeout.
        """
        return await self._channels.wait_applied(timeout_ms=timeout_ms)

    async def wait_until(self, condition: Callable[[Cluster], bool], *, timeout_ms: float) -> bool:
        """Wait until the cluster fulfils the condition. Deposed when the tenure ends first."""
        try:
            async with asyncio.timeout(timeout_ms / 1000), self._has_changed:
                await self._has_changed.wait_for(lambda: self._is_over or condition(self.cluster))
        except TimeoutError:
            return False
        if self._is_over:
            raise Deposed("this controller is no longer active")
        return True

    async def run(self) -> None:
        """Complete the former controller's work, then handle commands until deposed. Raises
        Deposed; stops all tasks that it started.
        """
        try:
            # probed first, so that the first decision elects leaders for partitions of unreachable
            # brokers
            unreachable = await refusing(self.cluster.brokers.values(), own_node=self.tenure.controller_id)
            await self._lay_out()
            await self._handle(ask.TakeOver(unreachable=unreachable))
            self._metrics.record_cluster(self.cluster)
            for problem in [*self.cluster.quarantine.values(), *self.cluster.link_problems.values()]:
                _log.error("a topic or link is in quarantine until its znode is repaired", problem=problem)
            _log.info(
                "controller is active",
                controller_epoch=self.tenure.epoch,
                brokers=len(self.cluster.brokers),
                topics=len(self.cluster.topics),
                partitions=len(self.cluster.partition_phases),
            )
            await self._serve_and_watch()
        finally:
            await self._end()

    async def _lay_out(self) -> None:
        try:
            await self._writer.prepare_partitions(self.cluster)
        except KazooException as error:
            raise Deposed(f"the znodes of partitions without a state could not be prepared: {error!r}") from error

    async def _serve_and_watch(self) -> None:
        try:
            async with asyncio.TaskGroup() as tasks:
                for work in self._works():
                    tasks.create_task(not_broken_off(work))
                await self._serve()
        except BaseExceptionGroup as group:
            # the first failure ended the tenure; the others follow from its cancellation
            cause = group.exceptions[0]
            if isinstance(cause, KazooException):
                raise Deposed(f"a write to ZooKeeper failed: {cause!r}") from group
            raise cause from group

    async def _serve(self) -> None:
        while True:
            command, future, queued_at = await self._queue.get()
            self._metrics.record_wait(self._ms_since(queued_at))
            try:
                known = await command.command() if isinstance(command, Reading) else command
                reply = Decision() if known is None else await self._handle(known)
            except BaseException as error:
                if not future.done():
                    future.set_exception(Deposed(f"the controller failed: {error!r}"))
                raise
            if not future.done():
                future.set_result(reply)

    async def _handle(self, command: ask.Command) -> Decision:
        started = self._now_s()
        decision = self._machine.decide(command)
        if decision.facts:
            try:
                await self._writer.commit(decision.facts, before=self.cluster)
            except KazooException as error:
                raise Deposed(f"a commit failed ({error!r}) on: {decision.reason}") from error
            # applied only after the commit: the cluster never has a fact that ZooKeeper lacks
            self._machine.apply(decision.facts)
            self._report(decision, self._ms_since(started))
        self._act(decision.effects)
        async with self._has_changed:
            self._has_changed.notify_all()
        self._metrics.record_event(type(command).__name__, self._ms_since(started), queued=self._queue.qsize())
        return decision

    def _act(self, effects: tuple[Effect, ...]) -> None:
        self._channels.follow_membership()
        self._sentinels.follow(self.cluster)
        for effect in effects:
            match effect:
                case PublishImage():
                    self._channels.publish_image(effect.node_ids)
                case Publish():
                    self._channels.publish(effect)

    def _report(self, decision: Decision, elapsed_ms: float) -> None:
        self._metrics.record_facts(decision.facts, elapsed_ms)
        self._metrics.record_cluster(self.cluster)
        _log.info("decided", reason=decision.reason, facts=len(decision.facts), controller_epoch=self.tenure.epoch)
        log_state_changes(decision.facts)

    def _works(self) -> list[Work]:
        """The background work beside the commands; the end of any of it ends the tenure."""
        works: list[Work] = [
            *self._watches(),
            self._retry_deletions,
            self._remove_expired_tokens,
            self._store_raises,
            self._requests.complete_again_and_again,
            self._topic_watches.run,
            partial(look_again_and_again, self._reader, self._tell, cluster=lambda: self.cluster),
            self._channels.raise_failure,
        ]
        return works if self._balance is None else [*works, partial(self._balance_leaders, self._balance)]

    def _watches(self) -> list[Work]:
        watches: list[Work] = [
            partial(follow, self._reader.brokers, self._on_brokers),
            partial(follow, self._reader.topic_names, self._on_topic_names),
            partial(follow, self._reader.deletion_marks, self._notices.take_marks),
            partial(follow, self._reader.config_changes, self._notices.take_configs),
            partial(follow, partial(acl_changes, self._zookeeper, ACL_CHANGES), self._notices.take_acls),
            partial(follow, partial(acl_changes, self._zookeeper, EXTENDED_ACL_CHANGES), self._notices.take_acls),
            partial(follow, partial(token_changes, self._zookeeper), self._notices.take_tokens),
            partial(follow, partial(self._reader.links, site=self.cluster.rules.site), self._on_links),
            partial(follow, partial(self._reader.request, PREFERRED_ELECTION), self._requests.take_election),
            partial(follow, partial(self._reader.request, REASSIGN_PARTITIONS), self._requests.take_reassignment),
        ]
        if self._heeds_altered_configs:
            read = partial(self._reader.unclean_election, self.tenure.controller_id)
            watches.append(partial(follow, read, self._on_unclean_election))
        return watches

    async def _on_brokers(self, listed: tuple[dict[int, Broker], int]) -> None:
        await self._tell(ask.BrokersListed(brokers=listed[0], registrations_zxid=listed[1]))

    async def _on_topic_names(self, names: list[str]) -> None:
        self._topic_watches.follow(names)
        await self._discover(names)

    async def _discover(self, names: Iterable[str]) -> None:
        """Load unknown topics; a topic that cannot be decoded goes into quarantine."""
        for name in names:
            if name not in self.cluster.topics and name not in self.cluster.quarantine:
                await self._tell(Reading(partial(self._discovered, name)))

    async def _discovered(self, name: str) -> ask.Command | None:
        cluster = self.cluster
        if name in cluster.topics or name in cluster.quarantine:
            return None
        try:
            topics = tuple(topic for topic in await self._reader.topics([name]) if topic.assignment)
        except MalformedZnode as error:
            _log.error("malformed topic in ZooKeeper is in quarantine", problem=str(error))
            return ask.QuarantineLookedAt(problems={**cluster.quarantine, name: str(error)})
        return ask.TopicsDiscovered(topics=topics) if topics else None

    async def _on_links(self, found: tuple[dict[str, LinkRecord], dict[str, str]]) -> None:
        links, problems = found
        for problem in problems.values():
            _log.error("malformed link record in ZooKeeper; the last known record applies", problem=problem)
        await self._tell(ask.LinksListed(links=links, problems=problems))

    async def _on_unclean_election(self, is_allowed: bool | None) -> None:
        await self._tell(ask.UncleanElectionRead(is_allowed=is_allowed))

    async def _retry_deletions(self) -> None:
        while True:
            await asyncio.sleep(self._deletion_retry_ms / 1000)
            if self.cluster.deletions:
                await self._tell(ask.RetryDeletions())

    async def _remove_expired_tokens(self) -> None:
        # the wall clock, since tokens expire at a Unix time
        clock = self._doors.clock
        while True:
            if any(token.is_expired(clock.now_ms()) for token in self.cluster.delegation_tokens.values()):
                await self._tell(RemoveExpiredTokens(now_ms=clock.now_ms()))
            await asyncio.sleep(self._token_expiry_check_ms / 1000)

    async def _store_raises(self) -> None:
        """Store raised leader epochs in the states of partitions, after the writers that waited."""
        while True:
            async with self._has_changed:
                await self._has_changed.wait_for(lambda: bool(self.cluster.raises))
            await asyncio.sleep(RAISES_STORED_AFTER_S + len(self.cluster.leaderships) * RAISES_STORED_AFTER_EACH_S)
            has_stored = True
            while has_stored:  # without a fact, the rest of a raise waits for a topic in quarantine
                has_stored = bool((await self.submit(ask.StoreRaised(count_max=RAISED_PER_WRITE_MAX))).facts)
                await asyncio.sleep(RAISED_PAUSE_S)

    async def _balance_leaders(self, rule: BalanceRule) -> None:
        await asyncio.sleep(FIRST_BALANCE_AFTER_S)
        while True:
            await self._tell(ask.BalanceLeaders(imbalance_percentage=rule.imbalance_percentage))
            await asyncio.sleep(rule.interval_s)

    async def _end(self) -> None:
        self._is_over = True
        while not self._queue.empty():
            _, future, _ = self._queue.get_nowait()
            if not future.done():
                future.set_exception(Deposed("this controller is no longer active"))
            # callers that wait for room in the queue put their commands now, and get Deposed too
            await asyncio.sleep(0)
        async with self._has_changed:
            self._has_changed.notify_all()
        await self._sentinels.close()
        await self._channels.close()

    def _now_s(self) -> float:
        return self._doors.clock.monotonic_ms() / 1000

    def _ms_since(self, began_s: float) -> float:
        return (self._now_s() - began_s) * 1000
