"""The source of a translate link as the mirror reaches it: a site, whose groups' offsets may have
come from our own target.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from uuid import UUID

from msgspec.structs import replace

from mirror.link.group_ports import GroupReading
from mirror.link.ports import SiteTopic
from mirror.sites.kafka_site import KafkaSite
from mirror.translate.notes.group_notes import OppositeGroupNotes
from runtime.addresses import HostPort
from wire.client.connection import ConnectionOptions


class TranslatedSource(KafkaSite):
    """SitePort and GroupPort."""

    def __init__(
        self, bootstrap: Sequence[HostPort], options: ConnectionOptions, *, opposite: OppositeGroupNotes | None
    ) -> None:
        """`opposite` is None where copies are topics of their own, which no link in the other
        direction writes.
        """
        super().__init__(bootstrap, options)
        self._opposite = opposite
        self._topic_ids: Mapping[str, UUID] = {}

    async def topics(self) -> Mapping[str, SiteTopic]:
        """All topics that this site itself has, by name."""
        found = await super().topics()
        self._topic_ids = {name: topic.topic_id for name, topic in found.items()}
        return found

    async def offsets_of(self, groups: Sequence[str]) -> GroupReading:
        """Return the site's group offsets; mark those that the mirror itself has written."""
        if self._opposite is None:
            return await super().offsets_of(groups)
        # The notes are read first: later notes may concern offsets that this call has not read.
        await self._opposite.refresh(self._topic_ids)
        read = await super().offsets_of(groups)
        is_from_target = self._opposite.is_from_target
        from_target = {
            group: [key for key, at in offsets.items() if is_from_target(group, key, at.offset)]
            for group, offsets in read.by_group.items()
        }
        return replace(read, from_target=from_target)
