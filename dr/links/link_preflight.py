"""Collects the facts that `core/link_preflight.py` judges, from both sites, the target's controller
and the link's mirror. Changes nothing.
"""

from __future__ import annotations

import grpc

from dr.links.core.link_preflight import (
    LinkCheck,
    copy_checks,
    judged,
    mirror_check,
    unasked,
    version_check,
    wanted_topics,
    warned,
)
from dr.links.core.security_checks import security_checks
from dr.sites.channels import Channels, problem_of
from dr.sites.core.link_checks import arbiter_problems, topic_id_problems
from dr.sites.site_client import SiteClient
from wire.client.requests.topic_requests import in_requests
from wire.control.clients import ControllerUnavailable
from wire.control.cluster_pb2 import LinkRecord
from wire.control.controller_pb2 import CreateTopicsRequest, TopicResult
from wire.control.mirror_pb2 import DescribeMirrorReply, DescribeMirrorRequest
from wire.control.site_pb2 import SurveyLinkReply

CONTROLLER_TIMEOUT_MS = 5_000
MIRROR_TIMEOUT_S = 2.0


async def preflight(
    record: LinkRecord, *, source: SiteClient, target: SiteClient, live: int, now_ms: int, is_made: bool = False
) -> list[LinkCheck]:
    """Check the record at both sites and with the target's controller; `live` is the target's
    number of brokers. Raises SiteUnreachable.
    """
    there, here = await source.survey_link(record), await target.survey_link(record)
    releases = {
        client.name: None if agent is None else agent.version for client, agent in ((source, there), (target, here))
    }
    checks = [version_check(releases)]
    if there is not None and here is not None:
        refused = [f"site {agent.site}: {problem}" for agent in (there, here) for problem in agent.problems]
        checks += judged("links", refused, otherwise="no other link of the two sites conflicts")
        checks += warned("groups", here.warnings, otherwise="no other link carries these groups with other topics")
        if record.lease_ms:
            arbiters = arbiter_problems({source.name: there.arbiter_id, target.name: here.arbiter_id})
            checks += judged("arbiter", arbiters, otherwise="both sites reach the same arbiter")
        clashes = topic_id_problems(record, there, here)
        checks += judged("topic ids", clashes, otherwise="no topic of the link has another id at the other site")
        if there.HasField("security") and here.HasField("security"):
            checks += security_checks(
                there.security,
                here.security,
                sites=(source.name, target.name),
                now_ms=now_ms,
                is_made=is_made,
            )
        checks += await _copies(there, target, live=live, claim=record if is_made else None)
    return checks


async def _copies(
    there: SurveyLinkReply, target: SiteClient, *, live: int, claim: LinkRecord | None
) -> list[LinkCheck]:
    controller = target.controller(timeout_ms=CONTROLLER_TIMEOUT_MS)
    results: list[TopicResult] = []
    try:
        for topics in in_requests(wanted_topics(there, claim), lambda topic: topic.partition_count):
            request = CreateTopicsRequest(topics=topics, is_validate_only=True, timeout_ms=CONTROLLER_TIMEOUT_MS)
            results += (await controller.create_topics(request)).results
    except ControllerUnavailable as error:
        return unasked(str(error), target=target.name)
    finally:
        await controller.close()
    return copy_checks(there, results, target=target.name, live=live)


async def ask_mirror(link: str, address: str) -> LinkCheck:
    """Check that the link's daemon serves MirrorAdmin at the address; an address of "" is
    unknown.
    """
    answer: DescribeMirrorReply | str = ""
    if address:
        channels = Channels()
        try:
            answer = await channels.mirror_admin(address).DescribeMirror(
                DescribeMirrorRequest(), timeout=MIRROR_TIMEOUT_S
            )
        except grpc.aio.AioRpcError as error:
            answer = problem_of(error)
        finally:
            await channels.close()
    return mirror_check(link, address=address, answer=answer)
