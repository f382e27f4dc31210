"""What pages show agrees with what is behind it: counts with lists, scores with filters, days with times."""

import re
from datetime import UTC, datetime, timedelta
from html import unescape
from itertools import product
from zoneinfo import ZoneInfo

import pytest

from outcrop.domain.account import Plan
from outcrop.domain.clock import now
from outcrop.domain.finding import Severity, score_bounds, severity_of
from outcrop.portal import labels
from outcrop.portal.check_state import describe_check
from outcrop.portal.queries import read_view
from outcrop.portal.render import plain, shown
from outcrop.store.audit import AuditLine
from tests.support.backend import Backend, Tenant
from tests.support.factories import make_line, make_scan
from tests.support.portal_client import Person, sign_in


def _total(page: str) -> int:
    found = re.search(r"<strong>([\d,]+)</strong> (?:finding|incident)", page)
    assert found is not None
    return int(found[1].replace(",", ""))


def test_every_number_of_the_overview_is_that_of_the_list_behind_it(
    backend: Backend, tenant: Tenant, owner: Person
) -> None:
    statuses = ["active", "resolved", "false_positive", "customer_restricted", "stale"]
    lines = [
        make_line(
            status=status,
            suppressed_at="2026-02-03T04:05:06+00:00" if suppressed else None,
            resolution_evidence={"auto_resolved": False, "resolved_by": None}
            if status == "resolved"
            else None,
            validation_status=validation,
            source_type=source,
            pattern={"name": "A key", "secret_type": f"type{number % 3}"},
        )
        for number, (status, suppressed, validation, source) in enumerate(
            product(statuses, (False, True), ("valid", "error"), ("repo", "commit"))
        )
    ]
    backend.import_(tenant.account, *lines)
    page = owner.page("/")
    tiles = re.findall(r'<a class="tile[^"]*" href="([^"]+)"><strong>([\d,]+)</strong>', page)
    bars = re.findall(r'<li><a href="([^"]+)">.*?<span class="n">([\d,]+)</span>', page)
    assert len(tiles) >= 4
    assert len(bars) >= 16
    for address, number in [*tiles, *bars]:
        assert _total(owner.page(unescape(address))) == int(number.replace(",", "")), address


def test_a_score_is_never_shown_as_a_limit_that_it_does_not_reach() -> None:
    for severity in Severity:
        low, high = score_bounds(severity)
        for score in {
            low,
            low + 0.001,
            (high or 100.0) - 0.001,
            (high or 100.0) - 0.04,
            (high or 100.0) - 1e-9,
        }:
            text = labels.score(score)
            assert severity_of(float(text)) is severity_of(score) is severity
            assert labels.level(score) == severity
            assert float(text) <= score
    assert [labels.score(value) for value in (0.0, 79.96, 79.5, 80.0, 100.0)] == [
        "0",
        "79.9",
        "79.5",
        "80",
        "100",
    ]
    assert all(labels.score(n / 10) == f"{n / 10:g}" for n in range(1001))


def test_the_list_and_the_page_of_a_finding_show_the_same_score(
    backend: Backend, tenant: Tenant, owner: Person
) -> None:
    backend.import_(tenant.account, line := make_line(composite_score=79.96))
    rows, page = owner.page("/findings"), owner.page(f"/findings/{line['id']}")
    assert 'class="score high" title="Score 79.9 of 100: high"' in rows
    assert 'text-anchor="middle">79.9</text>' in page
    assert "Why 79.9?" in page
    assert _total(owner.page("/findings", min_score="80")) == 0


# --- foreign text


def test_text_that_turns_or_hides_is_shown_by_its_numbers() -> None:
    assert shown("a/b.py") == "<bdi>a/b.py</bdi>"
    assert shown("<b>") == "<bdi>&lt;b&gt;</bdi>"
    assert shown("a\u202eyp.b") == (
        '<bdi>a<span class="control" title="right-to-left override">\u27e8U+202E\u27e9</span>yp.b</bdi>'
    )
    assert plain("a\u200bb\x1bc") == "a\u27e8U+200B\u27e9b\u27e8U+001B\u27e9c"
    assert shown("a\tb", "\t") == "<bdi>a\tb</bdi>"
    assert shown("日本/größe.py") == "<bdi>日本/größe.py</bdi>"


