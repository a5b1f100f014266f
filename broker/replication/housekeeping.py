"""Periodic work of a broker: flushes, retention, removal, compaction, checkpoints, digests, reading
what is on the disk, the quarantine, standbys.

Each job is a loop of its own. A failing disk is reported and tried again in the next round; it
never ends the broker. Retention and compaction wait for the first whole image, because the topics'
own configs are unknown before it.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from functools import partial

from broker.log.core.retention import RetentionHold
from broker.log.digesting import has_unsealed, seal_some
from broker.log.directories.log_store import LogStore
from broker.log.errors import StorageError
from broker.log.partition_log import PartitionLog
from broker.log.scrubbing import LOGS_A_TURN, Scrubber
from broker.metadata.cluster import Cluster
from broker.metadata.core.cluster_image import LinkRole
from broker.replication.core.retention_holds import HoldBounds
from broker.replication.quarantine_upkeep import QuarantineUpkeep
from broker.replication.replicas import Replicas
from broker.settings.config import BrokerSettings
from broker.settings.dynamic_configs import DynamicConfigs
from runtime.clock import Clock
from runtime.logs import get_logger
from runtime.supervision import Supervisor

log = get_logger(__name__)

Interval = Callable[[BrokerSettings], float]
"""Milliseconds between two turns of a job, by the settings in force."""

FIRST_RETENTION_DELAY_MS = 30_000  # as in Kafka: a start needs the disks for more urgent work
STANDBY_INTERVAL_MS = 100
"""Interval (ms) at which the broker looks for a sync link's standby that is silent for too long."""
REMOVAL_INTERVAL_MS = 1_000
"""Interval (ms) at which the broker removes deleted files whose delay is over."""
MOVE_INTERVAL_MS = 200
"""Interval (ms) at which the broker looks for moves to another log directory."""
DIGEST_INTERVAL_MS = 5_000
"""Interval (ms) at which the broker computes the digests of leaves that have ended."""
QUARANTINE_INTERVAL_MS_MAX = 60_000
"""Longest interval (ms) at which the broker looks at the quarantine."""
SCRUB_LOOK_MS_MAX = 60_000
"""Longest interval (ms) at which the broker looks for a log that is due to be read from the disk.
"""


def _quarantine_interval_ms(settings: BrokerSettings) -> float:
    return min(settings.log_retention_check_interval_ms, QUARANTINE_INTERVAL_MS_MAX)


