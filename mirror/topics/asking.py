"""Questions to one of a link's sites, whose failure names the site."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import TypeVar

from mirror.flow.core.flow_effects import Side
from mirror.link.ports import Unreachable

Result = TypeVar("Result")


class SiteUnreachable(Exception):
    """One of the sites does not answer."""

    def __init__(self, side: Side, reason: str) -> None:
        super().__init__(f"{side.value}: {reason}")
        self.side = side


async def asking(side: Side, call: Callable[[], Awaitable[Result]]) -> Result:
    """The answer of the site. Raises SiteUnreachable."""
    try:
        return await call()
    except Unreachable as error:
        raise SiteUnreachable(side, str(error)) from error
