"""The running mirror of one link: it creates board, queue, pools and syncs for the link's ends, and
starts and stops them together.

It uses no sockets and no files, so that tests run it over sites in memory. `main.py` chooses the
ends and the share from the configuration.
"""

from __future__ import annotations

import asyncio
import random

from msgspec import Struct
from prometheus_client import CollectorRegistry

from mirror.admin.metrics import MirrorMetrics
from mirror.admin.status import MirrorStatus
from mirror.ends import Ends
from mirror.flow.board import FlowBoard
from mirror.flow.core.assignment import FetcherKey
from mirror.flow.core.flow_effects import Side
from mirror.flow.core.flow_state import FlowState
from mirror.flow.core.priorities import Classes
from mirror.flow.core.window import QueuedBatches
from mirror.flow.fetchers import Fetcher
from mirror.flow.followed_link import FollowedLink
from mirror.flow.pauses import Pauses
from mirror.flow.prober import Prober
from mirror.flow.producers import Producer
from mirror.flow.queue import ByteQueue
from mirror.flow.ranks import Ranks
from mirror.flow.reporting.link_reports import LinkReports
from mirror.flow.stall_watch import StallWatch
from mirror.flow.throttle import Throttle
from mirror.flow.workers import FetcherPool, ProducerPool
from mirror.link.core.link_roles import LinkRole
from mirror.link.core.topic_plan import way_to_a_new_copy
from mirror.link.known_link import KnownLink
from mirror.link.link_watch import LinkView
from mirror.link.ports import Unreachable
from mirror.parts import make_group_sync, make_reinstatements, make_resets, make_stall_watch, make_topic_sync
from mirror.settings.config import MirrorConfig
from mirror.sharing.peer_watch import PeerWatch
from mirror.sharing.shares import Share
from runtime.doors import ProcessDoors
from runtime.invariants import InvariantBroken
from runtime.logs import get_logger
from runtime.process import OperationalFailure
from runtime.supervision import Supervisor
from wire.protocol.ids import TopicPartition
from wire.rules.links import SyncPolicy, sync_policy

STALE_GRACE_MS = 1_000
"""Time without an answer of the source, beyond its long poll, after which a lag of zero counts as
unknown.
"""

REPORT_PAUSE_S = 0.25

LOOKS_APART = 4
"""A pause is at least this many times as long as the last look: after a move all partitions are
looked at, and the processor is needed for their first records.
"""
LAST_GROUP_SYNC_TIMEOUT_S = 2.0

_log = get_logger("mirror")


