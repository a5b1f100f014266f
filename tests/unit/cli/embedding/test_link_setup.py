"""The link of embedded sites, while a site that has just started is interrupted."""

from __future__ import annotations

from typing import Any

import pytest

from cli.embedding import link_setup
from cli.embedding.link_setup import LinkFilters, ensure_link
from dr.sites.site_client import SiteUnreachable
from runtime.process import OperationalFailure


async def test_a_site_that_does_not_answer_is_asked_again(monkeypatch: pytest.MonkeyPatch) -> None:
    failures: list[Exception] = [SiteUnreachable("site b does not answer ConfirmLink")]
    looks = 0

    async def ensured(*_: Any) -> None:
        nonlocal looks
        looks += 1
        if failures:
            raise failures.pop()

    monkeypatch.setattr(link_setup, "_ensure_link", ensured)
    link: Any = None  # the replaced function is its only reader
    await ensure_link(link, LinkFilters())
    assert looks == 2

    failures.append(OperationalFailure("link a-b exists and carries other topics"))
    with pytest.raises(OperationalFailure, match="other topics"):
        await ensure_link(link, LinkFilters())
    assert looks == 3
