"""Failovers at one site: the stored accounts and runs, the last rehearsal, and failovers that
applications request.
"""

from __future__ import annotations

import re

import grpc

from dr.agent.answers.answering import Answers, Context, Refusal, answers
from runtime.process import OperationalFailure
from wire.control import site_pb2 as site

ASKED_BY_MAX = 500
RUN_NAME = re.compile("[0-9a-z-]{1,100}")


class FailoverAnswers(Answers):
    """Stores the reports of runs, and begins a failover on request."""

    @answers
    async def RecordFailover(  # noqa: N802
        self, request: site.RecordFailoverRequest, _: Context
    ) -> site.RecordFailoverReply:
        """Store the account of a failover."""
        await self._parts.store.accounts.record(request.link, epoch=request.epoch, document=request.json)
        return site.RecordFailoverReply()

    @answers
    async def ListFailovers(  # noqa: N802
        self, request: site.ListFailoversRequest, _: Context
    ) -> site.ListFailoversReply:
        """Accounts kept at this site, oldest first, without those that the caller knows."""
        store = self._parts.store
        versions, accounts = await store.accounts.changed(request.link, request.known_versions)
        return site.ListFailoversReply(
            json=accounts.values(),
            epochs=accounts.keys(),
            versions=versions,
            runs=await store.runs(request.link) if request.with_runs else (),
        )

    @answers
    async def RequestFailover(  # noqa: N802
        self, request: site.RequestFailoverRequest, _: Context
    ) -> site.RequestFailoverReply:
        """Begin a failover that an application requests."""
        stored, _version = await self._parts.store.get(request.link)
        if stored.active_site == self._site:
            raise Refusal(grpc.StatusCode.FAILED_PRECONDITION, f"{self._site} is active for link {stored.name} already")
        if not request.asked_by.strip():
            raise Refusal(
                grpc.StatusCode.INVALID_ARGUMENT,
                "asked_by is empty: accepted is a text that names the caller and the reason",
            )
        try:
            report = await self._parts.failovers.request(stored, asked_by=request.asked_by.strip()[:ASKED_BY_MAX])
        except OperationalFailure as failure:
            raise Refusal(grpc.StatusCode.FAILED_PRECONDITION, str(failure)) from failure
        if not report.is_done:
            raise Refusal(grpc.StatusCode.FAILED_PRECONDITION, report.reason)
        account = "" if report.account is None else report.account.to_json()
        return site.RequestFailoverReply(epoch=report.epoch, json=account)

    @answers
    async def RecordRun(self, request: site.RecordRunRequest, _: Context) -> site.RecordRunReply:  # noqa: N802
        """Store the state of a failover run."""
        if not RUN_NAME.fullmatch(request.run):
            raise Refusal(
                grpc.StatusCode.INVALID_ARGUMENT, f"run {request.run!r}: accepted are letters, digits and dashes"
            )
        await self._parts.store.record_run(request.link, run=request.run, document=request.json)
        return site.RecordRunReply()

    @answers
    async def RecordRehearsal(  # noqa: N802
        self, request: site.RecordRehearsalRequest, _: Context
    ) -> site.RecordRehearsalReply:
        """Store the result of the last rehearsal on clones of this site's logs."""
        await self._parts.rehearsals.keep(request.link, request.rehearsal)
        return site.RecordRehearsalReply()
