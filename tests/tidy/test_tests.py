"""Tests are sentences, and wait for conditions."""

from __future__ import annotations

import ast

from tests.tidy import sources

TEST_NAME_WORDS_MIN = 3


def _is_pause(node: ast.AST) -> bool:
    """A call of some `sleep`; `sleep(0)` lets other tasks run and is no pause."""
    if not isinstance(node, ast.Call):
        return False
    name = node.func.attr if isinstance(node.func, ast.Attribute) else getattr(node.func, "id", "")
    is_yield = bool(node.args) and isinstance(node.args[0], ast.Constant) and node.args[0].value == 0
    return name == "sleep" and not is_yield


def test_no_test_sleeps() -> None:
    offenders = [
        f"{name}:{node.lineno}"
        for name in sources.modules("tests")
        if not name.startswith("tests/support/")
        for node in sources.nodes(name)
        if isinstance(node, ast.Call) and _is_pause(node)
    ]
    sources.assert_none(offenders, "await the condition with tests/support/eventually.py")


def test_a_test_s_name_is_a_sentence() -> None:
    offenders = [
        f"{name}:{node.lineno}: {node.name}"
        for name in sources.modules("tests")
        for node in sources.nodes(name)
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
        and node.name.startswith("test_")
        and len(node.name.split("_")) <= TEST_NAME_WORDS_MIN
    ]
    sources.assert_none(offenders, "say what holds: test_follower_truncates_to_the_leaders_epoch_end")


def test_no_two_test_functions_of_a_module_have_the_same_name() -> None:
    offenders = []
    for name in sources.modules("tests"):
        seen: set[str] = set()
        for node in sources.tree(name).body:
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) and node.name.startswith("test_"):
                if node.name in seen:
                    offenders.append(f"{name}:{node.lineno}: {node.name}")
                seen.add(node.name)
    sources.assert_none(offenders, "the second hides the first")
