"""Targets: where an account has us look, and how often."""

from typing import Any

from starlette.responses import Response

from outcrop.domain.account import Permission
from outcrop.domain.errors import BadInputError
from outcrop.domain.scan import Trigger
from outcrop.domain.secret import Secret
from outcrop.domain.target import OPTIONS, Schedule, Target, TargetKind, parse_target
from outcrop.portal.queries import whole_number
from outcrop.portal.request import Visit, get, now, post
from outcrop.services import targets
from outcrop.services.pipeline.enqueue import start_run

# What an error says to who is at the command line, in the form's words.
_HERE = {
    "comes by --credential-stdin": "has a field of its own below",
    "--type page": "the kind “Single page”",
}
KINDS = [kind for kind in TargetKind if kind is not TargetKind.FOLDER]


async def show_targets(visit: Visit) -> Response:
    return visit.render("targets.html", targets=await targets.list_targets(visit.db, visit.signed.account))


async def new_target(visit: Visit) -> Response:
    return _form(visit, None, {})


async def add_target(visit: Visit) -> Response:
    form, account = visit.form, visit.signed.account
    try:
        kind = None if not form.get("kind") else TargetKind(form.get("kind"))
        found, _ = parse_target(form.get("target"), kind, web_host=visit.house.github_host)
        target = await targets.add_target(
            *(visit.db, visit.keys, account, form.get("target")),
            kind=found,
            schedule=_schedule(visit),
            include=form.lines("include"),
            exclude=form.lines("exclude"),
            chosen=_options(visit, found),
            credential=_credential(visit),
            by=visit.email,
            now=now(),
            web_host=visit.house.github_host,
        )
    except (BadInputError, ValueError) as error:
        message = error.message if isinstance(error, BadInputError) else "choose a kind from the list"
        return _form(visit, None, _typed(visit), message)
    if "run" in form:
        run = await start_run(
            visit.db,
            account.id,
            target.spec,
            trigger=Trigger.PORTAL,
            target_id=target.id,
            moment=now(),
            by=visit.email,
        )
        return visit.go(f"/scans/{run.id}", "Target added; its first run has begun.")
    return visit.go("/targets", "Target added.")


async def edit_page(visit: Visit) -> Response:
    target = await targets.get_target(visit.db, visit.signed.account, visit.path("id"))
    return _form(visit, target, {})


async def edit_target(visit: Visit) -> Response:
    form, account = visit.form, visit.signed.account
    target = await targets.get_target(visit.db, account, visit.path("id"))
    try:
        await targets.edit_target(
            *(visit.db, visit.keys, account, target),
            schedule=_schedule(visit),
            include=form.lines("include"),
            exclude=form.lines("exclude"),
            chosen=_options(visit, target.spec.kind),
            credential=_credential(visit),
            forget_credential="forget" in form,
            by=visit.email,
            now=now(),
        )
    except BadInputError as error:
        return _form(visit, target, _typed(visit), error.message)
    return visit.go("/targets", "Target changed.")


async def run_target(visit: Visit) -> Response:
    target = await targets.get_target(visit.db, visit.signed.account, visit.path("id"))
    run = await start_run(
        visit.db,
        visit.account_id,
        target.spec,
        trigger=Trigger.PORTAL,
        target_id=target.id,
        moment=now(),
        by=visit.email,
    )
    return visit.go(f"/scans/{run.id}", "The run has begun.")


async def remove_target(visit: Visit) -> Response:
    await targets.remove_target(visit.db, visit.signed.account, visit.path("id"), by=visit.email, now=now())
    return visit.go("/targets", "Target removed. What was found there stays.")


def _form(visit: Visit, target: Target | None, typed: dict[str, Any], message: str | None = None) -> Response:
    for elsewhere, here in _HERE.items():
        message = message and message.replace(elsewhere, here)
    return visit.render(
        "target_form.html",
        400 if message else 200,
        target=target,
        typed=typed,
        message=message,
        kinds=KINDS,
        schedules=list(Schedule),
        options=OPTIONS,
    )


def _typed(visit: Visit) -> dict[str, Any]:
    """Give what was typed, to be shown again; never the credential."""
    form = visit.form
    typed: dict[str, Any] = {
        name: form.get(name) for name in ("target", "kind", "schedule", "include", "exclude")
    }
    for kind, options in OPTIONS.items():
        for field in (f"{kind}.{name}" for name in options):
            if f"{field}.shown" in form:
                typed[field] = field in form
            elif field in form:
                typed[field] = form.get(field)
    return typed | {"forget": "forget" in form}


def _schedule(visit: Visit) -> Schedule:
    try:
        return Schedule(visit.form.get("schedule") or Schedule.OFF)
    except ValueError:
        raise BadInputError("choose a schedule from the list") from None


def _options(visit: Visit, kind: TargetKind) -> dict[str, bool | int]:
    """Read the options of this kind: a box that is not ticked is not sent, which is why the form names those it shows."""
    chosen: dict[str, bool | int] = {}
    for name, usual in OPTIONS[kind].items():
        field = f"{kind}.{name}"
        if isinstance(usual, bool):
            if f"{field}.shown" in visit.form:
                chosen[name] = field in visit.form
        elif text := visit.form.get(field):
            if (number := whole_number(text)) is None:
                raise BadInputError(f"{name} is a number")
            chosen[name] = number
    return chosen


def _credential(visit: Visit) -> Secret | None:
    text = visit.form.get("credential")
    return Secret(text, mask_all=True) if text else None


ROUTES = [
    get("/targets", show_targets),
    get("/targets/new", new_target, Permission.TARGETS),
    post("/targets", add_target, Permission.TARGETS),
    get("/targets/{id}", edit_page, Permission.TARGETS),
    post("/targets/{id}", edit_target, Permission.TARGETS),
    post("/targets/{id}/run", run_target, Permission.SCAN),
    post("/targets/{id}/remove", remove_target, Permission.TARGETS),
]
