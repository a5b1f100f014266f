"""The output of commands: tables for people, JSON for programs, one line for an error, the same
exit codes everywhere.
"""

from __future__ import annotations

import enum
import json
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Annotated, Any

import typer
from rich.console import Console
from rich.markup import escape
from rich.table import Table

WIDTH_WITHOUT_TERMINAL = 160
"""Columns where the output is not a terminal: room for tables in a file or a pipe."""

console = Console(soft_wrap=True, width=None if sys.stdout.isatty() else WIDTH_WITHOUT_TERMINAL)
error_console = Console(stderr=True, soft_wrap=True)


class OutputFormat(enum.StrEnum):
    """The values of `--output`."""

    TEXT = "text"
    JSON = "json"


Output = Annotated[
    OutputFormat,
    typer.Option("--output", "-o", help="How to print the result: text for people, json for programs."),
]


def print_json(value: Any) -> None:
    """One JSON document on one line of standard output."""
    sys.stdout.write(json.dumps(value, separators=(", ", ": ")) + "\n")
    sys.stdout.flush()


def print_table(title: str, columns: Sequence[str], rows: Sequence[Sequence[object]]) -> None:
    """A table; numbers to the right."""
    table = Table(title=escape(title) or None, title_justify="left", header_style="bold")
    for index, column in enumerate(columns):
        is_number = bool(rows) and all(isinstance(row[index], int | float) for row in rows)
        table.add_column(column, justify="right" if is_number else "left", overflow="fold")
    for row in rows:
        table.add_row(*(_cell(value) for value in row))
    console.print(table)


def _cell(value: object) -> str:
    if value is None:
        return ""
    return f"{value:,}" if isinstance(value, int) and not isinstance(value, bool) else escape(str(value))


def report_progress(text: str) -> None:
    """A line on standard error that says what is being done."""
    error_console.print(f"[dim]{escape(text)}[/]", highlight=False)


@contextmanager
def progress_bar(total: int | None, *, of_bytes: bool) -> Iterator[Callable[[int], None]]:
    """A progress bar on standard error, which the yielded function moves; without a total or a
    terminal it shows nothing.
    """
    if total is None or not error_console.is_terminal:
        yield lambda _: None
        return
    from rich.progress import BarColumn, DownloadColumn, MofNCompleteColumn, Progress, TimeRemainingColumn

    amount = DownloadColumn() if of_bytes else MofNCompleteColumn()
    with Progress(BarColumn(), amount, TimeRemainingColumn(), console=error_console, transient=True) as bar:
        task = bar.add_task("", total=total)
        yield lambda done: bar.advance(task, done)
