"""An imported report of another scanner: weeks of history, on a code host that is down."""

import io
import json
from datetime import datetime, timedelta
from typing import Any, BinaryIO

from outcrop.demo.stand_ins import GONE
from outcrop.domain.finding import Status, Validation
from outcrop.domain.secret import Secret
from outcrop.scanner.rules.example_templates import expand_template

REPOSITORY = "acme/legacy-billing"
ADDRESS = f"https://{GONE}/{REPOSITORY}"

_V, _I, _U = Validation.VALID, Validation.INVALID, Validation.UNVALIDATED
_A, _R = Status.ACTIVE, Status.RESOLVED
# First and last seen in days ago; verdict; status; score; path; template of the value; name and type.
# The service marks findings stale that were last seen more than 30 days ago.
_FINDINGS: list[tuple[float, float, Validation, Status, int, str, str, str, str]] = [
    (75, 44, _V, _A, 71, "billing/gateway.rb", "rk_live_{{base62 40}}", "Stripe secret or restricted key", "stripe"),
    (75, 44, _I, _A, 15, "billing/mailer.rb", "SG.{{base64url 22}}.{{base64url 42}}a", "SendGrid API key", "sendgrid"),
    (68, 41, _U, _A, 46, "config/database.yml", "{{base62 20}}", "PostgreSQL connection string", "postgres_password"),
    (61, 38, _I, _R, 12, "config/deploy.yml", "ghp_{{base62 36}}", "GitHub personal access token (classic)", "github"),
    (27, 24, _V, _R, 78, "ops/invoice-sync.sh", "xoxb-{{digits 12}}-{{base62 24}}", "Slack bot/user/app token", "slack"),
    (25, 22, _I, _A, 14, "ops/tunnel.env", "dop_v1_{{hex 64}}", "DigitalOcean personal access token", "digitalocean"),
    (26, 3, _I, _A, 12, "lib/ledger/sync.py", "glpat-{{base64url 20}}", "GitLab personal access token", "gitlab"),
    (26, 3, _U, _A, 35, "lib/ledger/db.yml", "{{base62 14}}", "MySQL connection string", "mysql_password"),
    (24, 3, _V, _A, 66, "web/checkout.js", "AIza{{base64url 35}}", "Google API key", "google_api_key"),
    (22, 9, _V, _R, 81, "web/payments.php", "sk_live_{{base62 24}}", "Stripe secret or restricted key", "stripe"),
    (22, 3, _I, _A, 13, "web/push.php", "ghp_{{base62 36}}", "GitHub personal access token (classic)", "github"),
    (22, 3, _U, _A, 38, "lib/tax/client.rb", "{{hex 32}}", "Tax service key", "generic_api_key"),
    (17, 3, _I, _A, 13, "lib/pdf/render.js", "npm_{{base62 36}}", "npm access token", "npm"),
    (14, 3, _V, _A, 69, "lib/bank/import.py", "AIza{{base64url 35}}", "Google API key", "google_api_key"),
    (14, 3, _I, _A, 14, "lib/bank/export.py", "SG.{{base64url 22}}.{{base64url 42}}a", "SendGrid API key", "sendgrid"),
    (12, 3, _U, _A, 33, "lib/bank/test.py", "{{base62 12}}", "PostgreSQL connection string", "postgres_password"),
    (12, 3, _V, _A, 64, "ops/dns.sh", "dop_v1_{{hex 64}}", "DigitalOcean personal access token", "digitalocean"),
    (9, 3, _I, _A, 12, "ops/alerts.py", "xoxb-{{digits 12}}-{{base62 24}}", "Slack bot/user/app token", "slack"),
    (9, 5, _I, _R, 11, "ops/models.py", "hf_{{letters 34}}", "Hugging Face user access token", "huggingface"),
    (9, 3, _U, _A, 41, "cron/nightly.sh", "{{base62 16}}", "MySQL connection string", "mysql_password"),
    (6, 3, _I, _R, 11, "cron/report.sh", "glpat-{{base64url 20}}", "GitLab personal access token", "gitlab"),
    (4, 3, _I, _A, 15, "docs/setup.md", "hf_{{letters 34}}", "Hugging Face user access token", "huggingface"),
]  # fmt: skip


def earlier_report(now: datetime) -> BinaryIO:
    """Return the report as JSON Lines for `outcrop import`."""
    return io.BytesIO(
        b"".join(json.dumps(_line(number, now)).encode() + b"\n" for number in range(len(_FINDINGS)))
    )


def _line(number: int, now: datetime) -> dict[str, Any]:
    """Return one finding of the report."""
    first, last, verdict, status, score, path, template, name, secret_type = _FINDINGS[number]
    secret = Secret(expand_template(template, f"demo report {number}"), mask_all="password" in secret_type)
    closed = {
        "resolved_at": (now - timedelta(days=last)).isoformat(),
        "resolution_note": "Rotated by the billing team.",
        "resolution_evidence": {"auto_resolved": False, "resolved_by": "kim@acme.example"},
    }
    return {
        "status": status,
        "validation_status": verdict,
        "validation_confidence": "low" if verdict is _U else "high",
        "composite_score": float(score),
        "source_type": "repo",
        "source_visibility": "private",
        "source_url": ADDRESS,
        "repo_full_name": REPOSITORY,
        "file_path": path,
        "line_number": 7 + 3 * number,
        "matched_text": secret.masked(),
        "pattern": {"name": name, "secret_type": secret_type},
        "first_seen_at": (now - timedelta(days=first)).isoformat(),
        "last_seen_at": (now - timedelta(days=last)).isoformat(),
        "seen_count": int(first - last) + 1,
    } | (closed if status is _R else {})
