"""Lines over time as inline SVG: no script, readable in both colour schemes. Pure text."""

from __future__ import annotations

from collections.abc import Sequence
from html import escape
from typing import NamedTuple

WIDTH, HEIGHT, LEFT, BOTTOM = 860, 180, 70, 24
POINTS_MAX = 1_000


class Line(NamedTuple):
    """One line: points of (Unix ms, value) in order of time. `colour` is a CSS variable."""

    name: str
    colour: str
    points: Sequence[tuple[int, float]]


def line_plot(lines: Sequence[Line], *, unit: str, first_label: str, last_label: str) -> str:
    """All lines over one axis of time, whose ends have these labels."""
    times = [at for line in lines for at, _ in line.points]
    if not times:
        return ""
    first, span = min(times), max(max(times) - min(times), 1)
    top = max((value for line in lines for _, value in line.points), default=0.0) or 1.0

    def place(at: int, value: float) -> str:
        x = LEFT + (WIDTH - LEFT - 10) * (at - first) / span
        y = 10 + (HEIGHT - BOTTOM - 20) * (1 - max(value, 0.0) / top)
        return f"{x:.1f},{y:.1f}"

    drawn = [
        f'<polyline fill="none" stroke="var({line.colour})" stroke-width="2" '
        f'points="{" ".join(place(at, value) for at, value in line.points[:: 1 + len(line.points) // POINTS_MAX])}">'
        f"<title>{escape(line.name)}</title></polyline>"
        f'<text x="{LEFT + 130 * number}" y="{HEIGHT}" style="fill:var({line.colour})">{escape(line.name)}</text>'
        for number, line in enumerate(lines)
    ]
    return "".join(
        [
            f'<svg viewBox="0 0 {WIDTH} {HEIGHT + 20}" role="img" aria-label="{escape(unit)} over time">',
            f'<text x="0" y="16">{top:,.0f} {escape(unit)}</text><text x="0" y="{HEIGHT - BOTTOM - 8}">0</text>',
            *drawn,
            f'<text x="{LEFT}" y="{HEIGHT + 16}">{escape(first_label)}</text>',
            f'<text x="{WIDTH - 10}" y="{HEIGHT + 16}" text-anchor="end">{escape(last_label)}</text>',
            "</svg>",
        ]
    )
