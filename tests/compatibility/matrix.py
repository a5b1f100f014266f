"""All rows of the matrix, run in every environment, several beside each other, in the order of the
page.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import Any

from tests.compatibility import connect, features, java_programs, kcat, python_clients, spark, streams, written_programs
from tests.compatibility.cells import Cell, Column, NotOffered, Outcome, Row, run_row
from tests.compatibility.environments import PUBLISHED, Environment
from tests.compatibility.site import Site

_QUICK = (*kcat.rows(), *python_clients.rows(), *java_programs.rows(), *features.rows())
QUICK_ROWS: tuple[Row, ...] = tuple(row.with_cells(features.FEATURES.get(row.name, {})) for row in _QUICK)
"""What the ordinary tests run: seconds each."""
LONG_ROWS: tuple[Row, ...] = (*streams.rows(), *connect.rows(), *written_programs.rows(), *spark.rows())
ROWS = (*QUICK_ROWS, *LONG_ROWS)
ROWS_AT_ONCE = 2

NOT_YET = {"outcome": str(Outcome.NOT_RUN), "detail": "not tried yet since the matrix has this cell"}
_WORST_FIRST = (Outcome.FAILED, Outcome.NOT_RUN, Outcome.PASSED)


def run_matrix(
    rows: Sequence[Row], environments: Iterable[tuple[Environment, Site]], say: Callable[[str], None]
) -> dict[str, Any]:
    """The outcome of every cell, as the JSON file keeps it."""
    seen: dict[str, dict[Environment, list[Cell]]] = {row.name: {} for row in rows}
    tried: list[Environment] = []
    for environment, site in environments:
        tried.append(environment)
        there = [row for row in rows if row.is_tried_at(environment)]
        with ThreadPoolExecutor(ROWS_AT_ONCE) as pool:
            outcomes = pool.map(partial(_reported, environment=environment, site=site, say=say), there)
            for row, cells in zip(there, outcomes, strict=True):
                seen[row.name][environment] = cells
    return {
        "columns": [str(column) for column in Column],
        "environments": [str(environment) for environment in tried],
        "rows": [
            {"client": row.name, "version": row.version(), "cells": dict(_cells(row, seen[row.name]))} for row in rows
        ],
    }


def updated(former: dict[str, Any], run: dict[str, Any]) -> dict[str, Any]:
    """The document of all rows in all published environments: cells of this run, else of the former
    document, else not run.
    """
    rows = []
    for row in ROWS:
        named = [_row_of(document, row.name) for document in (run, former)]
        cells: dict[str, dict[str, Any]] = {}
        for column, cell in row.cells.items():
            if isinstance(cell, NotOffered):
                cells[str(column)] = {"outcome": str(Outcome.NOT_OFFERED), "detail": cell.reason}
                continue
            known = [found.get("cells", {}).get(str(column), {}).get("environments", {}) for found in named]
            there = {str(at): {**NOT_YET, **known[1].get(at, {}), **known[0].get(at, {})} for at in row.environments}
            cells[str(column)] = {"outcome": _worst(there), "environments": there}
        version = next((found["version"] for found in named if "version" in found), row.version())
        rows.append({"client": row.name, "version": version, "cells": cells})
    return {
        "columns": [str(column) for column in Column],
        "environments": [str(environment) for environment in PUBLISHED],
        "rows": rows,
    }


def _row_of(document: dict[str, Any], name: str) -> dict[str, Any]:
    return next((row for row in document.get("rows", ()) if row["client"] == name), {})


def _worst(there: Mapping[str, Mapping[str, str]]) -> str:
    outcomes = {found["outcome"] for found in there.values()}
    return str(next((outcome for outcome in _WORST_FIRST if outcome in outcomes), Outcome.NOT_RUN))


def _cells(row: Row, seen: Mapping[Environment, Sequence[Cell]]) -> Iterable[tuple[str, dict[str, Any]]]:
    for column, cell in row.cells.items():
        if isinstance(cell, NotOffered):
            yield str(column), {"outcome": str(Outcome.NOT_OFFERED), "detail": cell.reason}
            continue
        there = {
            str(environment): {"outcome": str(found.outcome), "detail": found.detail}
            for environment, cells in seen.items()
            for found in cells
            if found.column is column
        }
        yield str(column), {"outcome": _worst(there), "environments": there}


def is_complete(document: dict[str, Any]) -> bool:
    """Whether every cell was run and none failed."""
    found = {cell["outcome"] for row in document["rows"] for cell in row["cells"].values()}
    return not found & {Outcome.FAILED, Outcome.NOT_RUN}


def _reported(row: Row, *, environment: Environment, site: Site, say: Callable[[str], None]) -> list[Cell]:
    say(f"{environment}: {row.name} ...")
    cells = run_row(row, site)
    for cell in cells:
        say(f"{environment}: {row.name}, {cell.column}: {cell.outcome}, {cell.detail}")
    return cells
