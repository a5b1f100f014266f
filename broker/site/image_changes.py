"""Changes of a broker's image, one at a time: replicas get the roles of the new image, then the
listeners are called.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager

from broker.metadata.cluster import Cluster
from broker.metadata.core.cluster_image import ClusterImage
from broker.metadata.core.image_difference import difference
from broker.replication.replicas import Replicas
from runtime.logs import state_change_logger
from runtime.supervision import in_background, note_death, to_its_end
from wire.control.broker_pb2 import PartitionFailure

_state_change = state_change_logger()

ImageListener = Callable[[ClusterImage, ClusterImage], Awaitable[None]]


class ImageChanges:
    """The only way to change the image of one broker."""

    def __init__(self, cluster: Cluster, replicas: Replicas) -> None:
        self._cluster = cluster
        self._replicas = replicas
        self._listeners: list[ImageListener] = []
        self._lock = asyncio.Lock()

    def on_image(self, listener: ImageListener) -> None:
        """Call `listener(before, after)` once replicas have the roles of a new image."""
        self._listeners.append(listener)

    @asynccontextmanager
    async def exclusive(self) -> AsyncIterator[ClusterImage]:
        """The image, which only the caller changes until it leaves: each change builds on the one
        before.
        """
        async with self._lock:
            yield self._cluster.image

    async def apply(self, before: ClusterImage, image: ClusterImage) -> list[PartitionFailure]:
        """Make `image` the broker's; the caller is in `exclusive`. A request whose deadline ends
        meanwhile does not break it off: with thousands of partitions no request might ever wait
        long enough, and the roles of some partitions would be those of no image.
        """
        # the same object: nothing changed, so listeners need not run
        if image is before:
            return []
        return await to_its_end(in_background("change of roles", self._apply_whole(before, image)))

    async def _apply_whole(self, before: ClusterImage, image: ClusterImage) -> list[PartitionFailure]:
        change = difference(before, image)
        with self._cluster.applying(image):
            failures = await self._replicas.assigned.apply(before, image, change)
            self._cluster.replace(image)
        for link in change.changed_links:
            _state_change.info(
                "link", link=link.name, epoch=link.epoch, active_site=link.active_site, role=image.role_in(link).value
            )
        broken: list[Exception] = []
        for listener in self._listeners:
            try:
                await listener(before, image)
            except Exception as error:
                # the image is in force and does not come again: the other listeners are called
                note_death("image listener")
                broken.append(error)
        if broken:
            raise broken[0]  # the controller sends everything once more
        return failures
