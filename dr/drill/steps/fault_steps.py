"""Executes the steps that inject or undo a fault, and records the duration of each fault."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import assert_never

from dr.drill.drill_results import DrillResult, FaultSpan
from dr.drill.environment import Environment
from dr.drill.faults import HostFaults, NetworkFaults, ProcessFaults, Toxic, attributes_of
from dr.drill.plan.fault_verbs import (
    BreakNames,
    Cut,
    DiskStep,
    FaultStep,
    FillDisk,
    FreeDisk,
    Heal,
    HostStep,
    Kill,
    LineStep,
    ProcessStep,
    Reset,
    Resume,
    Slow,
    Start,
    StepClock,
    Stop,
    Terminate,
)
from dr.drill.steps.serving import Serving
from runtime.clock import Clock
from runtime.process import OperationalFailure
from runtime.supervision import in_thread


@dataclass(slots=True, kw_only=True)
class FaultSteps:
    """The faults of one drill."""

    environment: Environment
    network: NetworkFaults
    processes: ProcessFaults
    hosts: HostFaults
    serving: Serving
    clock: Clock
    result: DrillResult
    open_faults: list[FaultSpan] = field(default_factory=list)

    async def carry_out(self, step: FaultStep) -> str:
        """Execute the step; returns the names of its targets."""
        match step:
            case Cut() | Slow() | Reset() | Heal():
                return await in_thread(self._line_step, step)
            case Kill() | Terminate() | Stop() | Resume() | Start():
                return await self._process_step(step)
            case FillDisk() | FreeDisk():
                return await in_thread(self._disk_step, step)
            case StepClock() | BreakNames():
                return await in_thread(self._host_step, step)
            case _:
                assert_never(step)

    def _line_step(self, step: LineStep) -> str:
        if isinstance(step, Heal):
            self.network.heal()
            problems = self.hosts.restore()
            self._end_faults(lambda fault: fault.title.startswith(("cut", "slow", "reset", "step", "break")))
            if problems:
                raise OperationalFailure("; ".join(problems))
            return ""
        proxies = self.network.selected(kind=step.kind, site=step.site)
        self._begin_fault(step.title)
        match step:
            case Cut():
                self.network.cut(proxies, is_silent=step.is_silent, direction=step.direction)
            case Slow():
                delay = attributes_of(latency=step.latency, jitter=step.jitter)
                rate = attributes_of(rate=step.rate_kb_per_s)
                toxics = [("latency", delay), ("bandwidth", rate)]
                self.network.add(proxies, [Toxic(kind=kind, attributes=given) for kind, given in toxics if given])
            case Reset():
                self.network.add(proxies, _reset_toxics(step))
            case _:
                assert_never(step)
        return ", ".join(proxy.name for proxy in proxies)

    def _disk_step(self, step: DiskStep) -> str:
        aimed = self.environment.processes(process=step.process, site=step.site)
        if isinstance(step, FillDisk):
            self._begin_fault(step.title)
            self.processes.fill_disk(aimed)
        else:
            self.processes.free_disk(aimed)
            self._end_faults(lambda fault: fault.title == step.title.replace("free", "fill", 1))
        return ", ".join(process.name for process in aimed)

    def _host_step(self, step: HostStep) -> str:
        self._begin_fault(step.title)
        if isinstance(step, StepClock):
            self.hosts.step_clock(step.host, step.by_seconds)
            return ""
        self.hosts.break_names(step.host, step.names)
        return ", ".join(step.names)

    async def _process_step(self, step: ProcessStep) -> str:
        aimed = self.environment.processes(process=step.process, site=step.site)
        match step:
            case Kill():
                self._begin_fault(step.title)
                await in_thread(self.processes.kill, aimed, may_stay_down=step.may_stay_down)
            case Terminate():
                self._begin_fault(step.title)
                killed = await in_thread(
                    self.processes.terminate, aimed, timeout_ms=step.within, may_stay_down=step.may_stay_down
                )
                if killed:
                    raise OperationalFailure(
                        f"{', '.join(killed)} did not end in {step.within} ms and had to be killed"
                    )
            case Stop():
                self._begin_fault(step.title)
                self.processes.stop(aimed)
            case Resume():
                self.processes.resume(aimed)
                self._end_faults(lambda fault: fault.title == f"stop {step.process or f'site {step.site}'}")
            case Start():
                await in_thread(self.processes.start, aimed)
                await self.serving.wait(aimed, within_ms=step.within, what=step.title)
                self._end_faults(lambda fault: fault.title.endswith(step.process or f"site {step.site}"))
            case _:
                assert_never(step)
        return ", ".join(process.name for process in aimed)

    def _begin_fault(self, title: str) -> None:
        fault = FaultSpan(title=title, began_at_ms=self.clock.now_ms())
        self.result.faults.append(fault)
        self.open_faults.append(fault)

    def _end_faults(self, is_ended: Callable[[FaultSpan], bool]) -> None:
        for fault in [fault for fault in self.open_faults if is_ended(fault)]:
            fault.ended_at_ms = self.clock.now_ms()
            self.open_faults.remove(fault)


def _reset_toxics(step: Reset) -> list[Toxic]:
    """A reset after a number of bytes uses a limit: toxiproxy then closes the connection at that
    byte, in the middle of a batch.
    """
    if step.after_bytes:
        return [Toxic(kind="limit_data", attributes={"bytes": step.after_bytes}, streams=("downstream",))]
    return [Toxic(kind="reset_peer", attributes={"timeout": 0})]
