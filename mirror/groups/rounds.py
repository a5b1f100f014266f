"""Rounds of a mirror's task with pauses between them, and the problem that they meet: logged when
it begins or changes, not in every round.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable

import structlog

from mirror.link.ports import Unreachable


class RoundProblem:
    """The problem of the last round, logged as `event` when it is another one than before."""

    def __init__(self, log: structlog.stdlib.BoundLogger, event: str) -> None:
        self._log = log
        self._event = event
        self._problem = ""

    @property
    def text(self) -> str:
        """The problem of the last round; empty if it met none."""
        return self._problem

    def note(self, problem: str) -> None:
        """The round met this problem; empty if it met none."""
        if problem and problem != self._problem:
            self._log.warning(self._event, reason=problem)
        self._problem = problem


async def repeat(
    do_round: Callable[[], Awaitable[str | None]], problem: RoundProblem, *, pause: Callable[[], Awaitable[None]]
) -> None:
    """Do a round after each pause until cancelled. A round may return the problem that it met."""
    while True:
        try:
            problem.note(await do_round() or "")
        except Unreachable as error:
            problem.note(str(error))
        await pause()
