"""Stand-ins of the REST APIs of Bitbucket Cloud, version 2.0, and Bitbucket Data Center, version 1.0."""

from urllib.parse import quote, unquote, urlencode

from tests.support.code_hosts.stand_in import (
    FakeResponse,
    ReceivedRequest,
    Repository,
    StandIn,
    answer_json,
    query_of,
)

LOGIN = ("Authorization", "Bearer made-up-bitbucket-token")


def bitbucket_cloud() -> StandIn:
    """Return a stand-in of bitbucket.org."""

    def shape(repo: Repository) -> dict[str, object]:
        fields: dict[str, object] = {
            "type": "repository",
            "uuid": f"{{{repo.uuid}}}",
            "full_name": repo.path,
            "name": repo.name,
            "is_private": repo.private,
            "has_wiki": repo.wiki,
            "size": 1000 if repo.commits else 0,
            "mainbranch": {"name": "main"} if repo.commits else None,
            "links": {
                "html": {"href": f"https://bitbucket.org/{repo.path}"},
                "clone": [{"name": "https", "href": f"https://robot@bitbucket.org/{repo.path}.git"}],
            },
            "updated_on": "2024-05-01T10:00:00.000000+00:00",
        }
        return fields | ({"parent": {"type": "repository"}} if repo.fork else {})

    def answer(state: StandIn, request: ReceivedRequest) -> FakeResponse:
        visible = state.visible(request)
        path = unquote(request.path.removeprefix("/2.0/"))
        if path in state.texts:
            return answer_json({"values": state.texts[path]})
        if (text := state.find_text(path)) is not None:
            return answer_json(text)
        match path.split("/"):
            case ["user"]:
                return answer_json({"username": "robot"}, headers={"X-OAuth-Scopes": "account"})
            case ["snippets", workspace]:
                return _page(state, request, state.snippets if state.is_trusted(request) else [])
            case ["repositories", workspace]:
                if not any(repo.owner == workspace for repo in state.repositories):
                    return _error(f"No workspace with identifier '{workspace}'.")
                listed = [shape(repo) for repo in visible if repo.owner == workspace]
                return _page(state, request, listed)
            case ["repositories", workspace, name, *rest]:
                names = {f"{workspace}/{name}"}
                found = [r for r in visible if r.path in names or f"{{{r.uuid}}}" == name]
                return (
                    _of_repository(shape(found[0]), found[0], rest)
                    if found
                    else _error("Repository not found")
                )
        return _error("Not found")

    return StandIn(answer, ("bitbucket.org", "api.bitbucket.org"), accepted={LOGIN})


def _of_repository(shape: dict[str, object], found: Repository, rest: list[str]) -> FakeResponse:
    match rest:
        case []:
            return answer_json(shape)
        case ["refs", "branches"]:
            return answer_json({"values": [{"name": "main"}] if found.commits else []})
        case ["commit", sha]:
            full = next((commit for commit in found.commits if commit.startswith(sha)), None)
            return answer_json({"hash": full}) if full else _error("Commit not found")
    return _error("Not found")


def _page(state: StandIn, request: ReceivedRequest, items: list[dict[str, object]]) -> FakeResponse:
    query = query_of(request)
    size, page = min(int(query.get("pagelen", "10")), state.page_size), int(query.get("page", "1"))
    body: dict[str, object] = {"pagelen": size, "values": items[(page - 1) * size : page * size]}
    if page * size < len(items):
        following = urlencode(query | {"page": str(page + 1)})
        body["next"] = f"https://api.bitbucket.org{request.path}?{following}"
    return answer_json(body)


def _error(message: str, status: int = 404) -> FakeResponse:
    return answer_json({"type": "error", "error": {"message": message}}, status)


def bitbucket_server(host: str = "bb.example", prefix: str = "") -> StandIn:
    """Return a stand-in of a Bitbucket Data Center at `https://HOST/PREFIX`."""
    base = f"https://{host}{prefix}"

    def shape(repo: Repository) -> dict[str, object]:
        fields: dict[str, object] = {
            "id": repo.id,
            "slug": repo.name,
            "name": repo.name,
            "state": "AVAILABLE",
            "public": not repo.private,
            "archived": repo.archived,
            "project": {"key": repo.owner, "id": 1, "public": False, "type": "NORMAL"},
            "links": {
                "clone": [{"name": "http", "href": f"{base}/scm/{quote(repo.owner.lower())}/{repo.name}.git"}]
            },
        }
        return fields | ({"origin": {"id": 1}} if repo.fork else {})

    def answer(state: StandIn, request: ReceivedRequest) -> FakeResponse:
        visible = state.visible(request)
        path = unquote(request.path.removeprefix(f"{prefix}/rest/api/1.0/"))
        if path in state.texts:
            return answer_json({"values": state.texts[path], "isLastPage": True})
        if (text := state.find_text(path)) is not None:
            return answer_json(text)
        match path.split("/"):
            case ["projects", key, "repos"]:
                listed = [shape(repo) for repo in visible if repo.owner.lower() == key.lower()]
                if not listed:
                    return _server_error(f"Project {key} does not exist.")
                query = query_of(request)
                start, size = int(query["start"]), min(int(query["limit"]), state.page_size)
                is_last = start + size >= len(listed)
                body = {"values": listed[start : start + size], "isLastPage": is_last}
                return answer_json(body | ({} if is_last else {"nextPageStart": start + size}))
            case ["projects", key, "repos", slug, *rest]:
                found = [repo for repo in visible if repo.path.lower() == f"{key}/{slug}".lower()]
                if not found:
                    return _server_error("Repository does not exist.")
                return _of_server_repository(shape(found[0]), found[0], rest)
        return _server_error("Not found")

    return StandIn(answer, (host,), accepted={LOGIN})


def _of_server_repository(shape: dict[str, object], found: Repository, rest: list[str]) -> FakeResponse:
    match rest:
        case []:
            return answer_json(shape)
        case ["branches"]:
            values = [{"displayId": "main"}] if found.commits else []
            return answer_json({"values": values, "isLastPage": True})
        case ["commits", sha]:
            full = next((commit for commit in found.commits if commit.startswith(sha)), None)
            return answer_json({"id": full}) if full else _server_error("Commit does not exist.")
    return _server_error("Not found")


def _server_error(message: str, status: int = 404) -> FakeResponse:
    return answer_json({"errors": [{"message": message}]}, status)
