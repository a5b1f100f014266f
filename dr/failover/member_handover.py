"""Transfers the members of consumer groups to the promoted site, so that a planned move causes no
rebalance and no record is read again (decision 131).

The move does not wait for the transfer: members that are not transferred join their groups anew,
and read their uncommitted records again.
"""

from __future__ import annotations

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

    async def fetch(self) -> None:
        """Fetch the members from the source, once. The source is fenced, so no member joins there
        meanwhile.
        """
        # Once is enough, because the members cannot change under the fence.
        if self._source is None or self._groups is not None:
            return
        try:
            self._groups = await self._source.group_members(self._link, timeout_ms=TIMEOUT_MS)
        except OperationalFailure as failure:
            self._journal.write("members of groups not fetched", problem=str(failure))

    async def give(self, *, epoch: int) -> None:
        """Send the fetched members to the target, which is at that epoch and not confirmed yet."""
        # An interrupted run may not have fetched them during its raise.
        await self.fetch()
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