class Housekeeping:
    """The background jobs over a broker's logs."""

    def __init__(
        self,
        configs: DynamicConfigs,
        logs: LogStore,
        replicas: Replicas,
        cluster: Cluster,
        *,
        on_expired: Callable[[PartitionLog], None],
        clock: Clock,
    ) -> None:
        self._configs = configs
        self._logs = logs
        self._replicas = replicas
        self._cluster = cluster
        self._on_expired = on_expired
        self.scrubber = Scrubber(logs, clock)
        self._quarantine = QuarantineUpkeep(configs, logs, replicas.cuts.quarantine, clock)
        self._loops = Supervisor()

    def start(self) -> None:
        """Begin all jobs."""
        # an operator who sets a shorter interval does not wait longer for the first pass
        first_ms = min(FIRST_RETENTION_DELAY_MS, self._configs.current.log_retention_check_interval_ms)
        jobs: tuple[tuple[str, Callable[[], Awaitable[None]], Interval, float], ...] = (
            ("flush", self._logs.flush_due, lambda now: now.log_flush_scheduler_interval_ms, 0),
            ("retention", self._retain, lambda now: now.log_retention_check_interval_ms, first_ms),
            ("quarantine", self._quarantine.look, _quarantine_interval_ms, 0),
            ("removal", self._logs.remove_due, lambda _: REMOVAL_INTERVAL_MS, 0),
            ("compaction", self._compact, lambda now: now.log_cleaner_backoff_ms, 0),
            ("move", self._move, lambda _: MOVE_INTERVAL_MS, 0),
            ("range digests", self._digest, lambda _: DIGEST_INTERVAL_MS, 0),
            ("scrub", self._scrub, lambda now: min(now.log_scrub_interval_ms, SCRUB_LOOK_MS_MAX), 0),
            ("standbys", self._check_standbys, lambda _: STANDBY_INTERVAL_MS, 0),
            ("checkpoint", self._checkpoint, lambda now: now.log_checkpoint_interval_ms, 0),
            ("high watermark checkpoint", self._mark, lambda now: now.high_watermark_checkpoint_interval_ms, 0),
        )
        for name, job, interval, delay_ms in jobs:
            run = partial(self._repeat, name, job, interval=interval, delay_ms=delay_ms)
            self._loops.start(name, run)

    async def _repeat(
        self, name: str, job: Callable[[], Awaitable[None]], *, interval: Interval, delay_ms: float
    ) -> None:
        await asyncio.sleep((delay_ms or interval(self._configs.current)) / 1000)
        while True:
            try:
                # one broken log must not stop the job for all other logs
                await job()
            except StorageError as error:
                log.warning("background work on the logs failed", job=name, reason=str(error))
            await asyncio.sleep(interval(self._configs.current) / 1000)

    async def _retain(self) -> None:
        # topics' own limits come with it: the defaults could delete what a topic keeps
        if not self._cluster.image.is_complete:
            return
        for sentence in await self._logs.maintain(
            self._configs.current.producer_id_expiration_ms,
            is_copy=self._is_copy,
            hold_of=self._hold_of,
            on_expired=self._on_expired,
        ):
            log.info(sentence)

    def _hold_of(self, topic: str, partition: int) -> RetentionHold | None:
        """The retention hold for records that the standbys lack; None at a standby itself, which
        follows.
        """
        image, settings = self._cluster.image, self._configs.current
        links = [image.links[name] for name in image.links_of(topic)]
        led = image.partition(topic, partition)
        return self._replicas.standbys.ends.hold(
            (topic, partition),
            [link for link in links if image.role_in(link) is not LinkRole.PASSIVE],
            HoldBounds(settings.link_hold_ms_max, settings.link_hold_bytes_max),
            is_leader=led is not None and led.leader == image.node_id,
        )

    async def _compact(self) -> None:
        # an incomplete image lacks topics' configs: with the defaults, a compacted topic could lose
        # records
        if not (self._cluster.image.is_complete and self._configs.current.is_log_cleaner_enabled):
            return
        for sentence in await self._logs.compact(is_copy=self._is_copy):
            log.info(sentence)

    def _is_copy(self, topic: str) -> bool:
        """A standby's log ends and begins where its source's does; cleaning begins when the site
        takes writes itself.

        Of a topic in quarantine the configs are not known: its logs are left as they are, too.
        """
        image = self._cluster.image
        return topic in image.quarantined or not image.role_of_topic(topic).may_write

    async def _digest(self) -> None:
        """Compute digests log by log; half of the time goes to other tasks, so that a broker that
        has much to do serves clients meanwhile.
        """
        for number, partition_log in enumerate(self._logs):
            if number % LOGS_A_TURN == 0:
                await asyncio.sleep(0)
            # only sites are compared by digests; those of a log without a link are computed once a
            # link carries it, or when a tool asks for them
            if not (has_unsealed(partition_log) and self._cluster.image.links_of(partition_log.topic)):
                continue
            former_failure = partition_log.digests.failure
            try:
                await self._digest_log(partition_log)
            except StorageError as error:
                # the log was closed meanwhile, by a move or a deletion
                if not partition_log.is_abandoned:
                    self._logs.note_failure(error)
                    log.warning("background work on the logs failed", job="range digests", reason=str(error))
            failure = partition_log.digests.failure
            if failure and failure != former_failure:
                name = f"{partition_log.topic}-{partition_log.partition}"
                log.error("the digests of a log cannot be continued", partition=name, reason=failure)

    async def _digest_log(self, partition_log: PartitionLog) -> None:
        loop = asyncio.get_running_loop()
        started_at = loop.time()
        while await seal_some(partition_log):
            # as long a pause as the piece took: half of the time belongs to clients
            await asyncio.sleep(loop.time() - started_at)
            started_at = loop.time()

    async def _scrub(self) -> None:
        await self.scrubber.scrub_due(
            interval_ms=self._configs.current.log_scrub_interval_ms,
            bytes_per_second=lambda: self._configs.current.log_scrub_bytes_per_second_max,
        )

    async def _check_standbys(self) -> None:
        self._replicas.standbys.check()

    async def _checkpoint(self) -> None:
        await self._logs.checkpoint()

    async def _mark(self) -> None:
        await self._logs.checkpoint_high_watermarks()

    async def _move(self) -> None:
        for sentence in await self._logs.move(
            bytes_per_second_max=self._configs.current.log_move_bytes_per_second_max,
            on_moved=self._replicas.replace_log,
        ):
            log.info(sentence)

    async def stop(self) -> None:
        """End all jobs; one that is under way is cancelled at its next pause."""
        await self._loops.stop()
