"""Test that a text that is too long is refused before anybody searches it, and that searches run in threads."""

import asyncio
from typing import Any

import pytest

from outcrop import notes
from outcrop.domain.errors import BadInputError
from outcrop.limits import NAME_LENGTH, NOTE_LENGTH, TEXT_LENGTH, VIEW_NAME_LENGTH, VIEW_QUERY_LENGTH
from tests.support.backend import Backend, Tenant
from tests.support.factories import make_line
from tests.support.portal_client import Person

LONG = "password=" * 25_000  # close to the largest form


class _Searches:
    """The lengths of the texts that were searched for credentials, and how many searches blocked a loop."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.lengths: list[int] = []
        self.on_loop = 0
        self._mask, self._fingerprint = notes._mask, notes._fingerprint_words
        monkeypatch.setattr(notes, "_mask", self._record_mask)
        monkeypatch.setattr(notes, "_fingerprint_words", self._record_fingerprints)

    def _record_mask(self, text: str, *more: Any) -> str:
        self._record(text)
        return self._mask(text, *more)

    def _record_fingerprints(self, keyring: Any, text: str) -> Any:
        self._record(text)
        return self._fingerprint(keyring, text)

    def _record(self, text: str) -> None:
        self.lengths.append(len(text))
        self.on_loop += asyncio._get_running_loop() is not None


@pytest.fixture
def searches(monkeypatch: pytest.MonkeyPatch) -> _Searches:
    return _Searches(monkeypatch)


@pytest.fixture
def finding(backend: Backend, tenant: Tenant) -> str:
    backend.import_(tenant.account, line := make_line())
    return str(line["id"])


@pytest.mark.parametrize(
    ("path", "fields"),
    [
        ("/views", {"name": LONG, "view": "?q=acme"}),
        ("/views", {"name": "mine", "view": "?q=" + LONG}),
        ("/views", {"name": "mine", "view": "?" + "q=a&" * 50_000}),
        ("/profile/keys", {"name": LONG}),
        ("/findings/triage", {"id": "", "action": "resolve", "note": LONG}),
        ("/findings/{}/resolve", {"note": LONG}),
        ("/findings/{}/validate", {"note": LONG}),
        ("/profile/team/invite", {"email": LONG, "role": "member"}),
        ("/targets", {"target": f"github:{LONG}", "include": "a\n" * 100_000}),
        ("/profile/security/totp/confirm", {"code": "1 " * 100_000}),
    ],
    ids=lambda value: value if isinstance(value, str) else "-".join(value),
)
def test_a_long_field_is_refused_before_it_is_searched(
    owner: Person, finding: str, searches: _Searches, path: str, fields: dict[str, str]
) -> None:
    if "id" in fields:
        fields = fields | {"id": finding}
    answer = owner.post(path.format(finding), fields)
    assert answer.status_code in {303, 400}, answer.text[:300]
    assert not searches.lengths


def test_a_long_note_is_refused_by_the_api_before_it_is_searched(
    tenant: Tenant, finding: str, searches: _Searches
) -> None:
    answer = tenant.post(f"/findings/{finding}/resolve", note="password=" * 3_000)
    assert answer.status_code == 422
    assert not searches.lengths


def test_texts_of_the_largest_lengths_are_searched_in_threads(
    owner: Person, tenant: Tenant, finding: str, searches: _Searches
) -> None:
    longest_view = "?q=" + "a+" * ((VIEW_QUERY_LENGTH - 3) // 4)
    assert owner.post("/views", name="a" * VIEW_NAME_LENGTH, view=longest_view).status_code == 303
    assert owner.post("/profile/keys", name="k" * NAME_LENGTH).status_code == 200
    tenant.post(f"/findings/{finding}/resolve", note="n" * NOTE_LENGTH).raise_for_status()
    assert len(searches.lengths) == 8
    assert max(searches.lengths) < VIEW_QUERY_LENGTH
    assert searches.on_loop == 0


def test_no_text_above_the_common_limit_is_searched(
    backend: Backend, tenant: Tenant, searches: _Searches
) -> None:
    cleaner = notes.NoteCleaner(lambda: pytest.fail("the rules were loaded"))
    with pytest.raises(BadInputError):
        backend.run(lambda db: cleaner.clean(db, backend.keys, tenant.account.id, "a" * (TEXT_LENGTH + 1)))
    assert not searches.lengths
