"""Plain English: no private words where Kafka or the field has one, and commit subjects that say
what was done.

The words are those for which docs/glossary.md has another one.
"""

from __future__ import annotations

import ast
import io
import re
import subprocess
import tokenize
from collections.abc import Iterator

from tests.tidy import sources

PRIVATE = re.compile(
    r"\b(nobody|somebody|whoever|tells?|told|hears?|heard|standing)\b|\bword of (?:a|the) (?:daemon|mirror)\b",
    re.IGNORECASE,
)
EMPTY = re.compile(r"\bSee the (?:module|class)\b")
"""A docstring that only points to its module: an editor shows it, and it explains nothing."""
PRIVATE_IN_NAMES = {"nobody", "somebody", "whoever", "told", "heard", "standing", "doubts", "sieve"}
SUBJECT = re.compile(r"^[a-z][a-z0-9_, -]*: [a-z].*[^.]$")
SUBJECT_COLUMNS_MAX = 72
LONG_WORD = re.compile(r"\w{4,}")
REPEATED_WORDS_MIN = 4
REPEATED_SHARE = 0.75


def _prose(name: str) -> Iterator[str]:
    """Docstrings of a module, and its comments if its text has a private word at all."""
    # tokenize costs far more than the search, and few modules have such a word anywhere
    if PRIVATE.search(sources.text(name)):
        for token in tokenize.generate_tokens(io.StringIO(sources.text(name)).readline):
            if token.type == tokenize.COMMENT:
                yield token.string
    for node in sources.nodes(name):
        match node:
            case ast.Expr(value=ast.Constant(value=str(text))):
                yield text


def _messages(name: str) -> Iterator[tuple[int, str]]:
    """Texts that are no docstrings: errors, log events, help, output."""
    tree = sources.tree(name)
    docstrings = {id(node.value) for node in ast.walk(tree) if isinstance(node, ast.Expr)}
    for node in ast.walk(tree):
        if isinstance(node, ast.Constant) and isinstance(node.value, str) and id(node) not in docstrings:
            yield node.lineno, node.value


def _names(name: str) -> Iterator[tuple[int, str]]:
    for node in sources.nodes(name):
        match node:
            case ast.FunctionDef() | ast.AsyncFunctionDef() | ast.ClassDef():
                yield node.lineno, node.name
            case ast.arg():
                yield node.lineno, node.arg
            case ast.Name(ctx=ast.Store()):
                yield node.lineno, node.id
            case ast.Attribute(ctx=ast.Store()):
                yield node.lineno, node.attr


def _words(name: str) -> set[str]:
    return set(re.sub(r"(?<=[a-z0-9])(?=[A-Z])", "_", name).lower().split("_"))


def test_prose_has_no_private_words() -> None:
    offenders = [
        f"{name}: {' '.join(text.split())[:90]}"
        for name in sources.modules(*sources.PACKAGES)
        for text in _prose(name)
        if PRIVATE.search(text)
    ]
    sources.assert_none(offenders, "a sentence says who does what, in the glossary's terms")


def test_messages_have_no_private_words() -> None:
    offenders = [
        f"{name}:{line}: {text.strip()[:80]}"
        for name in sources.modules(*sources.PACKAGES)
        for line, text in _messages(name)
        if PRIVATE.search(text)
    ]
    sources.assert_none(offenders, "a message names who does what, in the glossary's terms")


def test_names_have_no_private_words() -> None:
    """All names of the product, and the names of tests."""
    offenders = sorted(
        f"{name}:{line}: {found}"
        for name in sources.modules()
        for line, found in _names(name)
        if _words(found) & PRIVATE_IN_NAMES and (not name.startswith("tests/") or found.startswith("test_"))
    )
    sources.assert_none(offenders, "name it by the glossary's term")


def test_docstrings_say_each_thing_once() -> None:
    """A paragraph is not the one before it in other words, which is what a careless edit leaves."""
    offenders = [
        f"{name}: {getattr(node, 'name', 'module')}"
        for name in sources.modules()
        for node in sources.nodes(name)
        if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef)
        and _repeats_itself(ast.get_docstring(node) or "")
    ]
    sources.assert_none(offenders, "remove the paragraph that repeats what the docstring has said")


def test_docstrings_say_something() -> None:
    offenders = [
        f"{name}:{node.lineno}: {node.name}"
        for name in sources.modules()
        for node in sources.nodes(name)
        if isinstance(node, ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef)
        and EMPTY.search(ast.get_docstring(node) or "")
    ]
    sources.assert_none(offenders, "say in one line what it is; the module's docstring has the rest")


def _repeats_itself(docstring: str) -> bool:
    said: set[str] = set()
    for paragraph in docstring.split("\n\n"):
        words = set(LONG_WORD.findall(paragraph.lower()))
        if len(words) >= REPEATED_WORDS_MIN and len(words & said) >= REPEATED_SHARE * len(words):
            return True
        said |= words
    return False


def test_commit_subjects_say_what_was_done() -> None:
    """Since this test is there."""
    command = ["git", "log", "--diff-filter=A", "--format=%H", "--", "tests/tidy/test_language.py"]
    added = subprocess.run(command, cwd=sources.ROOT, capture_output=True, text=True, check=True).stdout.split()
    span = f"{added[-1]}..HEAD" if added else "HEAD..HEAD"
    command = ["git", "log", "--no-merges", "--format=%H %s", span]
    lines = subprocess.run(command, cwd=sources.ROOT, capture_output=True, text=True, check=True).stdout.splitlines()
    subjects = (line.partition(" ") for line in lines)
    offenders = [
        f"{commit[:8]} {subject}"
        for commit, _, subject in subjects
        if len(subject) > SUBJECT_COLUMNS_MAX or not SUBJECT.match(subject)
    ]
    sources.assert_none(offenders, f"`area: verb object`, at most {SUBJECT_COLUMNS_MAX} columns")
