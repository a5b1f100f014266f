"""The rows of the compatibility matrix that need nothing but what `make setup-java` fetches; the
others are in `tests/chaos`.

All at three brokers. Through the standby of a routed pair two Python clients and those cells in
which the answer depends on what the other site has just done; `make compatibility` tries the others
there.
"""

from __future__ import annotations

from dataclasses import replace

import pytest

from tests.compatibility.cells import Column, Row
from tests.compatibility.fixtures import check_row, site, standby
from tests.compatibility.matrix import QUICK_ROWS
from tests.compatibility.site import Site

__all__ = ["site", "standby"]

pytestmark = [pytest.mark.integration, pytest.mark.timeout(600)]

AT_THE_STANDBY = (Column.GROUPS, Column.ADMIN, Column.TOPIC_IDS, Column.ASSIGNED)
MOST_OF_JAVA = (
    "Java clients",
    "Java console clients and tools",
    "ProducerPerformance",
    "TransactionalMessageCopier",
    "VerifiableConsumer",
    "VerifiableProducer",
)
"""Each cell of these rows starts Java; other tests use Java's clients and tools too."""
ROWS = [
    pytest.param(row, id=row.name, marks=[pytest.mark.long] if row.name in MOST_OF_JAVA else []) for row in QUICK_ROWS
]
STANDBY_ROWS = [
    replace(row, cells={column: cell for column, cell in row.cells.items() if column in AT_THE_STANDBY})
    for row in QUICK_ROWS
    if row.name in ("confluent-kafka", "kafka-python")
]


@pytest.mark.parametrize("row", ROWS)
def test_every_cell_that_a_client_offers_passes(row: Row, site: Site) -> None:
    check_row(row, site)


@pytest.mark.parametrize("row", STANDBY_ROWS, ids=[row.name for row in STANDBY_ROWS])
def test_a_client_that_knows_the_standby_alone_finds_everything(row: Row, standby: Site) -> None:
    check_row(row, standby)
