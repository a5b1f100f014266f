"""The parts of the matrix: columns, rows that say how each cell is determined, and the outcome of a
cell.

A row never states an outcome. It either has a check for a cell, which is run, or declares why the
client does not offer that feature.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from enum import StrEnum

from tests.compatibility.environments import PUBLISHED, Environment
from tests.compatibility.site import Site


class Column(StrEnum):
    """A feature that a client may have."""

    PRODUCE = "produce"
    CONSUME = "consume"
    GROUPS = "groups"
    TRANSACTIONS = "transactions"
    ADMIN = "admin"
    TOPIC_IDS = "topic ids"
    PATTERNS = "patterns"
    ASSIGNED = "commits without joining"
    ALTERNATIONS = "alternating transactions"
    GROUP_CONFIGS = "group configs"
    OPERATIONS = "authorized operations"
    COMPRESSION = "compressing topics"


BASICS = (Column.PRODUCE, Column.CONSUME, Column.GROUPS, Column.TRANSACTIONS, Column.ADMIN)
"""The checks of every client; the other columns are single features, which only clients with a
check for them have.
"""


class Outcome(StrEnum):
    """The result of a cell."""

    PASSED = "passed"
    FAILED = "failed"
    NOT_OFFERED = "not offered"
    NOT_RUN = "not run"


@dataclass(frozen=True, slots=True)
class NotOffered:
    """The client has no such feature, and why that is so."""

    reason: str


Check = Callable[[Site], str]
"""Tries a feature and returns what was seen to work. Any exception is a failure."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """A client: its name, how its version is asked, why it cannot run here (empty when it can), its
    cells, and where they are tried.
    """

    name: str
    version: Callable[[], str]
    missing: Callable[[], str]
    cells: Mapping[Column, Check | NotOffered]
    environments: tuple[Environment, ...] = PUBLISHED

    def with_cells(self, more: Mapping[Column, Check]) -> Row:
        """The row with more cells."""
        return replace(self, cells={**self.cells, **more})

    def is_tried_at(self, environment: Environment) -> bool:
        """Whether the row is run there: at Apache Kafka each may be."""
        return environment in (*self.environments, Environment.KAFKA)


@dataclass(frozen=True, slots=True, kw_only=True)
class Cell:
    """The outcome of one row in one column, and the evidence or the reason."""

    row: str
    column: Column
    outcome: Outcome
    detail: str


def run_row(row: Row, site: Site) -> list[Cell]:
    """Every cell of a row. A check that raises is a failed cell with the first line of its
    complaint.
    """
    missing = row.missing()
    return [_run_cell(row, column, row.cells[column], site, missing) for column in Column if column in row.cells]


def _run_cell(row: Row, column: Column, cell: Check | NotOffered, site: Site, missing: str) -> Cell:
    if isinstance(cell, NotOffered):
        return Cell(row=row.name, column=column, outcome=Outcome.NOT_OFFERED, detail=cell.reason)
    if missing:
        return Cell(row=row.name, column=column, outcome=Outcome.NOT_RUN, detail=missing)
    try:
        seen = cell(site)
    except Exception as error:
        return Cell(row=row.name, column=column, outcome=Outcome.FAILED, detail=_first_line(error))
    return Cell(row=row.name, column=column, outcome=Outcome.PASSED, detail=seen)


def _first_line(error: Exception) -> str:
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    return f"{type(error).__name__}: {lines[0] if lines else 'no message'}"
