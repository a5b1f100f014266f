"""The running mirror of one link: board, queue, pools and syncs put together over ports, started
and drained as one.

It knows no sockets and no files, so that tests run it over sites in memory. `main.py` makes the
ports from the configuration.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Awaitable, Callable, Coroutine, Mapping
from dataclasses import dataclass, field
from typing import Any

from prometheus_client import CollectorRegistry

from mirror.admin.metrics import MirrorMetrics
from mirror.admin.reinstatements import Reinstatements
from mirror.admin.resets import Resets
from mirror.admin.service import MirrorParts
from mirror.admin.verifier import Verifier
from mirror.flow.board import FlowBoard
from mirror.flow.core.assignment import FetcherKey
from mirror.flow.core.flow_events import LinkTurned, Side
from mirror.flow.core.flow_state import FlowState
from mirror.flow.core.priorities import Classes, is_backfill_rank, is_backfilling, rank_of
from mirror.flow.core.window import QueuedBatches
from mirror.flow.fetchers import Fetcher
from mirror.flow.pauses import Pauses
from mirror.flow.prober import Prober
from mirror.flow.producers import Producer
from mirror.flow.queue import ByteQueue
from mirror.flow.stall_watch import StallWatch
from mirror.flow.standby_reports import StandbyReports
from mirror.flow.throttle import Throttle
from mirror.flow.workers import FetcherPool, ProducerPool
from mirror.groups.group_sync import GroupSync
from mirror.groups.metrics import CheckpointMetrics
from mirror.link.core.link_roles import LinkRole
from mirror.link.core.partitions import PartitionKey
from mirror.link.core.topic_plan import NameAtTarget, way_to_a_new_copy
from mirror.link.link_watch import LinkView, LinkWatch
from mirror.link.ports import (
    AppendPort,
    FetchPort,
    GroupPort,
    OffsetsTail,
    ProgressPort,
    QuarantinePort,
    SitePort,
    SourcePort,
    TopicActor,
    Unreachable,
)
from mirror.settings.config import MirrorConfig
from mirror.sharing.ownership import Ownership
from mirror.sharing.peer_watch import PeerWatch
from mirror.topics.topic_sync import TopicSync
from runtime.clock import Clock
from runtime.invariants import InvariantBroken
from runtime.logs import get_logger, state_change_logger
from runtime.process import OperationalFailure
from runtime.supervision import Supervisor
from wire.control.mirror_pb2 import MirrorTransactions
from wire.protocol.compressed_stream import CompressionTally
from wire.rules.links import SyncPolicy, sync_policy
from wire.rules.sync_reports import ALL_SLOTS

STALE_GRACE_MS = 1_000
"""Silence of the source beyond its long poll after which a lag of zero is no longer believed."""

REPORT_PAUSE_S = 0.25
LAST_GROUP_SYNC_TIMEOUT_S = 2.0

_log = get_logger("mirror")
_state_change = state_change_logger()


@dataclass(frozen=True, slots=True, kw_only=True)
class Ports:
    """The two sites as the mirror reaches them."""

    source: SourcePort
    target: SitePort
    source_groups: GroupPort
    target_groups: GroupPort
    actor: TopicActor
    open_fetch: Callable[[], FetchPort]
    open_append: Callable[[], AppendPort]
    read_link: Callable[[], Awaitable[LinkView]]
    # Further tasks of the link, and what is to be done when all have ended.
    workers: Mapping[str, Callable[[], Coroutine[Any, Any, None]]] = field(default_factory=dict)
    finish: Callable[[], Awaitable[None]] | None = None
    verifier: Verifier | None = None
    # Whether the target compares a batch that it has with one that is sent again.
    target_compares: bool = True
    # Who keeps what is removed of copies; None where the mirror removes nothing.
    quarantine: QuarantinePort | None = None
    # The end of the source's `__consumer_offsets`, where it can be followed.
    offsets_tail: OffsetsTail | None = None
    # The port that reports the target's progress to the source, for sync links.
    open_progress: Callable[[], ProgressPort] | None = None
    # What compressed connections save, by end.
    tallies: Mapping[str, CompressionTally] = field(default_factory=dict)
    # What the target has beyond one copy of each record, where that can be.
    surplus_records: Callable[[], Mapping[PartitionKey, int]] = dict
    # How far ACLs are followed, for those who ask.
    acls: Callable[[], str] = lambda: ""
    # What of the source's access rules is not at the target, and why: reported with groups'.
    access_problems: Callable[[], Mapping[str, str]] = dict
    # Which of MirrorMaker 2's topics cannot be written.
    mirror_maker: Callable[[], str] = lambda: ""
    # Whether the target keeps where each copy begins (core/beginnings.py).
    keeps_beginnings: bool = True
    # Transactions at the target, where they are written.
    transactions: Callable[[], MirrorTransactions | None] = lambda: None
    # Of links whose copies are deleted at the target, and never by the mirror: what a topic's copy
    # is called there.
    name_at_target: NameAtTarget | None = None
    # How people know this daemon from the others of its link.
    daemon: str = ""
    # Which partitions this daemon mirrors, where several share the link.
    owns: Callable[[PartitionKey], bool] = lambda _: True
    # Why this daemon has no share of a link that several share, its share, and how large that is;
    # None where the link is not shared.
    sharing_outage: Callable[[], str] = lambda: ""
    slots: Callable[[], frozenset[int]] = lambda: ALL_SLOTS
    # A sentence while another daemon carries a link that is not shared.
    waiting_for: Callable[[], str] = lambda: ""
    ownership: Ownership | None = None
    owned_slots: Callable[[], int] | None = None


@dataclass(frozen=True, slots=True)
class DrainResult:
    """The result of a graceful stop."""

    is_complete: bool
    left_bytes: int
    mirrored_bytes: int
    mirrored_records: int


class Mirror:
    """One link's mirror. `start`, then `stop`; `failed` resolves when it cannot go on."""

    def __init__(
        self,
        config: MirrorConfig,
        ports: Ports,
        link_view: LinkView,
        *,
        registry: CollectorRegistry,
        clock: Clock,
        chance: random.Random,
    ) -> None:
        self._config = config
        self._ports = ports
        self._link_view = link_view
        self._clock = clock
        self.failed: asyncio.Future[BaseException] = asyncio.get_running_loop().create_future()
        self.board = FlowBoard(
            clock=clock,
            effects=self,
            gap_policy=config.gap_policy,
            stale_after_ms=config.fetch_wait_max_ms + STALE_GRACE_MS,
            chance=chance,
            way_out_of=lambda topic: way_to_a_new_copy(topic, ports.name_at_target),
            target_compares=ports.target_compares,
        )
        self.board.on_broken = self._fail
        self.board.on_transition = self._watch_transition
        self.throttle = Throttle(clock, bytes_per_second=config.throttle_bytes_per_second)
        self._classes = Classes(high=config.high_priority_topics, low=config.low_priority_topics)
        self.queue = ByteQueue(
            capacity_bytes=config.queue_size_bytes,
            lanes=config.producers,
            timeout_ms=config.queue_enqueue_timeout_ms,
            clock=clock,
        )
        self.pauses = Pauses(self.board, config.pause_file, owns=ports.owns)
        self._supervisor = Supervisor(chance=chance, fatal=(InvariantBroken,), on_broken=self._fail)
        self._prober = Prober(self.board, source=ports.source, target=ports.target)
        self._link_watch = LinkWatch(
            ports.read_link,
            interval_ms=config.link_refresh_interval_ms,
            on_link_view=self._apply_link_view,
            on_missing=self._lose_link,
        )
        self._groups = self._make_groups(registry)
        self._peers = PeerWatch(self.board, ports.ownership, lambda: self._groups.problems)
        self.topics = self._make_topics()
        self._resets = self._make_resets()
        self._reinstatements = Reinstatements(
            self.board,
            source=ports.source,
            target=ports.target,
            link=self.link,
            quarantine=ports.quarantine,
            verifier=ports.verifier,
        )
        self._reports = (
            None if ports.open_progress is None else StandbyReports(self.board, ports.open_progress(), self.link)
        )
        self._stalls = self._make_stall_watch()
        self.metrics = self._make_metrics(registry)
        self.producers = ProducerPool(
            self.board, self._supervisor, producers=config.producers, make=self._make_producer
        )
        self.fetchers = FetcherPool(
            self.board, self._supervisor, streams_per_broker=config.streams, make=self._make_fetcher
        )

    def link(self) -> LinkView:
        """The link as last read."""
        return self._link_view

    @property
    def restarts(self) -> dict[str, int]:
        """The number of restarts of dead workers, by kind."""
        return dict(self._supervisor.restarts)

    @property
    def parts(self) -> MirrorParts:
        """The parts that MirrorAdmin reads."""
        return MirrorParts(
            self.board,
            self.queue,
            self.link,
            lambda: self._groups.synced_at_ms,
            self._outage,
            self.pauses,
            self._ports.verifier,
            self._resets,
            self._reinstatements,
            lambda: self._groups.problems,
            lambda: self._groups.stale_since_ms,
            lambda: self.topics.refusals,
            self._ports.acls,
            self._ports.transactions,
            lambda: self._stalls.stalled_for_ms,
            lambda: self.topics.nothing_carried,
            self._ports.mirror_maker,
            lambda: self._groups.target_ahead,
            self._peers,
            lambda: self.topics.retention.at_risk,
            self._ports.waiting_for,
        )

    def _outage(self) -> tuple[FlowState, str] | None:
        problem = self.topics.problem
        if problem is None:
            waiting_for = self._ports.sharing_outage()
            if self.topics.synced_at_ms < 0 and self.link().role in (LinkRole.MIRRORING, LinkRole.DRAINING):
                waiting_for = waiting_for or "the topics of the two sites have not been compared yet"
            return (FlowState.PREPARING, waiting_for) if waiting_for else None
        state = FlowState.SOURCE_UNAVAILABLE if problem.side is Side.SOURCE else FlowState.PREPARING
        return state, str(problem)

    def start(self) -> None:
        """Start all workers."""
        self.producers.start()
        self._supervisor.start("links", self._link_watch.run)
        self._supervisor.start("topics", self.topics.run)
        self._supervisor.start("groups", self._groups.run)
        self._supervisor.start("reports", self._report)
        self._supervisor.start("stalls", self._stalls.run)
        if self._reports is not None:
            self._supervisor.start("standby-reports", self._reports.run)
        for name, worker in self._ports.workers.items():
            self._supervisor.start(name, worker)

    async def stop(self, *, drain_timeout_ms: int) -> DrainResult:
        """Stop fetching, let queued batches reach the target, carry groups a last time, end. Logs
        what was left.
        """
        self.board.stop_timers()
        await self._supervisor.stop("groups")
        await self._supervisor.stop("stalls")
        await self.fetchers.close()
        # What is queued follows leaders that move: topics are looked at until it has arrived.
        is_complete = await self._drain(drain_timeout_ms)
        await self._supervisor.stop("topics")
        result = DrainResult(
            is_complete,
            self.queue.used_bytes,
            sum(row.facts.progress.mirrored_bytes for _, row in self.board.rows()),
            sum(row.facts.progress.mirrored_records for _, row in self.board.rows()),
        )
        if is_complete:
            await self._carry_groups_once_more()
        await self._supervisor.stop()
        await self._prober.close()
        await self._reinstatements.close()
        if self._reports is not None:
            await self._reports.close()
        await self.producers.close()
        if self._ports.finish is not None:
            await self._ports.finish()
        self.board.stop_timers()
        _log.info(
            "drained and stopped" if is_complete else "stopped before the queue was empty; it will be fetched again",
            left_bytes=result.left_bytes,
            mirrored_bytes=result.mirrored_bytes,
            mirrored_records=result.mirrored_records,
        )
        return result

    # The effects of flows.

    def discard(self, key: PartitionKey, generation: int) -> None:
        """Drop older batches, then submit `Settled`."""
        self.producers.discard(key, generation)

    def find_target(self, key: PartitionKey, generation: int) -> None:
        """Ask the target for its log."""
        self._prober.find_target(key, generation)

    def check_source(self, key: PartitionKey, generation: int, epoch: int) -> None:
        """Ask the source for its log."""
        self._prober.check_source(key, generation, epoch)

    def reinstate_copy(self, key: PartitionKey, generation: int, reason: str) -> None:
        """Have the copy made a prefix of the source again, where the link's policy says so."""
        self._reinstatements.ask(key, generation, reason)

    def fetching_changed(self, key: PartitionKey) -> None:
        """Have the partition's fetcher look."""
        self.fetchers.wake(key)

    def refresh_metadata(self, side: Side) -> None:  # noqa: ARG002 (one round looks at both sites)
        """Look at topics and leaders now."""
        self.topics.poke()

    def refresh_link(self) -> None:
        """Read the link's record now."""
        self._link_watch.doubt()

    # Inside.

    def _make_metrics(self, registry: CollectorRegistry) -> MirrorMetrics:
        return MirrorMetrics(
            registry,
            board=self.board,
            queue=self.queue,
            link=self.link,
            clock=self._clock,
            restarts=lambda: self.restarts,
            groups_synced_at_ms=lambda: self._groups.synced_at_ms,
            throttle_waited_ms=lambda: self.throttle.waited_ms,
            tallies=self._ports.tallies,
            surplus_records=self._ports.surplus_records,
            refusals=lambda: self.topics.refusals,
            groups_stale_since_ms=lambda: self._groups.stale_since_ms,
            unacknowledged=lambda: [*self.producers.batches, *self.queue.unsent],
            stalls=self._stalls,
            name_at_target=self._ports.name_at_target,
            owned_slots=self._ports.owned_slots,
            names_formats=self._config.figure_names,
            peers=self._peers,
            retention_risks=lambda: self.topics.retention.at_risk,
        )

    def _make_groups(self, registry: CollectorRegistry) -> GroupSync:
        link = self.link()
        # Translate links measure it where their checkpoints are written.
        is_measured = self._ports.name_at_target is None
        return GroupSync(
            self.board,
            source=self._ports.source_groups,
            target=self._ports.target_groups,
            link=self.link,
            clock=self._clock,
            interval_ms=self._config.group_sync_interval_ms,
            tail=self._ports.offsets_tail,
            metrics=CheckpointMetrics(
                registry,
                source=link.source_site,
                target=link.site,
                clock=self._clock,
                names_formats=self._config.figure_names,
            )
            if is_measured
            else None,
            daemon=self._ports.daemon,
            slots=self._ports.slots,
            other_problems=self._ports.access_problems,
        )

    def _make_resets(self) -> Resets:
        return Resets(
            self.board,
            source=self._ports.source,
            target=self._ports.target,
            actor=self._ports.actor,
            link=self.link,
            on_put_away=self.topics.renew,
            quarantine=self._ports.quarantine,
            verifier=self._ports.verifier,
        )

    def _make_stall_watch(self) -> StallWatch:
        def replace_workers(key: PartitionKey, reason: str) -> None:
            self.fetchers.replace(key, reason)
            self.producers.replace(key, reason)

        return StallWatch(
            self.board,
            source=self._ports.source,
            waited_ms=lambda: self.throttle.waited_ms + self.queue.wait_on_put_ms,
            replace_workers=replace_workers,
            clock=self._clock,
            # A source that has nothing new answers once in a long poll.
            stall_ms=max(self._config.stall_timeout_ms, 2 * self._config.fetch_wait_max_ms),
        )

    def _make_topics(self) -> TopicSync:
        return TopicSync(
            self.board,
            source=self._ports.source,
            target=self._ports.target,
            actor=self._ports.actor,
            link=self.link,
            clock=self._clock,
            interval_ms=self._config.topics_refresh_interval_ms,
            config_interval_ms=self._config.config_sync_interval_ms,
            excluded_configs=self._config.config_properties_exclude,
            keeps_beginnings=self._ports.keeps_beginnings,
            on_topology=self._topology_changed,
            on_renewed=self._groups.forget,
            name_at_target=self._ports.name_at_target,
        )

    def _make_producer(self, lane: int) -> Producer:
        producer = Producer(
            lane,
            board=self.board,
            queue=self.queue,
            port=self._ports.open_append(),
            link=self.link,
            suspect_link=self._link_watch.doubt,
            clock=self._clock,
            request_bytes_max=self._config.request_max_bytes,
            in_flight_max=self._config.in_flight_max,
        )
        producer.on_appended = self._appended
        return producer

    def _appended(self, key: PartitionKey, entry: QueuedBatches) -> None:
        self.metrics.observe(key, entry)
        if self._reports is not None:
            self._reports.acknowledged(key)

    def _make_fetcher(self, key: FetcherKey) -> Fetcher:
        return Fetcher(
            key,
            board=self.board,
            queue=self.queue,
            port=self._ports.open_fetch(),
            lane_of=self.producers.lane_of,
            throttle=self.throttle,
            interval_ms=self._fetch_interval_ms,
            clock=self._clock,
        )

    def _fetch_interval_ms(self) -> float:
        """Producers wait for a sync link, so it waits for nothing."""
        is_waited_for = sync_policy(self._link_view.record) is not SyncPolicy.NONE
        return 0 if is_waited_for else self._config.fetch_interval_ms

    def _rank(self) -> bool:
        """Give each partition its rank; True when one has another than before."""
        has_changed = False
        for key, row in self.board.rows():
            is_far_behind = is_backfilling(
                self.board.lag(key),
                was_backfilling=is_backfill_rank(row.rank),
                threshold_bytes=self._config.backfill_bytes,
            )
            rank = rank_of(self._classes.of(key.topic), is_backfill=is_far_behind)
            has_changed |= rank != row.rank
            row.rank = rank
        return has_changed

    def _topology_changed(self) -> None:
        self._rank()
        self.pauses.enforce()
        self.fetchers.reassign()
        self.producers.wake()

    def _apply_link_view(self, link_view: LinkView) -> None:
        if not _supersedes(link_view, self._link_view):
            return
        if (link_view.epoch, link_view.role) != (self._link_view.epoch, self._link_view.role):
            _state_change.info(link_view.reason, link=link_view.name, epoch=link_view.epoch, role=link_view.role.value)
        has_turned = link_view.role is not self._link_view.role
        self._link_view = link_view
        self._turn(link_view.role, link_view.reason)
        if has_turned:
            self.topics.poke()

    def _lose_link(self, reason: str) -> None:
        if self._link_view.role is not LinkRole.GONE:
            _state_change.warning(reason, link=self._link_view.name)
        link_view = self._link_view
        self._link_view = LinkView(
            link_view.name, link_view.epoch, LinkRole.GONE, reason, link_view.record, link_view.site
        )
        self._turn(LinkRole.GONE, reason)

    def _turn(self, role: LinkRole, reason: str) -> None:
        for key, row in list(self.board.rows()):
            is_promoted = row.facts.state is FlowState.PROMOTED
            if row.facts.role is not role or (is_promoted and role is not LinkRole.TURNED):
                self.board.submit(key, LinkTurned(role=role, reason=reason))

    def _watch_transition(self, key: PartitionKey, before: FlowState, after: FlowState, reason: str) -> None:  # noqa: ARG002
        if after is FlowState.FAULTED and self._config.is_abort_on_send_failure:
            self._fail(OperationalFailure(f"{key} is FAULTED and abort.on.send.failure is set: {reason}"))

    def _fail(self, error: BaseException) -> None:
        if not self.failed.done():
            self.failed.set_result(error)

    async def _report(self) -> None:
        while True:
            self.producers.report()
            self.pauses.enforce()
            self._peers.look()
            if self._rank():
                self.fetchers.reassign()
            await asyncio.sleep(REPORT_PAUSE_S)

    async def _drain(self, timeout_ms: int) -> bool:
        try:
            async with asyncio.timeout(timeout_ms / 1000):
                await self.queue.drained()
        except TimeoutError:
            return False
        return True

    async def _carry_groups_once_more(self) -> None:
        try:
            async with asyncio.timeout(LAST_GROUP_SYNC_TIMEOUT_S):
                await self._groups.round()
        except (TimeoutError, Unreachable) as error:
            _log.info("the last group offset sync failed", reason=str(error) or "timed out")


def _supersedes(found: LinkView, known: LinkView) -> bool:
    """Whether what was read now counts. A lower epoch is an agent that lags, or a link that was
    deleted and made again.
    """
    is_made_again = known.role is LinkRole.GONE or found.record.updated_at_ms > known.record.updated_at_ms
    return found.epoch >= known.epoch or is_made_again
