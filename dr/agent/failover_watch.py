"""Watches at a link's standby whether the active site is lost. Depending on the link's failover
mode, it then fails over, or only reports that it would. One agent of the site watches: the one of
the live broker with the lowest node id. `core/failover_gates.py` decides; the failover itself is
the one that `antipode failover` carries out.

The same agent continues a failover of that kind whose process has died after the raise.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import Final

from msgspec.structs import replace

from dr.agent.arbiter import Arbiter, ArbiterSilent
from dr.agent.core.failover_gates import LossState, LossWatch, Views, closed_gates, failover_times_ms
from dr.agent.core.interrupted_runs import RUNS_MAX, InterruptedRuns
from dr.agent.core.silences import Silences
from dr.agent.core.watched_link import SETTLE_MS, FailoverCounts, WatchedLink, look_pause_ms
from dr.agent.links_store import LinksStore
from dr.agent.peer_watch import PeerWatch
from dr.agent.site_cache import DISCONNECTED, SiteCache
from dr.failover.core.steps import FailoverPolicy
from dr.failover.execution import FailoverRun
from dr.failover.journal import Journal
from dr.failover.report import FailoverReport
from dr.failover.run_drivers import SILENT_AFTER_MS
from dr.sites.channels import Channels
from dr.sites.core.evidence import SiteEvidence
from dr.sites.core.fencing import FIRST_EPOCH
from dr.sites.core.log_columns import LogEnds
from dr.sites.observation import LinkObserver
from dr.sites.site_client import SiteClient
from runtime.clock import Clock
from runtime.logs import state_change_logger
from runtime.process import OperationalFailure
from runtime.supervision import Supervisor
from wire.control.cluster_pb2 import LinkPhase, LinkRecord
from wire.control.site_pb2 import ArbiterRecord
from wire.protocol.ids import UNKNOWN
from wire.rules.links import FailoverMode, failover_mode, other_site
from wire.znodes.documents import MalformedZnode

IDLE_INTERVAL_S: Final = 1.0
ASK_TIMEOUT_MS: Final = 3_000
ASK_OF_COPY_MS: Final = 2_000
FIRST_COPY: Final = "the first copy is not known to be complete yet"
AGAIN_MS: Final = 10_000
"""The pause (ms) after a refused failover."""
FINISH_PAUSE_S: Final = 2.0
"""The pause (s) between runs that finish a raised epoch."""


class FailoverWatch:
    """The task of one agent."""

    def __init__(
        self,
        *,
        site: str,
        arbiter: Arbiter,
        cache: SiteCache,
        store: LinksStore,
        peers: PeerWatch,
        channels: Channels,
        own_address: str,
        clock: Clock,
    ) -> None:
        """`own_address` is where this process's agent answers."""
        self._site = site
        self._arbiter = arbiter
        self._cache = cache
        self._store = store
        self._peers = peers
        self._channels = channels
        self._own_address = own_address
        self._clock = clock
        self._watched: dict[str, WatchedLink] = {}
        self._counts: dict[str, FailoverCounts] = {}
        self._silences: dict[str, Silences] = {}
        self._turns: dict[str, asyncio.Lock] = {}
        self._observers: dict[str, tuple[LinkRecord, LinkObserver]] = {}
        self._interrupted = InterruptedRuns(SILENT_AFTER_MS)
        self._opened: dict[str, int] = {}
        """By link, the last epoch that is known to be open for this site."""
        self._requested: set[asyncio.Task[FailoverReport]] = set()
        self._loops = Supervisor()
        self._state_change = state_change_logger()

    def start(self) -> None:
        """Begin."""
        self._loops.start("failover watch", self._run)

    async def stop(self) -> None:
        """End the task, and the failovers that applications have requested."""
        await self._loops.stop()
        for run in tuple(self._requested):
            run.cancel()
        await asyncio.gather(*self._requested, return_exceptions=True)

    def verdict(self, link: str) -> str:
        """The verdict on the link's active site; empty if this agent does not watch the link."""
        watched = self._watched.get(link)
        return "" if watched is None else watched.verdict

    def waiting(self) -> Mapping[str, bool]:
        """By watched link: True if the active site is lost and a person has to act."""
        return {link: watched.is_waiting for link, watched in tuple(self._watched.items())}

    def counts(self) -> Mapping[str, FailoverCounts]:
        """The counts by link."""
        return dict(self._counts)

    def silences(self) -> Mapping[str, Silences]:
        """Return for each watched link the silences of its active site."""
        return dict(self._silences)

    async def request(self, record: LinkRecord, *, asked_by: str) -> FailoverReport:
        """Begin a failover that an application requests. It has to pass the same gates as an
        automatic one; a source that answers is fenced and drained first. Raises OperationalFailure
        with the closed gates.
        """
        mode = failover_mode(record)
        if mode is not FailoverMode.AUTOMATIC:
            raise OperationalFailure(
                f"link {record.name} does not fail over by itself (its mode is {mode.value or 'manual'})"
            )
        views = await self._views(record)
        held = views.arbiter
        if views.arbiter_problem or held is None or held.epoch != record.epoch:
            raise OperationalFailure(
                views.arbiter_problem or f"the arbiter is not at epoch {record.epoch} of link {record.name}"
            )
        is_complete = await self._is_copy_complete(record)
        closed = await self._closed_gates(record, await self._own_evidence(record), is_complete, held)
        if closed is None:
            raise OperationalFailure(f"link {record.name} is being changed at this moment: repeat the request")
        if closed:
            raise OperationalFailure(f"a person has to decide: {'; '.join(closed)}")
        # A caller that does not wait for the end must not leave a fence or a closed epoch behind.
        run = asyncio.create_task(self._carry_out(record, asked_by=asked_by, needs_lost_source=False))
        self._requested.add(run)
        run.add_done_callback(self._requested.discard)
        return await asyncio.shield(run)

    async def _run(self) -> None:
        while True:
            ours = self._links()
            self._watched = {
                one.name: known
                if (known := self._watched.get(one.name)) is not None and known.epoch == one.epoch
                # A new epoch begins a new count: earlier silence has no information about the site
                # that is active now.
                else WatchedLink(one.epoch, LossWatch(self._silences.setdefault(one.name, Silences())))
                for one in ours
            }
            self._observers = {name: one for name, one in self._observers.items() if name in self._watched}
            await asyncio.gather(
                *(self._look(record) for record in ours), *(self._look_at_raised(record) for record in self._raised())
            )
            shortest_ms = min((record.lease_ms for record in ours), default=0)
            pause_s = look_pause_ms(shortest_ms) / 1000 if shortest_ms else IDLE_INTERVAL_S
            await asyncio.sleep(pause_s)

    def _links(self) -> list[LinkRecord]:
        facts = self._cache.facts
        if not facts.has_lowest_node_id(self._own_address):
            return []
        return [
            one
            for one in facts.links.values()
            if self._site in (one.source_site, one.target_site)
            and one.active_site != self._site
            and one.lease_ms
            and one.phase == LinkPhase.MIRRORING
            and failover_mode(one) is not FailoverMode.MANUAL
        ]

    def _raised(self) -> list[LinkRecord]:
        """The links under which a failover by itself may have made this site active."""
        facts = self._cache.facts
        if not facts.has_lowest_node_id(self._own_address):
            return []
        return [
            one
            for one in facts.links.values()
            if one.active_site == self._site
            and one.lease_ms
            and one.epoch > FIRST_EPOCH
            and one.phase == LinkPhase.MIRRORING
            and failover_mode(one) is FailoverMode.AUTOMATIC
            and self._opened.get(one.name) != one.epoch
        ]

    async def _look_at_raised(self, record: LinkRecord) -> None:
        """Continue a failover of this site's agents whose process has died after the raise."""
        try:
            self._opened[record.name] = await self._store.opened(record.name)
            if self._opened[record.name] == record.epoch:
                return
            runs = await self._store.runs(record.name)
            if self._interrupted.is_due(record, runs, now_ms=self._clock.monotonic_ms()):
                self._state_change.warning("continuing a failover", link=record.name, epoch=record.epoch)
                await self._carry_out_unasked(record)
        except (*DISCONNECTED, MalformedZnode, OperationalFailure):
            return  # asked again

    async def _look(self, record: LinkRecord) -> None:
        watched = self._watched[record.name]
        try:
            await self._judge(record, watched)
        except (*DISCONNECTED, MalformedZnode, OperationalFailure, ValueError) as error:
            watched.verdict = f"nothing is known of {record.active_site}: {error}"

    async def _judge(self, record: LinkRecord, watched: WatchedLink) -> None:
        views = await self._views(record)
        now_ms = self._clock.monotonic_ms()
        loss = watched.watch.observe(record, views, now_ms=now_ms)
        if not watched.is_copy_complete:
            await self._look_at_copy(record, watched, is_answering=loss.state is LossState.ANSWERS)
        if loss.state is LossState.SILENT:
            watched.note_ends(await self._own_evidence(record), self._clock.monotonic_ms())
        if loss.state is not LossState.LOST:
            first_copy = "" if watched.is_copy_complete else f"; {FIRST_COPY} at {self._site}"
            watched.verdict, watched.is_waiting = loss.reason + first_copy, False
            return
        evidence = await self._own_evidence(record)
        watched.note_ends(evidence, self._clock.monotonic_ms())
        closed = await self._closed_gates(record, evidence, watched.is_copy_complete, views.arbiter)
        if closed is None:
            return  # The link's record has just changed: the next look uses the new one.
        if closed:
            self._report(record, watched, f"{loss.reason}; a person has to decide: {'; '.join(closed)}")
        elif failover_mode(record) is FailoverMode.OBSERVE:
            if not watched.is_waiting:
                self._count(record.name).observed += 1
            self._report(record, watched, f"{loss.reason}: {self._site} would fail over now (the link only observes)")
        elif now_ms >= watched.try_again_at_ms:
            await self._fail_over(record, watched, loss.reason)

    async def _own_evidence(self, record: LinkRecord) -> SiteEvidence:
        return await self._observer(record).site_evidence(self._own_client())

    async def _closed_gates(
        self, record: LinkRecord, evidence: SiteEvidence, is_copy_complete: bool, held: ArbiterRecord | None
    ) -> list[str] | None:
        """The closed gates as sentences; None if the link's record has changed meanwhile."""
        if record.epoch != evidence.record.epoch:
            return None
        marked = await self._arbiter.out_of_sync(record.name, timeout_ms=ASK_TIMEOUT_MS)
        return closed_gates(
            record,
            evidence,
            failovers_at_ms=failover_times_ms(evidence),
            now_ms=self._clock.now_ms(),
            is_copy_complete=is_copy_complete,
            out_of_sync=[holder.node_id for holder in marked if holder.site == record.active_site],
            has_lost_marks=held is None or held.has_lost_former,
        )

    async def _is_copy_complete(self, record: LinkRecord) -> bool:
        return await self._store.complete(record.name) == record.epoch

    async def _look_at_copy(self, record: LinkRecord, watched: WatchedLink, *, is_answering: bool) -> None:
        """Store, once for each epoch, that the active site reports this standby's protection."""
        watched.is_copy_complete = await self._is_copy_complete(record)
        now_ms = self._clock.monotonic_ms()
        if watched.is_copy_complete or not is_answering or now_ms < watched.ask_of_copy_at_ms:
            return
        watched.ask_of_copy_at_ms = now_ms + ASK_OF_COPY_MS
        try:
            # Only the active site can judge this: a standby does not know the records that it has
            # never received.
            reply = await self._other_client(record).describe_link(record.name, is_brief=True)
        except OperationalFailure:
            return  # asked again
        if reply.HasField("protection") and reply.protection.epoch == record.epoch and not reply.protection.reason:
            await self._store.store_complete(record.name, record.epoch)
            watched.is_copy_complete = True

    def _report(self, record: LinkRecord, watched: WatchedLink, verdict: str) -> None:
        if not watched.is_waiting:
            self._state_change.error("the active site is lost", link=record.name, epoch=record.epoch, verdict=verdict)
        watched.verdict, watched.is_waiting = verdict, True

    def _count(self, link: str) -> FailoverCounts:
        return self._counts.setdefault(link, FailoverCounts())

    async def _views(self, record: LinkRecord) -> Views:
        """The views, cheap ones first: the mirror is asked only if no other reaches the site."""
        try:
            held = await self._arbiter.record(record.name, timeout_ms=ASK_TIMEOUT_MS)
            present = await self._arbiter.present(record.active_site, timeout_ms=ASK_TIMEOUT_MS)
        except ArbiterSilent as silent:
            return Views(
                arbiter=None,
                arbiter_problem=str(silent),
                present_brokers=0,
                is_peer_reachable=False,
                mirror_age_ms=UNKNOWN,
            )
        is_reachable = self._peers.peer(record.active_site).is_reachable
        mirror_age_ms = UNKNOWN
        if not present and not is_reachable:
            words = await self._own_client().mirror_reports(record.name)
            mirror_age_ms = max(0, words.answered_at_ms - words.synced_at_ms) if words.synced_at_ms else UNKNOWN
        return Views(
            arbiter=None if held is None else held.record,
            arbiter_problem="",
            present_brokers=len(present),
            is_peer_reachable=is_reachable,
            mirror_age_ms=mirror_age_ms,
        )

    def _own_client(self) -> SiteClient:
        return SiteClient(self._site, [self._own_address], self._channels)

    def _other_client(self, record: LinkRecord, *, ask_timeout_ms: int = ASK_TIMEOUT_MS) -> SiteClient:
        name = other_site(record, self._site)
        return SiteClient(name, list(record.sites[name].agents), self._channels, ask_timeout_ms=ask_timeout_ms)

    def _observer(self, record: LinkRecord) -> LinkObserver:
        """That of the last look: it knows views and accounts that need not be sent again."""
        known = self._observers.get(record.name)
        if known is None or known[0] != record:
            own, other = self._own_client(), self._other_client(record)
            known = record, LinkObserver(record.name, target=own, source=other, clock=self._clock)
            self._observers[record.name] = known
        return known[1]

    async def _fail_over(self, record: LinkRecord, watched: WatchedLink, reason: str) -> None:
        watched.verdict = f"{reason}: {self._site} fails over"
        self._state_change.error(
            "the active site is lost: failing over", link=record.name, epoch=record.epoch, reason=reason
        )
        report = await self._carry_out_unasked(record, watched.settled_ends(self._clock.monotonic_ms()))
        if not report.is_done:
            watched.try_again_at_ms = self._clock.monotonic_ms() + AGAIN_MS
            self._report(record, watched, f"{reason}; a person has to decide: {report.reason}")

    async def _carry_out_unasked(self, record: LinkRecord, settled_ends: LogEnds | None = None) -> FailoverReport:
        report = await self._carry_out(
            record, asked_by=f"the agents of {self._site}", needs_lost_source=True, settled_ends=settled_ends
        )
        counts = self._count(record.name)
        if report.is_done:
            counts.done += 1
            self._state_change.warning(
                "failed over", link=record.name, epoch=report.epoch, duration_ms=report.duration_ms
            )
        else:
            counts.refused += 1
        return report

    async def _carry_out(
        self,
        record: LinkRecord,
        *,
        asked_by: str,
        needs_lost_source: bool,
        settled_ends: LogEnds | None = None,
    ) -> FailoverReport:
        """Run one failover at a time, like `antipode failover`."""
        policy = FailoverPolicy(
            lag_records_max=record.failover_lag_records_max or None,
            # The gates have shown that the site is silent by every view, and its permits end before
            # the target takes writes.
            is_old_site_down=True,
            needs_lost_source=needs_lost_source,
        )
        source = self._other_client(record)
        if needs_lost_source:
            policy = replace(policy, settle_ms=SETTLE_MS)
            # No view has reached the site for a whole lease, so the run does not wait for it as
            # long as a person's run does: the promotion would take longer by that time.
            source = self._other_client(record, ask_timeout_ms=look_pause_ms(record.lease_ms))
        # A request of an application and an automatic failover may come together.
        async with self._turns.setdefault(record.name, asyncio.Lock()):
            for _ in range(RUNS_MAX):
                with Journal(None, self._clock) as journal:
                    run = FailoverRun(
                        link=record.name,
                        target=self._own_client(),
                        source=source,
                        journal=journal,
                        policy=policy,
                        clock=self._clock,
                        asked_by=asked_by,
                        settled_ends=settled_ends,
                    )
                    report = await run.run()
                # From the raise on no agent watches the link: nothing else would finish the run.
                # Before it, another run has to pass the gates again.
                if report.is_done or not (self._site == record.active_site or report.may_be_raised):
                    break
                await asyncio.sleep(FINISH_PAUSE_S)
            return report
