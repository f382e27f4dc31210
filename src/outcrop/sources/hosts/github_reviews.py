"""Mark the pull requests of GitHub, and of Gitea, whose API for this is the same."""

from collections.abc import Callable

from outcrop.sources.code_host.api import HostApi, ReadPage, read_linked_page
from outcrop.sources.code_host.reviews import ReviewApi


def github_reviews(
    api: HostApi,
    path: str,
    listing: Callable[[str, str], str],
    *,
    read_page: ReadPage = read_linked_page,
    page: str = "per_page=100",
) -> ReviewApi:
    """Return how to mark the pull requests of the repository at `path`.

    `listing` gets the path and a commit, and returns the path of a list of pull requests.
    """
    return ReviewApi(
        api=api,
        listing=lambda sha: listing(path, sha),
        request=f"{path}/pulls",
        number="number",
        head="head.sha",
        state=("state", "open"),
        commit="sha",
        status_path=lambda sha: f"{path}/statuses/{sha}",
        status_body=lambda status: {"state": "success" if status.is_clean else "failure"} | status.fields,
        comment_path=lambda number: f"{path}/issues/{number}/comments",
        comment_body=lambda text: {"body": text},
        read_page=read_page,
        page=page,
    )
