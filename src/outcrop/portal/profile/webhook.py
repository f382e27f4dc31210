"""The webhook: save, test, remove, and the log of deliveries."""

import re
from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from urllib.parse import parse_qsl

from starlette.responses import Response

from outcrop.domain.account import WEBHOOK_PLANS, Permission
from outcrop.domain.errors import BadInputError, OutcropError
from outcrop.domain.events import EventType
from outcrop.domain.ids import parse_id
from outcrop.domain.webhook import KEPT_DAYS, LATEST_SWITCH, DeliveryFilter, DeliveryState
from outcrop.portal.queries import read_choice, read_day, read_values
from outcrop.portal.render import query_string
from outcrop.portal.request import PortalRequest, get, post
from outcrop.services import webhooks

_SHOWN = 50
_EVENTS = (*EventType, "webhook.test")
_FILTERS = ("event", "state", "finding", "date_from", "date_to")


async def show_webhook(request: PortalRequest) -> Response:
    return await _page(request)


async def save_webhook(request: PortalRequest) -> Response:
    """Save the address and show the new secret once, in this response."""
    try:
        secret = await webhooks.save_webhook(
            request.db,
            request.keys,
            request.signed.account,
            request.form.get("url"),
            ports=request.context.webhook_ports,
            by=request.email,
            now=request.now,
        )
    except OutcropError as error:
        return await _page(request, message=error.message, typed=request.form.get("url"))
    return await _page(request, secret=secret)


async def remove_webhook(request: PortalRequest) -> Response:
    await webhooks.remove_webhook(
        request.db, request.keys, request.signed.account, by=request.email, now=request.now
    )
    return request.redirect("/profile/webhook", "The webhook and its secret are removed.")


async def send_test(request: PortalRequest) -> Response:
    await webhooks.send_test_event(request.db, request.signed.account, by=request.email, now=request.now)
    return request.redirect("/profile/webhook", "A test event is queued.")


async def prepare_secret(request: PortalRequest) -> Response:
    """Create the next secret and show it once, in this response."""
    secret = await webhooks.prepare_secret(
        request.db, request.keys, request.signed.account, by=request.email, now=request.now
    )
    return await _page(request, next_secret=secret)


async def switch_secret(request: PortalRequest) -> Response:
    """Make the next secret the secret, now or at the chosen time; or discard it."""
    account, act = request.signed.account, request.form.get("act")
    if act == "discard":
        await webhooks.discard_secret(request.db, account, by=request.email, now=request.now)
        return request.redirect("/profile/webhook", "The next secret is discarded.")
    try:
        at = _read_time(request) if act == "later" else None
        await webhooks.switch_secret(request.db, account, at, by=request.email, now=request.now)
    except BadInputError as error:
        return await _page(request, switch_message=error.message)
    message = "The next secret is the secret now." if at is None else "The switch is planned."
    return request.redirect("/profile/webhook", message)


def _read_time(request: PortalRequest) -> datetime:
    """Return the time of the form, in the zone of the browser; raise BadInputError for another text."""
    text = request.form.get("at")
    if not re.fullmatch(r"\d{4}-\d\d-\d\dT\d\d:\d\d(:\d\d)?", text, re.ASCII):
        raise BadInputError("choose a day and a time")
    try:
        return datetime.fromisoformat(text).replace(tzinfo=request.zone).astimezone(UTC)
    except (OverflowError, ValueError):
        raise BadInputError("choose a day and a time") from None


async def deliver_again(request: PortalRequest) -> Response:
    await webhooks.redeliver(
        request.db, request.signed.account, request.id("id"), by=request.email, now=request.now
    )
    return request.redirect("/profile/webhook", "The event is queued again.")


