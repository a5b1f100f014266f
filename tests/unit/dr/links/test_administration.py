"""A link that is made while a site's ZooKeeper session is interrupted for a moment."""

from __future__ import annotations

from typing import Any, cast

from dr.links.administration import CheckedLink, make_link
from dr.sites.site_client import SiteClient, SiteUnreachable
from wire.control.cluster_pb2 import LinkRecord, SiteView


class InterruptedSite:
    """Stores and confirms a link; the first confirmations are not answered."""

    def __init__(self, name: str, *, unanswered: int) -> None:
        self.name = name
        self.unanswered = unanswered
        self.calls: list[str] = []

    async def create_link(self, record: LinkRecord) -> LinkRecord:
        self.calls.append("create")
        return record

    async def view(self, *, asking_site: str) -> SiteView:
        return SiteView(site=self.name, links=[LinkRecord(name="a-b")])

    async def confirm_link(self, name: str, **_: Any) -> None:
        self.calls.append("confirm")
        if self.unanswered:
            self.unanswered -= 1
            raise SiteUnreachable(f"site {self.name} does not answer ConfirmLink")

    async def delete_link(self, name: str, **_: Any) -> None:
        self.calls.append("delete")


async def test_an_unanswered_confirmation_is_repeated() -> None:
    source, target = InterruptedSite("a", unanswered=0), InterruptedSite("b", unanswered=2)
    record = LinkRecord(name="a-b", epoch=1)
    made = await make_link(
        CheckedLink(record=record, checks=()), source=cast("SiteClient", source), target=cast("SiteClient", target)
    )
    assert made == record
    assert source.calls == ["create", "confirm"]
    assert target.calls == ["create", "confirm", "confirm", "confirm"]
