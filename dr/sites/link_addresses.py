"""Checks the addresses of a new link's sites."""

from __future__ import annotations

from runtime.addresses import parse_host_ports
from wire.control.cluster_pb2 import LinkRecord


def address_problems(record: LinkRecord) -> list[str]:
    """Return the errors of the addresses that the record names. A wrong address of the target is
    used only after a failover.
    """
    problems: list[str] = []
    for site, addresses in sorted(record.sites.items()):
        for key, text in (("bootstrap servers", addresses.bootstrap_servers), ("agents", ",".join(addresses.agents))):
            try:
                parse_host_ports(text)
            except ValueError as error:
                problems.append(f"{key} of site {site}: {error}")
    return problems
