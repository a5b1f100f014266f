"""Vows of the standby: while the arbiter does not answer, an agent of the standby promises that its
site is not promoted over the epoch for one lease.
"""

from __future__ import annotations

import grpc

from dr.agent.leases.kept_lease import LeaseDoors
from dr.sites.channels import UNANSWERED, problem_of
from wire.control.cluster_pb2 import LinkRecord
from wire.control.site_pb2 import GrantVowRequest
from wire.rules.links import other_site
from wire.znodes.arbiter_znodes import Holder


async def ask_for_vow(doors: LeaseDoors, record: LinkRecord, holder: Holder, *, is_release: bool = False) -> str:
    """Ask the standby for a vow, or to release one. Return the reason why no agent of the standby
    agrees; empty when one does.
    """
    request = GrantVowRequest(
        link=record.name, epoch=record.epoch, asking_site=doors.site, node_id=holder.node_id, is_release=is_release
    )
    problems = []
    for address in record.sites[other_site(record, doors.site)].agents:
        try:
            await doors.channels.site_agent(address).GrantVow(request, timeout=record.lease_ms / 1000)
        except grpc.aio.AioRpcError as error:
            problems.append(f"{address} {problem_of(error)}")
            # A refusal is the answer of the whole site. If an agent does not answer, another one of
            # the site may.
            if error.code() not in UNANSWERED:
                break
            continue
        return ""
    return "; ".join(problems)
