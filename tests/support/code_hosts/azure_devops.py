"""A stand-in of the REST API of Azure DevOps, version 7.1."""

import base64
from urllib.parse import unquote

from tests.support.code_hosts.stand_in import (
    FakeResponse,
    ReceivedRequest,
    Repository,
    StandIn,
    answer_json,
    guid,
    query_of,
)

TOKEN = "made-up-azure-token"
LOGIN = ("Authorization", "Basic " + base64.b64encode(f":{TOKEN}".encode()).decode())


def azure_devops(host: str = "dev.azure.com", prefix: str = "") -> StandIn:
    """Return a stand-in of Azure DevOps at `https://HOST/PREFIX`; owners of repositories are ORG/PROJECT."""

    def project(owner: str, *, private: bool) -> dict[str, object]:
        name = owner.partition("/")[2]
        return {
            "id": guid(f"project {owner}"),
            "name": name,
            "state": "wellFormed",
            "visibility": "private" if private else "public",
        }

    def shape(repo: Repository) -> dict[str, object]:
        path = f"{repo.owner}/_git/{repo.name}"
        fields: dict[str, object] = {
            "id": repo.uuid,
            "name": repo.name,
            "project": project(repo.owner, private=repo.private),
            "size": 1000 if repo.commits else 0,
            "remoteUrl": f"https://robot@{host}{prefix}/{path}",
            "webUrl": f"https://{host}{prefix}/{path}",
            "isDisabled": repo.archived,
        }
        return (
            fields
            | ({"defaultBranch": "refs/heads/main"} if repo.commits else {})
            | ({"isFork": True} if repo.fork else {})
        )

    def answer(state: StandIn, request: ReceivedRequest) -> FakeResponse:
        visible = state.visible(request)
        path = unquote(request.path.removeprefix(f"{prefix}/"))
        if path in state.texts:
            return answer_json({"value": state.texts[path]})
        if (text := state.find_text(path)) is not None:
            return answer_json(text)
        match path.split("/"):
            case [org, "_apis", "projects"]:
                return _projects(state, request, org)
            case [org, "_apis", "projects", name]:
                owners = [repo for repo in visible if repo.owner == f"{org}/{name}"]
                if not owners:
                    return _error(f"TF200016: The following project does not exist: {name}.")
                return answer_json(project(owners[0].owner, private=owners[0].private))
            case [org, key, "_apis", "wiki", "wikis"]:
                return answer_json({"count": 0, "value": _wikis(visible, org, key)})
            case [org, key, "_apis", "git", "repositories"]:
                listed = [
                    shape(repo) for repo in visible if key in _keys(repo) and repo.owner.startswith(org)
                ]
                return answer_json({"count": len(listed), "value": listed})
            case [org, key, "_apis", "git", "repositories", name, *rest]:
                found = [r for r in visible if key in _keys(r) and name in {r.name, r.uuid}]
                if not found or not found[0].owner.startswith(org):
                    return _error(f"TF401019: The Git repository with name {name} does not exist.")
                return _of_repository(shape(found[0]), found[0], rest)
        return _error("Not found")

    def _projects(state: StandIn, request: ReceivedRequest, org: str) -> FakeResponse:
        owners: dict[str, bool] = {}
        for repo in state.visible(request):
            if repo.owner.startswith(f"{org}/"):
                owners[repo.owner] = repo.private
        listed = [project(owner, private=private) for owner, private in owners.items()]
        query = query_of(request)
        start, size = int(query.get("continuationToken", "0")), min(int(query["$top"]), state.page_size)
        following = {"x-ms-continuationtoken": str(start + size)} if start + size < len(listed) else {}
        return answer_json({"count": size, "value": listed[start : start + size]}, headers=following)

    return StandIn(answer, (host,), accepted={LOGIN})


def _keys(repo: Repository) -> set[str]:
    """Return the name and the id of a repository's project."""
    return {repo.owner.partition("/")[2], guid(f"project {repo.owner}")}


def _wikis(visible: list[Repository], org: str, key: str) -> list[dict[str, object]]:
    owners = {
        repo.owner for repo in visible if key in _keys(repo) and repo.owner.startswith(org) and repo.wiki
    }
    return [
        {
            "id": guid(f"wiki {owner}"),
            "name": f"{owner.partition('/')[2]}.wiki",
            "type": "projectWiki",
            "repositoryId": guid(f"wiki {owner}"),
        }
        for owner in owners
    ]


def _of_repository(shape: dict[str, object], found: Repository, rest: list[str]) -> FakeResponse:
    match rest:
        case []:
            return answer_json(shape)
        case ["refs"]:
            return answer_json({"value": [{"name": "refs/heads/main"}] if found.commits else []})
        case ["commits", sha]:
            full = next((commit for commit in found.commits if commit.startswith(sha)), None)
            return (
                answer_json({"commitId": full}) if full else _error("TF401175: The version does not exist.")
            )
    return _error("Not found")


def _error(message: str, status: int = 404) -> FakeResponse:
    return answer_json({"$id": "1", "message": message, "typeName": "Error"}, status)
