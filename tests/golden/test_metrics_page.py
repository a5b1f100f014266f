"""`docs/metrics.md` lists exactly what the daemons show; `make golden-rewrite` writes the tables
anew.
"""

from __future__ import annotations

from pathlib import Path

from tests.support.histories.metrics_page import filled

PAGE = Path(__file__).parents[2] / "docs" / "metrics.md"


def test_the_page_lists_every_figure_with_its_kind_labels_and_meaning(is_golden_rewrite: bool) -> None:
    page = PAGE.read_text(encoding="utf-8")
    today = filled(page)
    if is_golden_rewrite:
        PAGE.write_text(today, encoding="utf-8")
        return
    assert today == page, "docs/metrics.md differs from the code; if that is wanted: make golden-rewrite"
