"""Test that the address of a repository has one form. It can be written in many ways."""

import pytest

from outcrop.sources.repository_address import normalise_repository, repository_name


@pytest.mark.parametrize(
    ("address", "normal", "name"),
    [
        ("https://github.com/Acme/Shop.git", "https://github.com/acme/shop", "Acme/Shop"),
        ("https://github.com/acme/shop/", "https://github.com/acme/shop", "acme/shop"),
        (
            "https://user:pw@github.com/acme/shop/blob/main/a.py#L1",
            "https://github.com/acme/shop",
            "acme/shop",
        ),
        ("git@github.com:acme/shop.git", "https://github.com/acme/shop", "acme/shop"),
        ("ssh://git@ssh.github.com:443/acme/shop", "https://github.com/acme/shop", "acme/shop"),
        ("http://www.github.com:80/acme/wiki", "https://github.com/acme/wiki", "acme/wiki"),
        ("https://github.com/acme/shop.wiki.git", "https://github.com/acme/shop.wiki", "acme/shop.wiki"),
        ("github.com/acme/shop", "https://github.com/acme/shop", "acme/shop"),
        ("https://gitlab.com/a/b/c/-/blob/main/x", "https://gitlab.com/a/b/c", "a/b/c"),
        ("ssh://git@git.acme.example:2222/a/b.git", "https://git.acme.example/a/b", "a/b"),
        ("https://git.acme.example:8443/a/b", "https://git.acme.example:8443/a/b", "a/b"),
        ("https://bitbucket.org/a/b/src/main/x.py", "https://bitbucket.org/a/b", "a/b"),
        ("https://git.acme.example/scm/p/r.git", "https://git.acme.example/p/r", "p/r"),
        ("git@ssh.dev.azure.com:v3/o/p/r", "https://dev.azure.com/o/p/_git/r", "o/p/_git/r"),
        ("https://dev.azure.com/o/p/_git/r", "https://dev.azure.com/o/p/_git/r", "o/p/_git/r"),
        ("ssh://git@host/acme/shop", "https://host/acme/shop", "acme/shop"),
        ("/srv/Shop/", "file:///srv/Shop", None),
        ("file:///srv/Shop", "file:///srv/Shop", None),
        ("https://github.com/", None, None),
        ("http://[::1", None, None),
        ("acme/shop", None, None),
        ("C:\\shop", None, None),
        ("two words", None, None),
        ("", None, None),
        (None, None, None),
        (5, None, None),
    ],
)
def test_an_address_has_one_form(address: object, normal: str | None, name: str | None) -> None:
    assert normalise_repository(address) == normal
    assert repository_name(address) == name
