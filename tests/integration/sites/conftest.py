"""Fixtures: whole sites from `antipode up`, ended with the test (or, shared, with the module)
whatever became of them.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.embedded.embedded_sites import SitesStarter


@pytest.fixture
def start_sites(tmp_path: Path) -> Iterator[SitesStarter]:
    """Starts sites for one test."""
    starter = SitesStarter(tmp_path)
    try:
        yield starter
    finally:
        starter.end_all()
