"""Compare random histories of two accounts with a model of the specification after every step."""

import asyncio
import io
import json
import random
from collections.abc import Callable, Coroutine, Iterator
from datetime import UTC, datetime, timedelta
from typing import Any
from urllib.parse import quote, urlencode
from uuid import UUID

import psycopg
import pytest
from hypothesis import HealthCheck, Phase, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule, run_state_machine_as_test

from outcrop.api import parameters, shapes
from outcrop.api.parameters import FindingParameters
from outcrop.domain.errors import NotFoundError, TransitionError
from outcrop.domain.finding import Action, public_fields
from outcrop.services import findings
from outcrop.services.exchange.formats import RecordError
from outcrop.services.exchange.importer import import_findings
from outcrop.store import db as database
from outcrop.store.db import Connection
from outcrop.store.findings import listing, rollups
from tests.support.backend import Backend, Tenant
from tests.support.factories import complete, make_line, without_computed

Json = dict[str, Any]

IDS = [
    str(UUID(int=n * 0x1111_1111_1111_1111_1111_1111_1111 + 0x4000_8000_0000_0000_0000, version=4))
    for n in range(1, 11)
]
STATUSES = ["active", "resolved", "false_positive", "customer_restricted", "stale"]
SOURCES = ["repo", "gist", "commit", "endpoint", "js_bundle"]
VALIDATIONS = ["valid", "invalid", "unvalidated", "error", "unreachable"]
SERVICES = ["aws", "aws_s3", "stripe"]
SCORES = [50.0, 50.5, 50.0, 50.5, 0.0, 90.0, 100.0]
TIMES = [
    "2025-12-31T23:59:59",
    "2026-01-01T00:00:00",
    "2026-01-01T12:00:00",
    "2026-01-01T23:59:59",
    "2026-01-02T00:00:00",
]
MEMBERS = ["ann@example.com", "bob@example.com"]
MASK = "*" * 8


# --- the model: the specification in plain Python


