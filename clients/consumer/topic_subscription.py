"""The topics that a consumer shares with its group: named topics, or all that match a pattern; and,
on the leader of a group, the assignment of partitions to members.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import Callable, Iterable, Mapping, Sequence

from clients.consumer.consumer_options import ConsumerOptions
from clients.consumer.core.group_protocol import ASSIGNORS, encode_assignment, wanted_topics
from runtime.logs import get_logger
from wire.client.client_errors import KafkaClientError
from wire.client.raw_client import KafkaClient
from wire.client.requests.group_membership import Joined

_log = get_logger("clients.consumer.consumer")


class TopicSubscription:
    """The subscription of one consumer; `on_problem` is called with a message for the operator."""

    def __init__(self, client: KafkaClient, options: ConsumerOptions, on_problem: Callable[[str], None]) -> None:
        self._client = client
        self._group_id = options.group_id
        self._interval_s = options.reader.metadata_max_age_ms / 1000
        self._on_problem = on_problem
        self._topics: tuple[str, ...] = ()
        self._pattern: re.Pattern[str] | None = None
        self._joined_counts: Mapping[str, int] | None = None

    @property
    def is_empty(self) -> bool:
        """True before the first `replace`."""
        return not self._topics and self._pattern is None

    def replace(self, topics: Iterable[str] | re.Pattern[str]) -> None:
        """Subscribe to these topics, or to all whose whole name fits the pattern."""
        self._pattern = topics if isinstance(topics, re.Pattern) else None
        self._topics = () if isinstance(topics, re.Pattern) else tuple(topics)

    async def topics_to_join(self) -> tuple[str, ...]:
        """The topics that exist now; `watch` compares later ones with them."""
        topics = await self._wanted()
        self._joined_counts = await self._counts(topics)
        return topics

    async def watch(self, on_change: Callable[[], None]) -> None:
        """Call `on_change` when topics that match the pattern appear, or joined topics get
        partitions.
        """
        while True:
            await asyncio.sleep(self._interval_s)
            try:
                counts = await self._counts(await self._wanted())
            except KafkaClientError as error:
                self._on_problem(str(error))
                continue
            if self._joined_counts is not None and counts != self._joined_counts:
                on_change()

    async def assign(self, joined: Joined) -> Mapping[str, bytes]:
        """Assign partitions as the group's leader, with the assignor that all members know."""
        subscriptions, malformed = wanted_topics(joined.members)
        for member, reason in malformed.items():
            problem = f"member {member} gets nothing, its metadata is malformed: {reason}"
            self._on_problem(problem)
            _log.warning("a member of the group gets no partitions", group=self._group_id, reason=problem)
        counts = await self._counts(sorted({topic for wanted in subscriptions.values() for topic in wanted}))
        parts = ASSIGNORS[joined.protocol](subscriptions, counts)
        return {member: encode_assignment(places) for member, places in parts.items()}

    async def _wanted(self) -> tuple[str, ...]:
        if self._pattern is None:
            return self._topics
        found = (await self._client.metadata(None)).topics
        pattern = self._pattern
        return tuple(name for name, topic in sorted(found.items()) if not topic.is_internal and pattern.fullmatch(name))

    async def _counts(self, topics: Sequence[str]) -> Mapping[str, int]:
        """Partition counts of those topics that exist."""
        found = (await self._client.metadata(topics)).topics if topics else {}
        return {name: len(found[name].partitions) for name in topics if name in found and not found[name].error_code}
