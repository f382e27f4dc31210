"""What an operator may give as a target, and the one form in which it is stored."""

import pytest

from outcrop.domain.errors import BadInputError
from outcrop.domain.scan import ScanType
from outcrop.domain.target import (
    EVERY,
    OPTIONS,
    Schedule,
    TargetKind,
    TargetSpec,
    choose,
    identity,
    parse_target,
)
from outcrop.limits import TARGET_LENGTH

OWNER, REPOSITORY, GISTS, GIST, COMMIT, SITE, PAGE, FOLDER = TargetKind
ID = "aa5a315d61ae9438b18d"
SHA = "0123456789abcdef0123456789abcdef01234567"


@pytest.mark.parametrize(
    ("text", "kind", "name"),
    [
        ("github:acme", OWNER, "github:acme"),
        ("  github:acme\n", OWNER, "github:acme"),
        ("GitHub:Acme-Inc", OWNER, "github:Acme-Inc"),
        ("github:octo_acme", OWNER, "github:octo_acme"),
        ("https://github.com/acme", OWNER, "github:acme"),
        ("https://github.com/acme/", OWNER, "github:acme"),
        ("github:acme/shop", REPOSITORY, "https://github.com/acme/shop"),
        ("github:acme/shop.git", REPOSITORY, "https://github.com/acme/shop"),
        ("github:acme/.github", REPOSITORY, "https://github.com/acme/.github"),
        ("https://github.com/acme/shop", REPOSITORY, "https://github.com/acme/shop"),
        ("https://github.com/acme/shop.git/", REPOSITORY, "https://github.com/acme/shop"),
        ("HTTPS://WWW.GitHub.COM:443/Acme/shop//", REPOSITORY, "https://github.com/Acme/shop"),
        ("https://github.com/acme/shop?tab=readme#top", REPOSITORY, "https://github.com/acme/shop"),
        ("https://github.com/gist/1234", REPOSITORY, "https://github.com/gist/1234"),
        (
            "https://git.example.com:8443/team/shop.git/",
            REPOSITORY,
            "https://git.example.com:8443/team/shop.git",
        ),
        ("https://gitlab.com/a/b/c.git", REPOSITORY, "https://gitlab.com/a/b/c.git"),
        ("gists:jo", GISTS, "gists:jo"),
        ("https://gist.github.com/jo", GISTS, "gists:jo"),
        (f"https://gist.github.com/jo/{ID}", GIST, f"https://gist.github.com/{ID}"),
        (f"https://gist.github.com/{ID}.git", GIST, f"https://gist.github.com/{ID}"),
        (f"https://GIST.github.com/jo/{ID}/", GIST, f"https://gist.github.com/{ID}"),
        ("https://gist.github.com/jo/1234", GIST, "https://gist.github.com/1234"),
        (
            f"https://github.com/acme/shop/commit/{SHA.upper()}#diff-1",
            COMMIT,
            f"https://github.com/acme/shop/commit/{SHA}",
        ),
        (
            "https://github.com/acme/shop/commit/0123abc/",
            COMMIT,
            "https://github.com/acme/shop/commit/0123abc",
        ),
        (
            f"https://codeberg.org/acme/shop/commit/{SHA}",
            COMMIT,
            f"https://codeberg.org/acme/shop/commit/{SHA}",
        ),
        ("https://example.com", SITE, "https://example.com/"),
        ("http://EXAMPLE.com:80/Docs/", SITE, "http://example.com/Docs/"),
        ("https://example.com.:8443/a?b=c#d", SITE, "https://example.com:8443/a?b=c"),
        ("https://münchen.example/ü", SITE, "https://xn--mnchen-3ya.example/%C3%BC"),
        ("https://faß.example/", SITE, "https://xn--fa-hia.example/"),
        ("https://[2001:DB8::1]:443/", SITE, "https://[2001:db8::1]/"),
        ("https://example.com/a/../@scope/b", SITE, "https://example.com/@scope/b"),
    ],
)
def test_a_target_is_guessed_and_has_one_form(text: str, kind: TargetKind, name: str) -> None:
    assert parse_target(text) == (kind, name)
    assert parse_target(text, kind) == (kind, name)
    if kind is not OWNER or text.startswith("github"):
        assert parse_target(name) == (kind, name), "the form that is stored can be given again"


