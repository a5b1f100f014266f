"""The access rules that both sites of a link have had, for the mirror."""

from __future__ import annotations

import grpc

from dr.agent.answers.answering import Answers, Context, Refusal, answers
from dr.agent.links_store import LinkConflict
from dr.agent.shared_access import OtherEpoch
from dr.sites.site_client import SiteRefused, SiteUnreachable
from wire.control import site_pb2 as site


class AccessRuleAnswers(Answers):
    """Reads and stores them beside the link."""

    @answers
    async def GetSharedAccess(  # noqa: N802
        self, request: site.GetSharedAccessRequest, _: Context
    ) -> site.GetSharedAccessReply:
        """The rules of the latest epoch that this site or the active one has stored. Another agent
        may answer, or this one later, when this one knows another epoch than the asker.
        """
        try:
            return await self._parts.shared_access.newest(request.link, epoch=request.epoch)
        except (SiteUnreachable, SiteRefused, OtherEpoch) as error:
            raise Refusal(grpc.StatusCode.UNAVAILABLE, str(error)) from error

    @answers
    async def RecordSharedAccess(  # noqa: N802
        self, request: site.RecordSharedAccessRequest, _: Context
    ) -> site.RecordSharedAccessReply:
        """Store the rules of the mirror's round."""
        shared = self._parts.shared_access
        try:
            version = await shared.replace(request.link, request.shared, version=request.version)
        except LinkConflict as conflict:
            raise Refusal(grpc.StatusCode.ABORTED, str(conflict)) from conflict
        return site.RecordSharedAccessReply(version=version)