def mask(secret: str) -> str:
    shown = min(4, len(secret) // 8)
    return secret[:shown] + MASK + secret[len(secret) - shown :]


def mask_in_text(text: str | None, secret: str | None) -> str | None:
    """Mask a credential of at least 8 characters in the text, plain or URL-encoded."""
    if text is None or secret is None or len(secret) < 8:
        return text
    return text.replace(secret, mask(secret)).replace(quote(secret, safe=""), mask(secret))


def utc(text: str) -> str:
    return datetime.fromisoformat(text).replace(tzinfo=UTC).isoformat()


class AccountModel:
    """The model of an account: findings as the API shows them, audit lines and events."""

    def __init__(self, slug: str) -> None:
        self.slug = slug
        self.findings: dict[str, Json] = {}
        self.secrets: dict[str, str] = {}
        self.audit: list[tuple[str, str, str, Json]] = []
        self.events: list[tuple[str, str, Json]] = []

    def import_(self, lines: list[Json], by: str) -> tuple[int, int]:
        new = len({line["id"] for line in lines} - self.findings.keys())
        for line in lines:
            self._import_line(line)
        self.audit.append(
            (by, "findings.import", self.slug, {"lines": len(lines), "new": new, "updated": len(lines) - new})
        )
        return len(lines), new

    def _import_line(self, line: Json) -> None:
        secret = line.get("secret")
        if secret is not None:
            self.secrets[line["id"]] = secret
        closed = line["status"] in {"resolved", "false_positive", "customer_restricted"}
        resolved = line["status"] == "resolved"
        self.findings[line["id"]] = {
            **complete({"line_number": line["line_number"], "current_line": None}),
            **{
                name: line[name]
                for name in (
                    "id",
                    "status",
                    "validation_status",
                    "validation_confidence",
                    "validation_detail",
                )
            },
            **{
                name: line[name]
                for name in (
                    "composite_score",
                    "source_type",
                    "source_visibility",
                    "repo_full_name",
                    "line_number",
                )
            },
            **{name: mask_in_text(line[name], secret) for name in ("source_url", "file_path")},
            "matched_text": line["matched_text"] if secret is None else mask(secret),
            "pattern": line["pattern"],
            "first_seen_at": utc(line["first_seen_at"]),
            "last_seen_at": utc(line["last_seen_at"]),
            "seen_count": line["seen_count"],
            "resolved_at": utc(line["resolved_at"]) if resolved else None,
            "resolution_note": mask_in_text(line["resolution_note"], secret) if closed else None,
            "resolution_evidence": line["resolution_evidence"] if resolved else None,
            "suppressed_at": line["suppressed_at"] and utc(line["suppressed_at"]),
        }

    def triage(self, action: str, id_: str, note: str | None, by: str, now: datetime) -> str:
        """Change a finding by the table of transitions; return its new status, or the code of the error."""
        if (finding := self.findings.get(id_)) is None:
            return "not_found"
        status = finding["status"]
        if action == "suppress":
            if finding["suppressed_at"] is None:
                finding["suppressed_at"] = now.isoformat()
                self.audit.append((by, "finding.suppress", id_, {}))
            return str(status)
        to, refused = {
            "resolve": ("resolved", {"false_positive"}),
            "restrict": ("customer_restricted", {"resolved", "false_positive"}),
            "false_positive": ("false_positive", set()),
        }[action]
        if status in refused:
            return "invalid_transition"
        if status == to:
            return to
        note = mask_in_text(note, self.secrets.get(id_))
        finding |= {"status": to, "resolution_note": note, "resolved_at": None, "resolution_evidence": None}
        if to == "resolved":
            finding |= {
                "resolved_at": now.isoformat(),
                "resolution_evidence": {"auto_resolved": False, "resolved_by": by},
            }
        self.audit.append(
            (
                by,
                f"finding.{action}",
                id_,
                {"from": status, "to": to} | ({} if note is None else {"note": note}),
            )
        )
        event_fields = {
            "resolve": "id status resolved_at resolution_note resolution_evidence validation_status "
            "composite_score source_url matched_text pattern",
            "false_positive": "id status source_url pattern",
        }.get(action)
        if event_fields is not None:
            self.events.append(
                (
                    f"finding.{to}",
                    id_,
                    json.loads(json.dumps({name: finding[name] for name in event_fields.split()})),
                )
            )
        return to

    def list(self, query: Json) -> Json:
        """Return a list as the API does, for the text of its parameters."""
        found = [finding for finding in self.findings.values() if _matches(finding, query)]
        key = query.get("order_by", "composite_score")
        found.sort(key=lambda f: (f[key], f["id"]), reverse=query.get("order_dir", "desc") == "desc")
        page, per_page = int(query.get("page", 1)), int(query.get("per_page", 25))
        meta = {"total": len(found), "page": page, "per_page": per_page, "pages": -(-len(found) // per_page)}
        return {"data": found[(page - 1) * per_page : page * per_page], "meta": meta}


def _matches(finding: Json, query: Json) -> bool:
    suppressed = query.get("suppressed", "false" if query.get("status") == "active" else None)
    seen = datetime.fromisoformat(finding["first_seen_at"])
    texts = [(finding[name] or "").casefold() for name in ("source_url", "file_path", "repo_full_name")]
    return all(
        [
            query.get("status") in {None, finding["status"]},
            query.get("source_type") in {None, finding["source_type"]},
            query.get("validation") in {None, finding["validation_status"]},
            suppressed is None or (finding["suppressed_at"] is not None) == (suppressed == "true"),
            "service" not in query or query["service"] in finding["validation_detail"]["enabled_services"],
            finding["composite_score"] >= float(query.get("min_score", 0)),
            "date_from" not in query or seen >= _first_moment(query["date_from"]),
            "date_to" not in query or seen <= _last_moment(query["date_to"]),
            all(any(term.casefold() in text for text in texts) for term in query.get("q", "").split()),
        ]
    )


def _first_moment(text: str) -> datetime:
    """Parse a date or time; without an offset it is in UTC."""
    moment = datetime.fromisoformat(text)
    return moment if moment.tzinfo else moment.replace(tzinfo=UTC)


def _last_moment(text: str) -> datetime:
    return _first_moment(text) + (
        timedelta(days=1, seconds=-1) if len(text) == len("2026-01-01") else timedelta()
    )


# --- random actions


def secret_of(id_: str, variant: int) -> str:
    """Return a different credential for every finding: the same one at one place would be one finding."""
    return f"s/{variant}+{id_[:8]} ü" if variant else f"{id_[:7]}"


@st.composite
def lines(draw: st.DrawFn) -> Json:
    id_ = draw(st.sampled_from(IDS))
    status = draw(st.sampled_from(STATUSES))
    secret = draw(st.sampled_from([None, None, secret_of(id_, 0), secret_of(id_, 1), secret_of(id_, 2)]))
    shown = secret or "nothing"
    place = draw(
        st.sampled_from(["config/Settings.py", "100%_done.py", "ü/größe.js", f"x/{shown}.env", None])
    )
    url = draw(
        st.sampled_from(
            [
                None,
                f"https://github.com/acme/shop/{place}?key={quote(shown, safe='')}",
                "https://Example.com/app.js",
            ]
        )
    )
    line = make_line(
        id=id_,
        status=status,
        source_type=draw(st.sampled_from(SOURCES)),
        validation_status=draw(st.sampled_from(VALIDATIONS)),
        validation_detail={
            "enabled_services": draw(st.lists(st.sampled_from(SERVICES), max_size=3)),
            "account": "12",
        },
        composite_score=draw(st.sampled_from(SCORES)),
        source_url=url,
        file_path=place,
        repo_full_name=draw(st.sampled_from(["acme/shop", "Acme/Web", None])),
        line_number=draw(st.sampled_from([None, 0, 7])),
        pattern=draw(
            st.sampled_from(
                [{"name": "AWS", "secret_type": "aws"}, {"name": "Token", "secret_type": "token"}]
            )
        ),
        first_seen_at=draw(st.sampled_from(TIMES)),
        last_seen_at=draw(st.sampled_from(TIMES)),
        seen_count=draw(st.sampled_from([1, 2])),
        resolved_at=draw(st.sampled_from(TIMES)),
        resolution_note=draw(st.sampled_from([None, "before", f"was {shown}"])),
        resolution_evidence=draw(
            st.sampled_from(
                [
                    {"auto_resolved": True, "resolved_by": None},
                    {"auto_resolved": False, "resolved_by": MEMBERS[0]},
                ]
            )
        ),
        suppressed_at=draw(st.sampled_from([None, None, TIMES[1]])),
    )
    return line if secret is None else line | {"secret": secret}


_DAYS = [
    "2025-12-31",
    "2026-01-01",
    "2026-01-02",
    "2026-01-01T00:00:00",
    "2026-01-01T12:00:00+00:00",
    "2026-01-02T00:59:59+01:00",
    "9999-12-31",
]
_FILTERS = {
    "status": STATUSES,
    "source_type": SOURCES,
    "validation": VALIDATIONS,
    "suppressed": ["true", "false"],
    "service": [*SERVICES, "AWS"],
    "min_score": ["0", "50", "50.25", "50.5", "90.0", "1e2"],
    "date_from": _DAYS,
    "date_to": _DAYS,
    "q": [
        "acme",
        "ACME py",
        "100%_",
        "%",
        "_",
        "GRÖSSE",
        "settings shop",
        "example.com app",
        "********",
        "nowhere",
    ],
}
_ORDERS = {
    "order_by": ["composite_score", "first_seen_at", "last_seen_at"],
    "order_dir": ["asc", "desc"],
    "page": ["1", "1", "1", "1", "2", "2", "3", "100000000000000000000"],
    "per_page": ["1", "2", "3", "200"],
}


def _random_queries(rng: random.Random, count: int) -> Iterator[Json]:
    """Yield random queries: an even spread is more useful here than a small example."""
    for _ in range(count):
        names = rng.sample(sorted(_FILTERS), rng.choice([0, 1, 1, 1, 2, 2, 3]))
        # A bound inside a bucket of the sort key: errors in counting are most likely there.
        if rng.random() < 0.3:
            name, order = rng.choice(
                [
                    ("min_score", "composite_score"),
                    ("date_from", "first_seen_at"),
                    ("date_to", "first_seen_at"),
                ]
            )
            yield {
                name: rng.choice(_FILTERS[name]),
                "order_by": order,
                "order_dir": rng.choice(["asc", "desc"]),
                "per_page": "1",
            }
            continue
        query = {name: rng.choice(_FILTERS[name]) for name in names}
        yield query | {name: rng.choice(values) for name, values in _ORDERS.items() if rng.random() < 0.8}


Act = tuple[str, str, str | None, str, int]
seeds = st.integers(0, 2**32 - 1)
account_numbers = st.sampled_from([0, 1])
acts = st.tuples(
    st.sampled_from(IDS),
    st.sampled_from(["resolve", "restrict", "suppress", "false_positive"]),
    st.sampled_from([None, "rotated", "was {}", "see ?k={}"]),
    st.sampled_from(MEMBERS),
    st.sampled_from([0, 1, 9]),
)


def _compare(result: Json, expected: Json, query: Json) -> None:
    """Compare the numbers first, then the order, then each field, so that a failure is easy to read."""
    assert result["meta"] == expected["meta"], query
    assert [row["id"] for row in result["data"]] == [row["id"] for row in expected["data"]], query
    for row, expected_row in zip(result["data"], expected["data"], strict=True):
        differences = {
            name: (row.get(name), expected_row.get(name))
            for name in row.keys() | expected_row.keys()
            if row.get(name, 0) != expected_row.get(name, 0)
        }
        assert not differences, (query, row["id"])


class HistoryMachine(RuleBasedStateMachine):
    def __init__(self, backend: Backend, max_cheap_cost: int) -> None:
        super().__init__()
        self.max_cheap_cost = max_cheap_cost
        assert backend.settings.database_url is not None
        self.backend = backend
        self.runner = asyncio.Runner()
        self.db: Connection = self.runner.run(database.connect(backend.settings.database_url))
        self.sql = psycopg.connect(backend.settings.database_url, autocommit=True, options="-c timezone=UTC")
        self.tenants: list[Tenant] = []
        self.models: list[AccountModel] = []
        self.clock = datetime(2025, 12, 31, 23, 59, 50, tzinfo=UTC)

    def teardown(self) -> None:
        self.sql.close()
        self.runner.run(self.db.close())
        self.runner.close()

    def _run(self, work: Callable[[], Coroutine[Any, Any, Any]]) -> Any:
        async def in_transaction() -> Any:
            async with self.db.transaction():
                return await work()

        return self.runner.run(in_transaction())

    @initialize(
        lines_=st.lists(lines(), min_size=6, max_size=12),
        other_lines=st.lists(lines(), min_size=3, max_size=6),
    )
    def two_accounts(self, lines_: list[Json], other_lines: list[Json]) -> None:
        self.tenants = [self.backend.tenant(), self.backend.tenant()]
        self.models = [AccountModel(tenant.account.slug) for tenant in self.tenants]
        # Audit lines of the creation of the accounts are not compared.
        self.before = [len(self._audit(n)) for n in range(2)]
        self.import_findings(0, lines_, MEMBERS[0])
        self.import_findings(1, other_lines, MEMBERS[1])

    @rule(n=account_numbers, lines_=st.lists(lines(), min_size=1, max_size=6), by=st.sampled_from(MEMBERS))
    def import_findings(self, n: int, lines_: list[Json], by: str) -> None:
        file = io.BytesIO(b"".join(json.dumps(line).encode() + b"\n" for line in lines_))
        imported = self.runner.run(
            import_findings(
                self.db,
                self.backend.keys,
                self.tenants[n].account,
                file,
                by=by,
                now=self.clock,
                progress=lambda _: None,
            )
        )
        assert (imported.lines, imported.new) == self.models[n].import_(lines_, by)

    @rule(n=account_numbers, lines_=st.lists(lines(), min_size=1, max_size=3))
    def import_with_a_wrong_last_line(self, n: int, lines_: list[Json]) -> None:
        """Import lines with a wrong last one: none is written, since an import is one transaction."""
        file = io.BytesIO(
            b"".join(json.dumps(line).encode() + b"\n" for line in [*lines_, make_line(status="lost")])
        )
        with pytest.raises(RecordError, match=f"^line {len(lines_) + 1}: status"):
            self.runner.run(
                import_findings(
                    self.db,
                    self.backend.keys,
                    self.tenants[n].account,
                    file,
                    by="x",
                    now=self.clock,
                    progress=lambda _: None,
                )
            )

    @rule(n=account_numbers, triage_acts=st.lists(acts, min_size=2, max_size=8), seed=seeds)
    def triage(self, n: int, triage_acts: list[Act], seed: int) -> None:
        for act in triage_acts:
            self._triage(n, *act)
        self.list_findings(seed)

    def _triage(self, n: int, id_: str, action: str, note: str | None, by: str, seconds: int) -> None:
        self.clock += timedelta(seconds=seconds)
        account_id, model = self.tenants[n].account.id, self.models[n]
        secret = model.secrets.get(id_, "nothing")
        note = note and note.format(quote(secret, safe="") if "?k=" in note else secret)
        expected = model.triage(action, id_, note, by, self.clock)

        async def act() -> Any:
            if action == "suppress":
                return await findings.suppress_finding(self.db, account_id, UUID(id_), by=by, now=self.clock)
            return await findings.close_finding(
                self.db,
                self.backend.keys,
                account_id,
                UUID(id_),
                Action(action),
                note=note,
                by=by,
                now=self.clock,
            )

        try:
            result = self._run(act).status
        except (NotFoundError, TransitionError) as error:
            result = error.code
        assert result == expected

    @rule(n=account_numbers, triage_acts=st.lists(acts, min_size=1, max_size=4), seed=seeds)
    def fold(self, n: int, triage_acts: list[Act], seed: int) -> None:
        self.runner.run(rollups.fold_deltas(self.db))
        self.list_findings(seed)
        self.triage(n, triage_acts, seed + 1)

    def list_findings(self, seed: int) -> None:
        rng = random.Random(seed)
        for tenant, model in zip(self.tenants, self.models, strict=True):
            for query in _random_queries(rng, 8):
                _compare(_plain(self._get_page(tenant, query)), model.list(query), query)

    def _get_page(self, tenant: Tenant, query: dict[str, str]) -> Json:
        """Return a list of the API; with another limit than the API's, the list that it would return then."""
        if self.max_cheap_cost == listing.MAX_CHEAP_COST:
            answer: Json = tenant.get("/findings", **query).raise_for_status().json()
            return answer
        parsed = parameters.read(FindingParameters, urlencode(query).encode()).query()
        page = self.runner.run(
            listing.select_page(self.db, tenant.account.id, parsed, max_cheap_cost=self.max_cheap_cost)
        )
        body: Json = json.loads(shapes.page_response(page, public_fields).body)
        return body

    def _audit(self, n: int) -> list[tuple[Any, ...]]:
        return self.sql.execute(
            "SELECT actor, action, target, detail, outcome FROM audit WHERE account_id = %s ORDER BY id",
            [self.tenants[n].account.id],
        ).fetchall()

    @invariant()
    def everything_equals_the_model(self) -> None:
        for n, (tenant, model) in enumerate(zip(self.tenants, self.models, strict=True)):
            page = _plain(tenant.get("/findings", per_page="200").json())
            _compare(page, model.list({"per_page": "200"}), {})
            assert self._audit(n)[self.before[n] :] == [(*line, "ok") for line in model.audit]
            events = self.sql.execute(
                "SELECT event, finding_id::text, finding FROM outbox WHERE account_id = %s "
                "ORDER BY created_at, ctid",
                [tenant.account.id],
            ).fetchall()
            key = lambda event: json.dumps(event, sort_keys=True)  # noqa: E731 - events of the same second have no order
            assert sorted(map(list, events), key=key) == sorted(map(list, model.events), key=key)

    @invariant()
    def one_finding_equals_its_list_entry_and_other_accounts_get_404(self) -> None:
        if not self.models:
            return
        id_ = IDS[(len(self.models[0].audit) + len(self.models[1].audit)) % len(IDS)]
        for tenant, model in zip(self.tenants, self.models, strict=True):
            answer = tenant.get(f"/findings/{id_}")
            if id_ in model.findings:
                assert without_computed(answer.json()["data"]) == model.findings[id_]
            else:
                assert (answer.status_code, answer.json()["error"]) == (404, "not_found")


def _plain(page: Json) -> Json:
    """Return a page of the API without the fields that the service computes."""
    return page | {"data": list(map(without_computed, page["data"]))}


# With the usual limit, lists of small accounts never use a jump.
@pytest.mark.parametrize("max_cheap_cost", [listing.MAX_CHEAP_COST, 0], ids=["as it is", "by the rollups"])
def test_random_histories_agree_with_the_specification(backend: Backend, max_cheap_cost: int) -> None:
    run_state_machine_as_test(
        lambda: HistoryMachine(backend, max_cheap_cost),
        settings=settings(
            derandomize=True,
            database=None,
            max_examples=5,
            stateful_step_count=14,
            deadline=None,
            suppress_health_check=list(HealthCheck),
            phases=[Phase.generate],  # shrinking a failure takes minutes
        ),
    )


def test_a_password_in_a_note_is_masked_completely(backend: Backend) -> None:
    tenant = backend.tenant()
    line = make_line(
        secret="correct horse battery staple", pattern={"name": "Password", "secret_type": "password"}
    )
    backend.import_(tenant.account, line)
    assert tenant.finding(line["id"])["matched_text"] == MASK
    tenant.post(
        f"/findings/{line['id']}/resolve", note="it was correct horse battery staple"
    ).raise_for_status()
    assert tenant.finding(line["id"])["resolution_note"] == f"it was {MASK}"


def test_the_same_id_twice_in_one_file_equals_two_files(backend: Backend) -> None:
    """Import a line twice, the second time without credential and times: those of the first stay."""
    line = make_line(secret="a-secret-of-some-length")
    second_line = {
        name: value for name, value in line.items() if name not in {"secret", "first_seen_at", "last_seen_at"}
    } | {"seen_count": 9}
    one_file, two_files = backend.tenant(), backend.tenant()
    backend.import_(one_file.account, line, second_line)
    backend.import_(two_files.account, line)
    backend.import_(two_files.account, second_line)
    for tenant in (one_file, two_files):
        tenant.post(
            f"/findings/{line['id']}/false_positive", note="it was a-secret-of-some-length"
        ).raise_for_status()
    expected = two_files.finding(line["id"])
    assert (expected["seen_count"], expected["first_seen_at"]) == (9, line["first_seen_at"])
    assert expected["resolution_note"] == "it was a-********th"
    # Without a credential at first, the incident is another one in each account.
    assert one_file.finding(line["id"]) | {"incident_id": None} == expected | {"incident_id": None}
