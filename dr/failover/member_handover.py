"""Transfers the members of consumer groups to the promoted site, so that a planned move causes no
rebalance and no record is read again (decision 131).

The move does not wait for the transfer: members that are not transferred join their groups anew,
and read their uncommitted records again.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Iterator, Sequence

from dr.failover.journal import Journal
from dr.sites.site_client import SiteClient
from runtime.process import OperationalFailure
from wire.control.broker_pb2 import GroupMembers

TIMEOUT_MS = 1_000
"""Timeout of one call; writers are stopped during it."""
REQUEST_BYTES = 1 << 20
"""Approximate maximum size of one request with members."""
NAMED_MAX = 5


class MemberHandover:
    """The members of one run's groups: fetched from the fenced source, sent to the target."""

    def __init__(self, link: str, *, source: SiteClient | None, target: SiteClient, journal: Journal) -> None:
        self._link = link
        self._source = source
        self._target = target
        self._journal = journal
        self._groups: Sequence[GroupMembers] | None = None
        self._fetching: asyncio.Task[None] | None = None

    def begin(self) -> asyncio.Task[None]:
        """Fetch the members from the source, which was fenced just now, beside the steps of the
        run.
        """
        # The members cannot change under a fence, but could before it: those of an earlier fence
        # of this run do not count.
        if self._fetching is not None:
            self._fetching.cancel()
        self._groups = None
        self._fetching = asyncio.get_running_loop().create_task(self._fetch())
        return self._fetching

    async def close(self) -> None:
        """End a fetch that no step awaits."""
        if self._fetching is not None:
            self._fetching.cancel()
            await asyncio.gather(self._fetching, return_exceptions=True)

    async def _fetch(self) -> None:
        if self._source is None:
            return
        try:
            self._groups = await self._source.group_members(self._link, timeout_ms=TIMEOUT_MS)
        except OperationalFailure as failure:
            self._journal.write("members of groups not fetched", problem=str(failure))

    async def give(self, *, epoch: int) -> None:
        """Send the fetched members to the target, which is at that epoch and not confirmed yet."""
        # Another run may have stored the fence.
        await (self._fetching or self.begin())
        if not self._groups:
            return
        taken, refused = 0, dict[str, str]()
        try:
            for groups in _portions(self._groups):
                reply = await self._target.take_group_members(
                    self._link, epoch=epoch, groups=groups, timeout_ms=TIMEOUT_MS
                )
                taken += len(reply.taken)
                refused.update(reply.refused)
        except OperationalFailure as failure:
            self._journal.write("members of groups not transferred", problem=str(failure))
        named = dict(sorted(refused.items())[:NAMED_MAX])
        self._journal.write("members of groups transferred", groups=taken, refused=len(refused), first=named)


def _portions(groups: Iterable[GroupMembers]) -> Iterator[list[GroupMembers]]:
    portion, size = list[GroupMembers](), 0
    for group in groups:
        portion.append(group)
        size += group.ByteSize()
        if size >= REQUEST_BYTES:
            yield portion
            portion, size = [], 0
    if portion:
        yield portion
