"""The webhook: saved, its secret shown once, tested, removed; and every delivery there was."""

from datetime import timedelta

from starlette.responses import Response

from outcrop.domain.account import Permission
from outcrop.domain.errors import OutcropError
from outcrop.domain.webhook import KEPT_DAYS
from outcrop.portal.request import Visit, get, now, post
from outcrop.services import webhooks

_SHOWN = 50


async def show_webhook(visit: Visit) -> Response:
    return await _page(visit)


async def save_webhook(visit: Visit) -> Response:
    """Save the address and show the new secret in this very answer."""
    try:
        secret = await webhooks.save_webhook(
            visit.db, visit.keys, visit.signed.account, visit.form.get("url"), by=visit.email, now=now()
        )
    except OutcropError as error:
        return await _page(visit, message=error.message, typed=visit.form.get("url"))
    return await _page(visit, secret=secret)


async def remove_webhook(visit: Visit) -> Response:
    await webhooks.remove_webhook(visit.db, visit.signed.account, by=visit.email, now=now())
    return visit.go("/profile/webhook", "The webhook and its secret are removed.")


async def send_test(visit: Visit) -> Response:
    await webhooks.send_test_event(visit.db, visit.signed.account, by=visit.email, now=now())
    return visit.go("/profile/webhook", "A test event is on its way.")


async def deliver_again(visit: Visit) -> Response:
    await webhooks.redeliver(visit.db, visit.signed.account, visit.id("id"), by=visit.email, now=now())
    return visit.go("/profile/webhook", "The event is on its way again.")


async def _page(
    visit: Visit, *, secret: str | None = None, message: str | None = None, typed: str = ""
) -> Response:
    template = "deliveries.html" if visit.request.headers.get("x-part") == "list" else "webhook.html"
    return visit.render(
        template,
        400 if message else 200,
        webhook=await webhooks.get_webhook(visit.db, visit.account_id),
        deliveries=await webhooks.list_deliveries(visit.db, visit.account_id, limit=_SHOWN),
        oldest=(now() - timedelta(days=KEPT_DAYS)).date(),
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
