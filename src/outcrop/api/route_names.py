"""Name the route of a path for the metrics: its template, which contains no id and no address."""

from collections.abc import Sequence

from starlette.routing import Route

from outcrop.lazy_regex import regex
from outcrop.metrics import UNMATCHED

_CONVERTER = regex(r":\w+(?=\})")  # as in {address:path}


class RouteNames:
    """The templates of all routes of the application."""

    def __init__(self, routes: Sequence[Route]) -> None:
        self._exact = {route.path: route.path for route in routes if "{" not in route.path}
        self._patterns = [
            (route.path_regex, _CONVERTER.sub("", route.path)) for route in routes if "{" in route.path
        ]

    def find(self, path: str) -> str:
        """Return the template of the first route that has this path, with or without a slash at the end."""
        path = path.removesuffix("/") or "/"
        if (name := self._exact.get(path)) is not None:
            return name
        for pattern, name in self._patterns:
            if pattern.match(path):
                return name
        return UNMATCHED
