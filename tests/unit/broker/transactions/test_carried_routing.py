"""The reports of producers and members that a site's coordinators accept: those of the link to the
site that coordinates, or has coordinated, instead of it.
"""

from __future__ import annotations

import pytest
from kio.schema.errors import ErrorCode

from broker.groups.group_routing import ImageRouting
from broker.metadata.core.cluster_image import ClusterImage
from broker.metadata.core.image_updates import apply_batch, confirm_link
from broker.transactions.transaction_routing import TransactionRouting
from wire.control.broker_pb2 import ControlBatch
from wire.control.cluster_pb2 import LinkPhase, LinkRecord


def link(name: str, *, source: str = "a", target: str = "b", active: str = "a", is_routed: bool = True) -> LinkRecord:
    return LinkRecord(
        name=name,
        source_site=source,
        target_site=target,
        active_site=active,
        epoch=3,
        phase=LinkPhase.MIRRORING,
        is_routed=is_routed,
        topic_whitelist=[name],
        group_whitelist=["g"],
    )


def routing(*links: LinkRecord) -> TransactionRouting:
    """The routing of site b."""
    image = apply_batch(ClusterImage(site="b", node_id=1001), ControlBatch(is_full=True, links=links))
    return TransactionRouting(lambda: image)


@pytest.mark.parametrize(
    ("epoch", "expected"),
    [
        (2, ErrorCode.fenced_leader_epoch),
        (3, ErrorCode.none),
        (4, ErrorCode.unknown_leader_epoch),
    ],
)
def test_the_links_epoch_is_asked_for(epoch: int, expected: ErrorCode) -> None:
    assert routing(link("a-b")).mirror_error(link="a-b", link_epoch=epoch) is expected


def test_a_site_that_coordinates_itself_gets_no_report() -> None:
    for own in (link("a-b", active="b"), link("a-b", is_routed=False)):
        assert routing(own).mirror_error(link="a-b", link_epoch=3) is ErrorCode.not_coordinator
    active_in_another = routing(link("a-b"), link("b-c", source="b", target="c", active="b"))
    assert active_in_another.mirror_error(link="a-b", link_epoch=3) is ErrorCode.not_coordinator
    assert routing().mirror_error(link="a-b", link_epoch=3) is ErrorCode.unknown_leader_epoch


def test_of_two_sites_that_are_mirrored_here_the_one_that_clients_are_sent_to_counts() -> None:
    both = routing(link("a-b"), link("c-b", source="c", active="c"))
    assert both.mirror_error(link="a-b", link_epoch=3) is ErrorCode.none
    assert both.mirror_error(link="c-b", link_epoch=3) is ErrorCode.not_coordinator


@pytest.mark.parametrize(
    ("record", "epoch", "expected"),
    [
        (link("a-b", active="b"), 3, ErrorCode.none),
        (link("a-b", active="b"), 2, ErrorCode.fenced_leader_epoch),
        (link("a-b", active="b"), 4, ErrorCode.unknown_leader_epoch),
        (link("a-b"), 3, ErrorCode.not_coordinator),
        (link("a-b", active="b", is_routed=False), 3, ErrorCode.not_coordinator),
    ],
)
def test_members_are_taken_by_a_promoted_site_that_is_not_confirmed(
    record: LinkRecord, epoch: int, expected: ErrorCode
) -> None:
    image = apply_batch(ClusterImage(site="b", node_id=1001), ControlBatch(is_full=True, links=[record]))
    assert ImageRouting(lambda: image).handover_error("g", link="a-b", link_epoch=epoch) is expected
    confirmed = confirm_link(image, "a-b", 3) or image
    asked = ImageRouting(lambda: confirmed).handover_error("g", link="a-b", link_epoch=3)
    assert asked is ErrorCode.not_coordinator
