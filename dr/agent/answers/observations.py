"""Answers all that an observer of a link asks of this site in one call: a failover asks while
writers wait, and a separate call costs both processes about as much as its answer.
"""

from __future__ import annotations

import asyncio

from dr.agent.answers.access_rules import AccessRuleAnswers
from dr.agent.answers.answering import Context, answers, raising
from dr.agent.answers.failovers import FailoverAnswers
from dr.agent.answers.groups import GroupAnswers
from dr.agent.answers.link_descriptions import LinkDescriptions
from wire.control import site_pb2 as site


class Observations(LinkDescriptions, GroupAnswers, FailoverAnswers, AccessRuleAnswers):
    """The answers of other calls, put together."""

    @answers
    async def ObserveLink(  # noqa: N802
        self, request: site.ObserveLinkRequest, context: Context
    ) -> site.ObserveLinkReply:
        """Everything that this site knows of the link. An error of one part is that of the
        whole.
        """
        link = request.link
        view = site.GetSiteViewRequest(
            asking_site=request.asking_site,
            known_version=request.known_view_version,
            known_topics_version=request.known_topics_version,
        )
        failovers = site.ListFailoversRequest(link=link, known_versions=request.known_account_versions)
        logs = site.DescribeLinkRequest(
            name=link,
            with_log_versions=request.with_log_versions,
            known_log_versions=request.known_log_versions,
            accepts_columns=request.accepts_columns,
        )
        groups = site.DescribeGroupsRequest(link=link, is_brief=not request.with_groups)
        parts = await asyncio.gather(
            raising(self.DescribeLink)(logs, context),
            raising(self.GetSiteView)(view, context),
            raising(self.ListLinks)(site.ListLinksRequest(), context),
            raising(self.ListFailovers)(failovers, context),
            raising(self.DescribeGroups)(groups, context),
        )
        return site.ObserveLinkReply(
            description=parts[0], view=parts[1], links=parts[2], failovers=parts[3], groups=parts[4]
        )
