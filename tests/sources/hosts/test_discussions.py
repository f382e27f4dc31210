"""Issues, merge or pull requests and their comments, as the stand-ins of the hosts list them."""

from collections.abc import Callable
from pathlib import Path

import pytest

from outcrop.sources.code_host.errors import HostError
from outcrop.sources.code_host.host import CodeHost
from outcrop.sources.code_host.hosted import HostedText
from tests.sources.hosts.test_every_host import KINDS, Kind, Running
from tests.support.code_hosts.stand_in import StandIn, answer_json, guid, run_stand_in

Json = dict[str, object]
ADA: Json = {"nickname": "ada"}


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
        "projects/100/issues": [issue | {"author": {"username": "ada"}}],
        "projects/100/issues/1/notes": [note, note | {"id": 6, "system": True}],
        "projects/100/merge_requests": [],
    }


def gitea_texts(base: str, _stand_in: StandIn) -> dict[str, list[Json]]:
    issue: Json = {"id": 1, "title": "Title", "body": "text", "user": {"login": "ada"}}
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
        writer: Json = {"author": {"user": {"name": "ada"}}}
        return {path: [request | writer], f"{path}/1/activities": [{"id": 3, "comment": comment}, {"id": 4}]}
    path = f"repositories/acme/{{{stand_in.repositories[0].uuid}}}/pullrequests"
    links: Json = {"html": {"href": f"{base}/pull-requests/1"}}
    return {
        path: [{"id": 1, "title": "Title", "description": "text", "links": links, "author": ADA}],
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
            {"pullRequestId": 1, "title": "Title", "description": "text", "createdBy": {"uniqueName": "ada"}}
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
    assert [text.author for text in texts] == ["ada", "jo"]
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
            return running.call(lambda host: host.discussion_text(key, path), kind.token)

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


def listed_texts(kind: Kind, stand_in: StandIn) -> list[HostedText]:
    """Return what a client lists of the first repository."""
    running = Running(kind, stand_in)

    async def read(host: CodeHost) -> list[HostedText]:
        repository, *_ = [repository async for repository in host.repositories(kind.owner)]
        stand_in.texts = stand_in.texts or TEXTS[kind.name](repository.html_url, stand_in)
        return [text async for text in host.discussions(repository.key or repository.full_name)]

    texts: list[HostedText] = running.call(read, kind.token)
    return texts


def test_replies_on_data_center_are_read_at_any_depth_and_once(tmp_path: Path) -> None:
    kind = KINDS[4]
    path = "projects/ACME/repos/shop/pull-requests"
    deep: Json = {"id": 7, "text": "reply to the reply", "author": {"name": "di"}, "comments": "damaged"}
    reply: Json = {"id": 6, "text": "reply", "author": {"name": "jo"}, "comments": [deep, None, 5]}
    root: Json = {"id": 5, "text": "comment", "author": {"name": "jo"}, "comments": [reply]}
    with run_stand_in(kind.make(), tmp_path / "tls") as stand_in:
        stand_in.add(f"{kind.project}/shop")
        stand_in.texts = {
            path: [{"id": 1, "title": "Title"}],
            f"{path}/1/activities": [{"id": 3, "comment": root}, {"id": 4, "comment": reply}],
        }
        texts = listed_texts(kind, stand_in)
    assert [(text.path, text.text, text.author) for text in texts[1:]] == [
        ("pull-requests/1/comments/5", "comment", "jo"),
        ("pull-requests/1/comments/6", "reply", "jo"),
        ("pull-requests/1/comments/7", "reply to the reply", "di"),
    ]


@pytest.mark.parametrize("kind", [kind for kind in KINDS if kind.name == "azuredevops"], ids=str)
def test_a_long_description_on_azure_devops_is_read_whole(kind: Kind, tmp_path: Path) -> None:
    full_text = "\N{GRINNING FACE}" * 199 + "x" * 5 + " and the end"
    with run_stand_in(kind.make(), tmp_path / "tls") as stand_in:
        repository = stand_in.add(f"{kind.project}/shop")
        stand_in.texts = azure_texts("", stand_in)
        listing = next(iter(stand_in.texts))
        (request,) = stand_in.texts[listing]
        stand_in.singles[listing] = [request | {"description": full_text}]
        cut = full_text.encode("utf-16-le")[:800].decode("utf-16-le")
        stand_in.texts[listing] = [request | {"description": cut}]
        assert repository.name == "shop"
        texts = listed_texts(kind, stand_in)
    assert texts[0].text == f"Title\n{full_text}"


def test_an_issue_on_bitbucket_has_its_reporter_as_author(tmp_path: Path) -> None:
    kind = KINDS[3]
    with run_stand_in(kind.make(), tmp_path / "tls") as stand_in:
        path = f"repositories/acme/{{{stand_in.add(f'{kind.project}/shop').uuid}}}"
        links = {"html": {"href": "https://bitbucket.org/acme/shop/issues/1"}}
        issue: Json = {"id": 1, "title": "Title", "links": links, "reporter": ADA}
        stand_in.texts = {
            f"{path}/pullrequests": [],
            f"{path}/issues": [issue],
            f"{path}/issues/1/comments": [],
        }
        (text,) = listed_texts(kind, stand_in)
    assert text.author == "ada"


def test_a_pull_request_on_bitbucket_may_have_a_summary_in_place_of_its_description(tmp_path: Path) -> None:
    kind = KINDS[3]
    with run_stand_in(kind.make(), tmp_path / "tls") as stand_in:
        key = f"acme/{{{stand_in.add(f'{kind.project}/shop').uuid}}}"
        links = {"html": {"href": "https://bitbucket.org/acme/shop/pull-requests/1"}}
        request: Json = {"id": 1, "title": "Title", "links": links, "summary": {"raw": "text"}}
        path = f"repositories/{key}/pullrequests"
        stand_in.texts = {path: [request], f"{path}/1/comments": []}
        (text,) = listed_texts(kind, stand_in)
        running = Running(kind, stand_in)
        present = running.call(lambda host: host.discussion_text(key, text.path), kind.token)
    assert text.text == present == "Title\ntext"


GITLAB = KINDS[0]


def test_a_project_of_gitlab_without_merge_requests_still_has_issues(tmp_path: Path) -> None:
    with run_stand_in(GITLAB.make(), tmp_path / "tls") as stand_in:
        stand_in.add(f"{GITLAB.project}/shop").features["merge_requests"] = False
        stand_in.always["/merge_requests?"] = answer_json({"message": "403 Forbidden"}, 403)
        texts = listed_texts(GITLAB, stand_in)
    assert [text.path for text in texts] == ["issues/1", "issues/1/notes/5"]


@pytest.mark.parametrize(
    ("path", "level", "has_issues", "expected"),
    [
        ("issues/1", 20, True, "gone"),
        ("issues/1", 10, True, "hidden"),  # a confidential issue looks the same to a guest
        ("issues/1", None, True, "hidden"),
        ("issues/1", 40, False, "hidden"),
        ("issues/1/notes/5", 10, True, "hidden"),
        ("issues/2/notes/5", 10, True, "gone"),  # its issue can be read
        ("merge_requests/1", None, True, "gone"),
    ],
)
def test_an_issue_of_gitlab_is_gone_only_if_it_cannot_be_hidden(
    path: str, level: int | None, has_issues: bool, expected: str, tmp_path: Path
) -> None:
    with run_stand_in(GITLAB.make(), tmp_path / "tls") as stand_in:
        repository = stand_in.add(f"{GITLAB.project}/shop")
        repository.features["issues"], repository.access_level = has_issues, level
        stand_in.texts = {
            "projects/100/issues": [{"id": 8, "iid": 2, "title": "Title"}],
            "projects/100/merge_requests": [],
        }
        running = Running(GITLAB, stand_in)

        def ask() -> object:
            return running.call(lambda host: host.discussion_text("100", path), GITLAB.token)

        if expected == "gone":
            assert ask() is None
        else:
            with pytest.raises(HostError, match="gone or hidden"):
                ask()
