"""Push hooks: create, list, remove, and what to enter at each code host."""

from starlette.responses import Response

from outcrop.domain.account import Permission
from outcrop.domain.errors import BadInputError
from outcrop.domain.push import HookHost
from outcrop.portal.labels import HOOK_HOST
from outcrop.portal.request import PortalRequest, get, post
from outcrop.services.hooks import manage
from outcrop.services.hooks.manage import NewHook


async def show_hooks(request: PortalRequest) -> Response:
    return await _page(request)


async def create_hook(request: PortalRequest) -> Response:
    """Create a hook and show its address and secret once, in this response."""
    host = request.form.get("host")
    try:
        new = await manage.create_hook(
            request.db,
            request.keys,
            request.signed.account,
            host,
            base_url=request.context.base_url,
            by=request.email,
            now=request.now,
        )
    except BadInputError as error:
        message = error.message if host in set(HookHost) else "choose a code host from the list"
        return await _page(request, message=message)
    return await _page(request, new=new, host=HookHost(host))


async def remove_hook(request: PortalRequest) -> Response:
    await manage.remove_hook(
        request.db, request.signed.account, request.path("id"), by=request.email, now=request.now
    )
    return request.redirect("/profile/hooks", "The push hook is removed. Its deliveries are refused.")


async def _page(
    request: PortalRequest,
    *,
    new: NewHook | None = None,
    host: HookHost | None = None,
    message: str | None = None,
) -> Response:
    return request.render(
        "hooks.html",
        400 if message else 200,
        hooks=await manage.list_hooks(request.db, request.signed.account),
        hosts=HOOK_HOST,
        new=new,
        host=host,
        message=message,
    )


ROUTES = [
    get("/profile/hooks", show_hooks, Permission.TARGETS),
    post("/profile/hooks", create_hook, Permission.TARGETS),
    post("/profile/hooks/{id}/remove", remove_hook, Permission.TARGETS),
]
