"""The push hooks of Bitbucket Cloud and Bitbucket Data Center."""

from outcrop.domain.push import HookHost, ReportedPush
from outcrop.domain.secret import Secret
from outcrop.limits import PUSH_ADDRESS_LENGTH
from outcrop.sources.hooks.delivery import (
    BodyCheck,
    Headers,
    HookProtocol,
    Payload,
    branch_name,
    build_push,
    check_hex_signature,
    commit_of,
    id_of,
    list_of,
    text_of,
)

_PAGE = "/browse"  # the end of the address of a repository's page on Data Center


def _check(headers: Headers, secret: Secret, _now: float) -> BodyCheck | None:
    return check_hex_signature(headers.get("x-hub-signature"), secret, "sha256=")


def _delivery_id(headers: Headers, _: Payload) -> str | None:
    return headers.get("x-request-uuid") or headers.get("x-request-id")


def _read_pushes(headers: Headers, payload: Payload) -> list[ReportedPush]:
    match headers.get("x-event-key"):
        case "repo:push":
            return [_read_cloud(payload)]
        case "repo:refs_changed":
            return [_read_data_center(payload)]
    return []


def _read_cloud(payload: Payload) -> ReportedPush:
    changes = list_of(payload, "push", "changes")
    last = changes[-1] if changes else {}
    branches = [text_of(change, "new", "name") or text_of(change, "old", "name") for change in changes]
    return build_push(
        HookHost.BITBUCKET,
        repository_id=id_of(payload, "repository", "uuid"),
        full_name=text_of(payload, "repository", "full_name"),
        addresses=(text_of(payload, "repository", "links", "html", "href", limit=PUSH_ADDRESS_LENGTH + 1),),
        branches=tuple(branches),
        author=text_of(payload, "actor", "display_name") or text_of(payload, "actor", "nickname"),
        before=commit_of(last, "old", "target", "hash"),
        after=commit_of(last, "new", "target", "hash"),
    )


def _read_data_center(payload: Payload) -> ReportedPush:
    changes = list_of(payload, "changes")
    last = changes[-1] if changes else {}
    branches = [
        text_of(change, "ref", "displayId") or branch_name(text_of(change, "ref", "id")) for change in changes
    ]
    project, slug = text_of(payload, "repository", "project", "key"), text_of(payload, "repository", "slug")
    clones = list_of(payload, "repository", "links", "clone")
    pages = list_of(payload, "repository", "links", "self")
    links = [text_of(link, "href", limit=PUSH_ADDRESS_LENGTH + 1) for link in (*clones, *pages)]
    return build_push(
        HookHost.BITBUCKET,
        repository_id=id_of(payload, "repository", "id"),
        full_name=f"{project}/{slug}" if project and slug else None,
        addresses=tuple(_clone_address(link) for link in links),
        branches=tuple(branches),
        author=text_of(payload, "actor", "displayName") or text_of(payload, "actor", "name"),
        before=commit_of(last, "fromHash"),
        after=commit_of(last, "toHash"),
    )


def _clone_address(link: str | None) -> str | None:
    """Return the clone URL of a link: a page `/projects/KEY/repos/SLUG/browse` has `/scm/KEY/SLUG.git`."""
    if link is None or not link.endswith(_PAGE):
        return link
    base, projects, rest = link.removesuffix(_PAGE).partition("/projects/")
    key, repositories, slug = rest.partition("/repos/")
    return f"{base}/scm/{key}/{slug}.git" if projects and repositories else link


PROTOCOL = HookProtocol(_check, _delivery_id, _read_pushes)
