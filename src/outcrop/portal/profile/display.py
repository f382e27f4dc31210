"""How pages look in this browser: theme and time zone."""

from starlette.responses import Response

from outcrop.domain.errors import BadInputError
from outcrop.portal.cookies import THEMES, zone_names
from outcrop.portal.request import PortalRequest, get, post


async def show_display(request: PortalRequest) -> Response:
    return request.render("display.html", themes=THEMES, zones=sorted(zone_names()))


async def change_display(request: PortalRequest) -> Response:
    """Store theme and time zone in this browser; an empty choice is that of the system."""
    theme, zone = request.form.get("theme") or None, request.form.get("zone") or None
    if theme is not None and theme not in THEMES:
        raise BadInputError("choose a theme from the list")
    if zone is not None and zone not in zone_names():
        raise BadInputError("choose a time zone from the list")
    response = request.redirect("/profile/display", "Saved in this browser.")
    request.context.cookies.set_display(response, theme=theme, zone=zone)
    return response


ROUTES = [get("/profile/display", show_display, None), post("/profile/display", change_display, None)]
