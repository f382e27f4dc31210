"""Test that no credential is stored in a note that a user types.

This holds for the credentials of the account's findings and for all others that a rule recognises.
"""

import asyncio
import base64
import threading
import time
from pathlib import Path
from urllib.parse import quote

import pytest

from outcrop.domain.errors import OperatorError
from outcrop.limits import NOTE_LENGTH
from outcrop.notes import NoteCleaner
from outcrop.scanner.engine.ruleset import RuleSet
from tests.support.backend import Backend, Tenant
from tests.support.factories import make_line
from tests.support.pipeline import token
from tests.support.portal_client import Person
from tests.support.rulesets import ruleset

PASSWORD = "correct-horse" + "-battery"  # which no rule would recognise by itself
TOKEN = token("typed")


@pytest.fixture(autouse=True)
def compiled() -> None:
    """Compile the rules into the cache, so that the server does not mask every random-looking value."""
    ruleset()


@pytest.fixture
def finding(backend: Backend, tenant: Tenant) -> str:
    """One finding, and another of the same account whose credential people may type here."""
    other = make_line(secret=PASSWORD, pattern={"name": "Password", "secret_type": "generic_password"})
    del other["matched_text"]
    backend.import_(tenant.account, line := make_line(), other)
    return str(line["id"])


def everything(backend: Backend, tenant: Tenant, owner: Person) -> str:
    """Return everything that is stored unencrypted for an account, and all its exports."""
    tables = ("findings", "audit", "outbox", "views", "api_keys")
    rows = [
        backend.sql(f"SELECT t::text FROM {table} t WHERE account_id = %s", tenant.account.id)
        for table in tables
    ]
    return "\n".join(
        [
            str(rows),
            *(owner.page(f"/export/findings.{kind}") for kind in ("csv", "jsonl", "sarif")),
            owner.page("/profile/audit.jsonl"),
        ]
    )


@pytest.mark.parametrize("typed", [TOKEN, PASSWORD])
@pytest.mark.parametrize(
    "form", ["it was {}", "it was “{}”.", "pw={},", "see https://example.com/?a={}&b=1", "({})"]
)
def test_a_credential_in_a_note_is_stored_nowhere(
    backend: Backend, tenant: Tenant, owner: Person, finding: str, typed: str, form: str
) -> None:
    tenant.post(f"/findings/{finding}/resolve", note=form.format(typed)).raise_for_status()
    note = tenant.finding(finding)["resolution_note"]
    assert "********" in note
    assert note.startswith(form.partition("{}")[0])
    assert owner.post(f"/findings/{finding}/reopen", note=form.format(typed)).status_code == 303
    sent = {"id": finding, "action": "restrict", "note": form.format(typed), "confirmed": "yes"}
    assert owner.post("/findings/triage", sent).status_code == 303
    kept = everything(backend, tenant, owner)
    assert kept.count(finding) > 3
    assert typed not in kept
    assert quote(typed, safe="") not in kept


def test_a_password_of_another_account_is_nobody_elses(backend: Backend, finding: str) -> None:
    neighbour = backend.tenant()
    backend.import_(neighbour.account, line := make_line())
    neighbour.post(f"/findings/{line['id']}/resolve", note=f"it was {PASSWORD}").raise_for_status()
    assert neighbour.finding(line["id"])["resolution_note"] == f"it was {PASSWORD}"


@pytest.mark.parametrize(
    "written",
    [
        TOKEN.replace("ghp_", "%67hp%5F"),
        base64.b64encode(f"x:{TOKEN}".encode()).decode(),
        f"postgres://app:{TOKEN[4:24]}@db.example.com/shop",
    ],
)
def test_however_it_is_written(tenant: Tenant, finding: str, written: str) -> None:
    tenant.post(f"/findings/{finding}/resolve", note=f"gone: {written} since May").raise_for_status()
    note = tenant.finding(finding)["resolution_note"]
    assert written not in note
    assert TOKEN[4:24] not in note
    assert (note.startswith("gone: "), note.endswith(" since May"), "********" in note) == (True, True, True)