def test_no_page_contains_a_raw_character_that_turns_text(
    backend: Backend, tenant: Tenant, owner: Person
) -> None:
    turned = "\u202ecod\u2066.\u200fexe"
    line = make_line(
        file_path=f"src/{turned}",
        repo_full_name=f"acme/{turned}",
        source_url=f"https://example.com/{turned}",
        pattern={"name": f"A key {turned}", "secret_type": "aws"},
        author=f"Jo {turned} <jo@example.com>",
        commit="a" * 40,
        resolution_note=f"note {turned}",
        status="false_positive",
        validation_detail={"enabled_services": [f"aws{turned}"], "reason": f"said {turned}"},
    )
    backend.import_(tenant.account, line, line | {"id": make_line()["id"], "status": "active"})
    backend.scan(tenant.account, run := make_scan(target=f"github:{turned}"))
    for page in (
        "/",
        "/findings",
        "/findings?status=all",
        f"/findings/{line['id']}",
        "/incidents",
        f"/incidents/{tenant.finding(line['id'])['incident_id']}",
        "/scans",
        f"/scans/{run.id}",
    ):
        text = owner.page(page)
        assert "\u27e8U+202E\u27e9" in text, page
        assert not re.search("[\u202a-\u202e\u2066-\u2069\u200e\u200f]", text), page


# --- days and zones


@pytest.mark.parametrize(
    ("zone", "start", "end"),
    [
        ("UTC", "2026-03-29T00:00:00+00:00", "2026-03-30T00:00:00+00:00"),
        ("Asia/Tokyo", "2026-03-28T15:00:00+00:00", "2026-03-29T15:00:00+00:00"),
        ("Europe/Berlin", "2026-03-28T23:00:00+00:00", "2026-03-29T22:00:00+00:00"),  # a day of 23 hours
    ],
)
def test_a_day_filter_counts_days_of_the_zone(zone: str, start: str, end: str) -> None:
    view = read_view({"date_from": "2026-03-29", "date_to": "2026-03-29"}, "jo@example.com", ZoneInfo(zone))
    assert view.query.seen_from == datetime.fromisoformat(start)
    assert view.query.seen_before == datetime.fromisoformat(end)


@pytest.mark.parametrize(
    "day", ["0001-01-01", "9999-12-31", "9999-12-30", "0000-00-00", "2026-02-30", "\u0662026-01-01"]
)
def test_days_at_the_ends_of_the_calendar_are_no_failure(owner: Person, day: str) -> None:
    owner.client.cookies.set("outcrop_local_zone", "Pacific%2FKiritimati")
    for name in ("date_from", "date_to"):
        assert "</html>" in owner.page("/findings", **{name: day})
        assert "</html>" in owner.page("/profile/audit", **{name: day})


def test_the_list_filters_by_the_days_that_it_shows(backend: Backend, tenant: Tenant, owner: Person) -> None:
    backend.import_(tenant.account, make_line(first_seen_at="2026-01-02T20:00:00+00:00"))
    assert [
        _total(owner.page("/findings", date_from=day, date_to=day)) for day in ("2026-01-02", "2026-01-03")
    ] == [1, 0]
    owner.client.cookies.set("outcrop_local_zone", "Asia%2FTokyo")
    page = owner.page("/findings", date_from="2026-01-03", date_to="2026-01-03")
    assert _total(page) == 1
    assert 'title="2026-01-02 20:00:00 UTC">3 Jan 2026, 05:00</time>' in page
    assert "(Asia/Tokyo)" in page
    assert _total(owner.page("/findings", date_from="2026-01-02", date_to="2026-01-02")) == 0
    exported = owner.get("/export/findings.jsonl", date_from="2026-01-03", date_to="2026-01-03").text
    assert exported.count('"first_seen_at"') == 1


def test_theme_and_time_zone_are_chosen_and_kept_in_the_browser(owner: Person) -> None:
    owner.client.cookies.set("outcrop_local_zone", "Asia%2FTokyo")
    assert owner.post("/profile/display", theme="dark", zone="Europe/Berlin").status_code == 303
    page = owner.page("/findings")
    assert '<html lang="en" data-theme="dark" data-zone="Europe/Berlin">' in page
    assert "(Europe/Berlin)" in page
    assert owner.post("/profile/display", theme="", zone="").status_code == 303
    page = owner.page("/findings")
    assert '<html lang="en">' in page
    assert "(Asia/Tokyo)" in page


