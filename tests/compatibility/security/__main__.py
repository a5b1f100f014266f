"""`python -m tests.compatibility.security`: the security matrix at a site of its own, and its page
in the docs. Exit code 1 unless every cell passed.
"""

from __future__ import annotations

import json
import sys
import tempfile
from pathlib import Path
from typing import Annotated

import typer

from tests.compatibility.security.clients import clients
from tests.compatibility.security.matrix import render, run_client
from tests.compatibility.security.site import secured_site

DOCS = Path(__file__).parents[3] / "docs"
NAME = "compatibility-security"


def matrix(
    only: Annotated[
        list[str] | None,
        typer.Option(
            help="Clients whose name contains this, more than once for several; the docs are left alone then."
        ),
    ] = None,
    update: Annotated[
        bool, typer.Option("--update", help="Write the docs for a part, too: its rows are replaced, the others stay.")
    ] = False,
    docs: Annotated[Path, typer.Option(help="Where the page and the JSON file go.")] = DOCS,
) -> None:
    """Log in with every client by every mechanism, rightly and wrongly, and write what came of it.

    Example: python -m tests.compatibility.security --only KafkaJS
    """
    chosen = [one for one in clients() if any(text.lower() in one.name.lower() for text in only or [""])]
    with (
        tempfile.TemporaryDirectory(prefix="compatibility-", ignore_cleanup_errors=True) as directory,
        secured_site(Path(directory)) as site,
    ):
        rows = []
        for client in chosen:
            rows.append(run_client(client, site))
            print(json.dumps(rows[-1]), file=sys.stderr, flush=True)
    file = docs / f"{NAME}.json"
    if only and not update:
        print(json.dumps(rows, indent=2))
    else:
        former = json.loads(file.read_text(encoding="utf-8"))["rows"] if update and file.exists() else []
        known = {row["client"]: row for row in (*former, *rows)}
        rows = [known[client.name] for client in clients() if client.name in known]
        file.write_text(json.dumps({"rows": rows}, indent=2) + "\n", encoding="utf-8")
        (docs / f"{NAME}.md").write_text(render(rows), encoding="utf-8")
    outcomes = {cell["outcome"] for row in rows for cell in row["cells"].values()}
    raise typer.Exit(0 if outcomes == {"passed"} else 1)


if __name__ == "__main__":
    typer.run(matrix)
