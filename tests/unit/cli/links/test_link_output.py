"""What `antipode links list` says of the other end of a link."""

from __future__ import annotations

import pytest

from cli.links.link_output import status_document, status_row
from dr.links.administration import LinkAtSite
from wire.control.cluster_pb2 import LinkRecord
from wire.control.site_pb2 import LinkStatus

RECORD = LinkRecord(name="a-b", source_site="a", target_site="b", active_site="b", epoch=2)
LOST = "site a has no link a-b: if it has lost its data, antipode links restore a-b --at a"


@pytest.mark.parametrize(
    ("is_reachable", "is_unknown", "text"), [(False, False, "silent"), (True, False, "answers"), (True, True, LOST)]
)
def test_a_peer_answers_is_silent_or_has_lost_the_link(is_reachable: bool, is_unknown: bool, text: str) -> None:
    status = LinkStatus(record=RECORD, is_peer_reachable=is_reachable, is_unknown_to_peer=is_unknown)
    entry = LinkAtSite(site="b", status=status)
    assert text in status_row(entry)
    assert status_document(entry)["is_unknown_to_peer"] is is_unknown
