"""The webhook: save, test, remove, and the log of deliveries."""

from datetime import timedelta

from starlette.responses import Response

from outcrop.domain.account import WEBHOOK_PLANS, Permission
from outcrop.domain.errors import OutcropError
from outcrop.domain.webhook import KEPT_DAYS
from outcrop.portal.request import PortalRequest, get, post
from outcrop.services import webhooks

_SHOWN = 50


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
    await webhooks.remove_webhook(request.db, request.signed.account, by=request.email, now=request.now)
    return request.redirect("/profile/webhook", "The webhook and its secret are removed.")


async def send_test(request: PortalRequest) -> Response:
    await webhooks.send_test_event(request.db, request.signed.account, by=request.email, now=request.now)
    return request.redirect("/profile/webhook", "A test event is queued.")


async def deliver_again(request: PortalRequest) -> Response:
    await webhooks.redeliver(
        request.db, request.signed.account, request.id("id"), by=request.email, now=request.now
    )
    return request.redirect("/profile/webhook", "The event is queued again.")


async def _page(
    request: PortalRequest, *, secret: str | None = None, message: str | None = None, typed: str = ""
) -> Response:
    template = "deliveries.html" if request.http.headers.get("x-part") == "list" else "webhook.html"
    return request.render(
        template,
        400 if message else 200,
        webhook=await webhooks.get_webhook(request.db, request.account_id),
        deliveries=await webhooks.list_deliveries(request.db, request.account_id, limit=_SHOWN),
        oldest=(request.now - timedelta(days=KEPT_DAYS)).date(),
        has_plan=request.signed.account.plan in WEBHOOK_PLANS,
        secret=secret,
        message=message,
        typed=typed,
    )


ROUTES = [
    get("/profile/webhook", show_webhook, Permission.WEBHOOK),
    post("/profile/webhook", save_webhook, Permission.WEBHOOK),
    post("/profile/webhook/remove", remove_webhook, Permission.WEBHOOK),
    post("/profile/webhook/test", send_test, Permission.WEBHOOK),
    post("/profile/webhook/deliveries/{id}/again", deliver_again, Permission.WEBHOOK),
]
