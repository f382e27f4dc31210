"""The page Numbers: its links agree with the lists behind them, and its tables are there as CSV."""

import csv
import io
import re
from datetime import timedelta
from html import unescape

import pytest

from outcrop.domain.clock import now
from outcrop.domain.finding import Severity
from outcrop.store.incidents import due
from tests.support.backend import Backend, Tenant
from tests.support.factories import make_line
from tests.support.portal_client import Person


@pytest.fixture
def filled(backend: Backend, tenant: Tenant) -> Tenant:
    lines = [
        make_line(
            composite_score=score,
            repo_full_name=repo,
            file_path=f"f{number}",
            first_seen_at=(now() - timedelta(days=days)).isoformat(),
            pattern={"name": "x", "secret_type": secret_type},
        )
        for number, (score, repo, secret_type, days) in enumerate(
            [
                (95, "acme/shop", "aws", 0),
                (90, "acme/shop", "aws", 0),
                (65, "acme/site", "=cmd()", 40),
                (10, "<b>/x", "<i>", 0),
            ]
        )
    ]
    backend.import_(tenant.account, *lines)
    due_days = dict.fromkeys(Severity, 30)
    backend.run(lambda db: due.save_days(db, tenant.account.id, due_days))
    tenant.post(f"/findings/{lines[1]['id']}/resolve").raise_for_status()
    return tenant


def _rows(owner: Person, table: str) -> list[list[str]]:
    answer = owner.get(f"/numbers/{table}.csv")
    assert answer.headers["content-type"] == "text/csv; charset=utf-8"
    assert f'filename="outcrop-{table}-{owner.tenant.account.slug}-' in answer.headers["content-disposition"]
    return list(csv.reader(io.StringIO(answer.text)))


def test_every_linked_number_is_that_of_the_list_behind_it(filled: Tenant, owner: Person) -> None:
    page = owner.page("/numbers")
    links = re.findall(r'<td class="num"><a href="([^"]+)"><strong>([\d,]+)</strong>', page)
    links += re.findall(r'<a class="tile[^"]*" href="([^"]+)"><strong>([\d,]+)</strong>', page)
    assert len(links) >= 5
    for address, number in links:
        assert f"<strong>{number}</strong> " in owner.page(unescape(address)), address


def test_foreign_names_are_escaped(filled: Tenant, owner: Person) -> None:
    page = owner.page("/numbers")
    assert "<bdi>&lt;b&gt;/x</bdi>" in page
    assert "<bdi>&lt;i&gt;</bdi>" in page


def test_the_tables_are_downloaded_as_csv(filled: Tenant, owner: Person) -> None:
    months = _rows(owner, "months")
    assert months[0][:4] == ["month", "new", "closed", "open"]
    assert len(months) == 13
    assert months[-1] == [f"{now():%Y-%m}", "3", "1", "3", "1", "1", "0", "1", "1", "0", "0", "0"]
    assert months[1][-2:] == ["", ""]
    severities = _rows(owner, "severities")
    assert [row[0] for row in severities[1:]] == ["critical", "high", "medium", "low"]
    types = {row[0]: row[1:] for row in _rows(owner, "types")[1:]}
    assert types["aws"] == ["1", "2", "0", "1", "0"]
    assert types["'=cmd()"][0] == "1"  # a spreadsheet would take it for a formula
    assert _rows(owner, "repositories")[1:] == [
        ["<b>/x", "1", "1"],
        ["acme/shop", "1", "1"],
        ["acme/site", "1", "1"],
    ]
    assert owner.get("/numbers/people.csv").status_code == 404


def test_a_period_is_chosen_and_another_one_is_the_usual(owner: Person) -> None:
    for given, used in (("6", 6), ("24", 24), ("7", 12), ("x", 12), ("", 12)):
        page = owner.page("/numbers", months=given)
        assert f'href="/numbers?months={used}" aria-current="page"' in page
        assert len(_rows_of_months(page)) == used


def _rows_of_months(page: str) -> list[str]:
    table = page[page.index('aria-label="Months"') :]
    return re.findall(r'<tr><th scope="row">', table[: table.index("</table>")])
