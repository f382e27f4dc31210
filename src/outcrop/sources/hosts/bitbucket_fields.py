"""Names, tokens and fields that Bitbucket Cloud and Bitbucket Data Center have in common."""

import re
from collections.abc import Mapping
from typing import Any

from outcrop.domain.secret import Secret
from outcrop.lazy_regex import regex
from outcrop.sources.code_host.api import ApiStyle
from outcrop.sources.code_host.discussion import read_time
from outcrop.sources.code_host.fields import Fields
from outcrop.sources.code_host.hosted import HostedText
from outcrop.sources.code_host.instance import basic_auth, inner, split_login
from outcrop.sources.code_host.reviews import CONTEXT, CommitStatus

PUBLIC = "https://bitbucket.org"
NAME = r"(?!\.{1,2}(?:/|\Z))~?[A-Za-z0-9._-]{1,128}?"
OWNER = regex(NAME)
FULL_NAME = regex(rf"({NAME})/({NAME})(?:\.git)?")
SHA = regex(r"[0-9a-f]{4,64}", re.IGNORECASE)
FIELDS = Fields("Bitbucket")
# The writer of a pull request, a comment or an issue: the first three on Cloud, the others on Data Center.
_AUTHORS = (
    ("author", "nickname"),
    ("user", "nickname"),
    ("reporter", "nickname"),
    ("author", "user", "name"),
    ("author", "name"),
)


def clone_href(raw: Any) -> str | None:
    """Return the https clone address in decoded JSON, without the user name that it may have."""
    links = inner(raw, "links", "clone")
    for link in links if isinstance(links, list) else ():
        href = inner(link, "href")
        if inner(link, "name") in {"https", "http"} and isinstance(href, str):
            scheme, separator, rest = href.partition("://")
            host, slash, path = rest.partition("/")
            return f"{scheme}{separator}{host.rpartition('@')[2]}{slash}{path}"
    return None


def comment_path(own: str, comment: Any) -> str:
    """Return the path of a comment of the pull request or issue with the path `own`."""
    return f"{own}/comments/{FIELDS.field(comment, 'id', int)}"


def text_at(path: str, url: str, text: str, raw: Any) -> HostedText:
    """Return a text at an address, with its author."""
    author = next((name for keys in _AUTHORS if (name := inner(raw, *keys))), None)
    created_at = read_time(raw, "created_on") or read_time(raw, "createdDate")
    return HostedText(path, url, text, author if isinstance(author, str) else None, created_at)


def build_status(status: CommitStatus) -> dict[str, str]:
    """Return a status of a commit as both Bitbuckets take it."""
    state = "SUCCESSFUL" if status.is_clean else "FAILED"
    return {
        "key": CONTEXT,
        "name": "Outcrop",
        "state": state,
        "description": status.description,
        "url": status.url,
    }


def send_token(token: Secret) -> Mapping[str, str]:
    """Return the header for an access token, or for a user (an e-mail address) with an API token."""
    user, password = split_login(token)
    return {"Authorization": f"Bearer {password}"} if user is None else basic_auth(user, password)


def _read_message(value: Any) -> object:
    """Return the reason in the body of an error."""
    errors = value.get("errors")
    first = errors[0] if isinstance(errors, list) and errors else None
    return inner(value, "error", "message") or inner(first, "message")


STYLE = ApiStyle(read_message=_read_message)
