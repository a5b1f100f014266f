"""The rows of the compatibility matrix that take a minute or need Go and npm: Streams, Connect,
franz-go, Sarama, KafkaJS, Spark.
"""

from __future__ import annotations

import pytest

from tests.compatibility.cells import Row
from tests.compatibility.fixtures import check_row, site
from tests.compatibility.matrix import LONG_ROWS
from tests.compatibility.site import Site

__all__ = ["site"]

pytestmark = [pytest.mark.chaos, pytest.mark.long, pytest.mark.timeout(600)]


@pytest.mark.parametrize("row", LONG_ROWS, ids=[row.name for row in LONG_ROWS])
def test_every_cell_that_a_client_of_another_kind_offers_passes(row: Row, site: Site) -> None:
    check_row(row, site)
