"""A lease is removed only if the standby learns of it: an automatic one would otherwise fail over
under the lease that it knows, while the active site takes writes without any.
"""

from __future__ import annotations

from typing import Any

import pytest

from dr.links.administration import alter_link
from dr.sites.site_client import LinkChanges, SiteUnreachable
from runtime.process import OperationalFailure
from wire.control.cluster_pb2 import LinkRecord
from wire.control.site_pb2 import DescribeLinkReply, LinkReply
from wire.rules.links import FailoverMode

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

    async def alter_link(self, _: str, changes: LinkChanges, **__: Any) -> LinkRecord:
        assert changes.lease_ms is not None
        self.record.lease_ms = changes.lease_ms
        self.record.revision += 1
        return self.record

    async def adopt_link(self, record: LinkRecord, **_: Any) -> LinkReply:
        self._answer()
        self.record = record
        return LinkReply(record=record)


async def removed(active: Site, standby: Site, *, is_standby_down: bool = False) -> LinkRecord:
    sites: list[Any] = [active, standby]
    return (await alter_link("a-b", sites, REMOVAL, is_standby_down=is_standby_down)).record


def pair(mode: FailoverMode, *, is_standby_silent: bool) -> tuple[Site, Site]:
    return Site("a", mode), Site("b", mode, is_silent=is_standby_silent)


async def test_an_automatic_standby_that_does_not_answer_keeps_the_lease() -> None:
    active, standby = pair(FailoverMode.AUTOMATIC, is_standby_silent=True)
    with pytest.raises(OperationalFailure, match=r"b may fail over by itself.*--standby-is-down"):
        await removed(active, standby)
    assert active.record.lease_ms == 2000
    assert (await removed(active, standby, is_standby_down=True)).lease_ms == 0


@pytest.mark.parametrize(
    ("mode", "is_standby_silent"),
    [(FailoverMode.AUTOMATIC, False), (FailoverMode.OBSERVE, True), (FailoverMode.MANUAL, True)],
)
async def test_the_lease_of_any_other_link_is_removed(mode: FailoverMode, is_standby_silent: bool) -> None:
    assert (await removed(*pair(mode, is_standby_silent=is_standby_silent))).lease_ms == 0
