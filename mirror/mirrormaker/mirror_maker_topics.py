"""Writes MirrorMaker 2's internal topics beside ours, so that its tools find in a translate link
what they look for.

At the target: `heartbeats` (at the source too, if it has no other writer: `heartbeats.py`),
`<source>.checkpoints.internal` and (or at the source, as MirrorMaker does)
`mm2-offset-syncs.….internal`. Antipode itself does not read them: its own offset map is complete,
these samples are for other tools.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from typing import Final

from kio.schema.errors import ErrorCode

from mirror.groups.metrics import CheckpointMetrics
from mirror.link.core.committed_offsets import GroupOffset
from mirror.link.core.topic_naming import HEARTBEATS
from mirror.link.group_ports import GroupPort
from mirror.link.ports import Unreachable
from mirror.mirrormaker.core.mirror_maker_records import Checkpoint, Heartbeat, OffsetSync
from mirror.mirrormaker.heartbeats import Heartbeats
from mirror.settings.config import MirrorConfig
from mirror.settings.values import OffsetSyncsLocation
from mirror.sites.kafka_site import reached
from mirror.translate.translations import Translations
from runtime.clock import Clock
from runtime.logs import get_logger
from wire.batches.records import Record, encode_batch
from wire.client.client_errors import KafkaClientError
from wire.client.raw_client import KafkaClient, NewTopic
from wire.protocol.ids import TopicPartition
from wire.rules.links import matches

OFFSET_SYNCS_INTERVAL_MS = 1_000
"""Interval (ms) at which a partition's newest pair of offsets is written after a change."""

HEARTBEATS_OWNER: Final = TopicPartition(HEARTBEATS, 0)
"""The partition whose owner writes the heartbeats when several daemons share the link."""

PAUSE_S = 0.25
RECORDS_MAX = 1_000
"""Records in one batch."""

_log = get_logger("mirror.translate")


