"""Targets of an account: list, add, edit, run, remove."""

from typing import Any

from starlette.responses import Response

from outcrop.domain.account import Permission
from outcrop.domain.errors import BadInputError
from outcrop.domain.scan import Trigger
from outcrop.domain.secret import Secret
from outcrop.domain.target import OPTIONS, Schedule, Target, TargetKind, TargetSpec
from outcrop.portal.queries import whole_number
from outcrop.portal.request import PortalRequest, get, post
from outcrop.services import targets
from outcrop.services.access import AccessReport, is_testable, report_access
from outcrop.services.pipeline.enqueue import start_run
from outcrop.sources.code_host.targets import read_target

# Replaces the names of command-line options in error messages by the names of form fields.
_FORM_WORDS = {
    "pass a credential with --credential-stdin": "enter the credential in its field below",
    "--type page": "the kind “Single page”",
    "--type site": "the kind “Web site”",
    "--host-url": "the field “Address of the code host”",
}
_UNTESTABLE = AccessReport(
    "Access can be tested for the organisations and repositories of a code host.", is_ok=True
)
KINDS = [kind for kind in TargetKind if kind is not TargetKind.FOLDER]


async def show_targets(request: PortalRequest) -> Response:
    listed = await targets.list_health(request.db, request.keys, request.account_id)
    return request.render("targets.html", targets=[(health, health.state(request.now)) for health in listed])


async def new_target(request: PortalRequest) -> Response:
    return _form(request, None, {})


async def add_target(request: PortalRequest) -> Response:
    """Add a target, unless its access is only to be tested, or the test fails and nobody insists."""
    form, account = request.form, request.signed.account
    try:
        kind = None if not form.get("kind") else TargetKind(form.get("kind"))
        host_url, web_host = form.get("host_url") or None, request.context.github_host
        found = read_target(form.get("target"), kind, host_url=host_url, web_host=web_host)
        spec = TargetSpec(found.kind, found.name, host_url=found.host_url)
        if "test" in form or "anyway" not in form:
            tested = await _test_access(request, spec)
            if "test" in form or not (tested is None or tested.is_ok):
                return _form(request, None, _typed(request), tested=tested or _UNTESTABLE)
        target = await targets.add_target(
            *(request.db, request.keys, account, form.get("target")),
            kind=found.kind,
            schedule=_schedule(request),
            include=form.lines("include"),
            exclude=form.lines("exclude"),
            chosen=_options(request, found.kind),
            credential=_credential(request),
            by=request.email,
            now=request.now,
            host_url=host_url,
            web_host=web_host,
        )
    except (BadInputError, ValueError) as error:
        message = error.message if isinstance(error, BadInputError) else "choose a kind from the list"
        return _form(request, None, _typed(request), message)
    if "run" in form:
        run = await start_run(
            request.db,
            request.keys,
            account.id,
            target.spec,
            trigger=Trigger.PORTAL,
            target_id=target.id,
            moment=request.now,
            by=request.email,
        )
        return _done(request, f"/scans/{run.id}", "Target added. Its first run has started.")
    return _done(request, "/targets", "Target added.")


async def _test_access(request: PortalRequest, spec: TargetSpec) -> AccessReport | None:
    """Return what the typed credential can see of a target; None if that cannot be tested."""
    check = request.context.access
    if check is None or not is_testable(check, spec):
        return None
    return await report_access(check, spec, _credential(request))


async def edit_page(request: PortalRequest) -> Response:
    target = await targets.get_target(request.db, request.keys, request.signed.account, request.path("id"))
    return _form(request, target, {})


