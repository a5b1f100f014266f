"""Topics that are created automatically: those named in a Metadata request, and internal ones when
the first group or transaction appears.

One creation of a name is under way at a time. The asking client is answered at once with a
retriable error and finds the topic at its next try, as in Kafka. Internal topics have as many
replicas as their settings say: while fewer brokers are registered they are not created, and the log
says so once. Called by the Metadata and FindCoordinator handlers.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable

from broker.metadata.core.cluster_image import ClusterImage
from broker.settings.config import BrokerSettings
from runtime.logs import get_logger
from runtime.supervision import in_background
from wire.batches.group_records import OFFSETS_TOPIC
from wire.batches.transaction_records import TRANSACTIONS_TOPIC
from wire.control import controller_pb2 as pb
from wire.control.clients import ControllerClient, ControllerUnavailable

log = get_logger(__name__)

CREATION_TIMEOUT_MS = 10_000
UNDER_WAY_MAX = 1000
COORDINATORS_TOPICS = frozenset({OFFSETS_TOPIC, TRANSACTIONS_TOPIC})
_TOPIC_ALREADY_EXISTS = 36


class TopicCreator:
    """Asks the controller for topics in the background."""

    def __init__(self, settings: BrokerSettings, controller: ControllerClient) -> None:
        self._settings = settings
        self._controller = controller
        self._under_way: set[str] = set()
        self._said_to_wait: set[str] = set()
        """Internal topics of which the log has said that they wait for brokers."""
        self._tasks: set[asyncio.Task[None]] = set()

    def request(self, names: Iterable[str], image: ClusterImage) -> list[str]:
        """Begin to create those of the topics that can be created and whose creation has not begun;
        return their names.
        """
        possible = [name for name in names if name not in self._under_way and self._has_brokers_for(name, image)]
        wanted = possible[: UNDER_WAY_MAX - len(self._under_way)]
        if not wanted:
            return []
        self._under_way.update(wanted)
        task = in_background("topic creation", self._create(wanted))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return wanted

    def request_missing(self, internal_topic: str, image: ClusterImage) -> None:
        """Begin to create an internal topic that is not there."""
        if internal_topic not in image.topics:
            self.request([internal_topic], image)

    def _has_brokers_for(self, name: str, image: ClusterImage) -> bool:
        """True unless the name is that of an internal topic with more replicas to have than brokers
        are registered.
        """
        if name not in COORDINATORS_TOPICS:
            return True
        wanted = self.new_topic(name).replication_factor
        if len(image.brokers) >= wanted:
            self._said_to_wait.discard(name)
            return True
        if name not in self._said_to_wait:
            self._said_to_wait.add(name)
            log.warning(
                "internal topic waits for brokers",
                topic=name,
                key=_factor_key(name),
                value=wanted,
                registered=sorted(image.brokers),
            )
        return False

    async def _create(self, names: list[str]) -> None:
        request = pb.CreateTopicsRequest(
            topics=[self.new_topic(name) for name in names], timeout_ms=CREATION_TIMEOUT_MS
        )
        try:
            reply = await self._controller.create_topics(request)
        except ControllerUnavailable as error:
            log.warning("topics could not be created", topics=names, reason=str(error))
        else:
            for result in reply.results:
                if result.error_code not in (0, _TOPIC_ALREADY_EXISTS):
                    log.warning(
                        "topic could not be created",
                        topic=result.name,
                        error_code=result.error_code,
                        reason=result.error_message,
                    )
        finally:
            self._under_way.difference_update(names)

    def new_topic(self, name: str) -> pb.NewTopic:
        """The request for the topic: internal topics have settings of their own."""
        settings = self._settings
        if name == OFFSETS_TOPIC:
            return pb.NewTopic(
                name=name,
                partition_count=settings.offsets_partition_count,
                replication_factor=settings.offsets_replication_factor,
                configs={"cleanup.policy": "compact", "segment.bytes": str(settings.offsets_segment_bytes)},
            )
        if name == TRANSACTIONS_TOPIC:
            return pb.NewTopic(
                name=name,
                partition_count=settings.transaction_state_partition_count,
                replication_factor=settings.transaction_state_replication_factor,
                configs={
                    "cleanup.policy": "compact",
                    "segment.bytes": str(settings.transaction_state_segment_bytes),
                    "min.insync.replicas": str(settings.transaction_state_min_isr),
                },
            )
        return pb.NewTopic(name=name, partition_count=-1, replication_factor=-1)

    async def stop(self) -> None:
        """Cancel the creations that are under way."""
        for task in tuple(self._tasks):
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)


def _factor_key(internal_topic: str) -> str:
    name = "offsets_replication_factor" if internal_topic == OFFSETS_TOPIC else "transaction_state_replication_factor"
    return str(BrokerSettings.model_fields[name].alias)
