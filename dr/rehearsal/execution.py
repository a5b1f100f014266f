"""Runs a rehearsal: clones the standby's logs into a sandbox, promotes the clones as a failover
would promote the standby, lets clients work on them, and removes everything. Mirroring continues
meanwhile.

The sandbox cannot reach another site, because its link record contains no addresses. So the raised
epoch stays in the sandbox. The failover there runs the same code as `antipode failover`.

`core/judgement.py` judges. The sandbox is removed however a run ends; after a killed run the next
one removes it first.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from typing import TypeVar

from kio.schema.errors import ErrorCode
from msgspec import Struct

from dr.drill.drill_results import FAILED, PASSED, DrillResult, StepResult
from dr.failover.core.steps import FailoverPolicy
from dr.failover.execution import failover
from dr.failover.report import FailoverReport
from dr.proof.core.descent import Question
from dr.proof.site_digests import SiteDigests, new_client
from dr.rehearsal.client_load import LoadResult, run_load
from dr.rehearsal.core.judgement import RehearsalFacts, judge_rehearsal
from dr.rehearsal.sandbox import Cloned, Sandbox, SandboxAddresses
from dr.sites.channels import Channels
from dr.sites.core.evidence import SiteEvidence
from dr.sites.core.mirror_reports import mirror_sentence
from dr.sites.observation import LinkObserver
from dr.sites.site_client import SiteClient
from runtime.clock import Clock
from runtime.process import OperationalFailure
from runtime.supervision import to_its_end
from wire.client.requests.range_digest_requests import RangeQuery
from wire.client.security import ClientSecurity, load_security
from wire.control.cluster_pb2 import LinkPhase
from wire.control.site_pb2 import LinkRehearsal
from wire.protocol.ids import TopicPartition
from wire.protocol.messages.range_digest_messages import WHOLE_RANGE

Progress = Callable[[str, str], None]
Outcome = TypeVar("Outcome")
Digests = Mapping[TopicPartition, tuple[int, bytes]]
"""For each partition, the first offset of the range, and the digest from there up to the clone's
end.
"""


class RehearsalRequest(Struct, frozen=True, kw_only=True):
    """The parameters of a rehearsal; `bootstrap_servers` are the standby's."""

    link: str
    standby: str
    bootstrap_servers: str
    records: int


async def survey_standby(link: str, site: SiteClient, clock: Clock) -> SiteEvidence:
    """The state of the standby. OperationalFailure says why it cannot be rehearsed now."""
    found = await LinkObserver(link, target=site, source=None, clock=clock).site_evidence(site, with_groups=True)
    record, standby = found.record, site.name
    if record.active_site == standby:
        raise OperationalFailure(f"{standby} is active for link {record.name}: only a standby can be rehearsed")
    if record.phase != LinkPhase.MIRRORING:
        raise OperationalFailure(f"link {record.name} is fenced: a failover is under way, rehearse afterwards")
    if not found.copies:
        raise OperationalFailure(f"{standby} has no copy of a topic of link {record.name} yet")
    return found


