"""The files that the tidy tests look at: everything that git tracks or would track, generated stubs
apart.
"""

from __future__ import annotations

import ast
import functools
import subprocess
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent.parent
PACKAGES = (
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
GENERATED_SUFFIXES = ("_pb2.py", "_pb2.pyi", "_pb2_grpc.py")


@functools.cache
def files() -> tuple[str, ...]:
    """Every file, by its path from the root."""
    command = ["git", "ls-files", "--cached", "--others", "--exclude-standard"]
    listed = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True).stdout
    return tuple(sorted({name for name in listed.splitlines() if (ROOT / name).is_file()}))


def cores() -> list[str]:
    """The modules of every package's and every room's `core/`."""
    return [name for name in modules(*PACKAGES) if "/core/" in name]


def modules(*folders: str) -> list[str]:
    """Hand-written Python files, those under `folders` alone when any are named."""
    prefixes = tuple(f"{folder.rstrip('/')}/" for folder in folders)
    return [
        name
        for name in files()
        if name.endswith(".py")
        and not name.endswith(GENERATED_SUFFIXES)
        and (not prefixes or name.startswith(prefixes))
    ]


@functools.cache
def text(name: str) -> str:
    """A file's text."""
    return (ROOT / name).read_text(encoding="utf-8")


@functools.cache
def tree(name: str) -> ast.Module:
    """A Python file, parsed."""
    return ast.parse(text(name), filename=name)


@functools.cache
def nodes(name: str) -> tuple[ast.AST, ...]:
    """Every node of a Python file's tree."""
    return tuple(ast.walk(tree(name)))


def assert_none(offenders: list[str], habit: str) -> None:
    """Fail with the habit and a line for each offender."""
    assert not offenders, f"{habit}\n" + "\n".join(f"  {offender}" for offender in offenders)
