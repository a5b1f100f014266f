"""Carrying out one step of a plan against the environment: load, faults, failovers,
reconciliations, waits.

Every wait is for a condition with a deadline; the only plain pause is `hold`, which is the fault's
own duration. A step that cannot be done raises OperationalFailure, and the drill (`execution.py`)
restores what it broke.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any, ParamSpec, TypeVar, assert_never

import grpc
from confluent_kafka import KafkaException
from confluent_kafka.admin import AdminClient, NewTopic  # type: ignore[attr-defined]

from dr.drill import drill_plan as plan
from dr.drill.drill_clients import DrillClients
from dr.drill.drill_results import DrillResult, FaultSpan
from dr.drill.environment import Environment, EnvironmentProcess
from dr.drill.faults import HostFaults, NetworkFaults, ProcessFaults, Toxic, attributes_of
from dr.drill.lag import LagProbe, LagSample
from dr.drill.load import connection_options
from dr.failover.core.steps import FailoverPolicy
from dr.failover.execution import failover
from dr.failover.reconciliation import AS_ACCOUNTED, EQUAL, reconcile
from dr.sites.channels import Channels
from dr.sites.core.evidence import NOT_ASKED
from runtime.clock import Clock
from runtime.process import OperationalFailure
from wire.control.mirror_pb2 import DescribeMirrorRequest, ReinstateCopiesRequest

POLL_S = 0.1
CREATE_TIMEOUT_S = 15.0

Arguments = ParamSpec("Arguments")
Outcome = TypeVar("Outcome")


@dataclass(slots=True, kw_only=True)
class DrillStage:
    """All parts that a step may use; one for each drill."""

    environment: Environment
    link: str
    directory: Path
    reconcile_command: Sequence[str]
    clients: DrillClients
    network: NetworkFaults
    processes: ProcessFaults
    hosts: HostFaults
    probe: LagProbe
    channels: Channels
    clock: Clock
    result: DrillResult
    note: Callable[[str], None] = lambda _: None
    latest: LagSample | None = None
    open_faults: list[FaultSpan] = field(default_factory=list)

    async def carry_out(self, step: plan.PlanStep) -> str:
        """Do the step; returns a sentence about what came of it, empty when there is nothing to
        say.
        """
        match step:
            case plan.CreateTopics() | plan.StartLoad() | plan.StopLoad() | plan.StartGroup() | plan.StopGroup():
                return await self._load_step(step)
            case plan.PauseLoad() | plan.ResumeLoad():
                self.clients.freeze_producer(step.name, is_frozen=isinstance(step, plan.PauseLoad))
                return ""
            case plan.Cut() | plan.Slow() | plan.Reset() | plan.Heal():
                return await to_its_end(self._network_step, step)
            case plan.Kill() | plan.Terminate() | plan.Stop() | plan.Resume() | plan.Start():
                return await self._process_step(step)
            case plan.FillDisk() | plan.FreeDisk():
                return await to_its_end(self._disk_step, step)
            case plan.StepClock() | plan.BreakNames():
                return await to_its_end(self._host_step, step)
            case plan.FailOver() | plan.SwitchOver():
                return await self._fail_over(step)
            case plan.Reinstate():
                return await self._reinstate(step)
            case plan.Reconcile():
                return await self._reconcile(step)
            case plan.Wait():
                return await self._wait(step)
            case plan.Hold():
                await asyncio.sleep(step.duration / 1000)
                return ""
            case _:
                return ""

    # --- load

    async def _load_step(
        self, step: plan.CreateTopics | plan.StartLoad | plan.StopLoad | plan.StartGroup | plan.StopGroup
    ) -> str:
        match step:
            case plan.CreateTopics():
                await asyncio.to_thread(self._create_topics, step, self._bootstrap(step.site))
                return ", ".join(f"{topic.name} ({topic.partitions})" for topic in step.topics)
            case plan.StartLoad():
                fields = step.model_dump(exclude={"name", "site"})
                self.clients.start_producer(step.name, {**fields, **self._connection(step.site)})
                await self.clients.wait_started(step.name)
            case plan.StartGroup():
                settings = {**self._connection(step.site), "topics": step.topics}
                self.clients.start_group(step.name, step.members, {**settings, "settings": step.settings})
                await self.clients.wait_started(step.name)
            case plan.StopLoad():
                await self.clients.stop_producer(step.name, within_ms=step.within)
                self.clients.check_alive()
            case plan.StopGroup():
                await self.clients.stop_group(step.name, within_ms=step.within)
            case _:
                assert_never(step)
        return ""

    def _bootstrap(self, site: str) -> str:
        """A site's client addresses; by default those of the site that the link was made with as
        source.
        """
        name = site or self.environment.link(self.link).source
        if name not in self.environment.sites:
            raise OperationalFailure(f"site {name!r} is not in the environment: {', '.join(self.environment.sites)}")
        return self.environment.sites[name].bootstrap_servers

    def _connection(self, site: str) -> dict[str, Any]:
        """A client's fields for the brokers of a site, as JSON has them."""
        config = self.environment.admin_client_config
        return {
            "bootstrap_servers": self._bootstrap(site),
            "client_config": None if config is None else str(config),
        }

    def _create_topics(self, step: plan.CreateTopics, bootstrap_servers: str) -> None:
        admin = AdminClient(connection_options(bootstrap_servers, self.environment.admin_client_config))
        wanted = [
            NewTopic(topic.name, num_partitions=topic.partitions, replication_factor=-1, config=topic.configs)
            for topic in step.topics
        ]
        for name, outcome in admin.create_topics(wanted, request_timeout=CREATE_TIMEOUT_S).items():
            try:
                outcome.result(timeout=CREATE_TIMEOUT_S)
            except KafkaException as error:
                if error.args[0].name() != "TOPIC_ALREADY_EXISTS":
                    raise OperationalFailure(f"topic {name} cannot be created: {error.args[0].str()}") from error

    # --- faults

    def _network_step(self, step: plan.Cut | plan.Slow | plan.Reset | plan.Heal) -> str:
        if isinstance(step, plan.Heal):
            self.network.heal()
            problems = self.hosts.restore()
            self._end_faults(lambda fault: fault.title.startswith(("cut", "slow", "reset", "step", "break")))
            if problems:
                raise OperationalFailure("; ".join(problems))
            return ""
        proxies = self.network.selected(kind=step.kind, site=step.site)
        self._begin_fault(step.title)
        match step:
            case plan.Cut():
                self.network.cut(proxies, is_silent=step.is_silent, direction=step.direction)
            case plan.Slow():
                delay = attributes_of(latency=step.latency, jitter=step.jitter)
                rate = attributes_of(rate=step.rate_kb_per_s)
                toxics = [("latency", delay), ("bandwidth", rate)]
                self.network.add(proxies, [Toxic(kind=kind, attributes=given) for kind, given in toxics if given])
            case plan.Reset():
                self.network.add(proxies, _reset_toxics(step))
            case _:
                assert_never(step)
        return ", ".join(proxy.name for proxy in proxies)

    def _disk_step(self, step: plan.FillDisk | plan.FreeDisk) -> str:
        aimed = self.environment.processes(process=step.process, site=step.site)
        if isinstance(step, plan.FillDisk):
            self._begin_fault(step.title)
            self.processes.fill_disk(aimed)
        else:
            self.processes.free_disk(aimed)
            self._end_faults(lambda fault: fault.title == step.title.replace("free", "fill", 1))
        return ", ".join(process.name for process in aimed)

    def _host_step(self, step: plan.StepClock | plan.BreakNames) -> str:
        self._begin_fault(step.title)
        if isinstance(step, plan.StepClock):
            self.hosts.step_clock(step.host, step.by_seconds)
            return ""
        self.hosts.break_names(step.host, step.names)
        return ", ".join(step.names)

    async def _process_step(self, step: plan.Kill | plan.Terminate | plan.Stop | plan.Resume | plan.Start) -> str:
        aimed = self.environment.processes(process=step.process, site=step.site)
        match step:
            case plan.Kill():
                self._begin_fault(step.title)
                await to_its_end(self.processes.kill, aimed, may_stay_down=step.may_stay_down)
            case plan.Terminate():
                self._begin_fault(step.title)
                await to_its_end(
                    self.processes.terminate, aimed, timeout_ms=step.within, may_stay_down=step.may_stay_down
                )
            case plan.Stop():
                self._begin_fault(step.title)
                self.processes.stop(aimed)
            case plan.Resume():
                self.processes.resume(aimed)
                self._end_faults(lambda fault: fault.title == f"stop {step.process or f'site {step.site}'}")
            case plan.Start():
                await to_its_end(self.processes.start, aimed)
                await self.until_served(aimed, within_ms=step.within, what=step.title)
                self._end_faults(lambda fault: fault.title.endswith(step.process or f"site {step.site}"))
            case _:
                assert_never(step)
        return ", ".join(process.name for process in aimed)

    async def until_served(self, started: Sequence[EnvironmentProcess], *, within_ms: int, what: str) -> None:
        """Wait until the started processes' sites and mirrors answer, with every live broker at the
        link's epoch.
        """
        names = {process.name for process in started}
        sites = [
            name for name, site in self.environment.sites.items() if any(item.name in names for item in site.processes)
        ]
        mirrors = [mirror for mirror in self.environment.mirrors if mirror in started and mirror.grpc]

        async def are_serving() -> bool:
            answers = [await self._is_serving(name) for name in sites]
            answers += [await self._is_mirror_serving(mirror.grpc) for mirror in mirrors]
            return all(answers)

        await _until(are_serving, within_ms=within_ms, what=f"{what}: does not serve")

    async def _is_serving(self, site: str) -> bool:
        """Return True when all brokers of the site are registered and enforce the link."""
        try:
            reply = await self.probe.client(site).describe_link(self.link)
        except OperationalFailure:
            return False
        enforced = [epoch for epoch in reply.enforced_epochs.values() if epoch != NOT_ASKED]
        return len(enforced) >= len(self.environment.sites[site].grpc)

    async def _is_mirror_serving(self, address: str) -> bool:
        try:
            await self.channels.mirror_admin(address).DescribeMirror(DescribeMirrorRequest(), timeout=1)
        except grpc.aio.AioRpcError:
            return False
        return True

    def _begin_fault(self, title: str) -> None:
        fault = FaultSpan(title=title, began_at_ms=self.clock.now_ms())
        self.result.faults.append(fault)
        self.open_faults.append(fault)

    def _end_faults(self, is_ended: Callable[[FaultSpan], bool]) -> None:
        for fault in [fault for fault in self.open_faults if is_ended(fault)]:
            fault.ended_at_ms = self.clock.now_ms()
            self.open_faults.remove(fault)

    # --- failover and reconciliation

    async def _fail_over(self, step: plan.FailOver | plan.SwitchOver) -> str:
        policy = FailoverPolicy(drain_timeout_ms=step.drain_within, unavailability_max_ms=step.unavailability_max)
        match step:
            case plan.FailOver():
                policy = replace(policy, lag_records_max=step.lag_records_max, accepts_data_loss=step.accepts_data_loss)
            case plan.SwitchOver():
                policy = replace(policy, is_switchover=True)
            case _:
                assert_never(step)
        report = await failover(
            self.link,
            to_site=step.to,
            agents=self.environment.agents(),
            policy=policy,
            journal_path=self.directory / "failover.journal",
            progress=lambda name, reason: self.note(f"{name}: {reason}"),
            clock=self.clock,
        )
        self.result.failovers.append(report)
        if not report.is_done:
            raise OperationalFailure(f"{step.title} refused: {report.reason}")
        lost = 0 if report.account is None else report.account.known_lost_records
        exactly = "exactly" if report.account is not None and report.account.is_exact else "at least"
        return f"epoch {report.epoch}, {report.duration_ms} ms, {exactly} {lost} records lost"

    async def _reinstate(self, step: plan.Reinstate) -> str:
        """Ask the standby's mirror until no copy is FAULTED any more."""
        truncated: dict[tuple[str, int], int] = {}

        async def is_reinstated() -> bool:
            self.latest = await self.probe.sample()
            standby = self.probe.standby(self.latest)
            mirror = self.environment.mirrors_of(self.link).get(standby)
            if mirror is None:
                raise OperationalFailure(f"the environment names no mirror of {self.link} that writes to {standby!r}")
            stub = self.probe.channels.mirror_admin(mirror.grpc)
            request = ReinstateCopiesRequest(link=self.link)
            try:
                reply = await stub.ReinstateCopies(request, timeout=step.within / 1000)
            except grpc.aio.AioRpcError:
                return False  # it has just been started, or a site does not answer yet
            for one in reply.partitions:
                if one.outcome == "reinstated":
                    truncated[one.topic, one.partition] = one.end_offset - one.from_offset
            return self.latest.mirror_state == "MIRRORING" and not self.latest.differing

        await _until(is_reinstated, within_ms=step.within, what=f"{step.title}: copies differ still")
        return f"{sum(truncated.values())} records of {len(truncated)} partitions are in quarantine"

    async def _reconcile(self, step: plan.Reconcile) -> str:
        entry = self.environment.link(self.link)
        folder = self.directory / f"reconcile-{step.name}"
        folder.mkdir(parents=True, exist_ok=True)
        values = {
            "link": self.link,
            "source": entry.source,
            "target": entry.target,
            "source_bootstrap": self._bootstrap(entry.source),
            "target_bootstrap": self._bootstrap(entry.target),
            "report_dir": str(folder),
        }
        accounts = [report.account for report in self.result.failovers if report.account is not None]
        found = await reconcile(
            [*self.reconcile_command, *(("--quick",) if step.quick else ())],
            values,
            log=folder / "log",
            within_ms=step.within,
            accounts=accounts,
            source_site=entry.source,
        )
        self.result.reconciliations[step.name] = {**asdict(found), "report_dir": folder.name}
        accepted = {"equal": (EQUAL,), "as_accounted": (EQUAL, AS_ACCOUNTED)}.get(step.expect)
        if accepted is not None and found.outcome not in accepted:
            raise OperationalFailure(f"the sites are {found.outcome}, expected {step.expect} ({folder})")
        return (
            f"{found.outcome}, {found.lost_records} records only at the site that was left"
            if found.findings
            else found.outcome
        )

    # --- waits

    async def _wait(self, step: plan.Wait) -> str:
        self.clients.collect()
        acknowledged, delivered = len(self.clients.acknowledged), self.clients.delivered_count

        async def holds() -> bool:
            self.clients.check_alive()
            self.clients.collect()
            return await self._holds(step, acknowledged, delivered)

        await _until(holds, within_ms=step.within, what=f"{step.title}: not so")
        return ""

    async def _holds(self, step: plan.Wait, acknowledged: int, delivered: int) -> bool:
        if step.lag_records_max is not None:
            self.latest = await self.probe.sample()
            lag = self.latest.lag_records
            return lag is not None and lag <= step.lag_records_max and not self.latest.unreachable
        if step.is_protected:
            self.latest = await self.probe.sample()
            verdict = self.latest.protection
            return verdict is not None and verdict.epoch == self.latest.epoch and not verdict.reason
        if step.acknowledged is not None:
            return len(self.clients.acknowledged) >= acknowledged + step.acknowledged
        if step.delivered is not None:
            return self.clients.delivered_count >= delivered + step.delivered
        if step.is_delivered_all:
            return self.clients.is_delivered_all()
        if step.load_ended not in self.clients.producers:
            raise OperationalFailure(f"load {step.load_ended!r} was not started")
        return not self.clients.producers[step.load_ended].is_running


async def to_its_end(
    work: Callable[Arguments, Outcome], *arguments: Arguments.args, **settings: Arguments.kwargs
) -> Outcome:
    """Done in a thread. A step that is stopped waits for it: what is broken or ended after all was
    put right would stay so.
    """
    working = asyncio.ensure_future(asyncio.to_thread(work, *arguments, **settings))
    try:
        return await asyncio.shield(working)
    finally:
        await asyncio.wait([working])


def _reset_toxics(step: plan.Reset) -> list[Toxic]:
    """A reset after so many bytes is a limit: toxiproxy closes the connection in the middle of
    whatever passes.
    """
    if step.after_bytes:
        return [Toxic(kind="limit_data", attributes={"bytes": step.after_bytes}, streams=("downstream",))]
    return [Toxic(kind="reset_peer", attributes={"timeout": 0})]


async def _until(condition: Callable[[], Awaitable[bool]], *, within_ms: int, what: str) -> None:
    """Ask again and again. OperationalFailure with the words given when time is up."""
    try:
        async with asyncio.timeout(within_ms / 1000):
            while True:
                if await condition():
                    return
                await asyncio.sleep(POLL_S)
    except TimeoutError as expired:
        raise OperationalFailure(f"{what} after {within_ms} ms") from expired