@pytest.mark.parametrize(
    ("text", "kind", "name"),
    [
        ("github:jo", GISTS, "gists:jo"),
        ("https://github.com/jo", GISTS, "gists:jo"),
        ("https://gitlab.com/a/b/", REPOSITORY, "https://gitlab.com/a/b"),
        ("https://example.com/a", PAGE, "https://example.com/a"),
        ("https://github.com/acme/shop/wiki", PAGE, "https://github.com/acme/shop/wiki"),
        ("https://github.com/acme", SITE, "https://github.com/acme"),
        (f"https://gist.ghe.example/jo/{ID}.git/", GIST, f"https://gist.ghe.example/jo/{ID}.git"),
        ("https://git.example.com/jo/notes.git", GIST, "https://git.example.com/jo/notes.git"),
        (
            f"https://git.example.com/a/b/commit/{SHA}",
            REPOSITORY,
            f"https://git.example.com/a/b/commit/{SHA}",
        ),
    ],
)
def test_a_kind_that_is_given_decides(text: str, kind: TargetKind, name: str) -> None:
    assert parse_target(text, kind) == (kind, name)


@pytest.mark.parametrize(
    ("text", "kind", "name"),
    [
        ("github:acme/shop", REPOSITORY, "https://ghe.example/acme/shop"),
        ("https://ghe.example/acme", OWNER, "github:acme"),
        ("https://ghe.example/acme/shop.git", REPOSITORY, "https://ghe.example/acme/shop"),
        (f"https://gist.ghe.example/jo/{ID}", GIST, f"https://gist.ghe.example/{ID}"),
        (f"https://ghe.example/gist/jo/{ID}", GIST, f"https://ghe.example/gist/{ID}"),
        ("https://ghe.example/gist/jo", GISTS, "gists:jo"),
        ("https://github.com/acme", SITE, "https://github.com/acme"),
    ],
)
def test_an_enterprise_host_takes_the_place_of_github(text: str, kind: TargetKind, name: str) -> None:
    assert parse_target(text, web_host="ghe.example") == (kind, name)


@pytest.mark.parametrize(
    "text",
    [
        "",
        "  ",
        "acme",
        "github:",
        "github:acme/",
        "github:acme/shop/tree",
        "github:acme/..",
        "github:acme/...git",
        "github:acme/.git",
        "github:ac me",
        "github:äcme",
        "gists:jo/x",
        "./folder",
        "/etc",
        "file:///etc/passwd",
        "ftp://example.com/",
        "ssh://example.com/a.git",
        "https://",
        "https:///path",
        "https://example.com:99999/",
        "https://example.com:0/",
        "https://example.com:port/",
        "https://[::1",
        "https://[fe80::1%25eth0]/",
        "https://a..b/",
        "https://*.example.com/",
        "https://exam%70le.com/",
        "https://" + "a" * 64 + ".example/",
        "https://exam\nple.com/",
        "https://exam\tple.com/",
        "https://example.com/a b",
        "https://example.com\\@evil.example/",
        "https://example.com/a\\b",
        "https://example.com/\x00",
        "https://example.com/\x1b[2J",
        "https://example.com/\u202egro.live",
        "https://example.com/\udcff",
        "https://github.com/",
        "https://github.com/acme/shop/tree/main",
        "https://github.com/acme/..%2f..",
        "https://gist.github.com/",
        "http://github.com/acme/shop",
        "http://git.example.com/shop.git",
        "https://example.com/" + "a" * TARGET_LENGTH,
        "https://example.com/" + "ü" * 400,  # 2,400 when written in an address
    ],
)
def test_what_is_no_target_is_refused(text: str) -> None:
    with pytest.raises(BadInputError):
        parse_target(text)


