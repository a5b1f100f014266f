"""Draws curves over time as inline SVG, without scripts and fonts, readable in light and dark mode.
Pure: data in, text out.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from html import escape

WIDTH, HEIGHT = 860, 190
LEFT, RIGHT, TOP, BOTTOM = 64, 12, 14, 26
POINTS_MAX = 600


@dataclass(frozen=True, slots=True, kw_only=True)
class Curve:
    """One line: points of (seconds, value) in order. `colour` is a CSS class of the page."""

    name: str
    colour: str
    points: Sequence[tuple[float, float]]


@dataclass(frozen=True, slots=True, kw_only=True)
class Span:
    """A shaded stretch of time."""

    name: str
    began_s: float
    ended_s: float


def plot(curves: Sequence[Curve], spans: Sequence[Span], *, unit: str, duration_s: float) -> str:
    """A chart of all curves over `duration_s`, with the spans behind them."""
    highest = max((value for curve in curves for _, value in curve.points), default=0.0)
    top = _round_up(highest)
    scale = _Scale(duration_s=max(duration_s, 0.001), top=top)
    parts = [
        f'<svg viewBox="0 0 {WIDTH} {HEIGHT}" role="img" aria-label="{escape(unit)} over time">',
        *(_span(span, scale) for span in spans),
        *_grid(scale, unit),
        *(_line(curve, scale) for curve in curves),
        *_legend(curves),
        "</svg>",
    ]
    return "".join(parts)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Scale:
    duration_s: float
    top: float

    def x(self, seconds: float) -> float:
        return LEFT + (WIDTH - LEFT - RIGHT) * min(max(seconds / self.duration_s, 0), 1)

    def y(self, value: float) -> float:
        return TOP + (HEIGHT - TOP - BOTTOM) * (1 - min(value / self.top, 1))


def _round_up(value: float) -> float:
    """The next 1, 2 or 5 times a power of ten."""
    step = 1.0
    while step * 10 < value:
        step *= 10
    return next((step * factor for factor in (1, 2, 5, 10) if step * factor >= value), step * 10)


def _span(span: Span, scale: _Scale) -> str:
    left, right = scale.x(span.began_s), scale.x(span.ended_s)
    # A fault of a moment is still visible.
    width = max(right - left, 2)
    return (
        f'<rect class="fault" x="{left:.1f}" y="{TOP}" width="{width:.1f}" height="{HEIGHT - TOP - BOTTOM}">'
        f"<title>{escape(span.name)}</title></rect>"
    )


def _grid(scale: _Scale, unit: str) -> list[str]:
    parts = []
    for share in (0, 0.5, 1):
        y, value = scale.y(scale.top * share), scale.top * share
        parts.append(f'<line class="grid" x1="{LEFT}" x2="{WIDTH - RIGHT}" y1="{y:.1f}" y2="{y:.1f}"/>')
        parts.append(f'<text class="axis" x="{LEFT - 6}" y="{y + 4:.1f}" text-anchor="end">{value:,.0f}</text>')
    for share in (0, 0.25, 0.5, 0.75, 1):
        seconds = scale.duration_s * share
        x, anchor = scale.x(seconds), "end" if share == 1 else "middle"
        parts.append(f'<text class="axis" x="{x:.1f}" y="{HEIGHT - 8}" text-anchor="{anchor}">{seconds:.0f} s</text>')
    parts.append(f'<text class="axis" x="{LEFT + 4}" y="{TOP + 10}">{escape(unit)}</text>')
    return parts


def _line(curve: Curve, scale: _Scale) -> str:
    points = " ".join(f"{scale.x(seconds):.1f},{scale.y(value):.1f}" for seconds, value in _thinned(curve.points))
    return f'<polyline class="{escape(curve.colour)}" points="{points}"/>' if points else ""


def _thinned(points: Sequence[tuple[float, float]]) -> list[tuple[float, float]]:
    """The chart has fewer pixels than a long drill has points. The lowest and the highest point of
    each stretch stay: an outage or a peak of a moment must not vanish.
    """
    step = max(1, 2 * len(points) // POINTS_MAX)
    if step <= 2:
        return list(points)
    kept: list[tuple[float, float]] = []
    for begin in range(0, len(points), step):
        stretch = range(begin, min(begin + step, len(points)))
        ends = {min(stretch, key=lambda at: points[at][1]), max(stretch, key=lambda at: points[at][1])}
        kept += [points[at] for at in sorted(ends)]
    return kept


def _legend(curves: Sequence[Curve]) -> list[str]:
    parts = []
    for index, curve in enumerate(curves):
        x = WIDTH - RIGHT - 150 * (len(curves) - index)
        parts.append(f'<line class="{escape(curve.colour)}" x1="{x}" x2="{x + 18}" y1="{TOP + 6}" y2="{TOP + 6}"/>')
        parts.append(f'<text class="axis" x="{x + 24}" y="{TOP + 10}">{escape(curve.name)}</text>')
    return parts


def rate_points(
    times_ms: Sequence[float], *, from_ms: float, until_ms: float, bucket_ms: float
) -> list[tuple[float, float]]:
    """Events per second in buckets, as points of (seconds since the start, rate); empty buckets are
    zeros.
    """
    count = max(1, int((until_ms - from_ms) / bucket_ms) + 1)
    buckets = [0] * count
    for at in times_ms:
        index = int((at - from_ms) / bucket_ms)
        if 0 <= index < count:
            buckets[index] += 1
    return [(index * bucket_ms / 1000, amount * 1000 / bucket_ms) for index, amount in enumerate(buckets)]