class Rehearsal:
    """One run."""

    def __init__(
        self,
        request: RehearsalRequest,
        *,
        site: SiteClient,
        sandbox: Sandbox,
        channels: Channels,
        clock: Clock,
        progress: Progress = lambda _step, _detail: None,
    ) -> None:
        """`site` is the client of the standby's agents."""
        self._request = request
        self._site = site
        self._sandbox = sandbox
        self._channels = channels
        self._clock = clock
        self._progress = progress
        self._facts = RehearsalFacts()
        self._result = DrillResult(
            name=f"Rehearsal of {request.link}",
            description=f"Clones of {request.standby}'s logs, promoted in a sandbox while mirroring continues.",
            link=request.link,
            started_at_ms=clock.now_ms(),
        )

    @property
    def left_behind(self) -> list[str]:
        """What could not be removed, in sentences, also of a run that was cancelled."""
        return self._result.restore_problems

    async def run(self) -> DrillResult:
        """Run all steps; the result reports which one failed. Never raises OperationalFailure."""
        result = self._result
        try:
            await self._steps()
        except OperationalFailure as failure:
            result.reason = str(failure)
        finally:
            await self._drop()
        if not result.reason:
            result.verdicts = judge_rehearsal(self._facts)
            result.reason = "; ".join(f"{one.name}: {one.found}" for one in result.verdicts if not one.is_met)
        result.outcome = FAILED if result.reason or result.restore_problems else PASSED
        result.ended_at_ms = self._clock.now_ms()
        await self._keep()
        return result

    async def _steps(self) -> None:
        await self._step("clear", self._sandbox.clear, lambda found: found or "no earlier sandbox was left")
        before = await self._step("survey", self._survey, lambda found: f"{len(found.partitions)} partitions")
        clones = await self._step("clone", lambda: self._sandbox.clone(before.record, before.copies), _cloned)
        self._facts.ends, self._facts.absent = clones.ends, clones.absent
        digests = await self._step(
            "digest",
            lambda: self._digests(self._request.bootstrap_servers, before, clones.ends),
            lambda found: f"{len(found)} partitions",
        )
        addresses = await self._step(
            "start", self._sandbox.start, lambda found: f"clients at {found.bootstrap_servers}"
        )
        await self._step("promote", lambda: self._promote(addresses), lambda found: f"{found.duration_ms} ms")
        await self._step("check", lambda: self._check(addresses), lambda _: f"{len(clones.ends)} partitions")
        await self._step("load", lambda: self._load(addresses, clones), _loaded)
        await self._step(
            "compare",
            lambda: self._compare(digests, addresses, clones),
            lambda _: f"{self._facts.digests_compared} partitions",
        )

    async def _step(
        self, name: str, act: Callable[[], Awaitable[Outcome]], detail: Callable[[Outcome], str]
    ) -> Outcome:
        self._progress(name, "")
        started_at_ms, started_ms = self._clock.now_ms(), self._clock.monotonic_ms()
        outcome, message = FAILED, ""
        try:
            found = await act()
            outcome, message = "done", detail(found)
        except OperationalFailure as failure:
            message = str(failure)
            raise
        finally:
            duration_ms = round(self._clock.monotonic_ms() - started_ms)
            self._result.steps.append(
                StepResult(
                    title=name,
                    verb=name,
                    started_at_ms=started_at_ms,
                    duration_ms=duration_ms,
                    outcome=outcome,
                    detail=message,
                )
            )
        return found

    async def _survey(self) -> SiteEvidence:
        found = await survey_standby(self._request.link, self._site, self._clock)
        assert found.groups is not None
        self._facts.groups_before = found.groups.offsets
        self._facts.mirror_before = "" if found.has_mirror else mirror_sentence(found.mirror_age_ms)
        return found

    async def _digests(
        self,
        bootstrap: str,
        evidence: SiteEvidence,
        ends: Mapping[TopicPartition, int],
        security: ClientSecurity | None = None,
    ) -> Digests:
        """Request the digest of every clone's range from one site; compacted logs have none."""
        async with new_client(bootstrap, security) as client:
            site = SiteDigests(self._request.standby, client, self._clock, lambda _: None)
            starts = {key: evidence.partitions[key].log_start_offset for key in ends if key in evidence.partitions}
            queries = {
                RangeQuery(*key, *Question(start, ends[key], WHOLE_RANGE)): key
                for key, start in starts.items()
                if start < ends[key]
            }
            answers = await site.ask(queries)
        found: dict[TopicPartition, tuple[int, bytes]] = {}
        for query, content in answers.items():
            if content.error_code is ErrorCode.none:
                found[queries[query]] = (query.first_offset, content.content)
            elif content.error_code is not ErrorCode.unsupported_for_message_format:
                self._facts.digests_unknown += (f"{queries[query]}: {content.error_message}",)
        return found

    async def _promote(self, addresses: SandboxAddresses) -> FailoverReport:
        # The sandbox has no source that could be fenced or drained, so the failover must not wait
        # for one.
        policy = FailoverPolicy(accepts_data_loss=True, drain_timeout_ms=0, settle_ms=0)
        standby = self._request.standby
        report = await failover(
            self._request.link,
            to_site=standby,
            agents={standby: [addresses.agent]},
            policy=policy,
            clock=self._clock,
            security=load_security(addresses.client_options),
        )
        self._result.failovers.append(report)
        problems = [step.problem for step in report.steps if step.problem]
        refused = report.reason if report.outcome == "refused" else ""
        self._facts.promotion_problem = "; ".join(filter(None, [refused, *problems]))
        self._facts.promotion_ms = report.duration_ms
        if report.account is not None:
            self._facts.kept_below = {
                TopicPartition(loss.topic, loss.partition): loss.kept_below for loss in report.account.partitions
            }
        return report

    async def _check(self, addresses: SandboxAddresses) -> None:
        client = SiteClient(f"sandbox of {self._request.standby}", [addresses.agent], self._channels)
        observer = LinkObserver(self._request.link, target=client, source=None, clock=self._clock)
        found = await observer.site_evidence(client, with_groups=True)
        self._facts.unwritable = tuple(
            f"{key} takes no writes"
            for key in sorted(self._facts.ends)
            if key not in found.partitions or not found.partitions[key].is_writable
        )
        assert found.groups is not None
        self._facts.groups_after = found.groups.offsets

    async def _load(self, addresses: SandboxAddresses, clones: Cloned) -> LoadResult:
        topics = {key.topic for key in clones.ends} - {key.topic for key in clones.absent}
        load = await asyncio.to_thread(run_load, addresses, sorted(topics), records=self._request.records)
        self._facts.load_sent, self._facts.load_problems = load.sent, load.problems
        return load

    async def _compare(self, before: Digests, addresses: SandboxAddresses, clones: Cloned) -> None:
        """Compare the standby before and after, and the clones after their load."""
        observer = LinkObserver(self._request.link, target=self._site, source=None, clock=self._clock)
        now = await observer.site_evidence(self._site)
        ends = {key: end for key, end in clones.ends.items() if key in before}
        after = await self._digests(self._request.bootstrap_servers, now, ends)
        security = load_security(addresses.client_options)
        cloned = await self._digests(addresses.bootstrap_servers, now, ends, security)
        differ = []
        for key, (start, digest) in after.items():
            if cloned.get(key) != (start, digest):
                differ.append(f"{key}: the clone is not the standby's log")
            # Retention may have moved the log start meanwhile; then the two digests cover different
            # ranges.
            if before[key][0] == start and before[key][1] != digest:
                differ.append(f"{key}: the standby's log has changed")
        self._facts.digests_compared, self._facts.digests_differ = len(after), tuple(differ)
        self._facts.shared_file_changes = tuple(self._sandbox.shared_file_changes())
        self._facts.mirror_after = "" if now.has_mirror else mirror_sentence(now.mirror_age_ms)

    async def _drop(self) -> None:
        """Remove the sandbox, also after a failure. This result reports a problem, and the next run
        reports it again.
        """

        async def drop() -> None:
            dropping = asyncio.ensure_future(self._sandbox.drop())
            try:
                # To its end, also when a stop comes now: the process would end with half a sandbox.
                await to_its_end(dropping)
            except asyncio.CancelledError:
                if dropping.done() and not dropping.cancelled() and (error := dropping.exception()) is not None:
                    self._result.restore_problems.append(str(error))
                raise

        try:
            await self._step("drop", drop, lambda _: "nothing is left")
        except OperationalFailure as failure:
            self._result.restore_problems.append(str(failure))

    async def _keep(self) -> None:
        """Store the result at the standby, for `links check` and the metrics."""
        result = self._result
        found = LinkRehearsal(
            site=self._request.standby,
            started_at_ms=result.started_at_ms,
            ended_at_ms=result.ended_at_ms,
            is_passed=result.is_passed,
            reason=result.reason,
            promotion_ms=self._facts.promotion_ms,
            partitions=len(self._facts.ends),
        )
        try:
            await self._site.record_rehearsal(self._request.link, found)
        except OperationalFailure as failure:
            result.restore_problems.append(f"the result could not be stored at {self._request.standby}: {failure}")


def _cloned(clones: Cloned) -> str:
    shared, copied = clones.shared_bytes / 1e6, clones.copied_bytes / 1e6
    return f"{len(clones.ends)} partitions: {shared:.1f} MB shared by hard links, {copied:.1f} MB copied"


def _loaded(load: LoadResult) -> str:
    return f"{load.acknowledged} of {load.sent} records, the slowest in {load.slowest_ms:.0f} ms"
