"""All rows of the matrix, run at one site, several beside each other, in the order of the page."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from tests.compatibility import connect, java_programs, kcat, python_clients, spark, streams, written_programs
from tests.compatibility.cells import Cell, Column, Outcome, Row, run_row
from tests.compatibility.site import Site

QUICK_ROWS: tuple[Row, ...] = (*kcat.rows(), *python_clients.rows(), *java_programs.rows())
"""What the ordinary tests run: seconds each."""
LONG_ROWS: tuple[Row, ...] = (*streams.rows(), *connect.rows(), *written_programs.rows(), *spark.rows())
ROWS = (*QUICK_ROWS, *LONG_ROWS)
ROWS_AT_ONCE = 2


def run_matrix(rows: Sequence[Row], site: Site, say: Callable[[str], None]) -> dict[str, Any]:
    """What became of every cell, as the JSON file keeps it."""
    with ThreadPoolExecutor(ROWS_AT_ONCE) as pool:
        outcomes = list(pool.map(lambda row: _told(row, site, say), rows))
    return {
        "columns": [str(column) for column in Column],
        "rows": [
            {
                "client": row.name,
                "version": row.version(),
                "cells": {str(cell.column): {"outcome": str(cell.outcome), "detail": cell.detail} for cell in cells},
            }
            for row, cells in zip(rows, outcomes, strict=True)
        ],
    }


def is_complete(document: dict[str, Any]) -> bool:
    """Whether every cell was run and none failed."""
    found = {cell["outcome"] for row in document["rows"] for cell in row["cells"].values()}
    return not found & {Outcome.FAILED, Outcome.NOT_RUN}


def _told(row: Row, site: Site, say: Callable[[str], None]) -> list[Cell]:
    say(f"{row.name} ...")
    cells = run_row(row, site)
    for cell in cells:
        say(f"{row.name}, {cell.column}: {cell.outcome}, {cell.detail}")
    return cells
