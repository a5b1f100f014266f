"""The newest image of a broker's site, and waiting until an image fulfils a condition."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from broker.metadata.core.cluster_image import ClusterImage
from broker.metadata.core.link_permits import LinkPermits


class Cluster:
    """Holds the newest image, and the permits of links with a lease;
    `broker/site/control_service.py` replaces both.
    """

    def __init__(self, image: ClusterImage) -> None:
        self.image = image
        self.coming: ClusterImage | None = None
        """The image to whose roles partitions change at the moment."""
        self.has_suspended_link = _has_suspended_link(image)
        self.permits = LinkPermits()
        self._waiting: list[tuple[Callable[[ClusterImage], bool], asyncio.Future[None]]] = []

    @contextmanager
    def applying(self, image: ClusterImage) -> Iterator[None]:
        """For the time in which partitions change to their roles of this image one after the other,
        until `replace`: a link that is suspended in either image is suspended. A request that was
        refused halfway through a fence would find the fence again after the client's back-off, and
        wait for the other site once more.
        """
        self.coming = image
        self.has_suspended_link = self.has_suspended_link or _has_suspended_link(image)
        self.look_again()
        try:
            yield
        finally:
            self.coming = None
            self.has_suspended_link = _has_suspended_link(self.image)
            self.look_again()

    def is_suspended(self, topic: str) -> bool:
        """True while no site may write to the topic."""
        images = (self.image,) if self.coming is None else (self.image, self.coming)
        return any(image.role_in(image.link_of(topic)).is_suspended for image in images)

    def replace(self, image: ClusterImage) -> None:
        """Replace the image by a newer one, and wake waiters whose condition it fulfils."""
        self.image = image
        self.coming = None
        self.has_suspended_link = _has_suspended_link(image)
        self.look_again()

    def look_again(self) -> None:
        """Wake waiters whose condition holds now, because something other than the image has
        changed, or because a new image begins to apply.
        """
        image = self.image
        for condition, future in tuple(self._waiting):
            if future.done():
                continue
            try:
                is_met = condition(image)
            except Exception as error:
                # this is the waiter's error, not one of the controller that sent the image
                future.set_exception(error)
            else:
                if is_met:
                    future.set_result(None)

    async def wait_for(self, condition: Callable[[ClusterImage], bool], *, timeout_ms: float) -> bool:
        """True when an image fulfils the condition in time; admin handlers let a client see what it
        has just changed.
        """
        if condition(self.image):
            return True
        entry = (condition, asyncio.get_running_loop().create_future())
        self._waiting.append(entry)
        try:
            await asyncio.wait_for(entry[1], timeout_ms / 1000)
        except TimeoutError:
            return False
        finally:
            self._waiting.remove(entry)
        return True


def _has_suspended_link(image: ClusterImage) -> bool:
    return any(image.role_in(link).is_suspended for link in image.links.values())
