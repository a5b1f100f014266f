"""The logs of one broker on its log directories, the processes that compact them, and the cluster
id that the directories have.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from functools import partial

from msgspec.structs import replace

from broker.assembly.doors import Doors
from broker.log.cleaning.cleaner import CleaningPlan, CleaningResult
from broker.log.cleaning.cleaner_process import CleanerProcesses
from broker.log.directories.checkpoints import META_PROPERTIES, read_meta_properties
from broker.log.errors import StorageError
from broker.log.recovery import RecoveryReport
from broker.log.threads import in_thread
from broker.metrics import BrokerMetrics
from broker.settings.config import BrokerSettings
from broker.settings.core.topic_configs import LogConfig
from broker.settings.dynamic_configs import DynamicConfigs
from runtime.configuration import ConfigurationError
from runtime.logs import get_logger
from runtime.process import OperationalFailure
from wire.rules.topic_config_kinds import InvalidTopicConfig

log = get_logger(__name__)

OnLocked = Callable[[Sequence[str]], Awaitable[None]]
"""Called with the log directories as soon as this process alone has locked them."""


class Storage:
    """The logs of one broker. `open` once, then `close` or `abandon`; both are harmless when
    repeated.
    """

    def __init__(self, configs: DynamicConfigs, doors: Doors, metrics: BrokerMetrics) -> None:
        settings = configs.current
        self._configs = configs
        self._doors = doors
        self.cleaner = CleanerProcesses()
        self.logs = doors.make_logs(
            settings.log_dirs,
            doors.disk,
            now_ms=doors.clock.now_ms,
            roll_jitter=doors.chance.random,
            recovery_threads=settings.recovery_threads * len(settings.log_dirs),
            clean=self._clean,
            note_flush=metrics.log_flush.record,
        )
        self.logs.cleaning.threads = settings.log_cleaner_threads
        self.is_open = False

    async def _clean(self, plan: CleaningPlan) -> CleaningResult:
        settings = self._configs.current
        pace = settings.log_cleaner_bytes_per_second_max / settings.log_cleaner_threads
        return await self.cleaner.clean(replace(plan, bytes_per_second_max=pace))

    async def open(
        self,
        *,
        agree_on_cluster_id: Callable[[str | None], Awaitable[str]],
        on_locked: OnLocked,
        on_recovery: Callable[[], None],
    ) -> None:
        """Lock and load the directories. `agree_on_cluster_id` gets the id that a directory has;
        `on_recovery` is called when logs have to be recovered. Raises OperationalFailure or
        ConfigurationError, which names the obstacle.
        """
        settings = self._configs.current
        try:
            defaults = replace(
                LogConfig.from_topic_configs(settings.properties, {}),
                truncated_bytes_kept_max=settings.truncated_bytes_kept_max,
            )
        except InvalidTopicConfig as error:
            raise ConfigurationError(error.key, error.value, f"accepted: {error.accepted}") from error
        try:
            cluster_id = await agree_on_cluster_id(self._known_cluster_id(settings))
            # Before the directories are opened: if one fails, `abandon` releases the locks of the
            # others.
            self.is_open = True
            await in_thread(partial(self.logs.open, node_id=settings.node_id, cluster_id=cluster_id))
            await on_locked([directory.path for directory in self.logs.directories])
            if not all(directory.is_clean for directory in self.logs.directories):
                on_recovery()
            reports = await asyncio.to_thread(self.logs.load, lambda _: defaults)
        except StorageError as error:
            raise OperationalFailure(str(error)) from error
        for sentence in self.logs.notes:
            log.warning("log directory was not closed cleanly", note=sentence)
        _log_recovery(reports)
        if self.logs.stray_count:
            log.warning("folders of logs that are not assigned here are kept", folders=self.logs.stray_count)

    def _known_cluster_id(self, settings: BrokerSettings) -> str | None:
        """The id in the first log directory that can be read; the others go offline when they are
        opened.
        """
        for path in settings.log_dirs:
            try:
                found = read_meta_properties(self._doors.disk, f"{path}/{META_PROPERTIES}").get("cluster.id")
            except StorageError as error:
                log.warning("log directory cannot be read", path=path, reason=str(error))
                continue
            if found is not None:
                return found
        return None

    async def close(self, *, broker_epoch: int) -> None:
        """Flush, checkpoint, and mark the logs clean: the next start recovers nothing."""
        if self.is_open:
            self.is_open = False
            await asyncio.to_thread(self.logs.close, broker_epoch=broker_epoch)

    def abandon(self) -> None:
        """Release the directories after a failed start; they are not marked clean."""
        if self.is_open:
            self.is_open = False
            self.logs.abandon()


def _log_recovery(reports: list[RecoveryReport]) -> None:
    """Log a line for each part that recovery dropped and for each log that it repaired, and one for
    all checked logs.
    """
    for report in reports:
        for tail in report.dropped:
            log.warning(
                "recovery dropped damaged batches and those behind them",
                path=tail.path,
                first_offset=tail.offset,
                dropped_bytes=tail.dropped_bytes,
                kept_bytes=tail.kept_bytes,
                reason=tail.reason,
            )
        if report.notes:
            log.warning("log recovered", directory=report.directory, notes=list(report.notes))
    checked = [report for report in reports if not report.is_clean]
    if checked:
        log.warning(
            "recovered logs after unclean shutdown",
            logs=len(checked),
            segments=sum(report.scanned_segments for report in checked),
            scanned_bytes=sum(report.scanned_bytes for report in checked),
        )