class MirrorMakerTopics:
    """The task that writes MirrorMaker 2's topics."""

    def __init__(
        self,
        config: MirrorConfig,
        *,
        source: KafkaClient,
        target: KafkaClient,
        source_groups: GroupPort,
        translations: Translations,
        downstream: Callable[[TopicPartition, int], int | None],
        metrics: CheckpointMetrics,
        clock: Clock,
    ) -> None:
        self._metrics = metrics
        self._downstream = downstream
        self._config = config
        self._source = source
        self._target = target
        self._source_groups = source_groups
        self._translations = translations
        self._clock = clock
        self._heartbeats = Heartbeats(
            source=source,
            target=target,
            source_alias=config.source_alias,
            target_alias=config.target_alias,
            interval_ms=config.heartbeats_interval_ms,
            write=self._put_heartbeats,
            clock=clock,
        )
        self._there: set[tuple[int, str]] = set()
        self._reported_checkpoints: dict[tuple[str, TopicPartition], tuple[int, int]] = {}
        self._reported_syncs: dict[TopicPartition, int] = {}
        self._due_ms: dict[str, float] = {}
        self._problems: dict[str, str] = {}

    async def run(self) -> None:
        """Write what is due until cancelled."""
        while True:
            await self.round()
            await asyncio.sleep(PAUSE_S)

    async def round(self) -> None:
        """Write everything that is due. Writes that a cluster refuses are in `problems`, and are
        repeated when they are due again.
        """
        config = self._config
        for what, is_wanted, interval_ms, write in (
            ("heartbeats", config.is_emitting_heartbeats, config.heartbeats_interval_ms, self._write_heartbeats),
            ("checkpoints", config.is_emitting_checkpoints, config.checkpoints_interval_ms, self._write_checkpoints),
            ("offset syncs", config.is_emitting_offset_syncs, OFFSET_SYNCS_INTERVAL_MS, self._write_offset_syncs),
        ):
            if is_wanted and self._is_due(what, interval_ms):
                try:
                    await write()
                    self._problems.pop(what, None)
                except (Unreachable, KafkaClientError) as error:
                    if what not in self._problems:
                        _log.warning("a topic of MirrorMaker's cannot be written", what=what, reason=str(error))
                    self._problems[what] = str(error)

    @property
    def status(self) -> str:
        """The topics that cannot be written, with the reasons; empty when all can."""
        return "; ".join(f"{what} cannot be written: {reason}" for what, reason in sorted(self._problems.items()))

    def _is_due(self, what: str, interval_ms: int) -> bool:
        now_ms = self._clock.monotonic_ms()
        if now_ms < self._due_ms.get(what, 0):
            return False
        self._due_ms[what] = now_ms + interval_ms
        return True

    async def _write_heartbeats(self) -> None:
        if self._translations.owns(HEARTBEATS_OWNER):
            await self._heartbeats.write()

    async def _put_heartbeats(self, client: KafkaClient, heartbeats: Sequence[Heartbeat]) -> None:
        records = [(one.key, one.value) for one in heartbeats]
        await self._write(client, HEARTBEATS, records, self._config.heartbeats_replication_factor)

    async def _write_checkpoints(self) -> None:
        naming, asked_ms = self._config.naming, self._clock.monotonic_ms()
        mirrored = {key for key, translation in self._translations.known() if translation.position.source_next > 0}
        found: dict[tuple[str, TopicPartition], Checkpoint] = {}
        config = self._config
        groups = {
            group
            for group in (await self._source_groups.groups()).by_group
            if matches(group, whitelist=config.group_whitelist, blacklist=config.group_blacklist)
        }
        for group, offsets in (await self._source_groups.offsets_of(sorted(groups))).by_group.items():
            for key, at in offsets.items():
                there = self._downstream(key, at.offset) if key in mirrored else None
                if there is not None:
                    target = TopicPartition(naming.target_name(key.topic), key.partition)
                    found[group, key] = _checkpoint(group, target, at, there)
        changed = {
            place: one
            for place, one in found.items()
            if self._reported_checkpoints.get(place) != (one.upstream_offset, one.downstream_offset)
        }
        records = [(one.key, one.value) for one in changed.values()]
        await self._write(self._target, naming.checkpoints_topic, records, config.checkpoints_replication_factor)
        # Groups with random names come and go: nothing is kept of those that are gone.
        known = {place: at for place, at in self._reported_checkpoints.items() if place[0] in groups}
        self._reported_checkpoints = known | {
            place: (one.upstream_offset, one.downstream_offset) for place, one in changed.items()
        }
        for one in changed.values():
            self._metrics.observe(one.group, TopicPartition(one.topic, one.partition), asked_ms=asked_ms)
        self._metrics.forget_all_but(groups)

    async def _write_offset_syncs(self) -> None:
        is_at_target = self._config.offset_syncs_location is OffsetSyncsLocation.TARGET
        client = self._target if is_at_target else self._source
        topic = self._config.naming.offset_syncs_topic(is_at_target=is_at_target)
        syncs: dict[TopicPartition, OffsetSync] = {}
        for key, translation in self._translations.known():
            last = translation.map.last
            if last is not None and self._reported_syncs.get(key) != last.source_end:
                syncs[key] = OffsetSync(
                    topic=key.topic,
                    partition=key.partition,
                    upstream_offset=last.source_end - 1,
                    downstream_offset=last.target_end - 1,
                )
        records = [(sync.key, sync.value) for sync in syncs.values()]
        await self._write(client, topic, records, self._config.offset_syncs_replication_factor)
        self._reported_syncs |= {key: sync.upstream_offset + 1 for key, sync in syncs.items()}

    async def _write(
        self, client: KafkaClient, topic: str, records: Sequence[tuple[bytes, bytes]], replicas: int | None
    ) -> None:
        await self._have_topic(client, topic, self._config.replication_factor if replicas is None else replicas)
        now_ms = self._clock.now_ms()
        for first in range(0, len(records), RECORDS_MAX):
            batch = encode_batch([Record(key, value, now_ms) for key, value in records[first : first + RECORDS_MAX]])
            await reached(client.produce(topic, 0, batch))

    async def _have_topic(self, client: KafkaClient, topic: str, replicas: int) -> None:
        if (id(client), topic) in self._there:
            return
        new = NewTopic(
            name=topic,
            partition_count=1,
            replication_factor=replicas,
            configs={"cleanup.policy": "compact"},
        )
        (outcome,) = await reached(client.create_topics([new]))
        if outcome.error_code is ErrorCode.invalid_replication_factor:
            raise KafkaClientError(f"topic {topic} cannot be made with {replicas} replicas: {outcome.error_message}")
        if outcome.error_code in (ErrorCode.none, ErrorCode.topic_already_exists):
            self._there.add((id(client), topic))


def _checkpoint(group: str, target: TopicPartition, at: GroupOffset, downstream_offset: int) -> Checkpoint:
    return Checkpoint(
        group=group,
        topic=target.topic,
        partition=target.partition,
        upstream_offset=at.offset,
        downstream_offset=downstream_offset,
        metadata=at.metadata,
    )
