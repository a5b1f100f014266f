"""A lease is removed at the standby first: it could otherwise be promoted under the lease that it
knows, while the active site takes writes without any.
"""

from __future__ import annotations

from contextlib import nullcontext
from typing import Any

import pytest

from dr.links.alteration import alter_link
from dr.sites.core.record_changes import changed
from dr.sites.site_client import LinkChanges, SiteUnreachable
from runtime.process import OperationalFailure
from wire.control.cluster_pb2 import LinkRecord
from wire.control.site_pb2 import DescribeLinkReply, LinkReply
from wire.rules.links import FailoverMode, supersedes

REMOVAL = LinkChanges(lease_ms=0)


class Site:
    """The agent of one site."""

    def __init__(self, name: str, mode: FailoverMode, *, is_silent: bool = False) -> None:
        self.name = name
        self.record = LinkRecord(
            name="a-b",
            source_site="a",
            target_site="b",
            active_site="a",
            epoch=1,
            lease_ms=2000,
            failover_mode=mode.value,
        )
        self._is_silent = is_silent

    def _answer(self) -> None:
        if self._is_silent:
            raise SiteUnreachable(f"site {self.name} does not answer")

    async def describe_link(self, _: str, **__: Any) -> DescribeLinkReply:
        self._answer()
        return DescribeLinkReply(site=self.name, record=self.record)

    async def alter_link(self, _: str, changes: LinkChanges, *, is_dry_run: bool, **__: Any) -> LinkRecord:
        assert changes.lease_ms is not None
        record = changed(self.record, lease_ms=changes.lease_ms, revision=self.record.revision + 1)
        if not is_dry_run:
            self.record = record
        return record

    async def adopt_link(self, record: LinkRecord, **_: Any) -> LinkReply:
        self._answer()
        await self.before_adoption()
        if supersedes(record, self.record):
            self.record = record
        return LinkReply(record=self.record)

    async def before_adoption(self) -> None:
        """Called before the site stores a record."""


async def removed(active: Site, standby: Site, *, is_standby_down: bool = False) -> LinkRecord:
    sites: list[Any] = [active, standby]
    return (await alter_link("a-b", sites, REMOVAL, is_standby_down=is_standby_down)).record


def pair(mode: FailoverMode, *, is_standby_silent: bool) -> tuple[Site, Site]:
    return Site("a", mode), Site("b", mode, is_silent=is_standby_silent)


@pytest.mark.parametrize("mode", list(FailoverMode))
async def test_a_standby_that_does_not_answer_keeps_the_lease(mode: FailoverMode) -> None:
    """A person may also promote it, and need not declare that the silent site is down."""
    active, standby = pair(mode, is_standby_silent=True)
    with pytest.raises(OperationalFailure, match=r"b may be promoted under the lease.*--standby-is-down"):
        await removed(active, standby)
    assert active.record.lease_ms == 2000
    assert (await removed(active, standby, is_standby_down=True)).lease_ms == 0


@pytest.mark.parametrize("is_standby_silent", [False, True])
async def test_a_dry_run_stores_nothing_and_refuses_what_the_run_would_refuse(*, is_standby_silent: bool) -> None:
    active, standby = pair(FailoverMode.OBSERVE, is_standby_silent=is_standby_silent)
    sites: list[Any] = [active, standby]
    refusal = pytest.raises(OperationalFailure, match="--standby-is-down") if is_standby_silent else nullcontext()
    with refusal:
        assert (await alter_link("a-b", sites, REMOVAL, is_dry_run=True)).record.lease_ms == 0
    assert (active.record.lease_ms, standby.record.lease_ms) == (2000, 2000)


async def test_the_standby_stores_the_removal_before_the_active_site_does() -> None:
    active, standby = pair(FailoverMode.AUTOMATIC, is_standby_silent=False)
    at_standby: list[int] = []

    async def note() -> None:
        at_standby.append(standby.record.lease_ms)

    active.before_adoption = note  # type: ignore[method-assign]
    assert (await removed(active, standby)).lease_ms == 0
    assert at_standby == [0]
    assert active.record == standby.record


async def test_a_change_that_another_process_stores_meanwhile_is_kept() -> None:
    active, standby = pair(FailoverMode.AUTOMATIC, is_standby_silent=False)

    async def restore_policy() -> None:
        if not active.record.sync_policy:
            active.record = changed(active.record, sync_policy="block", revision=active.record.revision + 1)

    active.before_adoption = restore_policy  # type: ignore[method-assign]
    record = await removed(active, standby)
    assert (record.lease_ms, record.sync_policy) == (0, "block")
    assert active.record == standby.record == record


async def test_a_standby_that_was_promoted_meanwhile_ends_the_removal() -> None:
    active, standby = pair(FailoverMode.OBSERVE, is_standby_silent=False)

    async def promote() -> None:
        standby.record = changed(standby.record, epoch=2, active_site="b")

    standby.before_adoption = promote  # type: ignore[method-assign]
    with pytest.raises(OperationalFailure, match="is being changed by another run"):
        await removed(active, standby)
    assert active.record.lease_ms == 2000