class DrainResult(Struct, frozen=True):
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
        ends: Ends,
        share: Share,
        link: KnownLink,
        *,
        registry: CollectorRegistry,
        doors: ProcessDoors,
    ) -> None:
        self._config = config
        self._ends = ends
        self._share = share
        self._link = link
        self._clock = clock = doors.clock
        self.failed: asyncio.Future[BaseException] = asyncio.get_running_loop().create_future()
        self.board = self._make_board(doors.chance)
        self.throttle = Throttle(clock, bytes_per_second=config.throttle_bytes_per_second)
        classes = Classes(high=config.high_priority_topics, low=config.low_priority_topics)
        self._ranks = Ranks(self.board, classes, backfill_bytes=config.backfill_bytes)
        self.queue = ByteQueue(
            capacity_bytes=config.queue_size_bytes,
            lanes=config.producers,
            timeout_ms=config.queue_enqueue_timeout_ms,
            clock=clock,
        )
        self.pauses = Pauses(self.board, config.pause_file, owns=share.owns, slots=lambda: share.slots)
        self._supervisor = Supervisor(chance=doors.chance, fatal=(InvariantBroken,), on_broken=self._fail)
        self._prober = Prober(self.board, source=ends.source, target=ends.target)
        self._followed = FollowedLink(
            self.board,
            link,
            read=ends.read_link,
            interval_ms=config.link_refresh_interval_ms,
            on_turned=self._look_at_topics,
            on_moved=self._fail,
        )
        self._groups = make_group_sync(
            config, ends, share, self.board, link=self.link, registry=registry, clock=clock, topics=lambda: self.topics
        )
        self._peers = PeerWatch(self.board, share.ownership, lambda: self._groups.report.problems)
        self.topics = make_topic_sync(
            config,
            ends,
            self.board,
            link=self.link,
            clock=clock,
            on_topology=self._topology_changed,
            on_renewed=self._groups.forget,
        )
        self.verifier = ends.verifier
        self.resets = make_resets(ends, self.board, link=self.link, on_put_away=self.topics.renew)
        self.reinstatements = make_reinstatements(ends, self.board, link=self.link)
        self._reports = LinkReports(self.board, progress=ends.open_progress(), idle=ends.open_reports(), link=self.link)
        self._stalls = self._make_stall_watch()
        self.producers = ProducerPool(
            self.board, self._supervisor, producers=config.producers, make=self._make_producer
        )
        self.fetchers = FetcherPool(
            self.board, self._supervisor, streams_per_broker=config.streams, make=self._make_fetcher
        )
        self.status = self.look()
        self.metrics = self._make_metrics(registry)

    def link(self) -> LinkView:
        """The link as last read."""
        return self._link.view

    @property
    def restarts(self) -> dict[str, int]:
        """The number of restarts of dead workers, by kind."""
        return dict(self._supervisor.restarts)

    def look(self) -> MirrorStatus:
        """Build the status of this moment, which metrics and health read until the next one."""
        ends = self._ends.status()
        self.status = MirrorStatus(
            link=self.link(),
            outage=self._outage(),
            waiting_for=self._share.waiting_for,
            nothing_carried=self.topics.nothing_carried,
            refusals=tuple(self.topics.refusals),
            groups_synced_at_ms=self._groups.report.synced_at_ms,
            group_problems=self._groups.report.problems,
            groups_stale_since_ms=self._groups.report.stale_since_ms,
            groups_ahead=self._groups.target_ahead,
            acls=ends.acls,
            mirror_maker=ends.mirror_maker,
            transactions=ends.transactions,
            peers=self._peers.status(),
            stalled_for_ms=self._stalls.stalled_for_ms,
            falling_behind=self._stalls.falling_behind,
            stall_remedies=dict(self._stalls.remedies),
            retention_risks=self.topics.retention.at_risk,
            restarts=self.restarts,
            throttle_waited_ms=self.throttle.waited_ms,
        )
        return self.status

    def _outage(self) -> tuple[FlowState, str] | None:
        problem = self.topics.problem
        if problem is None:
            waiting_for = self._share.outage
            if self.topics.synced_at_ms < 0 and self.link().role in (LinkRole.MIRRORING, LinkRole.DRAINING):
                waiting_for = waiting_for or "the topics of the two sites have not been compared yet"
            return (FlowState.PREPARING, waiting_for) if waiting_for else None
        state = FlowState.SOURCE_UNAVAILABLE if problem.side is Side.SOURCE else FlowState.PREPARING
        return state, str(problem)

    def start(self) -> None:
        """Start all workers."""
        self.producers.start()
        self._supervisor.start("links", self._followed.run)
        self._supervisor.start("turns", self._followed.turn_slowly)
        self._supervisor.start("topics", self.topics.run)
        self._supervisor.start("groups", self._groups.run)
        self._supervisor.start("reports", self._report)
        self._supervisor.start("stalls", self._stalls.run)
        for name, worker in {**self._reports.workers, **self._ends.workers, **self._share.workers}.items():
            self._supervisor.start(name, worker)

    async def stop(self, *, drain_timeout_ms: int) -> DrainResult:
        """Stop fetching, let queued batches reach the target, carry groups a last time, and end.
        Logs the work that was left undone.
        """
        self.board.stop_timers()
        # Groups stop here and get one last round after the drain, when the copies have their final
        # ends.
        await self._supervisor.stop("groups")
        await self._supervisor.stop("stalls")
        await self.fetchers.close()
        # Leaders may move during the drain, so metadata is refreshed until everything has arrived.
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
        await self.reinstatements.close()
        await self._reports.close()
        await self.producers.close()
        await self._ends.finish()
        self.board.stop_timers()
        _log.info(
            "drained and stopped"
            if is_complete
            else "stopped before the queue was empty; the batches will be fetched again",
            left_bytes=result.left_bytes,
            mirrored_bytes=result.mirrored_bytes,
            mirrored_records=result.mirrored_records,
        )
        return result

    # The effects of flows.

    def discard(self, key: TopicPartition, generation: int) -> None:
        """Drop older batches, then submit `Settled`."""
        self.producers.discard(key, generation)

    def find_target(self, key: TopicPartition, generation: int) -> None:
        """Ask the target for its log."""
        self._prober.find_target(key, generation)

    def check_source(self, key: TopicPartition, generation: int, epoch: int) -> None:
        """Ask the source for its log."""
        self._prober.check_source(key, generation, epoch)

    def reinstate_copy(self, key: TopicPartition, generation: int, reason: str) -> None:
        """Make the copy a prefix of the source again, if the link's policy allows it."""
        self.reinstatements.ask(key, generation, reason)

    def fetching_changed(self, key: TopicPartition) -> None:
        """Have the partition's fetcher look."""
        self.fetchers.wake(key)

    def _look_at_topics(self) -> None:
        self.topics.poke()

    def refresh_metadata(self, side: Side) -> None:  # noqa: ARG002 (one round looks at both sites)
        """Look at topics and leaders now."""
        self.topics.poke()

    def refresh_link(self) -> None:
        """Read the link's record now."""
        self._followed.doubt()

    # Inside.

    def _make_board(self, chance: random.Random) -> FlowBoard:
        return FlowBoard(
            clock=self._clock,
            effects=self,
            gap_policy=self._config.gap_policy,
            stale_after_ms=self._config.fetch_wait_max_ms + STALE_GRACE_MS,
            chance=chance,
            way_out_of=lambda topic: way_to_a_new_copy(topic, self._ends.name_at_target),
            target_compares=self._ends.is_exact,
            on_broken=self._fail,
            on_transition=self._watch_transition,
        )

    def _make_metrics(self, registry: CollectorRegistry) -> MirrorMetrics:
        return MirrorMetrics(
            registry,
            board=self.board,
            queue=self.queue,
            ends=self._ends,
            clock=self._clock,
            status=lambda: self.status,
            unacknowledged=lambda: [*self.producers.batches, *self.queue.unsent],
            names_formats=self._config.figure_names,
        )

    def _make_stall_watch(self) -> StallWatch:
        return make_stall_watch(
            self._config,
            self._ends,
            self.board,
            waited_ms=lambda: self.throttle.waited_ms + self.queue.wait_on_put_ms,
            replace_workers=self._replace_workers,
            clock=self._clock,
        )

    def _replace_workers(self, key: TopicPartition, reason: str) -> None:
        self.fetchers.replace(key, reason)
        self.producers.replace(key, reason)

    def _make_producer(self, lane: int) -> Producer:
        return Producer(
            lane,
            board=self.board,
            queue=self.queue,
            port=self._ends.open_append(),
            link=self.link,
            suspect_link=self._followed.doubt,
            clock=self._clock,
            request_bytes_max=self._config.request_max_bytes,
            in_flight_max=self._config.in_flight_max,
            on_appended=self._appended,
            on_idle=self._reports.acknowledged_idle,
        )

    def _appended(self, key: TopicPartition, entry: QueuedBatches) -> None:
        self.metrics.observe(key, entry)
        self._reports.acknowledged(key)

    def _make_fetcher(self, key: FetcherKey) -> Fetcher:
        return Fetcher(
            key,
            board=self.board,
            queue=self.queue,
            port=self._ends.open_fetch(),
            late_port=self._ends.open_fetch(),
            lane_of=self.producers.lane_of,
            throttle=self.throttle,
            interval_ms=self._fetch_interval_ms,
            clock=self._clock,
            is_resting=lambda: self._followed.is_resting,
        )

    def _fetch_interval_ms(self) -> float:
        """On a sync link, producers wait for the mirror, so the mirror does not pause."""
        is_waited_for = sync_policy(self.link().record) is not SyncPolicy.NONE
        return 0 if is_waited_for else self._config.fetch_interval_ms

    def _topology_changed(self) -> None:
        self._ranks.update()
        self.pauses.enforce()
        self.fetchers.reassign()
        self.producers.wake()

    def _watch_transition(self, key: TopicPartition, before: FlowState, after: FlowState, reason: str) -> None:  # noqa: ARG002
        # a new leader at the source knows nothing of the target yet
        if after is FlowState.MIRRORING and self._reports is not None:
            self._reports.acknowledged(key)
        if after is FlowState.FAULTED and self._config.is_abort_on_send_failure:
            self._fail(OperationalFailure(f"{key} is FAULTED and abort.on.send.failure is set: {reason}"))

    def _fail(self, error: BaseException) -> None:
        if not self.failed.done():
            self.failed.set_result(error)

    async def _report(self) -> None:
        while True:
            began_ms = self._clock.monotonic_ms()
            if not self._followed.is_resting:
                self.producers.report()
            self.pauses.enforce()
            self._peers.look()
            self.board.forget_retired(self.producers.forget)
            self.look()
            if self._ranks.update():
                self.fetchers.reassign()
            look_s = (self._clock.monotonic_ms() - began_ms) / 1000
            await asyncio.sleep(max(REPORT_PAUSE_S, LOOKS_APART * look_s))

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
