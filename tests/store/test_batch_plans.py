"""Test that no statement about some findings reads the whole account, also in a transaction that filled it.

The statistics then say that the account is empty, and plans from before are still cached.
"""

import ast
import asyncio
import re
from collections.abc import Awaitable, Callable, Iterator, Sequence
from dataclasses import replace
from datetime import timedelta
from pathlib import Path
from typing import NamedTuple
from uuid import UUID, uuid4

import pytest

from outcrop.domain.clock import now
from outcrop.domain.finding import Confidence, Finding, SourceType, Status, Validation, Visibility
from outcrop.domain.paging import FindingQuery
from outcrop.runtime import prepare_database
from outcrop.settings import SecretText, Settings
from outcrop.store import db as database
from outcrop.store.db import Connection
from outcrop.store.findings import bulk, scores, suppressions, table, verdicts
from outcrop.store.findings.record import FindingRecord
from outcrop.store.findings.verdicts import StoredVerdict
from outcrop.store.incidents import table as incident_table
from outcrop.store.runs import source_names, sources
from tests.conftest import SECRET_KEY
from tests.structure.readability import python_files
from tests.support.backend import Backend
from tests.support.databases import migrated_database
from tests.support.rows_read import count_rows_read

STORE = Path(__file__).parents[2] / "src" / "outcrop" / "store"
ROWS, BATCH = 30_000, 100
LIMIT = 30 * BATCH  # rows that one statement may read, with its triggers, in all tables together
PREPARED_AFTER = 12  # executions after which psycopg and the server keep a plan
LARGE_TABLES = ("findings", "finding_search", "finding_services", "occurrences", "verdicts")
# Functions that count the findings of a part of an account, and one that names each row by its primary key.
OF_A_PART = {
    "findings/rollups.find_score_buckets",
    "runs/pull_requests.count_credentials",
    "runs/source_names.join_findings",
}
_READS_LARGE = re.compile(rf"\b(FROM|JOIN|UPDATE|INTO)\s+({'|'.join(LARGE_TABLES)})\b")


@pytest.fixture(scope="module")
def store(cluster: str, worker_id: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Backend]:
    """Create a database of its own, since the statistics of its tables matter."""
    url = migrated_database(cluster, f"plans_{worker_id}")
    settings = Settings(
        database_url=url, data_dir=tmp_path_factory.mktemp("plans"), secret_key=SecretText(SECRET_KEY)
    )
    with Backend(settings, asyncio.run(prepare_database(settings, url)), "http://127.0.0.1:9") as backend:
        yield backend


class _Batch(NamedTuple):
    """The findings that a statement is about."""

    account_id: int
    findings: Sequence[Finding]
    keys: Sequence[bytes]  # fingerprints, and as well identities


def _make_batch(account_id: int, numbers: Sequence[int]) -> _Batch:
    moment = now()
    findings = [
        Finding(
            id=UUID(int=number + (4 << 76) + (2 << 62)),
            status=Status.ACTIVE,
            validation_status=Validation.VALID,
            validation_confidence=Confidence.HIGH,
            validation_detail={"enabled_services": ["aws"]},
            composite_score=50.0,
            source_type=SourceType.REPO,
            source_visibility=Visibility.PUBLIC,
            source_url=None,
            repo_full_name="acme/shop",
            file_path="a.py",
            line_number=1,
            matched_text="********",
            pattern=("rule", "aws"),
            first_seen_at=moment,
            last_seen_at=moment,
            seen_count=1,
        )
        for number in numbers
    ]
    return _Batch(account_id, findings, [b"key %d" % number for number in numbers])


def _records(batch: _Batch, *, keep: bool = False) -> list[FindingRecord]:
    return [
        FindingRecord(
            replace(finding, composite_score=60.0), key, key, keep_first_seen=keep, keep_last_seen=keep
        )
        for finding, key in zip(batch.findings, batch.keys, strict=True)
    ]


def _ids(batch: _Batch) -> list[UUID]:
    return [finding.id for finding in batch.findings]


