"""Translates positions (topic names and offsets) between the source and the target of a translate
link, in both directions.

If both directions use the same names, a log has records of both sites, and only the map of this
link and the map of the opposite one together give a position.
"""

from __future__ import annotations

from collections.abc import Mapping

from mirror.link.core.topic_naming import Naming, NamingPolicy
from mirror.link.ports import SiteTopic
from mirror.translate.core import both_ways
from mirror.translate.core.translation import Translation
from mirror.translate.opposite_links import OppositeLinks, UnknownPlace
from mirror.translate.translations import Translations
from runtime.logs import get_logger
from wire.protocol.ids import TopicPartition

_log = get_logger("mirror.translate")


class TargetPlaces:
    """The places of one link; `refresh` reads the notes of opposite links."""

    def __init__(self, naming: Naming, translations: Translations, opposite: OppositeLinks) -> None:
        self._naming = naming
        self._translations = translations
        self._opposite = opposite
        self._unknown: set[str] = set()

    def at_target(self, key: TopicPartition) -> TopicPartition:
        """The copy of a partition of the source."""
        return TopicPartition(self._naming.target_name(key.topic), key.partition)

    async def refresh(self, topics: Mapping[str, SiteTopic]) -> None:
        """Read what opposite links have noted of these topics of the source. Unreachable."""
        if (
            self._naming.policy is not NamingPolicy.PREFIX
        ):  # With prefixes the copies are separate topics, which no opposite link writes.
            await self._opposite.refresh({name: topic.topic_id for name, topic in topics.items()})

    def downstream(self, key: TopicPartition, offset: int) -> int | None:
        """Return the target offset at which a consumer of the source continues, not below the
        target's log start; None if unknown.
        """
        translation = self._translations.of(key)
        try:
            found = both_ways.downstream(translation, self._opposite_of(key), offset)
        except UnknownPlace as error:
            self._report(key.topic, str(error))
            return None
        # The target has removed records since: a consumer with an offset of theirs would jump to
        # where its reset policy says.
        return max(found, translation.target_start)

    def upstream(self, key: TopicPartition, offset: int) -> int | None:
        """Return the source offset at which a consumer of the target continues; None if unknown."""
        try:
            return both_ways.upstream(self._translations.of(key), self._opposite_of(key), offset)
        except UnknownPlace as error:
            self._report(key.topic, str(error))
            return None

    def _opposite_of(self, key: TopicPartition) -> Translation | None:
        binding = self._translations.binding(key.topic)
        return None if binding is None else self._opposite.of(key, binding)

    def _report(self, topic: str, reason: str) -> None:
        if topic not in self._unknown:
            self._unknown.add(topic)
            _log.warning("group offsets of a topic are not mirrored", topic=topic, reason=reason)
