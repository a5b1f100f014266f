"""Tables of commands."""

from __future__ import annotations

import pytest

from cli.shared import output


def test_a_value_that_is_not_there_is_an_empty_cell(monkeypatch: pytest.MonkeyPatch) -> None:
    console = output.Console(record=True, width=80)
    monkeypatch.setattr(output, "console", console)
    output.print_table("", ("offset", "entry"), [(7, None)])
    assert "None" not in console.export_text()
