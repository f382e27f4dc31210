"""How the API of GitHub answers: its headers, its pages, and the fields that are used."""

from typing import Any
from urllib.parse import parse_qsl, urlencode, urlsplit

from outcrop.sources.code_host.api import ApiStyle

PER_PAGE = 100  # the most that GitHub allows
# Only these fields are used and cached: patches and contents of gists can contain credentials.
_USED_FIELDS = {
    "id", "full_name", "clone_url", "html_url", "private", "visibility", "fork", "archived", "has_wiki",
    "size", "pushed_at", "default_branch", "login", "type", "git_pull_url", "public", "updated_at", "sha",
}  # fmt: skip


def _reduce(value: Any) -> Any:
    """Reduce a decoded resource, or each resource of a list, to _USED_FIELDS; an owner in it likewise.

    Fields whose value is an object or a list are dropped, except `owner`. Items of a list that are not
    objects become None.
    """
    if isinstance(value, list):
        return [_reduce(item) if isinstance(item, dict) else None for item in value]
    owner = value.get("owner")
    return _scalar_fields(value) | ({"owner": _scalar_fields(owner)} if isinstance(owner, dict) else {})


def _scalar_fields(raw: dict[str, Any]) -> dict[str, Any]:
    """Return the fields of `raw` that are in _USED_FIELDS and whose value is no object and no list."""
    return {
        name: value
        for name, value in raw.items()
        if name in _USED_FIELDS and not isinstance(value, dict | list)
    }


def _url_after_full_page(url: str, value: Any) -> str | None:
    """Return the URL of the page after the one at `url`; None if the page at `url` is not full.

    `value` is the decoded page at `url`. The page is full if it is a list of PER_PAGE items.
    """
    if not isinstance(value, list) or len(value) < PER_PAGE:
        return None
    parts = urlsplit(url)
    query = dict(parse_qsl(parts.query))
    return parts._replace(query=urlencode(query | {"page": str(int(query.get("page", "1")) + 1)})).geturl()


HEADERS = {"Accept": "application/vnd.github+json", "X-GitHub-Api-Version": "2022-11-28"}
STYLE = ApiStyle(
    headers=HEADERS,
    reduce=_reduce,
    next_after_304=_url_after_full_page,
)
