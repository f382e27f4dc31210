"""The audit trail: a list with filters, and a download as JSON Lines."""

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import orjson
from starlette.responses import Response, StreamingResponse

from outcrop.domain.account import Permission
from outcrop.domain.audit import AuditFilter
from outcrop.domain.errors import BadInputError
from outcrop.domain.ids import parse_id
from outcrop.portal.queries import read_day, whole_number
from outcrop.portal.request import PortalRequest, get
from outcrop.services import audit
from outcrop.store.audit import AuditLine

_PER_PAGE = 100
_FIELDS = ("action", "actor", "target", "outcome")
_DAYS = ("date_from", "date_to")
# Pages about the targets of actions; the record may have been removed since.
_PAGES = {"finding": "/findings", "incident": "/incidents", "scan": "/scans", "target": "/targets"}


async def show_audit(request: PortalRequest) -> Response:
    parameters = request.http.query_params
    chosen = {name: parameters.get(name, "").strip() for name in _FIELDS}
    action, actor, target, outcome = (value or None for value in chosen.values())
    days = {name: text for name in _DAYS if (text := parameters.get(name, "").strip())}
    problems: list[str] = []
    conditions = AuditFilter(
        action=action,
        actor=actor,
        target=target,
        outcome=outcome,
        since=read_day(days, "date_from", problems, request.zone),
        until=read_day(days, "date_to", problems, request.zone, following=True),
    )
    before = whole_number(parameters.get("before", ""))
    try:
        lines, message = (
            await audit.list_trail(
                request.db, request.signed.account, conditions, limit=_PER_PAGE, before=before
            ),
            f"ignored, because it is invalid: {problems[0]}" if problems else None,
        )
    except BadInputError as error:
        lines, message = [], error.message
    return request.render(
        "audit.html",
        lines=[(number, line, _page_of(line)) for number, line in lines],
        chosen=chosen | {name: days.get(name, "") for name in _DAYS},
        more=len(lines) == _PER_PAGE,
        message=message,
    )


def _page_of(line: AuditLine) -> str | None:
    """Return the address of the page about the target of an audit line; None if it has none."""
    subject = line.action.partition(".")[0]
    if line.target is None or subject not in _PAGES or parse_id(line.target) is None:
        return None
    return f"{_PAGES[subject]}/{line.target}"


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
