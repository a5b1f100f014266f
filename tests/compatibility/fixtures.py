"""The sites that a module's rows share, and the checks of each."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.compatibility.cells import Outcome, Row, run_row
from tests.compatibility.environments import Environment, lone_site, pair
from tests.compatibility.site import Site


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Site]:
    """Three brokers, ended with the module."""
    with lone_site(tmp_path_factory.mktemp("compatibility"), brokers=3) as started:
        yield started


@pytest.fixture(scope="module")
def standby(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Site]:
    """A routed pair of which clients know the passive site alone, ended with the module."""
    with pair(tmp_path_factory.mktemp("pair")) as environments:
        yield environments[Environment.STANDBY]


def check_row(row: Row, site: Site) -> None:
    """No cell fails; a client that cannot run here is skipped with its reason."""
    missing = row.missing()
    if missing:
        pytest.skip(missing)
    failed = {
        str(cell.column): cell.detail
        for cell in run_row(row, site)
        if cell.outcome not in (Outcome.PASSED, Outcome.NOT_OFFERED)
    }
    assert not failed, failed
