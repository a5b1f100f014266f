"""Calls that a reader understands without the signature beside them: of our own callables, at most
five arguments go by position, directly or through `partial`. Callables that take any number
(`*parts`) are left out.
"""

from __future__ import annotations

import ast
import functools

from tests.tidy import sources

POSITIONAL_MAX = 5


def _own_names(name: str) -> set[str]:
    """Functions, classes and modules of ours that a module defines or imports."""
    found: set[str] = set()
    for node in sources.nodes(name):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            found.add(node.name)
        elif isinstance(node, ast.ImportFrom) and (node.module or "").split(".")[0] in sources.PACKAGES:
            found |= {alias.asname or alias.name for alias in node.names}
    return found


@functools.cache
def _variadic() -> frozenset[str]:
    return frozenset(
        node.name
        for name in sources.modules(*sources.PACKAGES)
        for node in sources.nodes(name)
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) and node.args.vararg is not None
    )


def _called(node: ast.Call, own: set[str]) -> str | None:
    """The name of the callable, None when it is not ours."""
    match node.func:
        case ast.Name(id="cls"):
            return "cls"
        case ast.Name(id="partial") if isinstance(node.args[0], ast.Name) and node.args[0].id in own:
            return node.args[0].id
        case ast.Name(id=name) if name in own:
            return name
        case ast.Attribute(value=ast.Name(id="self" | "cls"), attr=name):
            return name
        case ast.Attribute(value=ast.Name(id=holder), attr=name) if holder in own:
            return name
    return None


def _positional(node: ast.Call) -> list[ast.expr]:
    """The arguments by position, without the callable of a `partial`."""
    is_partial = isinstance(node.func, ast.Name) and node.func.id == "partial"
    return node.args[1:] if is_partial else node.args


def test_calls_of_our_own_pass_few_arguments_by_position() -> None:
    offenders = [
        f"{name}:{node.lineno}: {called}() gets {len(_positional(node))}"
        for name in sources.modules(*sources.PACKAGES)
        for own in (_own_names(name),)
        for node in sources.nodes(name)
        if isinstance(node, ast.Call) and len(_positional(node)) > POSITIONAL_MAX
        if (called := _called(node, own)) and called not in _variadic()
    ]
    sources.assert_none(offenders, f"past {POSITIONAL_MAX} arguments, name them or bundle them in a value")