async def deliver_several_again(request: PortalRequest) -> Response:
    """Queue the chosen events again, or all that match the filter of the page."""
    view = dict(parse_qsl(request.form.get("view").lstrip("?")[:2_000]))
    wanted, values, problems = _read_filter(request, view)
    if problems:
        raise BadInputError(f"nothing was sent, because the filter is invalid: {', '.join(problems)}")
    ids = [id_ for text in request.form.all("id") if (id_ := parse_id(text)) is not None]
    if request.form.get("act") != "all" and not ids:
        raise BadInputError("choose a delivery first")
    count = await webhooks.redeliver_all(
        request.db,
        request.signed.account,
        wanted if request.form.get("act") == "all" else ids,
        by=request.email,
        now=request.now,
    )
    message = f"{count:,} event{'' if count == 1 else 's'} queued again."
    return request.redirect(f"/profile/webhook{query_string(values)}", message, refused=not count)


async def show_delivery(request: PortalRequest) -> Response:
    """Show one delivery with the body as it was sent."""
    delivery = await webhooks.get_delivery(request.db, request.account_id, request.id("id"))
    body = await webhooks.get_body(request.db, request.account_id, delivery.id)
    return request.render("delivery.html", delivery=delivery, body=None if body is None else body.decode())


def _read_filter(
    request: PortalRequest, parameters: Mapping[str, str]
) -> tuple[DeliveryFilter, dict[str, str], list[str]]:
    """Return the filter of a query string, its valid parameters, and the invalid values, which it ignores."""
    values = read_values(parameters, _FILTERS)
    problems: list[str] = []
    finding_id = parse_id(values.get("finding", ""))
    if finding_id is None and "finding" in values:
        problems.append(f"finding “{values.pop('finding')[:40]}”")
    if values.get("event", _EVENTS[0]) not in _EVENTS:
        problems.append(f"event “{values.pop('event')[:40]}”")
    wanted = DeliveryFilter(
        event=values.get("event"),
        state=read_choice(values, "state", problems, DeliveryState),
        finding_id=finding_id,
        since=read_day(values, "date_from", problems, request.zone),
        until=read_day(values, "date_to", problems, request.zone, following=True),
    )
    return wanted, values, problems


async def _page(
    request: PortalRequest,
    *,
    secret: str | None = None,
    next_secret: str | None = None,
    message: str | None = None,
    switch_message: str | None = None,
    typed: str = "",
) -> Response:
    """Render the page; `message` is what was wrong with the address, `switch_message` with the switch."""
    template = "deliveries.html" if request.http.headers.get("x-part") == "list" else "webhook.html"
    parameters = request.http.query_params
    wanted, values, problems = _read_filter(request, parameters)
    found = await webhooks.list_deliveries(
        *(request.db, request.account_id),
        limit=_SHOWN + 1,
        before=parse_id(parameters.get("before", "")),
        wanted=wanted,
    )
    return request.render(
        template,
        400 if message or switch_message else 200,
        webhook=await webhooks.get_webhook(request.db, request.keys, request.account_id),
        deliveries=found[:_SHOWN],
        more=len(found) > _SHOWN,
        chosen=values,
        problems=problems,
        states=list(DeliveryState),
        events=_EVENTS,
        latest=(request.now + LATEST_SWITCH).astimezone(request.zone).strftime("%Y-%m-%dT%H:%M"),
        oldest=(request.now - timedelta(days=KEPT_DAYS)).date(),
        has_plan=request.signed.account.plan in WEBHOOK_PLANS,
        secret=secret,
        next_secret=next_secret,
        message=message,
        switch_message=switch_message,
        typed=typed,
    )


ROUTES = [
    get("/profile/webhook", show_webhook, Permission.WEBHOOK),
    post("/profile/webhook", save_webhook, Permission.WEBHOOK),
    post("/profile/webhook/remove", remove_webhook, Permission.WEBHOOK),
    post("/profile/webhook/test", send_test, Permission.WEBHOOK),
    post("/profile/webhook/secret/prepare", prepare_secret, Permission.WEBHOOK),
    post("/profile/webhook/secret/switch", switch_secret, Permission.WEBHOOK),
    post("/profile/webhook/deliveries/again", deliver_several_again, Permission.WEBHOOK),
    get("/profile/webhook/deliveries/{id}", show_delivery, Permission.WEBHOOK),
    post("/profile/webhook/deliveries/{id}/again", deliver_again, Permission.WEBHOOK),
]
