"""A link is stored again only at a site that has lost it, and only as a standby."""

from __future__ import annotations

import grpc
import pytest
from google.protobuf.message import Message

from dr.links.restoration import check_restoration, restore_link
from dr.sites.site_client import SiteClient, SiteRefused
from runtime.process import OperationalFailure
from wire.control.cluster_pb2 import LinkPhase, LinkRecord, SiteView
from wire.control.site_pb2 import DescribeLinkReply

RECORD = LinkRecord(
    name="a-b", epoch=2, source_site="a", target_site="b", active_site="b", mode="exact", phase=LinkPhase.MIRRORING
)


def changed(record: LinkRecord, **fields: object) -> LinkRecord:
    found = LinkRecord()
    found.CopyFrom(record)
    for name, value in fields.items():
        setattr(found, name, value)
    return found


class Site(SiteClient):
    """A site with a link or without one."""

    def __init__(self, name: str, record: LinkRecord | None = None) -> None:
        self.name = name
        self.record = record
        self.created: list[Message] = []

    async def describe_link(self, name: str, *, is_brief: bool = False) -> DescribeLinkReply:
        if self.record is None:
            raise SiteRefused(f"site {self.name}: this site has no link {name!r}", grpc.StatusCode.NOT_FOUND)
        return DescribeLinkReply(record=self.record)

    async def create_link(self, record: LinkRecord) -> LinkRecord:
        self.created.append(record)
        return record

    async def view(self, *, asking_site: str = "") -> SiteView:
        raise AssertionError("a refused restoration asks no site how it looks")


@pytest.mark.parametrize(
    ("kept", "lost", "problem"),
    [
        (
            changed(RECORD, active_site="a"),
            None,
            "a is the active site, and would be active without records: promote b first (antipode failover a-b --to b)",
        ),
        (RECORD, changed(RECORD, epoch=1, active_site="a"), "a has the link, in epoch 1 with a active"),
    ],
    ids=["the lost site would be active", "the site has another record"],
)
async def test_a_site_that_must_not_get_the_record_gets_none(
    kept: LinkRecord, lost: LinkRecord | None, problem: str
) -> None:
    sites = {"a": Site("a", lost), "b": Site("b", kept)}
    checked = await check_restoration("a-b", sites, at="a")
    assert checked.problems == [problem]
    with pytest.raises(OperationalFailure, match="link a-b cannot be restored"):
        await restore_link(checked, sites["a"])
    assert sites["a"].created == []


@pytest.mark.parametrize(
    ("sites", "at", "problem"),
    [
        ({"a": Site("a"), "b": Site("b")}, "a", "this site has no link 'a-b'"),
        ({"b": Site("b", RECORD), "c": Site("c")}, "c", "link a-b joins a and b: site c is neither of them"),
        ({"a": Site("a"), "c": Site("c", RECORD)}, "a", "no gRPC address is known of site b"),
    ],
    ids=["no site has the link", "the site is no end of the link", "the other end is not known"],
)
async def test_a_link_without_its_other_end_is_not_restored(sites: dict[str, Site], at: str, problem: str) -> None:
    with pytest.raises(OperationalFailure, match=problem):
        await check_restoration("a-b", sites, at=at)
