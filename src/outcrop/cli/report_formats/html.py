"""Write findings as one HTML page, without scripts and without anything from another place."""

from collections.abc import Mapping, Sequence
from datetime import datetime
from html import escape
from typing import Any

_POLICY = "default-src 'none'; style-src 'unsafe-inline'"
_STYLE = """
body { font: 15px/1.5 system-ui, sans-serif; margin: 2rem; color: #1b1f24; background: #fff }
table { border-collapse: collapse; width: 100% }
th, td { text-align: left; padding: .35rem .7rem; border-bottom: 1px solid #d9dde2; vertical-align: top }
th { background: #f3f5f7 }
td.place, td.credential { font-family: ui-monospace, monospace; font-size: 13px; overflow-wrap: anywhere }
.valid { color: #a40e26; font-weight: 600 }
"""
_COLUMNS = ("Score", "Verdict", "Credential", "Rule", "Place", "Context", "Commit", "Author")


def write_html(
    findings: Sequence[Mapping[str, Any]],
    gaps: Sequence[tuple[str, str]],
    *,
    ended_at: datetime,
    files: int,
) -> bytes:
    """Return a page with a table of the findings, the highest score first, and a list of the gaps."""
    noun = "finding" if len(findings) == 1 else "findings"
    parts = [
        "<!doctype html>",
        '<html lang="en"><head><meta charset="utf-8">',
        f'<meta http-equiv="Content-Security-Policy" content="{escape(_POLICY)}">',
        '<meta name="viewport" content="width=device-width, initial-scale=1">',
        f"<title>Outcrop: {len(findings)} {noun}</title><style>{_STYLE}</style></head><body>",
        f"<h1>{len(findings)} {noun}</h1>",
        f"<p>{files:,} files, {escape(ended_at.strftime('%Y-%m-%d %H:%M'))} UTC</p>",
    ]
    if findings:
        head = "".join(f'<th scope="col">{name}</th>' for name in _COLUMNS)
        rows = map(_row, sorted(findings, key=lambda finding: -finding["composite_score"]))
        parts += [f"<table><thead><tr>{head}</tr></thead><tbody>", *rows, "</tbody></table>"]
    if gaps:
        parts += ["<h2>Not scanned</h2><ul>"]
        parts += [f"<li>{escape(where)}: {escape(why)}</li>" for where, why in gaps]
        parts += ["</ul>"]
    parts += ["</body></html>", ""]
    return "\n".join(parts).encode("utf-8", "backslashreplace")


def _row(finding: Mapping[str, Any]) -> str:
    """Return the table row of one finding."""
    place = f"{finding['file_path'] or '(unreachable)'}:{finding['line_number']}"
    url = finding["source_url"] or ""
    shown = escape(place)
    if url.startswith("https://"):
        shown = f'<a href="{escape(url)}" rel="noreferrer">{shown}</a>'
    verdict, reason = str(finding["validation_status"]), finding["validation_detail"].get("reason")
    said = escape(f"{verdict}: {reason}" if reason else verdict)
    value = escape(finding.get("secret") or finding["matched_text"])
    credential = f"{escape(finding['pattern']['name'])}<br>{value}"
    return (
        f"<tr><td>{finding['composite_score']:.0f}</td>"
        f"<td{' class=valid' if verdict == 'valid' else ''}>{said}</td>"
        f'<td class="credential">{credential}</td><td>{escape(finding["rule"])}</td>'
        f'<td class="place">{shown}</td><td>{escape(str(finding["context"]))}</td>'
        f"<td>{escape((finding['commit'] or '')[:12])}</td>"
        f"<td>{escape(finding['author'] or '')}</td></tr>"
    )
