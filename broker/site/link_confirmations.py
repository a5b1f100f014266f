"""The site agent's confirmations of links: the peer has agreed to an epoch, or, of a link with a
lease, the agent gives a permit or withdraws it.

A permit that is not renewed ends by itself: the partitions of its link then take no writes.
"""

from __future__ import annotations

import asyncio
import math
from typing import Final

from broker.metadata.cluster import Cluster
from broker.metadata.core.cluster_image import ClusterImage, LinkRole
from broker.metadata.core.image_updates import confirm_link, unconfirm_link
from broker.metadata.core.link_enforcement import leaders_digest
from broker.replication.standbys import Standbys
from broker.site.image_changes import ImageChanges
from runtime.clock import Clock
from runtime.logs import state_change_logger
from runtime.supervision import in_background, until_done
from wire.control import broker_pb2 as pb
from wire.control.cluster_pb2 import LinkRecord

ENDING: Final = "permits that end"

_state_change = state_change_logger()


class LinkConfirmations:
    """The confirmed links of one broker, and its permits."""

    def __init__(self, cluster: Cluster, changes: ImageChanges, standbys: Standbys, clock: Clock) -> None:
        self._cluster = cluster
        self._changes = changes
        self._standbys = standbys
        self._clock = clock
        self._permit_timer: asyncio.TimerHandle | None = None
        self._ending: set[asyncio.Task[None]] = set()

    async def confirm(self, request: pb.ConfirmLinkRequest) -> pb.ConfirmLinkReply:
        """Confirm the link's epoch; of a link with a lease, apply the permit or its end."""
        if self._is_renewed(request):
            return self._with_sync_state(request, is_confirmed=True)
        async with self._changes.exclusive() as before:
            record = before.links.get(request.link)
            if record is not None and record.lease_ms:
                is_confirmed = await self._take_permit(before, record, request)
                return self._with_sync_state(request, is_confirmed=is_confirmed)
            image = confirm_link(before, request.link, request.epoch)
            if image is None:
                return pb.ConfirmLinkReply(is_confirmed=False)
            if image is not before:
                _state_change.info("link confirmed", link=request.link, epoch=request.epoch)
            await self._changes.apply(before, image)
        return pb.ConfirmLinkReply(is_confirmed=True)

    async def end_permits(self) -> None:
        """Take the roles of links back whose permit has ended: of all of them, before the first
        failure is raised.
        """
        broken: list[Exception] = []
        async with self._changes.exclusive():
            for link in self._cluster.permits.lapsed(self._clock.monotonic_ms()):
                self._cluster.permits.withdraw(link)
                try:
                    await self._take_role_back(link)
                except Exception as error:
                    broken.append(error)
            self._end_permits_at(self._cluster.permits.next_end_ms())
        if broken:
            raise broken[0]

    async def _take_role_back(self, link: str) -> None:
        # the lease may have been removed meanwhile: the role then needs no permit
        before = self._cluster.image
        record = before.links.get(link)
        image = unconfirm_link(before, link) if record is not None and record.lease_ms else before
        if image is not before:
            _state_change.warning("permit has ended: writes wait for a new one", link=link)
            await self._changes.apply(before, image)

    async def stop(self) -> None:
        """End no more permits."""
        if self._permit_timer is not None:
            self._permit_timer.cancel()
        ending = list(self._ending)
        for task in ending:
            task.cancel()
        await asyncio.gather(*ending, return_exceptions=True)

    def _is_renewed(self, request: pb.ConfirmLinkRequest) -> bool:
        """Extend a permit that is valid. The image stays as it is, so this does not wait for the
        partitions to follow a new one, which may take longer than the permit is valid.
        """
        image, permits, now_ms = self._cluster.image, self._cluster.permits, self._clock.monotonic_ms()
        record = image.links.get(request.link)
        if record is None or record.epoch != request.epoch or request.permit_until_ms <= now_ms:
            return False
        if image.role_in(record) is not LinkRole.ACTIVE or not record.lease_ms:
            return False
        if permits.is_lapsed(image, record, now_ms=now_ms):
            return False
        permits.extend(record.name, request.permit_until_ms)
        return True

    async def _take_permit(self, before: ClusterImage, record: LinkRecord, request: pb.ConfirmLinkRequest) -> bool:
        """Take a permit; True if a permit of the epoch is valid afterwards."""
        permits, now_ms = self._cluster.permits, self._clock.monotonic_ms()
        # a negative time withdraws the permit at once
        if request.permit_until_ms < 0:
            permits.withdraw(record.name)
            # The agent removes the broker's mark at the arbiter together with its permit.
            self._standbys.mark_out_of_sync(before, record.name, is_marked=False)
            await self._changes.apply(before, unconfirm_link(before, record.name))
            return False
        if record.epoch != request.epoch:
            return False
        if request.permit_until_ms > now_ms:
            permits.extend(record.name, request.permit_until_ms)
            image = confirm_link(before, record.name, request.epoch)
            assert image is not None
            if image is not before:
                _state_change.info("permit received", link=record.name, epoch=record.epoch)
            # before the change, whose end the request may not see
            self._end_permits_at(permits.next_end_ms())
            await self._changes.apply(before, image)
        return not permits.is_lapsed(self._cluster.image, record, now_ms=self._clock.monotonic_ms())

    def _end_permits_at(self, end_ms: float) -> None:
        """Take roles back when the next permit ends, unless it is renewed by then."""
        # one timer for all links: it is set again when it fires
        if self._permit_timer is None and end_ms < math.inf:
            delay_s = max(0.0, end_ms - self._clock.monotonic_ms()) / 1000
            self._permit_timer = asyncio.get_running_loop().call_later(delay_s, self._begin_ending_permits)

    def _begin_ending_permits(self) -> None:
        self._permit_timer = None
        # a role must be taken back even if it fails at first: nothing else asks for it again
        task = in_background(ENDING, until_done(ENDING, self.end_permits))
        self._ending.add(task)
        task.add_done_callback(self._ending.discard)

    def _with_sync_state(self, request: pb.ConfirmLinkRequest, *, is_confirmed: bool) -> pb.ConfirmLinkReply:
        """The reply, after the broker has applied or removed the arbiter's mark."""
        image, standbys, link, mark = self._cluster.image, self._standbys, request.link, request.mark
        is_behind = standbys.is_behind(image, link)
        if mark == pb.SyncMark.OUT_OF_SYNC or (mark == pb.SyncMark.IN_SYNC and not is_behind):
            standbys.mark_out_of_sync(image, link, is_marked=mark == pb.SyncMark.OUT_OF_SYNC)
        return pb.ConfirmLinkReply(
            is_confirmed=is_confirmed,
            wants_mark=standbys.wants_mark(image, link),
            is_standby_behind=is_behind,
            leaders_digest=leaders_digest(image, link) if request.asks_leaders else 0,
        )
