"""Prose fits into 100 columns: documents, docstrings and comments. Code is formatted to 120."""

from __future__ import annotations

import ast
import re
from collections.abc import Sequence

from tests.tidy import sources

COLUMNS_MAX = 100
WRITTEN_BY_A_RUN = {"docs/compatibility.md", "docs/compatibility-security.md"}
UNBREAKABLE = re.compile(r"^\s*(\||/antipode/|[{`\[]\S*$|\S+$)|─")
"""Rows of tables, paths and drawings of znodes, and lines of one piece."""
INDENTED = re.compile(r"^ {4}[^ ].*( {2,}|[-─]> ?| \[)")
"""Commands, steps and definitions in a module's docstring, with what they mean behind them."""


def _documents_too_wide() -> list[str]:
    found = []
    for name in (name for name in sources.files() if name.endswith(".md")):
        is_code = False
        for number, line in enumerate(sources.text(name).splitlines(), 1):
            if line.lstrip().startswith("```"):
                is_code = not is_code
            is_prose = not is_code and not line.startswith("    ") and not UNBREAKABLE.search(line)
            if is_prose and len(re.sub(r"\]\([^)]*\)", "]", line)) > COLUMNS_MAX and name not in WRITTEN_BY_A_RUN:
                found.append(f"{name}:{number}")
    return found


def _lines_of_strings(nodes: Sequence[ast.AST]) -> tuple[set[int], set[int]]:
    """The lines of docstrings, of names as well, and those of all strings."""
    alone = {id(node.value) for node in nodes if isinstance(node, ast.Expr)}
    docstrings: set[int] = set()
    strings: set[int] = set()
    for node in nodes:
        if isinstance(node, ast.Constant) and isinstance(node.value, str):
            lines = range(node.lineno, (node.end_lineno or node.lineno) + 1)
            (docstrings if id(node) in alone else strings).update(lines)
    return docstrings, strings


def test_documents_fit_into_100_columns() -> None:
    sources.assert_none(_documents_too_wide(), f"wrap prose at {COLUMNS_MAX} columns")


def test_docstrings_and_comments_fit_into_100_columns() -> None:
    offenders = []
    for name in sources.modules():
        docstrings, strings = _lines_of_strings(sources.nodes(name))
        for number, line in enumerate(sources.text(name).splitlines(), 1):
            is_comment = line.lstrip().startswith("# ") and number not in strings
            is_prose = (number in docstrings and not INDENTED.match(line)) or is_comment
            if is_prose and len(line) > COLUMNS_MAX and not UNBREAKABLE.search(line):
                offenders.append(f"{name}:{number}")
    sources.assert_none(offenders, f"wrap docstrings and comments at {COLUMNS_MAX} columns")
