"""Reading in a real browser: places are kept, nothing is lost, numbers and code are not broken."""

import re
from collections.abc import Iterator

import pytest
from playwright.sync_api import Browser, Page, expect

from outcrop.domain.excerpt import Excerpt
from outcrop.domain.scan import ScanStatus
from tests.support.backend import Backend, Tenant
from tests.support.browser import WIDTHS, needs_chromium, picture
from tests.support.factories import make_line, make_scan
from tests.support.portal_client import PASSWORD, make_person, sign_in_by_form

pytestmark = needs_chromium


@pytest.fixture
def tenant(stage: Backend) -> Tenant:
    return stage.tenant()


@pytest.fixture
def page(browser: Browser, stage: Backend, tenant: Tenant) -> Iterator[Page]:
    context = browser.new_context(
        viewport={"width": WIDTHS["desktop"], "height": 900}, base_url=stage.base_url
    )
    client = stage.client()
    assert sign_in_by_form(client, make_person(stage, tenant), PASSWORD).status_code == 303
    context.add_cookies([{"name": n, "value": v, "url": stage.base_url} for n, v in client.cookies.items()])
    page = context.new_page()
    yield page
    context.close()


def test_the_place_in_the_list_is_kept_and_findings_have_neighbours(
    stage: Backend, tenant: Tenant, page: Page
) -> None:
    lines = [make_line(composite_score=99 - n, file_path=f"f{n:02}.py") for n in range(53)]
    hidden = make_line(file_path="hidden.py", suppressed_at="2026-02-03T04:05:06+00:00")
    stage.import_(tenant.account, *lines, hidden)
    page.goto("/findings?status=suppressed")
    page.keyboard.press("j")
    page.keyboard.press("s")  # in this tab the key shows it again
    expect(page.get_by_text("1 shown again.")).to_be_visible()
    tenant.post(f"/findings/{hidden['id']}/resolve").raise_for_status()
    page.goto("/findings")
    for _ in range(3):
        page.keyboard.press("j")
    page.keyboard.press("Enter")
    expect(page).to_have_url(re.compile(str(lines[2]["id"])))
    page.go_back()
    expect(page.locator(".row.here")).to_contain_text("f02.py")
    page.keyboard.press("j")
    expect(page.locator(".row.here")).to_contain_text("f03.py")
    page.keyboard.press("Enter")
    page.get_by_role("link", name="Next →").click()
    expect(page).to_have_url(re.compile(str(lines[4]["id"])))
    page.keyboard.press("k")
    expect(page).to_have_url(re.compile(str(lines[3]["id"])))
    page.goto("/findings")
    page.locator(f"a[href='/findings/{lines[49]['id']}']").click()
    page.get_by_role("link", name="Next →").click()  # of the second page of the list
    expect(page).to_have_url(re.compile(str(lines[50]["id"])))
    page.get_by_role("link", name="← Findings").click()
    expect(page).to_have_url(re.compile(r"page=2$"))


def test_back_goes_through_the_changes_of_filters(stage: Backend, tenant: Tenant, page: Page) -> None:
    stage.import_(tenant.account, *(make_line(file_path=f"f{n}.py") for n in range(3)))
    page.goto("/findings")
    page.get_by_label("Validity").select_option("valid")
    expect(page).to_have_url(re.compile(r"validation=valid$"))
    page.get_by_label("Search").press_sequentially("f1.py")
    expect(page).to_have_url(re.compile(r"q=f1.py"))
    expect(page.locator(".row[data-id]")).to_have_count(1)
    page.go_back()
    expect(page).to_have_url(re.compile(r"findings\?validation=valid$"))
    expect(page.locator(".row[data-id]")).to_have_count(3)
    expect(page.get_by_label("Search")).to_have_value("")
    page.go_back()
    expect(page).to_have_url(re.compile(r"findings$"))
    expect(page.get_by_label("Validity")).to_have_value("")


def test_what_a_person_typed_marked_or_selected_survives_a_refresh(
    stage: Backend, tenant: Tenant, page: Page
) -> None:
    stage.import_(tenant.account, *(make_line(file_path=f"f{n}.py") for n in range(3)))
    page.goto("/findings")
    page.locator(".row input").nth(1).check()
    page.get_by_label("Note").fill("half a note")
    marked = page.locator(".row[data-id]").nth(1).get_attribute("data-id")
    page.get_by_label("Validity").select_option("valid")
    expect(page).to_have_url(re.compile(r"validation=valid$"))
    expect(page.locator(f"[data-id='{marked}'] input")).to_be_checked()
    expect(page.get_by_label("Note")).to_have_value("half a note")
    expect(page.locator("[data-marked]")).to_have_text("1 selected")

    run = make_scan(status=ScanStatus.RUNNING, finished_at=None)
    stage.scan(tenant.account, run)
    page.goto(f"/scans/{run.id}")
    page.evaluate("getSelection().selectAllChildren(document.querySelector('#list .facts'))")
    stage.sql("UPDATE scans SET findings_new = 4321 WHERE id = %s", run.id)
    page.wait_for_timeout(2_500)  # two refreshes
    assert page.evaluate("String(getSelection())")
    page.evaluate("getSelection().removeAllRanges()")
    expect(page.get_by_text("4,321")).to_be_visible()


