"""`make compatibility`: the whole matrix at sites of its own, and the page in the docs. Exit code 1
unless every cell passed.
"""

from __future__ import annotations

import json
import sys
import tempfile
from pathlib import Path
from typing import Annotated

import typer

from tests.compatibility.environments import PUBLISHED, Environment, each
from tests.compatibility.matrix import ROWS, is_complete, run_matrix, updated
from tests.compatibility.page import render

DOCS = Path(__file__).parents[2] / "docs"
PAGE, DOCUMENT = "compatibility.md", "compatibility.json"


def matrix(
    only: Annotated[
        list[str] | None,
        typer.Option(help="Rows whose name contains this, more than once for several; the docs are left alone then."),
    ] = None,
    at: Annotated[
        list[Environment] | None,
        typer.Option(
            help="Environments, more than once for several; the docs are left alone then. Without it all but Apache Kafka."
        ),
    ] = None,
    update: Annotated[
        bool, typer.Option("--update", help="Write the docs for a part, too: its cells are replaced, the others stay.")
    ] = False,
    docs: Annotated[Path, typer.Option(help="Where the page and the JSON file go.")] = DOCS,
) -> None:
    """Run other people's clients in every environment and write what came of it.

    Example: python -m tests.compatibility --only Sarama --at "routed pair"
    """
    rows = [row for row in ROWS if any(text.lower() in row.name.lower() for text in only or [""])]
    if not rows:
        raise typer.BadParameter(f"--only {', '.join(only or ())}: rows are {', '.join(row.name for row in ROWS)}")

    def say(text: str) -> None:
        print(text, file=sys.stderr, flush=True)

    with tempfile.TemporaryDirectory(prefix="compatibility-", ignore_cleanup_errors=True) as directory:
        document = run_matrix(rows, each(at or PUBLISHED, Path(directory)), say)
    if (only or at) and not update:
        print(json.dumps(document, indent=2))
    else:
        file = docs / DOCUMENT
        document = updated(json.loads(file.read_text(encoding="utf-8")) if update else {}, document)
        file.write_text(json.dumps(document, indent=2) + "\n", encoding="utf-8")
        (docs / PAGE).write_text(render(document), encoding="utf-8")
    raise typer.Exit(0 if is_complete(document) else 1)


if __name__ == "__main__":
    typer.run(matrix)
