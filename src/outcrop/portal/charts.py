"""Draw charts as SVG. Colours are CSS classes; the numbers are also shown as text."""

from collections.abc import Sequence
from datetime import date

from markupsafe import Markup

from outcrop.portal.labels import score as score_text

_WIDTH, _HEIGHT, _FLOOR = 720, 150, 128


def days(counts: Sequence[tuple[date, int, int]], label: str) -> Markup:
    """Draw one stacked bar per day: valid findings below, others above. Its title has the numbers."""
    most = max((valid + other for _, valid, other in counts), default=0) or 1
    step = _WIDTH / max(len(counts), 1)
    bars = []
    for at, (day, valid, other) in enumerate(counts):
        valid_height, total_height = (n / most * (_FLOOR - 12) for n in (valid, valid + other))
        stacks = (
            [("bar none", 1.0)]
            if not total_height
            else [
                ("bar", max(total_height, 2.0)),
                ("bar valid", max(valid_height, 2.0) if valid_height else 0.0),
            ]
        )
        drawn = Markup("").join(
            Markup('<rect class="{}" x="{:.1f}" y="{:.1f}" width="{:.1f}" height="{:.1f}" rx="2"/>').format(
                kind, at * step + step * 0.12, _FLOOR - height, step * 0.76, height
            )
            for kind, height in stacks
        )
        title = f"{day.strftime('%-d %b')}: {valid + other:,}, of which {valid:,} valid"
        bars.append(Markup("<g><title>{}</title>{}</g>").format(title, drawn))
    ends = (
        Markup(
            '<text class="axis" x="0" y="{0}">{1}</text><text class="axis end" x="{2}" y="{0}">{3}</text>'
        ).format(_HEIGHT - 4, counts[0][0].strftime("%-d %b"), _WIDTH, counts[-1][0].strftime("%-d %b"))
        if counts
        else Markup("")
    )
    return Markup('<svg class="chart" viewBox="0 0 {} {}" role="img" aria-label="{}">{}{}</svg>').format(
        _WIDTH, _HEIGHT, label, Markup("").join(bars), ends
    )


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