def test_large_numbers_and_long_lines_stay_whole_on_screen_and_paper(
    stage: Backend, tenant: Tenant, page: Page
) -> None:
    stage.import_(tenant.account, line := make_line(line_number=12))
    excerpt = Excerpt(10, ("def f():", "    # " + "word " * 80, "    key = '" + "x" * 300 + "'"), 2)
    stage.sql(
        "UPDATE findings SET excerpt_box = %s WHERE account_id = %s AND id = %s",
        stage.keys.seal_excerpt(excerpt, tenant.account.id, line["id"]),
        tenant.account.id,
        line["id"],
    )
    stage.sql("UPDATE rollups SET n = 12345678 WHERE account_id = %s AND n > 0", tenant.account.id)
    stage.sql("UPDATE rollup_deltas SET n = 12345678 WHERE account_id = %s AND n > 0", tenant.account.id)
    broken = """() => [...document.querySelectorAll('.tile strong, .n, .num')].filter((number) => {
        const range = document.createRange(); range.selectNodeContents(number);
        const tops = new Set([...range.getClientRects()].filter((r) => r.width > 1).map((r) => Math.round(r.top / 8)));
        return tops.size > 1 || number.scrollWidth > number.clientWidth + 1;
    }).map((number) => number.textContent)"""
    for name in ("desktop", "phone"):
        page.set_viewport_size({"width": WIDTHS[name], "height": 900})
        page.goto("/")
        expect(page.locator(".tile strong").first).to_contain_text("12,345,678")
        assert page.evaluate(broken) == []
        page.goto(f"/findings/{line['id']}")
        cut = page.evaluate(
            "() => { const pre = document.querySelector('.excerpt pre');"
            " return pre.scrollWidth - pre.clientWidth }"
        )
        assert cut <= 1
        picture(page, f"excerpt-{name}")
    page.emulate_media(media="print", color_scheme="dark")
    assert page.locator(".side").is_hidden()
    assert page.locator(".triage").is_hidden()
    assert page.evaluate("getComputedStyle(document.documentElement).backgroundColor") == "rgb(255, 255, 255)"
    assert page.evaluate("document.documentElement.scrollWidth <= innerWidth")


def test_the_times_of_a_list_have_labels_where_it_has_no_heads(
    stage: Backend, tenant: Tenant, page: Page
) -> None:
    stage.import_(tenant.account, make_line())
    widths = "() => [...document.querySelectorAll('.when .label')].map(label => label.offsetWidth > 9)"
    for path, labels in (("/findings", 2), ("/incidents", 1)):
        page.set_viewport_size({"width": WIDTHS["desktop"], "height": 900})
        page.goto(path)
        assert page.evaluate(widths) == [False] * labels
        page.set_viewport_size({"width": WIDTHS["phone"], "height": 900})
        assert page.evaluate(widths) == [True] * labels
        page.set_viewport_size({"width": WIDTHS["desktop"], "height": 900})
        page.emulate_media(media="print")
        assert page.evaluate(widths) == [True] * labels
        page.emulate_media(media="screen")


def test_the_end_of_a_check_reloads_an_incident_unless_something_is_typed(
    stage: Backend, tenant: Tenant, page: Page
) -> None:
    line = make_line(secret="made-up-" + "Zx9" * 8)
    del line["matched_text"]
    stage.import_(tenant.account, line)
    incident = tenant.finding(str(line["id"]))["incident_id"]

    def check_ends() -> None:
        stage.sql(
            """INSERT INTO audit (account_id, at, actor, action, target, outcome, detail)
               VALUES (%s, now(), 'ada', 'finding.validate', %s, 'ok', '{"to": "valid"}')""",
            *(tenant.account.id, str(line["id"])),
        )

    page.goto(f"/incidents/{incident}")
    page.get_by_label("Assign to").select_option(index=1)  # a choice that is saved is nothing typed
    page.get_by_role("button", name="Assign").click()
    for typed in ("", "half a comment"):
        page.get_by_role("button", name="Check again").click()
        expect(page.get_by_text("is waiting or running")).to_be_visible()
        page.get_by_role("textbox", name="Comment").fill(typed)
        page.get_by_role("heading", name="Places", exact=True).click()  # the field has no focus
        check_ends()
        expect(page.get_by_text("Checked at the request of")).to_be_visible()
        expect(page.get_by_role("textbox", name="Comment")).to_have_value(typed)
        if not typed:
            expect(page.get_by_text("Checked", exact=True)).to_have_count(1)  # the activity is new too
