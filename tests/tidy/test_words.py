"""Docstrings, names, and words that may not stand in the repository."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator

from tests.tidy import sources

BANNED_IN_NAMES = {"manager", "managers", "util", "utils", "helper", "helpers", "misc"}
BANNED_IN_FILE_AND_CLASS_NAMES = BANNED_IN_NAMES | {"common", "base"}
"""Not in all names: `base_offset` is Kafka's own word."""

# A letter of each word stands in brackets, so that this file does not offend itself.
LEFT_OVER = re.compile(r"\b([T]ODO|[F]IXME|[X]XX|[H]ACK)\b")
MACHINE_PATH = re.compile(r"(?<![\w.}~-])/([w]ork|[r]oot|[h]ome|[t]mp|[o]pt|[U]sers)/\w")
HOSTS = (
    r"py[p]i\.org|python[h]osted|proxy\.[g]olang|sum\.[g]olang|[m]aven\.org|repo\.[m]aven|[r]epo1\.",
    r"deb\.[d]ebian|[c]rates\.io|[n]pmjs|[d]ocker\.io|[g]hcr\.io|[q]uay\.io",
)
HOST = re.compile("|".join(HOSTS), re.IGNORECASE)
ISSUE = re.compile(r"\bissues? #?\d", re.IGNORECASE)
BINARY_SUFFIXES = (".png", ".jpg", ".gz", ".bin", ".ico", ".log", ".index", ".timeindex")


def _lines() -> Iterator[tuple[str, int, str]]:
    for name in sources.files():
        if not name.endswith(BINARY_SUFFIXES):
            for number, line in enumerate(sources.text(name).splitlines(), 1):
                yield name, number, line


def _matching(pattern: re.Pattern[str]) -> list[str]:
    return [f"{name}:{number}: {line.strip()[:100]}" for name, number, line in _lines() if pattern.search(line)]


def _words(name: str) -> set[str]:
    return set(re.sub(r"(?<=[a-z0-9])(?=[A-Z])", "_", name).lower().split("_"))


def test_every_module_says_what_it_is() -> None:
    missing = [
        name for name in sources.modules() if not ast.get_docstring(sources.tree(name)) and sources.text(name).strip()
    ]
    sources.assert_none(missing, "a module begins with a docstring: what it is, what it is not, who calls it")


def test_public_functions_and_classes_say_what_they_do() -> None:
    offenders = [
        f"{name}:{node.lineno}: {node.name}"
        for name in sources.modules(*sources.PACKAGES)
        for node in sources.tree(name).body
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef)
        and not node.name.startswith("_")
        and not ast.get_docstring(node)
    ]
    sources.assert_none(offenders, "a public function or class has a docstring of at least one line")


def test_names_are_domain_words() -> None:
    offenders = []
    for name in sources.modules():
        stem = name.rpartition("/")[2].removesuffix(".py")
        if _words(stem) & BANNED_IN_FILE_AND_CLASS_NAMES:
            offenders.append(name)
        for node in sources.nodes(name):
            if isinstance(node, ast.ClassDef) and _words(node.name) & BANNED_IN_FILE_AND_CLASS_NAMES:
                offenders.append(f"{name}:{node.lineno}: class {node.name}")
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) and _words(node.name) & BANNED_IN_NAMES:
                offenders.append(f"{name}:{node.lineno}: {node.name}")
    sources.assert_none(offenders, f"name it by its domain, not by one of {sorted(BANNED_IN_FILE_AND_CLASS_NAMES)}")


def test_nothing_is_left_for_later_in_a_comment() -> None:
    sources.assert_none(_matching(LEFT_OVER), "do it, or write it into the README's list of open points")


def test_no_file_names_a_folder_of_a_machine() -> None:
    sources.assert_none(_matching(MACHINE_PATH), "paths are relative, configured or temporary")


def test_no_file_names_where_packages_come_from() -> None:
    sources.assert_none(_matching(HOST), "the configuration of pip, Go, Maven and apt decides that")


def test_no_file_refers_to_a_tracker() -> None:
    sources.assert_none(_matching(ISSUE), "say what the matter is; a number means nothing to a reader")
