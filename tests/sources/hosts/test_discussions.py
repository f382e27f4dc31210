"""Issues, merge or pull requests and their comments, as the stand-ins of the hosts list them."""

from collections.abc import Callable
from pathlib import Path

import pytest

from outcrop.sources.code_host.errors import HostError
from outcrop.sources.code_host.host import CodeHost
from outcrop.sources.code_host.hosted import HostedText
from tests.sources.hosts.test_every_host import KINDS, Kind, Running
from tests.support.code_hosts.stand_in import StandIn, guid, run_stand_in

Json = dict[str, object]


def gitlab_texts(base: str, _stand_in: StandIn) -> dict[str, list[Json]]:
    url = f"{base}/-/issues/1"
    issue = {
        "id": 9,
        "iid": 1,
        "title": "Title",
        "description": "text",
        "web_url": url,
        "user_notes_count": 1,
    }
    note = {"id": 5, "body": "comment", "system": False, "author": {"username": "jo"}}
    return {
        "projects/100/issues": [issue | {"author": {"username": "jo"}}],
        "projects/100/issues/1/notes": [note, note | {"id": 6, "system": True}],
        "projects/100/merge_requests": [],
    }


def gitea_texts(base: str, _stand_in: StandIn) -> dict[str, list[Json]]:
    issue: Json = {"id": 1, "title": "Title", "body": "text", "user": {"login": "jo"}}
    return {
        "repos/acme/shop/issues": [issue | {"html_url": f"{base}/issues/1"}],
        "repos/acme/shop/issues/comments": [
            {
                "id": 5,
                "body": "comment",
                "user": {"login": "jo"},
                "html_url": f"{base}/issues/1#issuecomment-5",
            }
        ],
    }


def bitbucket_texts(base: str, stand_in: StandIn) -> dict[str, list[Json]]:
    if base.startswith("https://bb.example"):
        path = "projects/ACME/repos/shop/pull-requests"
        request: Json = {"id": 1, "title": "Title", "description": "text"}
        comment: Json = {"id": 5, "text": "comment", "author": {"name": "jo"}}
        return {path: [request], f"{path}/1/activities": [{"id": 3, "comment": comment}, {"id": 4}]}
    path = f"repositories/acme/{{{stand_in.repositories[0].uuid}}}/pullrequests"
    links: Json = {"html": {"href": f"{base}/pull-requests/1"}}
    return {
        path: [{"id": 1, "title": "Title", "description": "text", "links": links}],
        f"{path}/1/comments": [
            {"id": 5, "content": {"raw": "comment"}, "user": {"nickname": "jo"}, "links": links}
        ],
    }


def azure_texts(_base: str, stand_in: StandIn) -> dict[str, list[Json]]:
    repository = stand_in.repositories[0]
    project = guid(f"project {repository.owner}")
    path = f"{repository.owner.split('/')[0]}/{project}/_apis/git/repositories/{repository.uuid}/pullrequests"
    comment: Json = {"id": 5, "content": "comment", "author": {"uniqueName": "jo"}}
    return {
        path: [
            {"pullRequestId": 1, "title": "Title", "description": "text", "createdBy": {"uniqueName": "jo"}}
        ],
        f"{path}/1/threads": [{"id": 2, "comments": [comment]}],
    }


TEXTS: dict[str, Callable[[str, StandIn], dict[str, list[Json]]]] = {
    "gitlab": gitlab_texts,
    "gitea": gitea_texts,
    "bitbucket": bitbucket_texts,
    "azuredevops": azure_texts,
}


def paths(stand_in: StandIn) -> list[str]:
    """Return the paths of the issue or request and of the comment, by the name of the list that has both."""
    kind = next(iter(stand_in.texts)).rpartition("/")[2]
    return [
        f"{kind}/1",
        {
            "gitlab": f"{kind}/1/notes/5",
            "azure": f"{kind}/1/threads/2/comments/5",
        }.get(_flavour(stand_in), f"{kind}/1/comments/5"),
    ]


def _flavour(stand_in: StandIn) -> str:
    """Return which host has such lists of comments."""
    lists = " ".join(stand_in.texts)
    return "gitlab" if "/notes" in lists else "azure" if "/threads" in lists else ""


@pytest.mark.parametrize("kind", KINDS, ids=str)
def test_a_text_and_its_comments_are_listed(kind: Kind, tmp_path: Path) -> None:
    with run_stand_in(kind.make(), tmp_path / "tls") as stand_in:
        stand_in.add(f"{kind.project}/shop")
        running = Running(kind, stand_in)
        (repository,) = running.call(lambda host: host.repositories(kind.owner))
        stand_in.texts = TEXTS[kind.name](repository.html_url, stand_in)
        key = repository.key or repository.full_name

        def listed(host: CodeHost) -> object:
            return host.discussions(key)

        texts: list[HostedText] = running.call(listed)
    assert [text.text for text in texts] == ["Title\ntext", "comment"]
    assert all(text.html_url.startswith(repository.html_url) for text in texts)
    assert texts[1].author == "jo"
    assert [text.path for text in texts] == paths(stand_in)


@pytest.mark.parametrize("kind", KINDS, ids=str)
def test_a_text_is_gone_only_if_the_host_lists_the_others(kind: Kind, tmp_path: Path) -> None:
    with run_stand_in(kind.make(), tmp_path / "tls") as stand_in:
        stand_in.add(f"{kind.project}/shop")
        running = Running(kind, stand_in)
        (repository,) = running.call(lambda host: host.repositories(kind.owner))
        stand_in.texts = TEXTS[kind.name](repository.html_url, stand_in)
        key = repository.key or repository.full_name
        (listing, (issue, *_)), *_ = stand_in.texts.items()
        path = paths(stand_in)[0]

        def present() -> object:
            return running.call(lambda host: host.discussion_text(key, path))

        named = running.call(lambda host: host.repository(repository.full_name))
        assert named.id == repository.id, "a scan asks by name whether it is still the same repository"
        assert present() == "Title\ntext"
        issue.update(title="", body="", description="")
        assert str(present()).strip() == ""
        stand_in.texts[listing] = []
        assert present() is None
        stand_in.texts.clear()
        with pytest.raises(HostError):
            present()
