"""The consumer instances: created up to a bound, found by group and name, closed when no client has
used them for a while.
"""

from __future__ import annotations

import asyncio
import time
import uuid
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from typing import Any, NamedTuple

from confluent_kafka import Consumer, KafkaException

from bridge.config import BridgeSettings
from bridge.consumer_instance import ConsumerInstance
from bridge.core.instance_settings import InstanceSettings
from bridge.core.refusals import Refused, instance_exists, instance_not_found, invalid_consumer_config, too_many
from bridge.metrics import BridgeMetrics
from runtime.logs import get_logger
from runtime.supervision import Supervisor, in_background

SWEEPS_PER_LIFE = 10
SWEEP_PAUSE_S_MAX = 1.0
TEND_PAUSE_S = 0.5

log = get_logger(__name__)


class InstanceKey(NamedTuple):
    """The key of an instance: its owner is an HTTP principal, and others neither see nor use the
    instance.
    """

    owner: str
    group: str
    name: str


class Consumers:
    """All instances of this bridge. `start` starts the search for expired instances, `stop` closes
    all.
    """

    def __init__(self, settings: BridgeSettings, metrics: BridgeMetrics) -> None:
        self._settings = settings
        self._metrics = metrics
        self._instances: dict[InstanceKey, ConsumerInstance] = {}
        self._closing: set[asyncio.Task[None]] = set()
        self._loops = Supervisor()
        self._executor = ThreadPoolExecutor(max_workers=settings.instances_max, thread_name_prefix="bridge-consumer")
        metrics.add_gauge("consumer_instances", lambda: len(self._instances))

    def start(self) -> None:
        """Start the search for unused instances."""
        self._loops.start("expired consumer instances", self._sweep)
        self._loops.start("idle consumer instances", self._tend)

    def interrupt_reads(self) -> None:
        """Make waiting reads answer with the records they have, because the bridge stops."""
        for instance in self._instances.values():
            instance.interrupt_read()

    async def stop(self) -> None:
        """Close every instance; each leaves its group."""
        await self._loops.stop()
        for key in list(self._instances):
            self._close(key)
        await asyncio.gather(*self._closing, return_exceptions=True)
        self._executor.shutdown()

    def create(
        self, owner: str, group: str, wanted: InstanceSettings, properties: Mapping[str, str]
    ) -> ConsumerInstance:
        """A new instance with these properties for its Kafka user. Raises Refused when the name is
        taken or the bound is reached.
        """
        name = wanted.name or "-".join(part for part in ("rest-consumer", self._settings.id, str(uuid.uuid4())) if part)
        key = InstanceKey(owner, group, name)
        if self._current(key, properties) is not None:
            raise instance_exists()
        # instances that are closing count too: each has its threads until it has left its group
        if len(self._instances) + len(self._closing) >= self._settings.instances_max:
            raise too_many(f"There are {self._settings.instances_max} consumer instances already.")
        try:
            consumer = Consumer({**self._properties(wanted, properties), "client.id": name, "group.id": group})
        except (KafkaException, ValueError) as error:
            raise invalid_consumer_config(str(error)) from error
        timeout_ms = self._settings.read_timeout_ms if wanted.read_timeout_ms is None else wanted.read_timeout_ms
        instance = ConsumerInstance(
            group=group,
            name=name,
            embedded=wanted.embedded,
            consumer=consumer,
            executor=self._executor,
            read_timeout_ms=timeout_ms,
            fetch_min_bytes=wanted.fetch_min_bytes,
            properties=properties,
        )
        self._instances[key] = instance
        log.info("consumer instance made", group=group, instance=name, format=wanted.embedded.value)
        return instance

    def find(self, key: InstanceKey, properties: Mapping[str, str]) -> ConsumerInstance:
        """The instance of the Kafka user with these properties. Refused if it does not exist."""
        instance = self._current(key, properties)
        if instance is None:
            raise instance_not_found()
        return instance

    def _current(self, key: InstanceKey, properties: Mapping[str, str]) -> ConsumerInstance | None:
        """The instance; one of another user, with other rights than its owner has now, is
        closed.
        """
        instance = self._instances.get(key)
        if instance is not None and instance.properties != properties:
            self._close(key)
            log.info(
                "consumer instance ended: another Kafka user acts for its owner", group=key.group, instance=key.name
            )
            return None
        return instance

    async def delete(self, key: InstanceKey, properties: Mapping[str, str]) -> None:
        """Close the instance and wait until it has left its group. Refused when there is none."""
        self.find(key, properties)
        # shielded: a disconnecting client must not leave a member in its group
        await asyncio.shield(self._close(key))

    def _close(self, key: InstanceKey) -> asyncio.Task[None]:
        instance = self._instances.pop(key)
        task = in_background("closing a consumer instance", _closed(instance))
        self._closing.add(task)
        task.add_done_callback(self._closing.discard)
        return task

    async def _sweep(self) -> None:
        life_s = self._settings.instance_timeout_ms / 1000
        while True:
            await asyncio.sleep(min(life_s / SWEEPS_PER_LIFE, SWEEP_PAUSE_S_MAX))
            now_s = time.monotonic()
            for key, instance in list(self._instances.items()):
                if not instance.is_busy and now_s - instance.last_used_s > life_s:
                    self._close(key)
                    self._metrics.record_expired()
                    log.info("consumer instance expired", group=key.group, instance=key.name)

    async def _tend(self) -> None:
        """Instances without a read in progress also take part in rebalances."""
        while True:
            await asyncio.sleep(TEND_PAUSE_S)
            for key, instance in list(self._instances.items()):
                try:
                    await instance.tend()
                except Refused as refused:
                    log.warning("idle consumer instance", group=key.group, instance=key.name, error=refused.message)

    def _properties(self, wanted: InstanceSettings, given: Mapping[str, str]) -> dict[str, Any]:
        settings = self._settings
        poll_interval_ms = max(300_000, settings.instance_timeout_ms * 2)
        properties: dict[str, Any] = {
            "auto.offset.reset": "latest",
            "enable.auto.commit": True,
            "max.poll.interval.ms": min(poll_interval_ms, 86_400_000),
            "queued.max.messages.kbytes": max(1, settings.prefetch_bytes // 1024),
            "fetch.max.bytes": max(settings.prefetch_bytes, 1024),
            "max.partition.fetch.bytes": min(settings.prefetch_bytes, 1024 * 1024),
            **given,
            "bootstrap.servers": settings.bootstrap,
            "enable.auto.offset.store": False,
        }
        if wanted.reset_policy is not None:
            properties["auto.offset.reset"] = wanted.reset_policy
        if wanted.is_committing is not None:
            properties["enable.auto.commit"] = wanted.is_committing
        return properties


async def _closed(instance: ConsumerInstance) -> None:
    """Close the instance; it is removed even if it cannot leave its group."""
    try:
        await instance.close()
    except Refused as refused:
        log.warning("consumer instance closed", group=instance.group, instance=instance.name, error=refused.message)
