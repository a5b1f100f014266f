"""The matrix's page is the output of a run: its rows are the declared ones and its text is that of
the JSON file beside it.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from tests.compatibility.cells import BASICS, Cell, Column, NotOffered, Outcome, Row, run_row
from tests.compatibility.environments import Environment
from tests.compatibility.matrix import ROWS, is_complete, run_matrix, updated
from tests.compatibility.page import render
from tests.compatibility.security.clients import clients
from tests.compatibility.security.matrix import _short
from tests.compatibility.security.matrix import render as render_logins

DOCS = Path(__file__).parents[3] / "docs"


@pytest.fixture
def published() -> dict[str, Any]:
    document: dict[str, Any] = json.loads((DOCS / "compatibility.json").read_text(encoding="utf-8"))
    return document


def test_the_page_in_the_docs_was_written_by_a_run(published: dict[str, Any]) -> None:
    assert (DOCS / "compatibility.md").read_text(encoding="utf-8") == render(published)


def test_the_page_has_every_declared_row_with_what_it_declares(published: dict[str, Any]) -> None:
    assert [row["client"] for row in published["rows"]] == [row.name for row in ROWS]
    for row, found in zip(ROWS, published["rows"], strict=True):
        assert set(found["cells"]) == set(row.cells)
        for column, declared in row.cells.items():
            cell = found["cells"][str(column)]
            is_declared = isinstance(declared, NotOffered)
            assert (cell["outcome"] == Outcome.NOT_OFFERED) is is_declared, (row.name, column)
            if is_declared:
                assert cell["detail"] == declared.reason
            else:
                assert set(cell["environments"]) == set(row.environments), (row.name, column)


def raising(site: Any) -> str:
    raise AssertionError("the log holds nothing\nsecond line")


def row_of_each_kind(missing: str = "") -> Row:
    cells = dict.fromkeys(BASICS, NotOffered("no such thing"))
    checks = {Column.PRODUCE: lambda site: "100 records", Column.CONSUME: raising}
    return Row(name="a client", version=lambda: "1", missing=lambda: missing, cells={**cells, **checks})


def outcomes(cells: list[Cell]) -> list[tuple[str, str]]:
    return [(str(cell.outcome), cell.detail) for cell in cells]


def test_a_check_decides_the_cell_and_a_complaint_becomes_its_reason() -> None:
    site: Any = None
    assert outcomes(run_row(row_of_each_kind(), site)) == [
        ("passed", "100 records"),
        ("failed", "AssertionError: the log holds nothing"),
        *[("not offered", "no such thing")] * 3,
    ]


def test_a_missing_client_is_reported_as_not_run() -> None:
    site: Any = None
    assert (
        outcomes(run_row(row_of_each_kind("npm is not on PATH"), site))[:2] == [("not run", "npm is not on PATH")] * 2
    )


def test_a_cell_is_what_it_was_where_it_went_worst_and_the_page_says_where_that_was() -> None:
    def at_home_only(site: Any) -> str:
        assert site == "home", "too far"
        return "100 records"

    cells = {Column.PRODUCE: lambda _: "10 records", Column.CONSUME: at_home_only, Column.PATTERNS: lambda _: "matched"}
    row = Row(name="a client", version=lambda: "1", missing=lambda: "", cells=cells)
    environments: Any = [(Environment.LONE, "home"), (Environment.PAIR, "away")]
    document = run_matrix([row], environments, lambda _: None)
    assert {name: cell["outcome"] for name, cell in document["rows"][0]["cells"].items()} == {
        "produce": "passed",
        "consume": "failed",
        "patterns": "passed",
    }
    page = render(document)
    for line in (
        "| a client | 1 | passed | **failed** | · | · | · |",
        "- produce: passed: 10 records",
        "- consume (lone broker): passed: 100 records",
        "- consume (routed pair): **failed**: AssertionError: too far",
        "| a client | 1 | · | passed | · | · | · | · | · |",
    ):
        assert line in page.splitlines(), line
    assert not is_complete(document)


def test_a_part_that_is_run_again_replaces_its_own_cells_alone() -> None:
    row = next(row for row in ROWS if row.name == "kcat")
    there = {"outcome": "passed", "detail": "now"}

    def ran(environment: Environment, outcome: dict[str, str]) -> dict[str, Any]:
        cells = {"produce": {"outcome": outcome["outcome"], "environments": {str(environment): outcome}}}
        return {"rows": [{"client": "kcat", "version": "kcat 2", "cells": cells}]}

    first = updated({}, ran(Environment.LONE, there))
    both = updated(first, ran(Environment.PAIR, {"outcome": "failed", "detail": "too far"}))
    (found,) = (found for found in both["rows"] if found["client"] == "kcat")
    produced = found["cells"]["produce"]
    assert produced["environments"][Environment.LONE] == there
    assert produced["environments"][Environment.PAIR] == {"outcome": "failed", "detail": "too far"}
    assert produced["environments"][Environment.THREE]["outcome"] == "not run"
    assert (produced["outcome"], found["cells"]["admin"]["outcome"]) == ("failed", "not offered")
    assert set(found["cells"]) == set(row.cells)
    assert not is_complete(both)


def test_a_failed_or_missing_cell_makes_the_run_fail() -> None:
    def document(*found: str) -> dict[str, Any]:
        return {"rows": [{"cells": {str(number): {"outcome": outcome} for number, outcome in enumerate(found)}}]}

    assert is_complete(document("passed", "not offered"))
    assert not is_complete(document("passed", "failed"))
    assert not is_complete(document("not run"))


def test_the_page_about_logins_was_written_by_a_run() -> None:
    document = json.loads((DOCS / "compatibility-security.json").read_text(encoding="utf-8"))
    assert (DOCS / "compatibility-security.md").read_text(encoding="utf-8") == render_logins(document["rows"])
    assert [row["client"] for row in document["rows"]] == [client.name for client in clients()]


def test_an_error_of_openssl_is_the_same_text_in_each_run() -> None:
    said = "Connection error: {}:error:0A000418:SSL routines:ssl3_read_bytes:tlsv1 alert unknown ca"
    shown = {_short(said.format(thread)) for thread in ("80FCC4375E7F0000", "807C5E1AA77F0000")}
    assert shown == {"Connection error: error:0A000418:SSL routines:ssl3_read_bytes:tlsv1 alert unknown ca"}
