"""Write merged reports as one HTML page that needs nothing from another place."""

import hashlib
from base64 import b64encode
from collections import Counter
from collections.abc import Iterable, Sequence
from datetime import datetime
from html import escape

from outcrop.domain.finding import Finding, Severity, Validation, severity_of
from outcrop.services.exchange.merged_report import MergedFinding

_STYLE = """
:root { color-scheme: light dark; --ink: #1a1d21; --soft: #5b6470; --line: #dfe3e8; --page: #fff;
  --band: #f5f7f9; --critical: #a4133c; --high: #c2570c; --medium: #8a6d00; --low: #4a6785 }
@media (prefers-color-scheme: dark) { :root { --ink: #e6e9ed; --soft: #9aa4b1; --line: #333b45;
  --page: #14181d; --band: #1c2229;
  --critical: #ff6b8b; --high: #ff9f5a; --medium: #e0c04a; --low: #8fb2d6 } }
* { box-sizing: border-box }
body { margin: 0 auto; padding: 2.2rem 2rem 3rem; max-width: 90rem; font: 15px/1.5 system-ui, sans-serif;
  color: var(--ink); background: var(--page) }
h1 { margin: 0; font-size: 1.6rem; letter-spacing: -.01em }
.made { margin: .2rem 0 1.6rem; color: var(--soft) }
.tiles { display: flex; gap: .8rem; flex-wrap: wrap; margin: 0 0 1.6rem; padding: 0; list-style: none }
.tiles li { flex: 1 1 7rem; padding: .7rem 1rem; border: 1px solid var(--line);
  border-top: 4px solid var(--tone, var(--ink));  border-radius: 6px; background: var(--band) }
.tiles b { display: block; font-size: 1.7rem; line-height: 1.2; font-variant-numeric: tabular-nums }
.tiles span { color: var(--soft) }
.critical { --tone: var(--critical) } .high { --tone: var(--high) }
.medium { --tone: var(--medium) } .low { --tone: var(--low) }
form { display: none; gap: .6rem; flex-wrap: wrap; align-items: center; position: sticky; top: 0;
  padding: .7rem 0;  background: var(--page); border-bottom: 1px solid var(--line); z-index: 1 }
.scripted form { display: flex }
input, select { font: inherit; color: inherit; padding: .35rem .6rem; border: 1px solid var(--line);
  border-radius: 6px;  background: var(--page); max-width: 18rem }
input { flex: 1 1 14rem }
output { color: var(--soft); margin-left: auto }
.wide { overflow-x: auto }
table { border-collapse: collapse; width: 100% }
th { text-align: left; font-weight: 600; color: var(--soft); font-size: 13px; white-space: nowrap }
th, td { padding: .55rem .8rem .55rem 0; border-bottom: 1px solid var(--line); vertical-align: top }
td.score { white-space: nowrap; color: var(--tone); font-weight: 700; font-variant-numeric: tabular-nums }
td.score span { display: block; font-weight: 600; font-size: 12px }
code { font: 13px/1.5 ui-monospace, monospace; overflow-wrap: anywhere }
small { display: block; color: var(--soft); overflow-wrap: anywhere }
.valid { color: var(--critical); font-weight: 700 }
a { color: inherit }
tr[hidden] { display: none }
@media print { body { padding: 0; max-width: none; font-size: 11px } form, .scripted form { display: none }
  .tiles li { padding: .3rem .6rem } .tiles b { font-size: 1.1rem }
  code { font-size: 10px } .wide { overflow: visible }
  thead { display: table-header-group } tr { break-inside: avoid }
  :root { --ink: #000; --soft: #444; --line: #bbb; --page: #fff; --band: #fff } }
"""
_SCRIPT = """
document.documentElement.classList.add("scripted");
const form = document.querySelector("form"), rows = [...document.querySelectorAll("tbody tr")];
const texts = rows.map(row => row.textContent.toLowerCase());
function apply() {
  const words = form.q.value.toLowerCase().split(/\\s+/).filter(Boolean);
  const chosen = [...form.querySelectorAll("select")].filter(select => select.value);
  let shown = 0;
  rows.forEach((row, n) => {
    row.hidden = !(words.every(word => texts[n].includes(word))
      && chosen.every(select => row.dataset[select.name] === select.value));
    shown += row.hidden ? 0 : 1;
  });
  const total = shown === rows.length ? "" : ` of ${rows.length}`;
  form.querySelector("output").value = `${shown}${total} shown`;
}
form.addEventListener("input", apply);
form.addEventListener("submit", event => event.preventDefault());
apply();
"""
_COLUMNS = ("Score", "Credential", "Place", "Verdict", "Commit", "Reported by")


