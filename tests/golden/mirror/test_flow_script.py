"""Conversations with one partition's flow: each command, then the state, the step and the
effects.
"""

from __future__ import annotations

import re
from pathlib import Path

from mirror.flow.core.flow import Flow
from mirror.flow.core.flow_events import (
    Acknowledged,
    AppendRefused,
    BatchesFetched,
    Command,
    CopyNotReinstated,
    CopyReinstated,
    FetchFailed,
    LinkTurned,
    RetryDue,
    Settled,
    SourceChecked,
    SourceNotFound,
    SourceTrouble,
    Start,
    TargetFound,
    TargetRefusal,
)
from mirror.link.core.link_roles import LinkRole
from mirror.link.core.partitions import BatchRun
from tests.support.golden import run_script

SCRIPT = Path(__file__).parent / "flow.txt"


class Conversation:
    """A flow that answers in text."""

    def __init__(self) -> None:
        self._flow = Flow("orders-0")
        self._now_ms = 0

    def answer(self, text: str) -> str:
        """Give the flow the command and say what came of it."""
        self._now_ms += 100
        decision = self._flow.decide(self._command(text), self._now_ms)
        self._flow.apply(decision.facts)
        self._flow.check_invariants()
        facts = self._flow.facts
        lines = [f"{facts.state.value}, {facts.step.value}, generation {facts.generation}, at {facts.chain_offset}"]
        lines += [f"because {decision.reason}"] if decision.reason else []
        return "\n".join([*lines, *(str(effect) for effect in decision.effects)])

    def _command(self, text: str) -> Command:
        word, _, rest = text.partition(" ")
        numbers = {name: int(value) for name, value in re.findall(r"(\w+)=(-?\d+)", rest)}
        generation = self._flow.facts.generation
        match word:
            case "start":
                return Start()
            case "settled":
                return Settled(generation=generation)
            case "retry":
                return RetryDue(generation=generation)
            case "target":
                return TargetFound(
                    generation=generation,
                    log_start_offset=numbers["start"],
                    log_end_offset=numbers["end"],
                    last_epoch=numbers["epoch"],
                )
            case "source":
                return SourceChecked(
                    generation=generation,
                    log_start_offset=numbers["start"],
                    high_watermark=numbers["watermark"],
                    epoch=numbers["epoch"],
                    epoch_end_offset=numbers["end"],
                )
            case "reinstated" | "not-reinstated":
                return _reinstated(generation, word, rest)
            case "source-silent":
                return SourceNotFound(generation=generation, reason="the source is silent")
            case "unreachable" | "fetched":
                return _fetched(generation, word, numbers)
            case "acknowledged":
                return Acknowledged(generation=generation, log_end_offset=int(rest))
            case "refused":
                return AppendRefused(generation=generation, refusal=TargetRefusal(rest), reason=rest)
            case "link":
                return LinkTurned(role=LinkRole(rest), reason=f"the link is {rest}")
            case _:
                raise ValueError(f"no command {text!r}")


def _reinstated(generation: int, word: str, rest: str) -> CopyReinstated | CopyNotReinstated:
    if word == "reinstated":
        return CopyReinstated(generation=generation, log_end_offset=int(rest))
    return CopyNotReinstated(generation=generation, advice=rest)


def _fetched(generation: int, word: str, numbers: dict[str, int]) -> BatchesFetched | FetchFailed:
    if word == "unreachable":
        return FetchFailed(generation=generation, trouble=SourceTrouble.UNREACHABLE, reason="connection lost")
    run = BatchRun(
        first_offset=numbers["offset"],
        next_offset=numbers["next"],
        size_bytes=100,
        record_count=numbers["next"] - numbers["offset"],
        first_epoch=numbers["epoch"],
        last_epoch=numbers["epoch"],
        max_timestamp_ms=-1,
    )
    return BatchesFetched(
        generation=generation,
        fetch_offset=numbers.get("asked", numbers["offset"]),
        run=run,
        high_watermark=numbers["watermark"],
        log_start_offset=0,
    )


def test_the_flow_answers_as_written(is_golden_rewrite: bool) -> None:
    run_script(SCRIPT, Conversation().answer, is_rewrite=is_golden_rewrite)
