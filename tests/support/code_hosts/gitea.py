"""A stand-in of the REST API of Gitea and Forgejo, version 1."""

from urllib.parse import urlencode

from tests.support.code_hosts.stand_in import (
    FakeResponse,
    ReceivedRequest,
    Repository,
    StandIn,
    answer_json,
    not_found,
    query_of,
)

LOGIN = ("Authorization", "token made-up-gitea-token")


def gitea(host: str = "git.example", prefix: str = "") -> StandIn:
    """Return a stand-in of Gitea at `https://HOST/PREFIX`."""
    base = f"https://{host}{prefix}"

    def shape(repo: Repository) -> dict[str, object]:
        return {
            "id": repo.id,
            "name": repo.name,
            "full_name": repo.path,
            "owner": {"login": repo.owner, "visibility": "public"},
            "private": repo.private,
            "internal": False,
            "fork": repo.fork,
            "archived": repo.archived,
            "empty": not repo.commits,
            "mirror": False,
            "has_wiki": repo.wiki,
            "clone_url": f"{base}/{repo.path}.git",
            "html_url": f"{base}/{repo.path}",
            "default_branch": "main",
            "updated_at": "2024-05-01T10:00:00Z",
        }

    def answer(state: StandIn, request: ReceivedRequest) -> FakeResponse:
        visible = state.visible(request)
        path = request.path.removeprefix(f"{prefix}/api/v1/")
        if path in state.texts:
            return answer_json(state.texts[path])
        if (text := state.find_text(path)) is not None:
            return answer_json(text)
        match path.split("/"):
            case ["user"]:
                return answer_json({"id": 1, "login": "robot"})
            case ["orgs", name]:
                is_known = any(repo.owner == name for repo in state.repositories)
                return answer_json({"id": 9, "name": name}) if is_known else not_found("user redirect")
            case ["orgs" | "users", name, "repos"]:
                listed = [shape(repo) for repo in visible if repo.owner == name]
                return (
                    _page(state, request, listed, f"https://{host}")
                    if listed
                    else not_found("user does not exist")
                )
            case ["repositories", number]:
                found = [repo for repo in visible if str(repo.id) == number]
                return answer_json(shape(found[0])) if found else not_found()
            case ["repos", owner, name, *rest]:
                found = [repo for repo in visible if repo.path == f"{owner}/{name}"]
                return _of_repository(shape(found[0]), found[0], rest) if found else not_found()
        return not_found()

    return StandIn(answer, (host,), accepted={LOGIN})


def _of_repository(shape: dict[str, object], found: Repository, rest: list[str]) -> FakeResponse:
    match rest:
        case []:
            return answer_json(shape)
        case ["branches"]:
            return answer_json([{"name": "main"}] if found.commits else [])
        case ["git", "commits", sha]:
            full = next((commit for commit in found.commits if commit.startswith(sha)), None)
            return answer_json({"sha": full}) if full else not_found("object does not exist")
    return not_found()


def _page(
    state: StandIn, request: ReceivedRequest, items: list[dict[str, object]], base: str
) -> FakeResponse:
    """Return a numbered page."""
    query = query_of(request)
    size, page = min(int(query.get("limit", "30")), state.page_size), int(query.get("page", "1"))
    headers = {"X-Total-Count": str(len(items))}
    if page * size < len(items):
        following = urlencode(query | {"page": str(page + 1)})
        headers["Link"] = f'<{base}{request.path}?{following}>; rel="next"'
    return answer_json(items[(page - 1) * size : page * size], headers=headers)
