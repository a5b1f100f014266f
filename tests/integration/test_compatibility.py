"""The rows of the compatibility matrix that need nothing but what `make setup-java` fetches; the others are in `tests/chaos`."""

from __future__ import annotations

import pytest

from tests.compatibility.cells import Row
from tests.compatibility.fixtures import check_row, site
from tests.compatibility.matrix import QUICK_ROWS
from tests.compatibility.site import Site

__all__ = ["site"]

pytestmark = [pytest.mark.integration, pytest.mark.timeout(600)]


@pytest.mark.parametrize("row", QUICK_ROWS, ids=[row.name for row in QUICK_ROWS])
def test_every_cell_that_a_client_offers_passes(row: Row, site: Site) -> None:
    check_row(row, site)
