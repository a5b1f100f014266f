"""A core has no calls that reach the clock, chance, the disk or the terminal. The import contracts
cannot see such calls.
"""

from __future__ import annotations

import ast

from tests.tidy import sources

BANNED_CALLS = {"open", "print", "input", "uuid1", "uuid4", "now", "utcnow", "today", "breakpoint", "sleep"}


def _called(node: ast.Call) -> str:
    match node.func:
        case ast.Name(id=name):
            return name
        case ast.Attribute(attr=name):
            return name
    return ""


def test_cores_call_nothing_that_reaches_the_world() -> None:
    offenders = [
        f"{name}:{node.lineno}: {_called(node)}()"
        for name in sources.cores()
        for node in sources.nodes(name)
        if isinstance(node, ast.Call) and _called(node) in BANNED_CALLS
    ]
    sources.assert_none(offenders, "a core is handed the time, chance and data; it fetches none of them")


def test_cores_do_not_await() -> None:
    offenders = [
        f"{name}:{node.lineno}"
        for name in sources.cores()
        for node in sources.nodes(name)
        if isinstance(node, ast.AsyncFunctionDef | ast.Await | ast.AsyncFor | ast.AsyncWith)
    ]
    sources.assert_none(offenders, "what a core has checked stays true until it returns: it never awaits")
