"""A stand-in of GitLab's REST API, version 4."""

from urllib.parse import quote, unquote, urlencode

from tests.support.code_hosts.stand_in import (
    FakeResponse,
    ReceivedRequest,
    Repository,
    StandIn,
    answer_json,
    not_found,
    query_of,
)

LOGIN = ("PRIVATE-TOKEN", "glpat-made-up")


def gitlab(host: str = "gitlab.com", prefix: str = "") -> StandIn:
    """Return a stand-in of GitLab at `https://HOST/PREFIX`."""
    base = f"https://{host}{prefix}"

    def project(repo: Repository) -> dict[str, object]:
        fields: dict[str, object] = {
            "id": repo.id,
            "name": repo.name,
            "path": repo.name,
            "path_with_namespace": repo.path,
            "http_url_to_repo": f"{base}/{repo.path}.git",
            "web_url": f"{base}/{repo.path}",
            "visibility": "private" if repo.private else "public",
            "archived": repo.archived,
            "empty_repo": not repo.commits,
            "wiki_enabled": repo.wiki,
            "wiki_access_level": "enabled" if repo.wiki else "disabled",
            "repository_access_level": "enabled",
            "snippets_enabled": True,
            "default_branch": "main" if repo.commits else None,
            "last_activity_at": "2024-05-01T10:00:00.000Z",
            "permissions": {
                "project_access": None,
                "group_access": None if repo.access_level is None else {"access_level": repo.access_level},
            },
        }
        for name, is_on in repo.features.items():
            fields[f"{name}_access_level"] = "enabled" if is_on else "disabled"
        return fields | ({"forked_from_project": {"id": 1}} if repo.fork else {})

    def answer(state: StandIn, request: ReceivedRequest) -> FakeResponse:
        visible = state.visible(request)
        path = request.path.removeprefix(f"{prefix}/api/v4/")
        if path in state.texts:
            return answer_json(state.texts[path])
        if (text := state.find_text(path)) is not None:
            return answer_json(text)
        match path.split("/"):
            case ["user"]:
                return answer_json({"id": 1, "username": "robot"})
            case ["personal_access_tokens", "self"]:
                return answer_json({"id": 1, "scopes": ["read_api"]})
            case ["users"]:
                return answer_json([])
            case ["groups", group]:
                name = unquote(group)
                owners = {repo.owner for repo in visible}
                has = any(owner == name or owner.startswith(f"{name}/") for owner in owners)
                return answer_json({"id": 9, "full_path": name}) if has else not_found("404 Group Not Found")
            case ["groups", group, "projects"]:
                name = unquote(group)
                listed = [r for r in visible if r.owner == name or r.owner.startswith(f"{name}/")]
                shown, headers = _page(state, request, listed, f"https://{host}{request.path}")
                return answer_json([project(repo) for repo in shown], headers=headers)
            case ["projects", key, *rest]:
                name = unquote(key)
                found = next((repo for repo in visible if name in {str(repo.id), repo.path}), None)
                if found is None:
                    return not_found("404 Project Not Found")
                return _of_project(project(found), found, rest)
        return not_found()

    return StandIn(answer, (host,), accepted={LOGIN})


def _of_project(shape: dict[str, object], found: Repository, rest: list[str]) -> FakeResponse:
    match rest:
        case []:
            return answer_json(shape)
        case ["snippets"]:
            return answer_json([{"id": found.id + 1000, "visibility": "public"}])
        case ["repository", "branches"]:
            return answer_json([{"name": "main"}] if found.commits else [])
        case ["repository", "commits", sha]:
            full = next((commit for commit in found.commits if commit.startswith(sha)), None)
            return answer_json({"id": full}) if full else not_found("404 Commit Not Found")
    return not_found()


def _page(
    state: StandIn, request: ReceivedRequest, listed: list[Repository], url: str
) -> tuple[list[Repository], dict[str, str]]:
    """Return a page by id, and its headers: keyset pages if the request asks for them."""
    query = query_of(request)
    size = min(int(query.get("per_page", "20")), state.page_size)
    after = int(query.get("id_after", "0"))
    rest = [repo for repo in sorted(listed, key=lambda repo: repo.id) if repo.id > after]
    headers = {"RateLimit-Remaining": "1999", "RateLimit-Reset": "1700000000"}
    if len(rest) > size:
        following = urlencode(query | {"id_after": str(rest[size - 1].id)}, quote_via=quote)
        headers["Link"] = f'<{url}?{following}>; rel="next"'
    return rest[:size], headers
