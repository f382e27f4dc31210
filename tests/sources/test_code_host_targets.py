"""What a user may type as a target on a code host."""

import pytest

from outcrop.domain.errors import BadInputError
from outcrop.domain.target import TargetKind, TargetSpec, split_stored_name
from outcrop.sources.code_host.registry import host_types
from outcrop.sources.code_host.targets import find_host, identity, read_host_url, read_target

OWNER, REPOSITORY, GISTS = TargetKind.OWNER, TargetKind.REPOSITORY, TargetKind.GISTS
GHE = "https://ghe.example"


@pytest.mark.parametrize(
    ("text", "host_url", "expected"),
    [
        ("github:acme", None, (OWNER, "github:acme", None)),
        ("github:acme", GHE, (OWNER, "github:acme", GHE)),
        ("github:acme/shop", f"{GHE}/", (REPOSITORY, "github:acme/shop", GHE)),
        ("gists:jo", GHE, (GISTS, "gists:jo", GHE)),
        (f"{GHE}/acme/shop.git", GHE, (REPOSITORY, "github:acme/shop", GHE)),
    ],
)
def test_a_target_has_one_form(text: str, host_url: str | None, expected: tuple[object, ...]) -> None:
    assert read_target(text, host_url=host_url) == expected


@pytest.mark.parametrize(
    "text",
    [
        "https://gitlab.example.com/acme",
        "https://git.example.com/",
        "https://code.example.org/acme/shop/-/tree/main",
        "https://www.example.org/scm/acme/shop",
        "https://x.example.org/acme/_git/shop",
        "https://gitlab-ee.example.com/acme",
        "https://my-gitlab2.example.com/",
        "https://git2.example.com/acme/shop",
        "https://eu.gitea.example.com/acme",
        "https://www.example.com/gitlab/acme/shop",
        "https://src.example.com/acme/shop/blob/main/app.py",
        "https://src.example.com/acme/shop/tree/main",
        "https://src.example.com/acme/shop/pull/12/files",
    ],
)
def test_an_address_that_looks_like_a_code_host_is_no_site_without_a_type(text: str) -> None:
    with pytest.raises(BadInputError, match="code host"):
        read_target(text)
    assert read_target(text, TargetKind.SITE).kind is TargetKind.SITE


@pytest.mark.parametrize(
    "text",
    [
        "https://www.example.org/",
        "https://docs.github.com/en/rest",
        "https://about.gitlab.com/",
        "https://acme.gitlab.io/",
        "https://digital.example.com/code/tree/main",
        "https://www.example.com/blog/my-gitlab-story",
    ],
)
def test_a_site_needs_no_type(text: str) -> None:
    assert read_target(text).kind is TargetKind.SITE


@pytest.mark.parametrize(
    "url", ["http://git.example", "https://git.example/?a=b", "https://u:p@git.example", "x"]
)
def test_the_address_of_a_host_is_plain_https(url: str) -> None:
    with pytest.raises(BadInputError):
        read_host_url(url)


@pytest.mark.parametrize("text", ["sourcehut:acme", "acme/shop", "ftp://example.com/x"])
def test_what_is_no_target_is_answered_with_the_forms_of_all_hosts(text: str) -> None:
    with pytest.raises(BadInputError, match="github:ORG, gitlab:GROUP") as caught:
        read_target(text)
    assert all(f"{type_.name}:" in caught.value.message for type_ in host_types())
    for url in ("gl.example", "http://gl.example"):
        with pytest.raises(BadInputError, match="the address of a code host is an https address"):
            read_target("gitlab:acme", host_url=url)


@pytest.mark.parametrize(
    ("text", "host_url"),
    [
        ("https://other.example/a/b", GHE),
        ("https://ghe.example.evil/a/b", GHE),
        ("https://ghe.example/a/b/c", GHE),
    ],
)
def test_a_target_on_another_host_than_the_named_one_is_refused(text: str, host_url: str) -> None:
    with pytest.raises(BadInputError):
        read_target(text, host_url=host_url)


def test_a_self_hosted_target_differs_from_the_public_one_of_the_same_name() -> None:
    public, own = TargetSpec(OWNER, "github:Acme"), TargetSpec(OWNER, "github:acme", host_url=GHE)
    assert identity(public) != identity(own)
    assert identity(public) == identity(TargetSpec(OWNER, "github:acme"))
    assert (find_host(public), find_host(own)) == ("github", "github")


def test_the_stored_name_has_the_address_of_the_host_so_that_an_older_release_refuses_it() -> None:
    spec = TargetSpec(OWNER, "github:acme", host_url=GHE)
    assert spec.stored_name == f"github:acme {GHE}"
    assert split_stored_name(OWNER, spec.stored_name) == ("github:acme", GHE)
    assert split_stored_name(TargetKind.FOLDER, "/a folder/b") == ("/a folder/b", None)
