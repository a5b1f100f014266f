"""Habits of the modules that mypyc compiles (`runtime/compiled.py`)."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from runtime.compiled import MODULES
from tests.tidy import sources


def _file_of(module: str) -> str:
    return module.replace(".", "/") + ".py"


def _classes(*names: str) -> Iterator[ast.ClassDef]:
    for name in names:
        yield from (node for node in sources.nodes(name) if isinstance(node, ast.ClassDef))


def _attributes(node: ast.ClassDef) -> set[str]:
    """The names that the class body defines without `def`."""
    names = set()
    for line in node.body:
        targets = (
            line.targets if isinstance(line, ast.Assign) else [line.target] if isinstance(line, ast.AnnAssign) else []
        )
        names |= {target.id for target in targets if isinstance(target, ast.Name)}
    return names


def _properties(node: ast.ClassDef) -> set[str]:
    return {
        line.name
        for line in node.body
        if isinstance(line, ast.FunctionDef)
        and any(isinstance(mark, ast.Name) and mark.id == "property" for mark in line.decorator_list)
    }


def test_no_property_replaces_an_attribute_of_a_compiled_class() -> None:
    """Compiled code reads an attribute of its own class directly, and never calls a property of a
    derived class. Interpreted code calls it, so no other test sees the difference.
    """
    compiled = {node.name: _attributes(node) for node in _classes(*map(_file_of, MODULES))}
    offenders = [
        f"{name}:{node.lineno}: {base.id}.{attribute}"
        for name in sources.modules(*sources.PACKAGES)
        for node in _classes(name)
        for base in node.bases
        if isinstance(base, ast.Name)
        for attribute in _properties(node) & compiled.get(base.id, set())
    ]
    sources.assert_none(offenders, "make the attribute of the compiled class a property, too")
