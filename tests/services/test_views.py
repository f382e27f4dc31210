"""Test saved views on a real database."""

from uuid import uuid4

import pytest

from outcrop.domain.account import Account
from outcrop.domain.errors import BadInputError, NotFoundError
from outcrop.domain.paging import SavedView
from outcrop.limits import VIEWS
from outcrop.services import accounts, views
from tests.support.backend import Backend
from tests.support.members import NOW, trail

QUERY = "status=active&min_score=80&q=a%26b"


@pytest.fixture
def account(backend: Backend) -> Account:
    return backend.tenant().account


def save(backend: Backend, account: Account, name: str = "Alive and high", query: str = QUERY) -> SavedView:
    return backend.run(
        lambda db: views.save_view(db, account, name=name, query=query, by="jo@example.com", now=NOW)
    )


def test_a_view_is_saved_listed_by_name_and_removed(backend: Backend, account: Account) -> None:
    last, first = save(backend, account, " zebra "), save(backend, account, "Anything", "?" + QUERY)
    assert backend.run(lambda db: views.list_views(db, account)) == [first, last]
    assert (last.name, last.query, last.created_by, last.created_at) == (
        "zebra",
        QUERY,
        "jo@example.com",
        NOW,
    )
    assert first.query == QUERY
    assert (
        backend.run(lambda db: views.remove_view(db, account, last.id, by="al@example.com", now=NOW)) == last
    )
    with pytest.raises(NotFoundError):
        backend.run(lambda db: views.remove_view(db, account, last.id, by="al@example.com", now=NOW))
    assert backend.run(lambda db: views.list_views(db, account)) == [first]
    assert [(actor, action) for actor, action, *_ in trail(backend, account)] == [
        ("jo@example.com", "view.save"),
        ("jo@example.com", "view.save"),
        ("al@example.com", "view.remove"),
    ]


def test_a_name_is_unique_in_an_account_ignoring_case(backend: Backend, account: Account) -> None:
    save(backend, account)
    with pytest.raises(BadInputError):
        save(backend, account, "ALIVE and high")
    save(backend, backend.tenant().account)


@pytest.mark.parametrize(
    ("name", "query"),
    [
        ("", QUERY),
        (" ", QUERY),
        ("x" * 61, QUERY),
        ("a\nb", QUERY),
        ("a\0", QUERY),
        ("a", "x" * 2001),
        ("a", "q=\0"),
    ],
)
def test_invalid_names_and_queries_are_refused(
    backend: Backend, account: Account, name: str, query: str
) -> None:
    with pytest.raises(BadInputError):
        save(backend, account, name, query)


def test_the_number_of_views_is_limited(backend: Backend, account: Account) -> None:
    save(backend, account, "x" * 60, "x" * 2000)
    backend.sql(
        """INSERT INTO views (id, account_id, name, query, created_by, created_at)
        SELECT gen_random_uuid(), account_id, n::text, query, created_by, created_at
        FROM views, generate_series(3, %s) n WHERE account_id = %s""",
        VIEWS,
        account.id,
    )
    save(backend, account, "b", "")
    with pytest.raises(BadInputError):
        save(backend, account, "c")


def test_another_account_cannot_list_or_remove_views(backend: Backend, account: Account) -> None:
    view, other_account = save(backend, account), backend.tenant().account
    assert backend.run(lambda db: views.list_views(db, other_account)) == []
    for id_ in (view.id, uuid4()):
        with pytest.raises(NotFoundError):
            backend.run(lambda db, id_=id_: views.remove_view(db, other_account, id_, by="x", now=NOW))
    backend.run(lambda db: accounts.delete_account(db, account.slug))
    assert backend.sql("SELECT count(*) FROM views WHERE account_id = %s", account.id) == [(0,)]
