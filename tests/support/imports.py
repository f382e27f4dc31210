"""Send reports to `/api/v2/imports`, and merge them as a worker does."""

import asyncio
import json
from collections.abc import Mapping
from typing import Any

import httpx

from outcrop.net.guard import Egress
from outcrop.net.http import open_http
from outcrop.scanner.rules.example_templates import expand_template
from outcrop.services.exchange.staged_import import MergeContext, merge_import
from outcrop.services.pipeline.announce import announce_imported
from outcrop.services.pipeline.context import ValidationContext
from outcrop.store.db import open_pool
from outcrop.validation.engine import ValidationMode, Validator
from tests.support.backend import Backend, Tenant
from tests.support.rulesets import ruleset

IMPORTS = "/api/v2/imports"


def generated_token(seed: object) -> str:
    """Return a GitHub token with a correct checksum, the same for the same seed."""
    return expand_template("ghp_{{base62 30}}{{crc32_base62}}", str(seed))


def gitleaks_report(*seeds: object, **fields: Any) -> bytes:
    """Return a report of gitleaks with one finding for each seed, in a file of its own."""
    return json.dumps(
        [
            {
                "RuleID": "github-pat",
                "Description": "GitHub token",
                "StartLine": 3,
                "StartColumn": 1,
                "Match": generated_token(seed),
                "Secret": generated_token(seed),
                "File": f"config/{seed}.env",
                "Commit": "c0ffee" * 6 + "c0ff",
                "Author": "Ada",
                "Date": "2026-01-02T03:04:05Z",
                "Fingerprint": f"config/{seed}.env:github-pat:3",
            }
            | fields
            for seed in seeds
        ]
    ).encode()


def send(tenant: Tenant, body: Any, headers: Mapping[str, str] | None = None, **query: str) -> httpx.Response:
    """Send a report."""
    return tenant.client.post(IMPORTS, content=body, headers=headers, params=query)


def read_import(tenant: Tenant, answer: httpx.Response) -> dict[str, Any]:
    """Return the import of an accepted report."""
    id_ = answer.json()["data"]["id"]
    found: dict[str, Any] = tenant.client.get(f"{IMPORTS}/{id_}").raise_for_status().json()["data"]
    return found


def merge_queued(backend: Backend, tenant: Tenant) -> None:
    """Merge the queued imports of an account, and write their events. No issuer is asked."""
    asyncio.run(_merge_queued(backend, tenant))


async def _merge_queued(backend: Backend, tenant: Tenant) -> None:
    url = backend.settings.database_url or ""
    queued = backend.sql(
        "SELECT id FROM imports WHERE account_id = %s AND status = 'queued' ORDER BY created_at",
        tenant.account.id,
    )
    async with (
        open_pool(url, size=2, statement_timeout=60) as pool,
        open_http(Egress(closed=True)) as http,
    ):
        validation = ValidationContext(
            pool=pool, keys=backend.keys, ruleset=ruleset(), validator=Validator(http, ValidationMode.OFF)
        )
        for (import_id,) in queued:
            await merge_import(MergeContext(pool, backend.keys, url), tenant.account.id, import_id)
            await announce_imported(validation, tenant.account.id, import_id)
