"""Test imports of lines about the same finding, and of raw credentials."""

from uuid import UUID, uuid4

import pytest

from outcrop.domain.errors import BadInputError
from outcrop.domain.secret import Secret, reveal
from outcrop.store.keyring import DamagedValueError
from tests.support.backend import Backend
from tests.support.factories import make_line

SECRET = "made-up-" + "Zk4" * 8


def tables_with_text(backend: Backend, text: str) -> list[str]:
    """Return the tables that contain the text in any column."""
    tables = [
        row[0]
        for row in backend.sql(
            "SELECT table_name FROM information_schema.tables WHERE table_schema = 'public'"
        )
    ]
    return [
        table
        for table in tables
        if backend.sql(f'SELECT 1 FROM "{table}" t WHERE strpos(t::text, %s) > 0 LIMIT 1', text)
    ]


def make_line_without_id(**fields: object) -> dict[str, object]:
    line = make_line(**fields)
    del line["id"]
    return line


def test_a_raw_credential_is_stored_encrypted_and_nowhere_else(backend: Backend) -> None:
    tenant = backend.tenant()
    line = make_line(secret=SECRET, source_url=f"https://x.example/?k={SECRET}", file_path=f"a/{SECRET}.txt")
    backend.import_(tenant.account, line)
    assert tables_with_text(backend, SECRET) == []
    (box,) = backend.sql("SELECT secret_box FROM findings WHERE id = %s", line["id"])[0]
    credential = backend.keys.open(box, tenant.account.id, UUID(line["id"]), mask_all=False)
    assert reveal(credential) == SECRET


def test_a_credential_can_be_decrypted_for_its_own_finding_only(backend: Backend) -> None:
    tenant = backend.tenant()
    line = make_line(secret=SECRET)
    backend.import_(tenant.account, line)
    (box,) = backend.sql("SELECT secret_box FROM findings WHERE id = %s", line["id"])[0]
    for account_id, finding_id in ((tenant.account.id + 1, UUID(line["id"])), (tenant.account.id, uuid4())):
        with pytest.raises(DamagedValueError):
            backend.keys.open(box, account_id, finding_id, mask_all=False)


@pytest.mark.parametrize("together", [True, False])
def test_lines_without_id_at_one_place_are_one_finding(backend: Backend, *, together: bool) -> None:
    tenant = backend.tenant()
    lines = [
        make_line_without_id(secret=SECRET, line_number=1),
        make_line_without_id(secret=SECRET, line_number=2),
    ]
    if together:
        backend.import_(tenant.account, *lines)
    else:
        backend.import_(tenant.account, lines[0])
        backend.import_(tenant.account, lines[1])
    (found,) = tenant.get("/findings").json()["data"]
    assert found["line_number"] == 2
    assert backend.sql("SELECT secret_box IS NOT NULL FROM findings WHERE id = %s", found["id"]) == [(True,)]
    assert tenant.post(f"/findings/{found['id']}/resolve", note=f"was {SECRET}").status_code == 200, (
        "the credential can still be decrypted"
    )
    assert SECRET not in tenant.finding(found["id"])["resolution_note"]


@pytest.mark.parametrize("together", [True, False])
def test_a_second_line_without_the_credential_keeps_and_masks_it(backend: Backend, *, together: bool) -> None:
    tenant = backend.tenant()
    first = make_line(secret=SECRET, first_seen_at="2020-01-01T00:00:00Z")
    second = make_line(id=first["id"], source_url=f"https://x.example/?k={SECRET}")
    del second["first_seen_at"]
    if together:
        backend.import_(tenant.account, first, second)
    else:
        backend.import_(tenant.account, first)
        backend.import_(tenant.account, second)
    found = tenant.finding(first["id"])
    assert found["source_url"] == f"https://x.example/?k={Secret(SECRET).masked()}"
    assert found["first_seen_at"] == "2020-01-01T00:00:00+00:00"
    assert backend.sql(
        "SELECT secret_box IS NOT NULL, fingerprint IS NOT NULL FROM findings WHERE id = %s", first["id"]
    ) == [(True, True)]


def test_two_ids_for_one_credential_at_one_place_are_refused_with_the_line(
    backend: Backend,
) -> None:
    tenant = backend.tenant()
    first, second = make_line(secret=SECRET), make_line(secret=SECRET)
    with pytest.raises(BadInputError, match=rf"line 2: .*{first['id']}"):
        backend.import_(tenant.account, first, second)
    assert tenant.get("/findings").json()["meta"]["total"] == 0
    backend.import_(tenant.account, first)
    with pytest.raises(BadInputError, match="line 1: "):
        backend.import_(tenant.account, second)
    backend.import_(tenant.account, make_line(secret=SECRET, file_path="elsewhere"))
    assert tenant.get("/findings").json()["meta"]["total"] == 2


def test_the_same_id_in_two_accounts_is_two_findings(backend: Backend) -> None:
    tenant, other = backend.tenant(), backend.tenant()
    line = make_line(secret=SECRET)
    backend.import_(tenant.account, line)
    backend.import_(other.account, line | {"line_number": 99})
    assert tenant.finding(line["id"])["line_number"] == 12
    assert other.finding(line["id"])["line_number"] == 99


def test_every_other_field_has_a_default(backend: Backend) -> None:
    tenant = backend.tenant()
    backend.import_(tenant.account, {"matched_text": "********"})
    (found,) = tenant.get("/findings").json()["data"]
    assert (found["status"], found["validation_status"], found["validation_confidence"]) == (
        "active",
        "unvalidated",
        "low",
    )
    assert (found["source_type"], found["source_visibility"], found["matched_text"]) == (
        "repo",
        "unknown",
        "********",
    )
    # Our own score: unvalidated 18, context 9, medium impact 6, unknown visibility of a repository 7, seen today 4.
    assert found["composite_score"] == 44
    assert found["first_seen_at"] == found["last_seen_at"]


@pytest.mark.parametrize("kind", ["object", "list"])
def test_a_detail_nested_too_deeply_is_refused_with_the_line(backend: Backend, kind: str) -> None:
    def nested(levels: int) -> dict[str, object]:
        value: object = 1
        for _ in range(levels - 1):
            value = {"a": value} if kind == "object" else [value]
        return {"a": value}

    tenant = backend.tenant()
    for levels in (33, 101, 300, 900):
        with pytest.raises(BadInputError, match=r"^line 2: validation_detail: is nested more than 32 deep$"):
            backend.import_(tenant.account, make_line(), make_line(validation_detail=nested(levels)))
    backend.import_(tenant.account, make_line(validation_detail=nested(32)))
    (found,) = tenant.get("/findings").json()["data"]
    assert found["validation_detail"]["a"] == nested(32)["a"]


def test_an_import_sends_no_event_and_adds_one_audit_line(backend: Backend) -> None:
    tenant = backend.tenant()
    backend.import_(tenant.account, make_line(status="resolved"), make_line(status="false_positive"))
    assert backend.sql("SELECT count(*) FROM outbox WHERE account_id = %s", tenant.account.id) == [(0,)]
    lines = backend.sql(
        "SELECT detail FROM audit WHERE account_id = %s AND action = 'findings.import'", tenant.account.id
    )
    assert lines == [({"lines": 2, "new": 2, "updated": 0},)]
