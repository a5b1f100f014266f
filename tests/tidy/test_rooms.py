"""Each room of a package has a page that lists its responsibility, its machines and invariants, the
rooms that it imports, and those that import it. No modules import each other in a circle, not for
types alone either.
"""

from __future__ import annotations

import ast
import functools
import re
from collections import defaultdict
from graphlib import CycleError, TopologicalSorter

import pytest

from tests.tidy import sources

PACKAGES = (
    "bench",
    "bridge",
    "broker",
    "cli",
    "clients",
    "controller",
    "dr",
    "mirror",
    "runtime",
    "spark_jobs",
    "wire",
)
"""Packages whose rooms have such a page; a package that gets there joins them."""
CIRCLE_FREE = (*PACKAGES, "deploy")
HEADINGS = ("Machines and invariants", "Imports")
HANDLERS_MIN = 60


@functools.cache
def _imported(package: str) -> dict[str, frozenset[str]]:
    """The other parts of the package that each part imports: rooms, and modules beside them."""
    found: dict[str, set[str]] = defaultdict(set)
    for name in sources.modules(package):
        part = name.split("/")[1].removesuffix(".py")
        for node in sources.nodes(name):
            if isinstance(node, ast.ImportFrom) and (node.module or "").startswith(f"{package}."):
                found[part].add(str(node.module).split(".")[1])
    return {part: frozenset(others - {part}) for part, others in found.items()}


def _rooms(package: str) -> list[str]:
    modules = [name.split("/") for name in sources.modules(package)]
    return sorted({parts[1] for parts in modules if len(parts) > 2})


def _sections(package: str, room: str) -> dict[str, str]:
    page = f"{package}/{room}/README.md"
    parts = re.split(r"^## (.+)$", sources.text(page) if page in sources.files() else "", flags=re.MULTILINE)
    return dict(zip(parts[1::2], parts[2::2], strict=True))


def test_the_page_of_a_room_has_its_machines_its_invariants_and_its_imports() -> None:
    missing = [
        f"{package}/{room}: {wanted}"
        for package in PACKAGES
        for room in _rooms(package)
        for wanted in HEADINGS
        if wanted not in _sections(package, room)
    ]
    sources.assert_none(missing, f"the README of a room has the headings {' and '.join(HEADINGS)}")


def test_the_page_of_a_room_names_the_rooms_that_it_imports_and_is_imported_by() -> None:
    offenders = []
    for package in PACKAGES:
        imported = _imported(package)
        for room in _rooms(package):
            wanted = imported.get(room, frozenset()) | {part for part, others in imported.items() if room in others}
            named = set(re.findall(r"`(\w+)`", _sections(package, room).get("Imports", "")))
            offenders += [f"{package}/{room}: {part}" for part in sorted(wanted ^ named)]
    sources.assert_none(offenders, "the section Imports names exactly these parts of the package")


@pytest.mark.parametrize("package", CIRCLE_FREE)
def test_no_rooms_of_a_package_import_each_other_in_a_circle(package: str) -> None:
    try:
        TopologicalSorter(_imported(package)).prepare()
    except CycleError as error:
        raise AssertionError(f"these rooms import each other: {' <- '.join(error.args[1])}") from error


@pytest.mark.parametrize("package", CIRCLE_FREE)
def test_no_modules_import_each_other_in_a_circle(package: str) -> None:
    modules = {name.removesuffix(".py").replace("/", "."): name for name in sources.modules(package)}
    graph: dict[str, set[str]] = {module: set() for module in modules}
    for module, name in modules.items():
        for node in sources.nodes(name):
            if isinstance(node, ast.ImportFrom):
                named = {f"{node.module}.{alias.name}" for alias in node.names}
                graph[module] |= (named | {str(node.module)}) & modules.keys()
    try:
        TopologicalSorter(graph).prepare()
    except CycleError as error:
        raise AssertionError(f"these modules import each other: {' <- '.join(error.args[1])}") from error


def test_no_handler_of_a_broker_imports_another() -> None:
    """What two APIs share has a module of its own."""
    handlers = {
        name.removesuffix(".py").replace("/", "."): name
        for name in sources.modules("broker/handlers")
        if re.search(r"^API_KEY\b", sources.text(name), re.MULTILINE)
    }
    offenders = [
        f"{name}:{node.lineno}: {node.module}"
        for name in handlers.values()
        for node in sources.nodes(name)
        if isinstance(node, ast.ImportFrom) and node.module in handlers
    ]
    assert len(handlers) > HANDLERS_MIN
    sources.assert_none(offenders, "move what both use into a module without an API_KEY")