_VERDICT = StoredVerdict(Validation.VALID, Confidence.HIGH, "", (), False, False, False, now())
_RUN = uuid4()
# Every function of the store that gets some of an account's findings or credentials and runs a statement on a
# large table. A new one is added here.
STATEMENTS: dict[str, Callable[[Connection, _Batch], Awaitable[object]]] = {
    "findings/bulk.upsert_batch": lambda db, b: bulk.upsert_batch(db, b.account_id, _records(b)),
    "findings/bulk.upsert_batch, times kept": lambda db, b: bulk.upsert_batch(
        db, b.account_id, _records(b, keep=True)
    ),
    "findings/bulk.select_records": lambda db, b: bulk.select_records(db, b.account_id, _ids(b), lock=False),
    "findings/bulk.select_records, locked": lambda db, b: bulk.select_records(
        db, b.account_id, _ids(b), lock=True
    ),
    "findings/table.select_ids_by_identity": lambda db, b: table.select_ids_by_identity(
        db, b.account_id, b.keys
    ),
    "findings/table.select_secret_boxes": lambda db, b: table.select_secret_boxes(db, b.account_id, _ids(b)),
    "findings/table.select_secret_types": lambda db, b: table.select_secret_types(db, b.account_id, b.keys),
    "findings/table.lock_with_secret": lambda db, b: table.lock_with_secret(db, b.account_id, _ids(b)[0]),
    "findings/table.lock_with_score": lambda db, b: table.lock_with_score(db, b.account_id, _ids(b)[0]),
    "findings/table.update_triage": lambda db, b: table.update_triage(db, b.account_id, b.findings[0]),
    "findings/table.update_validation": lambda db, b: table.update_validation(
        db, b.account_id, b.findings[0], None
    ),
    "findings/table.was_sighted_since": lambda db, b: table.was_sighted_since(
        db, b.account_id, _ids(b)[0], now() - timedelta(days=1)
    ),
    "findings/table.select_fingerprints": lambda db, b: table.select_fingerprints(db, b.account_id, _ids(b)),
    "findings/table.select_valid": lambda db, b: table.select_valid(db, b.account_id, _ids(b)),
    "findings/table.select_statuses": lambda db, b: table.select_statuses(db, b.account_id, _ids(b)),
    "findings/table.lock_matching": lambda db, b: table.lock_matching(
        db, b.account_id, _ids(b), FindingQuery(status=Status.ACTIVE)
    ),
    "findings/verdicts.select_unvalidated": lambda db, b: verdicts.select_unvalidated(
        db, b.account_id, _ids(b)
    ),
    "findings/scores.rescore": lambda db, b: scores.rescore(
        db, b.account_id, _ids(b), lambda finding, detail, _: (finding, detail | {"version": 4})
    ),
    "findings/scores.select_wrong_spread": lambda db, b: scores.select_wrong_spread(db, b.account_id, b.keys),
    "findings/scores.select_unseen": lambda db, b: scores.select_unseen(db, b.account_id, _ids(b)),
    "findings/verdicts.set_keys": lambda db, b: verdicts.set_keys(
        db, b.account_id, dict(zip(_ids(b), b.keys, strict=True))
    ),
    "findings/scores.select_seen": lambda db, b: scores.select_seen(db, b.account_id, _ids(b)),
    "findings/scores.select_unseen_of_run": lambda db, b: scores.select_unseen_of_run(
        db, b.account_id, "source 1", _RUN
    ),
    "findings/verdicts.select": lambda db, b: verdicts.select(db, b.account_id, b.keys),
    "findings/verdicts.save": lambda db, b: verdicts.save(db, b.account_id, dict.fromkeys(b.keys, _VERDICT)),
    "findings/verdicts.select_finding_ids": lambda db, b: verdicts.select_finding_ids(
        db, b.account_id, b.keys[0]
    ),
    "runs/sources.lock_findings": lambda db, b: sources.lock_findings(db, b.account_id, b.keys),
    "runs/sources.count_places": lambda db, b: sources.count_places(db, b.account_id, b.keys),
    "runs/sources.mark_seen": lambda db, b: sources.mark_seen(
        db, b.account_id, _ids(b), scan_id=uuid4(), now=now()
    ),
    "runs/sources.set_occurrences": lambda db, b: sources.set_occurrences(
        db, b.account_id, [(id_, frozenset({b"blob"})) for id_ in _ids(b)], replace=True
    ),
    "runs/sources.select_findings": lambda db, b: sources.select_findings(db, b.account_id, "source 1"),
    "runs/sources.select_auto_resolved": lambda db, b: sources.select_auto_resolved(
        db, b.account_id, "source 1", last=_RUN
    ),
    "runs/sources.mark_unchanged_seen": lambda db, b: sources.mark_unchanged_seen(
        db, b.account_id, "source 1", last=_RUN, scan_id=_RUN, now=now()
    ),
    "findings/suppressions.hide_new": lambda db, b: suppressions.hide_new(db, b.account_id, _ids(b)),
    "incidents/table.lock_places": lambda db, b: incident_table.lock_places(db, b.account_id, _ids(b)),
    "incidents/table.assign": lambda db, b: incident_table.assign(
        db, b.account_id, _ids(b), "jo@example.com"
    ),
    "runs/source_names.select_places": lambda db, b: source_names.select_places(
        db, b.account_id, "source 2999"
    ),
    "runs/source_names.select_sharing": lambda db, b: source_names.select_sharing(
        db, b.account_id, ["https://github.com/"], [(key, "a.py") for key in b.keys]
    ),
    "runs/source_names.move_findings": lambda db, b: source_names.move_findings(
        db, b.account_id, "source 2", list(zip(_ids(b), b.keys, strict=True))
    ),
}