def write_report_page(findings: Sequence[MergedFinding], files: Sequence[str], *, made_at: datetime) -> bytes:
    """Return the page: numbers by severity, filters, and a table of the findings in their order."""
    noun = "finding" if len(findings) == 1 else "findings"
    policy = (
        "default-src 'none'; base-uri 'none'; form-action 'none';"
        f" style-src '{_digest(_STYLE)}'; script-src '{_digest(_SCRIPT)}'"
    )
    title = f"{len(findings):,} {noun}"
    parts = [
        "<!doctype html>",
        '<html lang="en"><head><meta charset="utf-8">',
        f'<meta http-equiv="Content-Security-Policy" content="{escape(policy)}">',
        '<meta name="viewport" content="width=device-width, initial-scale=1">',
        '<meta name="referrer" content="no-referrer">',
        f"<title>Outcrop report: {title}</title><style>{_STYLE}</style></head><body>",
        f"<h1>{title}</h1>",
        f'<p class="made">{made_at:%Y-%m-%d %H:%M} UTC, from {escape(", ".join(files))}</p>',
        _tiles(findings),
    ]
    if findings:
        parts.append(_filters(findings))
        head = "".join(f'<th scope="col">{name}</th>' for name in _COLUMNS)
        parts.append(f'<div class="wide"><table><thead><tr>{head}</tr></thead><tbody>')
        parts += map(_row, findings)
        parts.append(f"</tbody></table></div><script>{_SCRIPT}</script>")
    else:
        parts.append("<p>The reports have no findings.</p>")
    parts.append("</body></html>\n")
    return "\n".join(parts).encode("utf-8", "backslashreplace")


def _digest(text: str) -> str:
    """Return the digest by which a content security policy allows an inline style or script."""
    return "sha256-" + b64encode(hashlib.sha256(text.encode()).digest()).decode()


def _tiles(findings: Sequence[MergedFinding]) -> str:
    """Return the number of findings of each severity, and of those with a valid credential."""
    counts = Counter(severity_of(entry.finding.composite_score) for entry in findings)
    valid = sum(entry.finding.validation_status is Validation.VALID for entry in findings)
    tiles = [
        f'<li class="{severity}"><b>{counts[severity]:,}</b><span>{severity}</span></li>'
        for severity in Severity
    ]
    tiles.append(f"<li><b>{valid:,}</b><span>proved valid</span></li>")
    return f'<ul class="tiles">{"".join(tiles)}</ul>'


def _filters(findings: Sequence[MergedFinding]) -> str:
    """Return the form with a search field and a choice for each attribute that has several values."""
    found = [entry.finding for entry in findings]
    severities = {severity_of(finding.composite_score) for finding in found}
    choices = {
        "severity": ("any severity", [severity.value for severity in Severity if severity in severities]),
        "verdict": ("any verdict", sorted({finding.validation_status.value for finding in found})),
        "type": ("any type", sorted({finding.pattern.name for finding in found})),
        "place": ("any repository", sorted({_repository(finding) for finding in found} - {""})),
        "status": ("any status", sorted({finding.status.value for finding in found})),
    }
    fields = [
        '<input name="q" type="search" placeholder="Search" aria-label="Search" autocomplete="off">',
        *(_choice(name, every, values) for name, (every, values) in choices.items() if len(values) > 1),
    ]
    return f'<form role="search">{"".join(fields)}<output aria-live="polite"></output></form>'


def _choice(name: str, every: str, values: Iterable[str]) -> str:
    options = "".join(f"<option>{escape(value)}</option>" for value in values)
    return f'<select name="{name}" aria-label="{every}"><option value="">{every}</option>{options}</select>'


def _row(entry: MergedFinding) -> str:
    """Return the table row of one finding."""
    finding = entry.finding
    severity = severity_of(finding.composite_score)
    data = {
        "severity": severity.value,
        "verdict": finding.validation_status.value,
        "type": finding.pattern.name,
        "place": _repository(finding),
        "status": finding.status.value,
    }
    attributes = "".join(f' data-{name}="{escape(value)}"' for name, value in data.items())
    cells = [
        f'<td class="score {severity}">{finding.composite_score:.0f}<span>{severity}</span></td>',
        f"<td>{escape(finding.pattern.name)}<br><code>{escape(finding.matched_text)}</code></td>",
        f"<td>{_place(finding)}</td>",
        f"<td>{_verdict(finding)}</td>",
        f"<td>{_commit(finding)}</td>",
        f"<td>{escape(', '.join(entry.sources))}</td>",
    ]
    return f"<tr{attributes}>{''.join(cells)}</tr>"


def _repository(finding: Finding) -> str:
    return finding.repo_full_name or ""


def _place(finding: Finding) -> str:
    """Return path and line, with a link if the address is one of the web, and the repository below."""
    path = finding.file_path or finding.source_url or "unknown"
    shown = escape(f"{path}:{finding.line_number}" if finding.line_number else path)
    url = finding.source_url or ""
    if url.startswith(("https://", "http://")):
        shown = f'<a href="{escape(url)}" rel="noreferrer noopener">{shown}</a>'
    below = f"<small>{escape(finding.repo_full_name)}</small>" if finding.repo_full_name else ""
    return f"<code>{shown}</code>{below}"


def _verdict(finding: Finding) -> str:
    """Return the verdict with its reason and services, and the status if it is not active."""
    verdict = finding.validation_status
    shown = f'<span class="{verdict}">{verdict}</span>'
    notes = [
        str(finding.validation_detail.get("reason") or ""),
        *finding.validation_detail["enabled_services"],
    ]
    if finding.status != "active":
        notes.append(finding.status.replace("_", " "))
    text = ", ".join(note for note in notes if note)
    return shown + (f"<small>{escape(text)}</small>" if text else "")


def _commit(finding: Finding) -> str:
    """Return the short commit with its author and date."""
    if finding.commit is None:
        return ""
    about = [finding.author or ""]
    if finding.committed_at is not None:
        about.append(f"{finding.committed_at:%Y-%m-%d}")
    text = ", ".join(part for part in about if part)
    return f"<code>{escape(finding.commit[:12])}</code>" + (f"<small>{escape(text)}</small>" if text else "")