ORDINARY = [
    "Rotated by the billing team on 3 March, see OPS-1234 and https://wiki.example.com/runbooks/rotate?page=2#steps.",
    (
        "Removed in commit 9f86d081884c7d659a2feaa0c55ad015a3bf4f1b; "
        "run 6f1ed002-ab55-4f05-b0a7-0f4b1f5bb1aa shows it gone."
    ),
    "The password was changed, the token is short-lived, the secret key: ask ops@example.com.",
    "100 % of it. Größe: 5×5; ключ заменён; 鍵を交換した 🔑",
    "x" * NOTE_LENGTH,
]


@pytest.mark.parametrize("note", ORDINARY)
def test_ordinary_words_stay_as_they_are(tenant: Tenant, finding: str, note: str) -> None:
    tenant.post(f"/findings/{finding}/resolve", note=note).raise_for_status()
    assert tenant.finding(finding)["resolution_note"] == note


def test_a_note_that_masking_makes_longer_is_cut(backend: Backend, tenant: Tenant, finding: str) -> None:
    short = make_line(secret="Kq7-vTz9")
    del short["matched_text"]
    backend.import_(tenant.account, short)
    note = "Kq7-vTz9 " * 55
    tenant.post(f"/findings/{finding}/resolve", note=note).raise_for_status()
    kept = tenant.finding(finding)["resolution_note"]
    assert (len(kept), "Kq7-vTz9" in kept) == (NOTE_LENGTH, False)


def test_names_are_masked_and_a_view_that_looks_for_a_credential_is_not_saved(
    backend: Backend, tenant: Tenant, owner: Person
) -> None:
    assert owner.post("/views", name=f"of {TOKEN}", view="?q=acme").status_code == 303
    assert owner.post("/profile/keys", name=f"for {TOKEN}").status_code == 200
    refused = owner.post("/views", name="mine", view=f"?q={TOKEN}")
    assert (refused.status_code, "contain a credential" in refused.text) == (400, True)
    kept = everything(backend, tenant, owner)
    assert (kept.count("********") >= 4, TOKEN in kept) == (True, False)


def test_without_rules_yet_what_looks_drawn_is_masked(backend: Backend, tenant: Tenant) -> None:
    go = threading.Event()

    def slowly() -> RuleSet:
        go.wait(60)
        return ruleset()

    notes = NoteCleaner(slowly, timeout=0.2)
    typed = (
        f"it was {TOKEN}, in OPS-1234, ROTATION_TICKET_2026_00123, "
        "https://example.com/a/b, 6f1ed002-ab55-4f05-b0a7-0f4b1f5bb1aa"
    )

    async def work(db: object) -> list[str]:
        first = await notes.clean(db, backend.keys, tenant.account.id, typed)
        deadline = notes._deadline
        assert await notes.clean(db, backend.keys, tenant.account.id, typed) == first
        assert notes._deadline == deadline <= time.monotonic(), "only the first waits"
        go.set()
        assert notes._loading is not None
        await notes._loading
        return [first, await notes.clean(db, backend.keys, tenant.account.id, typed)]

    assert backend.run(work) == [
        typed.replace(TOKEN, "********"),
        typed.replace(TOKEN, f"{TOKEN[:4]}********{TOKEN[-4:]}"),
    ]


def test_rules_that_cannot_be_loaded_keep_nobody_from_their_note(backend: Backend, tenant: Tenant) -> None:
    def broken() -> RuleSet:
        raise OperatorError(f"{Path('own.toml')}: is no rule")

    notes = NoteCleaner(broken)
    for _ in range(2):
        assert (
            backend.run(lambda db: notes.clean(db, backend.keys, tenant.account.id, f"it was {TOKEN}"))
            == "it was ********"
        )
    assert asyncio.run(notes.clean_note(None, backend.keys, 1, None)) is None
