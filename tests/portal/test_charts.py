"""Charts have a y axis with even steps, and colours that differ in red-green blindness."""

import re
from itertools import combinations
from math import dist
from pathlib import Path

import pytest

from outcrop import portal
from outcrop.portal.charts import Series, bar_chart, line_chart, list_ticks

SHEET = (Path(portal.__file__).parent / "static" / "portal.css").read_text()


@pytest.mark.parametrize(
    ("highest", "ticks"),
    [
        (0, [0, 1]),
        (1, [0, 1]),
        (4, [0, 1, 2, 3, 4]),
        (6, [0, 2, 4, 6]),
        (7.5, [0, 2, 4, 6, 8]),
        (165, [0, 50, 100, 150, 200]),
        (1_000_000, [0, 200_000, 400_000, 600_000, 800_000, 1_000_000]),
    ],
)
def test_the_ticks_of_an_axis_are_even_whole_numbers_from_zero(highest: float, ticks: list[int]) -> None:
    assert list_ticks(highest) == ticks


def test_a_chart_has_an_axis_and_each_number_as_text_in_both_widths() -> None:
    series = [Series("new", "c-new", [3, 0]), Series("closed", "c-closed", [1, 1_200])]
    drawn = bar_chart(["Jan\n2026", "Feb"], series, "Some <chart>", unit="incidents")
    charts = re.findall(r"<svg.*?</svg>", drawn)
    assert [re.findall(r'class="chart (\w+)"', chart) for chart in charts] == [["wide"], ["narrow"]]
    for chart in charts:
        assert re.findall(r'class="axis end"[^>]*>([\d,]+)<', chart) == ["0", "500", "1,000", "1,500"]
        assert re.findall(r"<title>([^<]+)</title>", chart) == [
            "Jan 2026: 3 new, 1 closed (incidents)",
            "Feb: 0 new, 1,200 closed (incidents)",
        ]
        assert 'aria-label="Some &lt;chart&gt;"' in chart
        assert ">incidents</text>" in chart


def test_bars_are_as_high_as_their_values_and_stay_below_the_highest_tick() -> None:
    drawn = bar_chart(["a"], [Series("x", "c-low", [2]), Series("y", "c-high", [6])], "c", unit="n")
    low, high = (
        [float(value) for value in found]
        for found in re.findall(
            r'<rect class="c-\w+" x="[^"]+" y="([\d.]+)" width="[\d.]+" height="([\d.]+)"', drawn
        )[:2]
    )
    assert high[1] == pytest.approx(3 * low[1], abs=0.2)
    assert high[0] + high[1] == pytest.approx(low[0], abs=0.2)


def test_a_line_is_broken_where_there_is_no_value() -> None:
    drawn = line_chart(["a", "b", "c"], [Series("median", "c-median", [1.5, None, 3])], "c", unit="days")
    (path, _) = re.findall(r'd="([^"]+)"', drawn)
    assert path.count("M") == 2
    assert "L" not in path
    assert "a: 1.5 median (days)" in drawn


def test_charts_without_values_have_an_axis_too() -> None:
    for empty in (
        bar_chart([], [Series("x", "c-low", [])], "c", unit="n"),
        line_chart(["a"], [Series("x", "c-low", [None])], "c", unit="n"),
    ):
        assert 'class="axis end"' in empty


# --- colours

# What people without one kind of cones see, as linear RGB (Machado, Oliveira and Fernandes, 2009).
PROTANOPIA = (
    (0.152286, 1.052583, -0.204868),
    (0.114503, 0.786281, 0.099216),
    (-0.003882, -0.048116, 1.051998),
)
DEUTERANOPIA = (
    (0.367322, 0.860646, -0.227968),
    (0.280085, 0.672501, 0.047413),
    (-0.011820, 0.042940, 0.968881),
)
SAME = ((1.0, 0.0, 0.0), (0.0, 1.0, 0.0), (0.0, 0.0, 1.0))
TOGETHER = [("critical", "high", "medium", "low")]  # and pairs of these


def _linear(colour: str) -> list[float]:
    """Return a colour such as `#a8201a` as linear RGB."""
    values = [int(colour[at : at + 2], 16) / 255 for at in (1, 3, 5)]
    return [value / 12.92 if value <= 0.04045 else ((value + 0.055) / 1.055) ** 2.4 for value in values]


def _lab(linear: list[float]) -> tuple[float, float, float]:
    """Return linear RGB as CIE L*a*b*, in which distances are as large as they look."""
    red, green, blue = (min(max(value, 0.0), 1.0) for value in linear)
    whites = (
        (0.4124 * red + 0.3576 * green + 0.1805 * blue) / 0.95047,
        0.2126 * red + 0.7152 * green + 0.0722 * blue,
        (0.0193 * red + 0.1192 * green + 0.9505 * blue) / 1.08883,
    )
    x, y, z = (v ** (1 / 3) if v > 0.008856 else 7.787 * v + 16 / 116 for v in whites)
    return 116 * y - 16, 500 * (x - y), 200 * (y - z)


def _seen(colour: str, matrix: tuple[tuple[float, ...], ...]) -> tuple[float, float, float]:
    linear = _linear(colour)
    return _lab([sum(factor * value for factor, value in zip(row, linear, strict=True)) for row in matrix])


def _luminance(colour: str) -> float:
    red, green, blue = _linear(colour)
    return 0.2126 * red + 0.7152 * green + 0.0722 * blue


def _themes() -> list[dict[str, str]]:
    """Return the colours of the light theme and of both places of the dark one."""
    blocks = [block for block in re.findall(r"{([^{}]+)}", SHEET) if "--chart-critical: " in block]
    return [dict(re.findall(r"--([\w-]+): (#[0-9a-f]{6})", block)) for block in blocks]


def test_colours_of_charts_differ_for_everybody_and_stand_out() -> None:
    themes = _themes()
    assert len(themes) == 3
    assert themes[1] == themes[2]
    for theme in themes:
        colours = {name: theme[f"chart-{name}"] for name in ("critical", "high", "medium", "low")}
        for matrix in (SAME, PROTANOPIA, DEUTERANOPIA):
            for (name, first), (other, second) in combinations(colours.items(), 2):
                assert dist(_seen(first, matrix), _seen(second, matrix)) > 20, (name, other, matrix)
        for name, colour in colours.items():
            low, high = sorted((_luminance(colour), _luminance(theme["surface"])))
            assert (high + 0.05) / (low + 0.05) >= 3, (name, colour)
