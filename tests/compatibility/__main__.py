"""`make compatibility`: the whole matrix at a site of its own, and the page in the docs. Exit code 1 unless every cell passed."""

from __future__ import annotations

import json
import sys
import tempfile
from pathlib import Path
from typing import Annotated

import typer

from tests.compatibility.matrix import ROWS, is_complete, run_matrix
from tests.compatibility.page import render
from tests.compatibility.site import three_brokers

DOCS = Path(__file__).parents[2] / "docs"
PAGE, DOCUMENT = "compatibility.md", "compatibility.json"


def matrix(
    only: Annotated[str, typer.Option(help="Rows whose name contains this; the docs are left alone then.")] = "",
    docs: Annotated[Path, typer.Option(help="Where the page and the JSON file go.")] = DOCS,
) -> None:
    """Run other people's clients against three brokers and write what came of it.

    Example: python -m tests.compatibility --only Sarama
    """
    rows = [row for row in ROWS if only.lower() in row.name.lower()]
    if not rows:
        raise typer.BadParameter(f"--only {only!r}: rows are {', '.join(row.name for row in ROWS)}")

    def say(text: str) -> None:
        print(text, file=sys.stderr, flush=True)

    with (
        tempfile.TemporaryDirectory(prefix="compatibility-", ignore_cleanup_errors=True) as directory,
        three_brokers(Path(directory)) as site,
    ):
        document = run_matrix(rows, site, say)
    if only:
        print(json.dumps(document, indent=2))
    else:
        (docs / DOCUMENT).write_text(json.dumps(document, indent=2) + "\n", encoding="utf-8")
        (docs / PAGE).write_text(render(document), encoding="utf-8")
    raise typer.Exit(0 if is_complete(document) else 1)


if __name__ == "__main__":
    typer.run(matrix)
