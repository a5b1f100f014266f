"""Functions, modules and folders that a person can hold in the head. Exceptions are in
`oversized.txt`, each with its reason.
"""

from __future__ import annotations

import ast
import functools
from collections import Counter

from tests.tidy import sources

FUNCTION_LINES_MAX = 70
MODULE_LINES_MAX = 600
SPLIT_LINES_MAX = 400
SPLIT_PACKAGES = (
    "bench",
    "bridge",
    "broker",
    "cli",
    "clients",
    "controller",
    "deploy",
    "dr",
    "mirror",
    "runtime",
    "spark_jobs",
    "wire",
)
"""Packages whose modules are all small; a package that gets there joins them."""
FOLDER_MODULES_MAX = 20
"""More than these, `__init__.py` apart, are a plain: the tree must show which belong together."""
ALLOWED_FILE = "tests/tidy/oversized.txt"


@functools.cache
def _too_large() -> dict[str, int]:
    found: dict[str, int] = {}
    for name in sources.modules():
        lines = len(sources.text(name).splitlines())
        if lines > (SPLIT_LINES_MAX if name.split("/")[0] in SPLIT_PACKAGES else MODULE_LINES_MAX):
            found[name] = lines
        for node in sources.nodes(name):
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
                length = (node.end_lineno or node.lineno) - node.lineno + 1
                if length > FUNCTION_LINES_MAX:
                    found[f"{name}:{node.name}"] = length
    folders = Counter(name.rpartition("/")[0] for name in sources.modules(*SPLIT_PACKAGES) if "__init__" not in name)
    return found | {folder: count for folder, count in folders.items() if count > FOLDER_MODULES_MAX}


def _allowed() -> dict[str, str]:
    lines = sources.text(ALLOWED_FILE).splitlines()
    entries = (line.partition(" ") for line in lines if line.strip() and not line.startswith("#"))
    return {place: reason.strip() for place, _, reason in entries}


def test_functions_modules_and_folders_stay_small() -> None:
    offenders = [f"{place}: {size}" for place, size in _too_large().items() if place not in _allowed()]
    lines = f"past {FUNCTION_LINES_MAX} lines a function, past {SPLIT_LINES_MAX} or {MODULE_LINES_MAX} a module"
    habit = f"{lines}, past {FOLDER_MODULES_MAX} modules a folder, an idea is missing"
    sources.assert_none(offenders, f"{habit} (or give the reason in {ALLOWED_FILE})")


def test_every_exception_is_still_needed_and_says_why() -> None:
    too_large = _too_large()
    offenders = [place for place, reason in _allowed().items() if place not in too_large or len(reason.split()) < 4]
    sources.assert_none(offenders, f"take it out of {ALLOWED_FILE}, or say why in a sentence")
