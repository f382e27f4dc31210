"""Draw charts as SVG. Colours are CSS classes that differ in red-green blindness.

A chart with an axis is drawn twice, for a wide and for a narrow window, because text in a picture shrinks
with it. The style sheet shows one of the two.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import date
from itertools import count
from math import ceil

from markupsafe import Markup

from outcrop.portal.labels import score as score_text

_NARROW = 340  # units of the narrow drawing, about the pixels of a phone
_HEIGHT, _TOP, _BOTTOM, _RIGHT = 240, 26, 40, 10
_LABEL_WIDTH, _DIGIT_WIDTH = 46, 7.5
_MAX_TICKS = 5


@dataclass(frozen=True, slots=True)
class Series:
    """The values of one colour: `kind` is its CSS class. None is a value that does not exist."""

    name: str
    kind: str
    values: Sequence[float | None]


@dataclass(frozen=True, slots=True)
class _Plot:
    """The area between the axes: its width and left edge, the highest value, and the number of places."""

    left: float
    width: float
    highest: float
    places: int

    def y(self, value: float) -> float:
        """Return the height of a value on the page."""
        return _HEIGHT - _BOTTOM - value / self.highest * (_HEIGHT - _TOP - _BOTTOM)

    @property
    def step(self) -> float:
        """The width of one place."""
        return self.width / max(self.places, 1)


def days(counts: Sequence[tuple[date, int, int]], label: str) -> Markup:
    """Draw one stacked bar per day: valid findings below, others above."""
    series = [
        Series("valid", "c-valid", [valid for _, valid, _ in counts]),
        Series("others", "c-others", [other for _, _, other in counts]),
    ]
    return bar_chart(
        [day.strftime("%-d %b") for day, _, _ in counts], series, label, unit="findings", wide=1_000
    )


def bar_chart(
    places: Sequence[str],
    series: Sequence[Series],
    label: str,
    *,
    unit: str,
    is_stacked: bool = True,
    wide: int = 560,
) -> Markup:
    """Draw the series as bars: on top of each other, or side by side. A line break in a place is kept."""
    rows = list(zip(*(entry.values for entry in series), strict=True))
    highest = max(
        (sum(filter(None, row)) if is_stacked else max(filter(None, row), default=0) for row in rows),
        default=0,
    )

    def draw(plot: _Plot) -> Markup:
        drawn = []
        for at, row in enumerate(rows):
            base, bars = 0.0, []
            width = plot.step * 0.76 / (1 if is_stacked else len(series))
            for number, (entry, value) in enumerate(zip(series, row, strict=True)):
                if not value:
                    continue
                x = plot.left + plot.step * (at + 0.12) + (0 if is_stacked else number * width)
                top, bottom = plot.y(base + value), plot.y(base)
                bars.append(
                    Markup('<rect class="{}" x="{:.1f}" y="{:.1f}" width="{:.1f}" height="{:.1f}"/>').format(
                        entry.kind, x, min(top, bottom - 1), width, max(bottom - top, 1)
                    )
                )
                base += value if is_stacked else 0
            drawn.append(
                Markup("<g><title>{}</title>{}</g>").format(
                    _describe(places[at], series, row, unit), Markup("").join(bars)
                )
            )
        return Markup("").join(drawn)

    return _draw_twice(places, highest, draw, label=label, unit=unit, wide=wide)


def line_chart(
    places: Sequence[str], series: Sequence[Series], label: str, *, unit: str, wide: int = 560
) -> Markup:
    """Draw each series as a line with marks; the second one is dashed and has square marks."""
    highest = max((value for entry in series for value in entry.values if value is not None), default=0)

    def draw(plot: _Plot) -> Markup:
        drawn = []
        for number, entry in enumerate(series):
            points = [
                None if value is None else (plot.left + plot.step * (at + 0.5), plot.y(value))
                for at, value in enumerate(entry.values)
            ]
            path = "".join(
                f"{'M' if at == 0 or points[at - 1] is None else 'L'}{point[0]:.1f} {point[1]:.1f}"
                for at, point in enumerate(points)
                if point is not None
            )
            drawn.append(
                Markup('<path class="line {}{}" d="{}"/>').format(
                    entry.kind, " dashed" if number else "", path
                )
            )
            for place, value, point in zip(places, entry.values, points, strict=True):
                if point is not None:
                    drawn.append(
                        _draw_mark(entry.kind, point, _describe(place, [entry], [value], unit), number)
                    )
        return Markup("").join(drawn)

    return _draw_twice(places, highest, draw, label=label, unit=unit, wide=wide)


def _draw_mark(kind: str, point: tuple[float, float], title: str, number: int) -> Markup:
    """Draw a point of a line: a circle, or a square on the second line."""
    x, y = point
    shape = (
        Markup('<rect class="{}" x="{:.1f}" y="{:.1f}" width="8" height="8"/>').format(kind, x - 4, y - 4)
        if number
        else Markup('<circle class="{}" cx="{:.1f}" cy="{:.1f}" r="4.5"/>').format(kind, x, y)
    )
    return Markup("<g><title>{}</title>{}</g>").format(title, shape)


def _describe(place: str, series: Sequence[Series], row: Sequence[float | None], unit: str) -> str:
    """Return the numbers of one place as text."""
    values = ", ".join(
        f"{value:,.10g} {entry.name}" for entry, value in zip(series, row, strict=True) if value is not None
    )
    return f"{place.replace(chr(10), ' ')}: {values} ({unit})"


def _draw_twice(
    places: Sequence[str],
    highest: float,
    draw: Callable[[_Plot], Markup],
    *,
    label: str,
    unit: str,
    wide: int,
) -> Markup:
    """Return a chart with its axes, for a wide and for a narrow window."""
    ticks = list_ticks(highest)
    left = max(len(f"{tick:,}") for tick in ticks) * _DIGIT_WIDTH + 10
    charts = []
    for width, name in ((wide, "wide"), (_NARROW, "narrow")):
        plot = _Plot(left, width - left - _RIGHT, ticks[-1], len(places))
        charts.append(
            Markup(
                '<svg class="chart {}" viewBox="0 0 {} {}" role="img" aria-label="{}">'
                '<text class="axis" x="0" y="13">{}</text>{}{}{}</svg>'
            ).format(
                *(name, width, _HEIGHT, label, unit),
                *(_draw_y_axis(plot, ticks), draw(plot), _draw_x_axis(plot, places)),
            )
        )
    return Markup("").join(charts)


def _draw_y_axis(plot: _Plot, ticks: Sequence[int]) -> Markup:
    """Draw a line with its number for each tick."""
    return Markup("").join(
        Markup(
            '<line class="{}" x1="{x:.1f}" x2="{end:.1f}" y1="{y:.1f}" y2="{y:.1f}"/>'
            '<text class="axis end" x="{text:.1f}" y="{base:.1f}">{tick}</text>'
        ).format(
            "grid-line" if tick else "base-line",
            x=plot.left,
            end=plot.left + plot.width,
            y=plot.y(tick),
            text=plot.left - 6,
            base=plot.y(tick) + 4,
            tick=f"{tick:,}",
        )
        for tick in ticks
    )


def _draw_x_axis(plot: _Plot, places: Sequence[str]) -> Markup:
    """Draw the names of places, as many as there is room for, the last one always."""
    every = max(ceil(_LABEL_WIDTH / plot.step), 1)
    texts = []
    for at in range(len(places) - 1, -1, -every):
        x = min(plot.left + plot.step * (at + 0.5), plot.left + plot.width + _RIGHT - _LABEL_WIDTH / 2)
        lines = places[at].split("\n")
        texts.append(
            Markup('<text class="axis middle" x="{:.1f}" y="{}">{}</text>').format(
                x,
                _HEIGHT - _BOTTOM + 17,
                Markup("").join(
                    Markup('<tspan x="{:.1f}" dy="{}">{}</tspan>').format(x, 15 if number else 0, line)
                    for number, line in enumerate(lines)
                ),
            )
        )
    return Markup("").join(texts)


def list_ticks(highest: float) -> list[int]:
    """Return whole numbers from 0 to `highest` or the next tick above it, at most six, in even steps."""
    steps = (digit * 10**exponent for exponent in count() for digit in (1, 2, 5))
    step = next(step for step in steps if step * _MAX_TICKS >= highest)
    return list(range(0, max(ceil(highest / step), 1) * step + 1, step))


def meter(value: float, most: float, kind: str) -> Markup:
    """Draw a horizontal bar for `value` of at most `most`."""
    width = 100 * min(value / most, 1) if most else 0
    return Markup(
        '<svg class="meter" viewBox="0 0 100 6" preserveAspectRatio="none" aria-hidden="true">'
        '<rect class="track" width="100" height="6" rx="3"/>'
        '<rect class="{}" width="{:.2f}" height="6" rx="3"/></svg>'
    ).format(kind, width)


def ring(score: float, kind: str) -> Markup:
    """Draw a score as a number inside a partly filled ring."""
    around = 2 * 3.14159265 * 42
    return Markup(
        '<svg class="ring {kind}" viewBox="0 0 100 100" role="img" aria-label="Score {text} of 100">'
        '<circle class="track" cx="50" cy="50" r="42"/><circle class="value" cx="50" cy="50" r="42" '
        'stroke-dasharray="{part:.1f} {around:.1f}" transform="rotate(-90 50 50)"/>'
        '<text x="50" y="58" text-anchor="middle">{text}</text></svg>'
    ).format(kind=kind, text=score_text(score), part=around * score / 100, around=around)