@pytest.mark.parametrize(
    ("text", "kind"),
    [
        ("github:acme", REPOSITORY),
        ("github:acme", SITE),
        ("github:acme/shop", OWNER),
        ("github:acme/shop", GISTS),
        ("github:acme/shop", PAGE),
        ("gists:jo", OWNER),
        ("https://github.com/acme/shop", COMMIT),
        (f"https://gist.github.com/{ID}", REPOSITORY),
        ("https://example.com/acme", OWNER),
        ("https://example.com/jo", GISTS),
        ("https://example.com/", GIST),
        ("https://example.com/a.git", COMMIT),
        ("https://example.com/jo", COMMIT),
        ("https://example.com/", REPOSITORY),
        ("http://example.com/a", REPOSITORY),
    ],
)
def test_a_kind_that_does_not_fit_is_refused(text: str, kind: TargetKind) -> None:
    with pytest.raises(BadInputError):
        parse_target(text, kind)


@pytest.mark.parametrize(
    "text",
    [
        "https://jo:hunter22@example.com/",
        "https://hunter22@github.com/acme/shop.git",
        "http://jo:hunter22@example.com",
        "https://@hunter22.example/",
        "jo:hunter22@example.com/a.git",
        "ftp://jo:hunter22@example.com/",
        "https://jo:hunter22/x@example.com/",
        "https://jo:hunter22@[::1",
    ],
)
def test_an_address_with_a_password_is_refused_and_not_repeated(text: str) -> None:
    with pytest.raises(BadInputError) as refused:
        parse_target(text)
    assert "hunter22" not in refused.value.message


def test_the_longest_target_is_taken() -> None:
    name = "https://example.com/".ljust(TARGET_LENGTH, "a")
    assert parse_target(name) == (SITE, name)
    with pytest.raises(BadInputError):
        parse_target(name + "a")


def test_names_of_github_are_the_same_in_capitals_and_other_addresses_are_not() -> None:
    for kind, name in (
        (OWNER, "github:Acme"),
        (GISTS, "gists:Jo"),
        (REPOSITORY, "https://github.com/Acme/Shop"),
    ):
        assert identity(kind, name) == identity(kind, name.lower())
    for kind, name in (
        (REPOSITORY, "https://git.example/Shop.git"),
        (SITE, "https://example.com/A"),
        (PAGE, "https://github.com/A"),
    ):
        assert identity(kind, name) != identity(kind, name.lower())
    assert identity(SITE, "https://example.com/") != identity(PAGE, "https://example.com/")
    assert identity(REPOSITORY, "https://ghe.example/A/b", web_host="ghe.example") == (
        REPOSITORY,
        "https://ghe.example/a/b",
    )


def test_options_are_those_of_the_kind() -> None:
    assert choose(OWNER, {"forks": True}) == {
        "forks": True,
        "archived": True,
        "wikis": True,
        "gists": False,
        "discussions": False,
        "poll": False,
        "pr_status": False,
        "pr_comment": False,
    }
    assert choose(SITE, {}) == OPTIONS[SITE]
    assert choose(SITE, {"depth": 0, "pages": 1}) == OPTIONS[SITE] | {"depth": 0, "pages": 1}
    assert OPTIONS[SITE]["depth"] == 3, "choosing changes nothing for others"
    for kind, chosen in (
        (GIST, {"forks": True}),
        (PAGE, {"leak_places": True}),
        (SITE, {"depth": -1}),
        (SITE, {"depth": 21}),
        (SITE, {"pages": 0}),
        (SITE, {"pages": 100_001}),
    ):
        with pytest.raises(BadInputError):
            choose(kind, chosen)


def test_every_kind_has_its_options_and_every_schedule_but_off_an_interval() -> None:
    assert set(OPTIONS) == set(TargetKind)
    assert set(EVERY) == set(Schedule) - {Schedule.OFF}
    assert {kind for kind in TargetKind if TargetSpec(kind, "x").scan_type is ScanType.SCRAPE} == {SITE, PAGE}
