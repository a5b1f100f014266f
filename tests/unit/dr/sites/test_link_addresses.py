"""Addresses that a link's record names for its sites."""

from __future__ import annotations

from dr.sites.link_addresses import address_problems
from wire.control.cluster_pb2 import LinkRecord, LinkSite


def test_a_wrong_address_is_found_before_a_failover_needs_it() -> None:
    right = LinkSite(bootstrap_servers="a1:9093,[::1]:9093", agents=["a1:9190"])
    assert address_problems(LinkRecord(sites={"a": right})) == []
    wrong = LinkSite(bootstrap_servers="b1", agents=["b1:9190", "b2:x"])
    assert address_problems(LinkRecord(sites={"a": right, "b": wrong})) == [
        "bootstrap servers of site b: 'b1' has no port; accepted: host:port",
        "agents of site b: 'b2:x' has no valid port; accepted: host:port with a port from 0 to 65535",
    ]
