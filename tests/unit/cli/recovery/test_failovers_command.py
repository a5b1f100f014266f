"""`antipode failovers` of a link that no site knows."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest

from cli.recovery import failovers
from runtime.process import OperationalFailure


class Site:
    """A site that knows no link."""

    name = "a"

    async def failovers(self, _: str) -> list[str]:
        return []

    async def runs(self, _: str) -> list[str]:
        return []

    async def describe_link(self, link: str) -> Any:
        raise OperationalFailure(f"site a: this site has no link {link!r}")


async def test_a_link_that_no_site_knows_is_not_called_one_without_a_failover(monkeypatch: pytest.MonkeyPatch) -> None:
    @asynccontextmanager
    async def site_clients(_: Any) -> AsyncIterator[dict[str, Site]]:
        yield {"a": Site()}

    monkeypatch.setattr(failovers, "site_clients", site_clients)
    with pytest.raises(OperationalFailure, match="this site has no link 'ab'"):
        await failovers._kept("ab", {"a": ("x:1",)})