@pytest.mark.parametrize("zone", ["../../etc/passwd", "nowhere", "posixrules", "x" * 5000, "%00", "Europe/"])
def test_a_zone_that_is_none_is_refused_and_a_cookie_with_one_ignored(owner: Person, zone: str) -> None:
    assert owner.post("/profile/display", zone=zone.replace("%00", "\x01")).status_code == 400
    owner.client.cookies.set("outcrop_local_zone", zone)
    owner.client.cookies.set("outcrop_zone", zone)
    assert "(UTC)" in owner.page("/findings")


# --- checks


def _line(action: str, minutes: int, **more: object) -> AuditLine:
    return AuditLine(NOW - timedelta(minutes=minutes), "ada@example.com", f"finding.{action}", "x", **more)  # type: ignore[arg-type]


NOW = datetime(2026, 5, 6, 7, 8, 9, tzinfo=UTC)


def test_a_requested_check_is_pending_until_it_has_a_result(
    backend: Backend, tenant: Tenant, owner: Person
) -> None:
    backend.import_(
        tenant.account,
        line := make_line(
            validation_detail={"enabled_services": [], "checked_at": "2026-05-05T01:02:03+00:00"}
        ),
    )
    assert 'Last checked <time datetime="2026-05-05T01:02:03+00:00"' in owner.page(f"/findings/{line['id']}")
    finding = backend.run(lambda db: _get(db, tenant, str(line["id"])))
    asked, done = _line("revalidate", 1), _line("validate", 0, detail={"to": "valid"})
    failed = _line("revalidate", 0, outcome="failed", detail={"reason": "validation is switched off"})
    assert describe_check(finding, [], NOW).requested_at is None
    assert describe_check(finding, [asked], NOW).is_pending
    assert not describe_check(finding, [done, asked], NOW).is_pending
    assert describe_check(finding, [done, asked], NOW).requested_by == "ada@example.com"
    assert describe_check(finding, [failed, asked], NOW).failure == "validation is switched off"
    assert describe_check(finding, [asked, done], NOW).is_pending
    late = describe_check(finding, [_line("revalidate", 16)], NOW)
    assert (late.is_pending, late.failure) == (
        False,
        "it has not ended within 15 minutes; is a worker running?",
    )


async def _get(db, tenant: Tenant, id_: str):  # type: ignore[no-untyped-def]
    from uuid import UUID  # noqa: PLC0415

    from outcrop.services import findings  # noqa: PLC0415

    return await findings.get_finding(db, tenant.account.id, UUID(id_))


# --- the audit page, and warnings


def test_the_audit_page_filters_by_day_and_leads_to_what_a_line_is_about(
    backend: Backend, tenant: Tenant, owner: Person
) -> None:
    backend.import_(tenant.account, line := make_line())
    tenant.post(f"/findings/{line['id']}/resolve").raise_for_status()
    page = owner.page("/profile/audit", action="finding.resolve")
    assert f'<a href="/findings/{line["id"]}">' in page
    assert 'href="/profile/audit?action=finding.resolve&amp;actor=' in page
    today, yesterday = (f"{now() - timedelta(days=days):%Y-%m-%d}" for days in (0, 1))
    shown_today = owner.page("/profile/audit", action="finding.resolve", date_from=yesterday, date_to=today)
    assert str(line["id"]) in shown_today
    assert str(line["id"]) not in owner.page("/profile/audit", date_to="2020-01-01", action="finding.resolve")
    assert "No line matches." in owner.page("/profile/audit", date_from="2999-01-01")
    assert "Ignored, because it is invalid" in owner.page("/profile/audit", date_from="yesterday")


def test_the_webhook_page_warns_on_a_plan_without_one(backend: Backend) -> None:
    for plan, warns in ((Plan.STARTER, True), (Plan.GROWTH, False)):
        page = sign_in(backend, backend.tenant(plan=plan)).page("/profile/webhook")
        assert ("Your plan has no webhook" in page) is warns
