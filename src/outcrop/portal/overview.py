"""The overview page: findings that need attention, counts, the health of targets, first steps."""

from typing import NamedTuple

from starlette.responses import Response

from outcrop.domain.account import WEBHOOK_PLANS, Permission
from outcrop.domain.target import TargetState
from outcrop.portal.request import PortalRequest, get, post
from outcrop.services import overview, targets, webhooks
from outcrop.services.findings.mentions import list_mentions

_WORST_FIRST = list(TargetState)


class FirstStep(NamedTuple):
    """A first step of a new account."""

    is_done: bool
    title: str
    reason: str
    address: str  # of the page where it is done


async def show_overview(request: PortalRequest) -> Response:
    figures = await overview.get_overview(request.db, request.account_id, now=request.now)
    webhook = (
        await webhooks.get_webhook(request.db, request.keys, request.account_id)
        if request.may(Permission.WEBHOOK)
        else None
    )
    health = await targets.list_health(request.db, request.keys, request.account_id)
    states = [(target, target.state(request.now)) for target in health]
    return request.render(
        "overview.html",
        found=figures,
        steps=await _list_steps(request),
        targets=sorted(states, key=lambda pair: _WORST_FIRST.index(pair[1])),
        unknown=sum(target.complete is None for target in health),
        days=[(day.day, day.valid, day.other) for day in figures.days],
        webhook=webhook,
        mentions=await list_mentions(request.db, request.account_id, request.signed.member.id),
    )


async def dismiss_steps(request: PortalRequest) -> Response:
    """Show the first steps no longer, to nobody in the account."""
    await overview.dismiss_checklist(request.db, request.account_id, now=request.now)
    return request.redirect("/", "The first steps are hidden.")


async def _list_steps(request: PortalRequest) -> list[FirstStep]:
    """Return the first steps of the account; none if all are done, or somebody has dismissed them."""
    if not request.may(Permission.TARGETS):
        return []
    done = await overview.get_checklist(
        request.db, request.account_id, request.signed.member.id, now=request.now
    )
    steps = [
        FirstStep(done.target, "Add a target", "What Outcrop scans, such as an organisation.", "/targets/new")
    ]
    if request.signed.account.plan in WEBHOOK_PLANS:
        reason = "Your own systems hear of new findings at once."
        steps.append(FirstStep(done.webhook, "Set up a webhook", reason, "/profile/webhook"))
    steps += [
        FirstStep(done.team, "Invite your team", "Findings are worked off together.", "/profile/team"),
        FirstStep(
            *(done.second_factor, "Turn on a second factor"),
            *("These pages say where credentials are: protect your sign-in.", "/profile/security"),
        ),
    ]
    return [] if done.is_dismissed or all(step.is_done for step in steps) else steps


ROUTES = [
    get("/", show_overview),
    post("/first-steps/dismiss", dismiss_steps, Permission.TARGETS),
]