async def edit_target(request: PortalRequest) -> Response:
    form, account = request.form, request.signed.account
    target = await targets.get_target(request.db, request.keys, account, request.path("id"))
    try:
        if form.get("credential") and "anyway" not in form:
            tested = await _test_access(request, target.spec)
            if not (tested is None or tested.is_ok):
                return _form(request, target, _typed(request), tested=tested)
        await targets.edit_target(
            *(request.db, request.keys, account, target),
            schedule=_schedule(request),
            include=form.lines("include"),
            exclude=form.lines("exclude"),
            chosen=_options(request, target.spec.kind),
            credential=_credential(request),
            forget_credential="forget" in form,
            by=request.email,
            now=request.now,
        )
    except BadInputError as error:
        return _form(request, target, _typed(request), error.message)
    return _done(request, "/targets", "Target changed.")


async def run_target(request: PortalRequest) -> Response:
    target = await targets.get_target(request.db, request.keys, request.signed.account, request.path("id"))
    run = await start_run(
        request.db,
        request.keys,
        request.account_id,
        target.spec,
        trigger=Trigger.PORTAL,
        target_id=target.id,
        moment=request.now,
        by=request.email,
    )
    return request.redirect(f"/scans/{run.id}", "The run has started.")


async def remove_target(request: PortalRequest) -> Response:
    await targets.remove_target(
        request.db, request.signed.account, request.path("id"), by=request.email, now=request.now
    )
    return request.redirect("/targets", "Target removed. Its findings stay.")


def _form(
    request: PortalRequest,
    target: Target | None,
    typed: dict[str, Any],
    message: str | None = None,
    tested: AccessReport | None = None,
) -> Response:
    """Render the form for a new or existing target, or for the script only what is wrong with it."""
    for option, field in _FORM_WORDS.items():
        message = message and message.replace(option, field)
    return request.render(
        "target_access.html" if _is_script(request) else "target_form.html",
        400 if message or (tested and not tested.is_ok) else 200,
        target=target,
        typed=typed,
        message=message,
        tested=tested,
        kinds=KINDS,
        schedules=list(Schedule),
        options=OPTIONS,
    )


def _is_script(request: PortalRequest) -> bool:
    """Whether the script has sent the form: it keeps the page, so that the credential stays in its field."""
    return request.http.headers.get("x-part") == "access"


def _done(request: PortalRequest, to: str, flash: str) -> Response:
    """Lead to another page, which says that the form has done its work."""
    response = request.redirect(to, flash)
    if _is_script(request):  # a script cannot see where a redirect leads without following it
        response.status_code = 204
        response.headers["X-Location"] = to
        del response.headers["location"]
    return response


def _typed(request: PortalRequest) -> dict[str, Any]:
    """Return the typed values, to show them again; never the credential."""
    form = request.form
    typed: dict[str, Any] = {
        name: form.get(name) for name in ("target", "host_url", "kind", "schedule", "include", "exclude")
    }
    for kind, options in OPTIONS.items():
        for field in (f"{kind}.{name}" for name in options):
            if f"{field}.shown" in form:
                typed[field] = field in form
            elif field in form:
                typed[field] = form.get(field)
    return typed | {"forget": "forget" in form, "had_credential": bool(form.get("credential"))}


def _schedule(request: PortalRequest) -> Schedule:
    try:
        return Schedule(request.form.get("schedule") or Schedule.OFF)
    except ValueError:
        raise BadInputError("choose a schedule from the list") from None


def _options(request: PortalRequest, kind: TargetKind) -> dict[str, bool | int]:
    """Return the chosen options of this kind.

    Browsers do not send unchecked boxes, so the form also sends the names of the boxes that it shows.
    """
    chosen: dict[str, bool | int] = {}
    for name, default in OPTIONS[kind].items():
        field = f"{kind}.{name}"
        if isinstance(default, bool):
            if f"{field}.shown" in request.form:
                chosen[name] = field in request.form
        elif text := request.form.get(field):
            if (number := whole_number(text)) is None:
                raise BadInputError(f"{name} must be a number")
            chosen[name] = number
    return chosen


def _credential(request: PortalRequest) -> Secret | None:
    text = request.form.get("credential")
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
