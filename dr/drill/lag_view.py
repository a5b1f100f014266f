"""The live view of a drill: a panel on a terminal; otherwise one line for each step, and the
numbers at intervals.

`execution.py` updates it twice a second. It owns the terminal from entering to leaving the
context.
"""

from __future__ import annotations

from types import TracebackType
from typing import Self

from rich.console import Console, Group
from rich.live import Live
from rich.markup import escape
from rich.panel import Panel
from rich.table import Table
from rich.text import Text

from dr.drill.drill_results import StepResult
from dr.drill.execution import Glance

BARS = " ▁▂▃▄▅▆▇█"
SPARK_SAMPLES = 60
LINE_INTERVAL_MS = 5_000
"""Interval (ms) between printed lines when the output is no terminal."""

_MARKS = {"done": "[green]✓[/]", "failed": "[red]✗[/]", "stopped": "[yellow]■[/]", "skipped": "[dim]·[/]"}


class LagView:
    """Use as a context manager and as the drill's view."""

    def __init__(self, console: Console, *, title: str) -> None:
        self._console = console
        self._title = title
        self._live = Live(console=console, refresh_per_second=4, transient=True) if console.is_terminal else None
        self._lags: list[int] = []
        self._printed = 0
        self._next_line_ms = 0
        self._previous: Glance | None = None

    def __enter__(self) -> Self:
        if self._live is not None:
            self._live.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, _: TracebackType | None) -> None:
        if self._live is not None:
            self._live.stop()

    def __call__(self, glance: Glance) -> None:
        """Show the newest numbers."""
        if glance.lag is not None and glance.lag.lag_records is not None:
            self._lags = [*self._lags[-SPARK_SAMPLES + 1 :], glance.lag.lag_records]
        if self._live is not None:
            self._live.update(self._panel(glance))
        self.print_finished(glance.finished)
        if self._live is None and glance.elapsed_ms >= self._next_line_ms:
            self._console.print(f"  [dim]{escape(self._line(glance))}[/]", highlight=False)
            self._next_line_ms = glance.elapsed_ms + LINE_INTERVAL_MS
        self._previous = glance

    def print_finished(self, steps: tuple[StepResult, ...]) -> None:
        """Print a line for every step that has ended since the last call."""
        for step in steps[self._printed :]:
            detail = f"  [dim]{escape(step.detail)}[/]" if step.detail else ""
            mark = _MARKS.get(step.outcome, step.outcome)
            self._console.print(
                f"{mark} {escape(step.title)} [dim]({step.duration_ms / 1000:.1f} s)[/]{detail}", highlight=False
            )
        self._printed = len(steps)

    def _line(self, glance: Glance) -> str:
        counts = f"acknowledged {glance.acknowledged:,}, delivered {glance.delivered:,}"
        return f"{glance.elapsed_ms / 1000:.0f} s  {glance.step}: {counts}, lag {self._lag_text(glance)}"

    def _panel(self, glance: Glance) -> Panel:
        table = Table.grid(padding=(0, 2))
        table.add_row("step", Text(f"{glance.step_number}/{glance.step_count} {glance.step}", style="bold"))
        if glance.note:
            table.add_row("", Text(glance.note, style="dim"))
        table.add_row("acknowledged", f"{glance.acknowledged:,} ({self._rate(glance, 'acknowledged'):,.0f}/s)")
        table.add_row("delivered", f"{glance.delivered:,} ({self._rate(glance, 'delivered'):,.0f}/s)")
        table.add_row("lag", escape(self._lag_text(glance)))
        title = f"{escape(self._title)}  {glance.elapsed_ms / 1000:.0f} s"
        return Panel(Group(table, Text(_spark(self._lags), style="cyan")), title=title, title_align="left")

    def _rate(self, glance: Glance, field: str) -> float:
        previous = self._previous
        if previous is None or glance.elapsed_ms <= previous.elapsed_ms:
            return 0.0
        gained: int = getattr(glance, field) - getattr(previous, field)
        return gained * 1000 / (glance.elapsed_ms - previous.elapsed_ms)

    def _lag_text(self, glance: Glance) -> str:
        lag = glance.lag
        if lag is None:
            return "asking"
        records = "not known" if lag.lag_records is None else f"{lag.lag_records:,} records"
        age = f", {lag.lag_ms} ms" if lag.lag_ms >= 0 else ""
        silent = f"; no answer from {', '.join(lag.unreachable)}" if lag.unreachable else ""
        return f"{records}{age}; mirror {lag.mirror_state}; {lag.active_site or 'no site'} active in epoch {lag.epoch}{silent}"


def _spark(values: list[int]) -> str:
    top = max(values, default=0) or 1
    return "".join(BARS[min(len(BARS) - 1, round(value / top * (len(BARS) - 1)))] for value in values)
