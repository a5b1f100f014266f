"""Optional parts of libraries are out of sight while a library is imported, and in sight after."""

from __future__ import annotations

import sys

import pytest

from runtime.hidden_modules import hidden


def test_a_hidden_module_cannot_be_imported_in_the_block_and_can_be_after(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delitem(sys.modules, "colorsys", raising=False)
    with hidden("colorsys"), pytest.raises(ImportError):
        import colorsys
    import colorsys

    assert colorsys.rgb_to_hsv(0, 0, 0) == (0, 0, 0)


def test_a_module_that_is_imported_already_stays_visible() -> None:
    import json

    with hidden("json"):
        assert sys.modules["json"] is json
    assert sys.modules["json"] is json