async def _fill(db: Connection, account_id: int) -> None:
    """Add ROWS findings with search texts, services, occurrences and verdicts.

    Nothing here makes the server drop its plans, as switching the triggers off would.
    """
    statements = (
        """INSERT INTO findings (account_id, id, status, validation_status, validation_confidence,
               validation_detail, composite_score, source_type, source_visibility, matched_text, pattern_name,
               pattern_secret_type, first_seen_at, last_seen_at, seen_count, fingerprint, identity, source,
               last_scan_id, score_detail)
           SELECT %(account)s, ('00000000-0000-4000-8000-' || lpad(to_hex(n), 12, '0'))::uuid, 'active', 'valid',
                  'high', '{"enabled_services": ["aws"]}', 50, 'repo', 'public', '********', 'rule', 'aws',
                  now(), now(), 1, convert_to('key ' || n, 'UTF8'), convert_to('key ' || n, 'UTF8'),
                  'source ' || n / 10, %(run)s, '{"version": 3, "parts": {"spread": 2}, "in_last_scan": false}'
           FROM generate_series(1, %(rows)s) n""",
        """INSERT INTO finding_search SELECT account_id, id, '', facet, composite_score, first_seen_at
           FROM findings WHERE account_id = %(account)s""",
        """INSERT INTO occurrences SELECT account_id, id, 'blob' FROM findings
           WHERE account_id = %(account)s AND id > %(first)s""",
        """INSERT INTO verdicts SELECT account_id, fingerprint, 'valid', 'high', '', '{}', false, false, false,
           now() FROM findings WHERE account_id = %(account)s AND id > %(first)s""",
    )
    first = UUID(
        int=9 * ROWS // 10 + (4 << 76) + (2 << 62)
    )  # fewer rows of tables that cost a check for each
    values = {"account": account_id, "rows": ROWS, "run": _RUN, "first": first}
    for statement in statements:
        await db.execute(statement.encode(), values, prepare=False)


async def _count_rows_per_statement(db: Connection, account_id: int) -> dict[str, int]:
    """Return the rows that each statement reads after its plan was kept and the account was filled."""
    await bulk.create_batch_table(db)
    async with db.transaction(force_rollback=True):
        few = _make_batch(account_id, range(1, 3))
        await bulk.upsert_batch(db, account_id, _records(few))
        for statement in STATEMENTS.values():
            for _ in range(PREPARED_AFTER):
                await statement(db, few)
    await _fill(db, account_id)
    counts = {}
    batch = _make_batch(account_id, range(ROWS - BATCH, ROWS))
    for name, statement in STATEMENTS.items():

        async def work(statement: Callable[[Connection, _Batch], Awaitable[object]] = statement) -> None:
            await statement(db, batch)

        read = await count_rows_read(db, work)
        counts[name] = sum(read.values())
    return counts


def test_no_statement_about_a_batch_reads_the_whole_account(store: Backend) -> None:
    other, account = store.tenant().account, store.tenant().account

    async def main() -> dict[str, int]:
        url = store.settings.database_url
        assert url is not None
        db = await database.connect(url)
        try:
            async with db.transaction():
                await bulk.create_batch_table(db)
                await bulk.upsert_batch(db, other.id, _records(_make_batch(other.id, range(1, 201))))
            await db.execute("ANALYZE")
            async with db.transaction(force_rollback=True):
                return await _count_rows_per_statement(db, account.id)
        finally:
            await db.close()

    counts = asyncio.run(main())
    assert {name: rows for name, rows in counts.items() if rows > LIMIT} == {}


def _functions_about_a_batch() -> Iterator[str]:
    """Yield `module.function` for each function that gets some ids or keys of an account's rows."""
    for path in python_files(STORE):
        module = path.relative_to(STORE).with_suffix("").as_posix()
        for node in ast.walk(ast.parse(path.read_text())):
            if not isinstance(node, ast.AsyncFunctionDef) or not _READS_LARGE.search(ast.unparse(node)):
                continue
            parameters = {
                argument.arg: ast.unparse(argument.annotation)
                for argument in [*node.args.args, *node.args.kwonlyargs]
                if argument.annotation is not None
            }
            is_batch = any(type_.startswith(("Sequence", "Mapping")) for type_ in parameters.values())
            if "account_id" in parameters and (is_batch or "source" in parameters):
                yield f"{module}.{node.name}"


def test_every_statement_about_a_batch_is_listed() -> None:
    listed = {name.partition(",")[0] for name in STATEMENTS}
    assert set(_functions_about_a_batch()) - listed == OF_A_PART
