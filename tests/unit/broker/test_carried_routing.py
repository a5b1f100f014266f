"""Which mirror may tell a site's coordinators who the producers are: the one of the link to the
site that coordinates in its stead.
"""

from __future__ import annotations

import pytest
from kio.schema.errors import ErrorCode

from broker.metadata.core.cluster_image import ClusterImage
from broker.metadata.core.image_updates import apply_batch
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
    )


def routing(*links: LinkRecord) -> TransactionRouting:
    """That of site b."""
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


def test_a_site_that_coordinates_itself_is_told_nothing() -> None:
    for own in (link("a-b", active="b"), link("a-b", is_routed=False)):
        assert routing(own).mirror_error(link="a-b", link_epoch=3) is ErrorCode.not_coordinator
    active_in_another = routing(link("a-b"), link("b-c", source="b", target="c", active="b"))
    assert active_in_another.mirror_error(link="a-b", link_epoch=3) is ErrorCode.not_coordinator
    assert routing().mirror_error(link="a-b", link_epoch=3) is ErrorCode.unknown_leader_epoch


def test_of_two_sites_that_are_mirrored_here_the_one_that_clients_are_sent_to_counts() -> None:
    both = routing(link("a-b"), link("c-b", source="c", active="c"))
    assert both.mirror_error(link="a-b", link_epoch=3) is ErrorCode.none
    assert both.mirror_error(link="c-b", link_epoch=3) is ErrorCode.not_coordinator
