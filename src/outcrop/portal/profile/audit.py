"""The audit trail: a list with filters, and a download as JSON Lines."""

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import orjson
from starlette.responses import Response, StreamingResponse

from outcrop.domain.account import Permission
from outcrop.domain.audit import AuditFilter
from outcrop.domain.errors import BadInputError
from outcrop.portal.queries import whole_number
from outcrop.portal.request import PortalRequest, get
from outcrop.services import audit

_PER_PAGE = 100
_FIELDS = ("action", "actor", "target", "outcome")


async def show_audit(request: PortalRequest) -> Response:
    parameters = request.http.query_params
    chosen = {name: parameters.get(name, "").strip() for name in _FIELDS}
    action, actor, target, outcome = (value or None for value in chosen.values())
    conditions = AuditFilter(action=action, actor=actor, target=target, outcome=outcome)
    before = whole_number(parameters.get("before", ""))
    try:
        lines, message = (
            await audit.list_trail(
                request.db, request.signed.account, conditions, limit=_PER_PAGE, before=before
            ),
            None,
        )
    except BadInputError as error:
        lines, message = [], error.message
    return request.render(
        "audit.html", lines=lines, chosen=chosen, more=len(lines) == _PER_PAGE, message=message
    )


async def export_audit(request: PortalRequest) -> Response:
    account = request.signed.account

    async def body() -> AsyncIterator[bytes]:
        async for lines in audit.read_trail(request.connect, account):
            yield await asyncio.to_thread(_write_lines, lines)

    name = f"outcrop-audit-{account.slug}-{request.now:%Y%m%d}.jsonl"
    headers = {"Content-Disposition": f'attachment; filename="{name}"'}
    return StreamingResponse(body(), media_type="application/x-ndjson", headers=headers)


def _write_lines(lines: list[dict[str, Any]]) -> bytes:
    return b"".join(orjson.dumps(line, option=orjson.OPT_APPEND_NEWLINE) for line in lines)


ROUTES = [
    get("/profile/audit", show_audit, Permission.AUDIT),
    get("/profile/audit.jsonl", export_audit, Permission.AUDIT),
]
