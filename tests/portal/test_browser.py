"""Test every flow of the portal in a real browser, with a real server, worker and database."""

import json
import re
import time
from collections.abc import Iterator
from datetime import timedelta
from uuid import UUID, uuid4

import pytest
from axe_playwright_python.base import AXE_SCRIPT
from playwright.sync_api import Browser, Page, expect

from outcrop.domain.clock import now
from outcrop.domain.excerpt import Excerpt
from outcrop.domain.scan import Gap, ScanStatus
from tests.support.backend import Backend, Tenant
from tests.support.browser import TIMEOUT, WIDTHS, Troubles, needs_chromium, sign_in
from tests.support.factories import make_line, make_scan
from tests.support.portal_client import PASSWORD, make_person, sign_in_by_form

pytestmark = needs_chromium


@pytest.fixture
def tenant(stage: Backend) -> Tenant:
    return stage.tenant()


class Seat:
    """A person who is signed in, at a browser."""

    def __init__(self, page: Page, troubles: Troubles, base_url: str, email: str) -> None:
        self.page, self.troubles, self.base_url, self.email = page, troubles, base_url, email

    def open(self, path: str) -> Page:
        self.page.goto(self.base_url + path)
        return self.page


@pytest.fixture(scope="module")
def window(browser: Browser) -> Iterator[tuple[Page, Troubles]]:
    """Yield a page that all people use one after the other: to open a new one takes a second of CPU time."""
    context = browser.new_context(
        viewport={"width": WIDTHS["desktop"], "height": 900}, timezone_id="Asia/Tokyo", locale="en-GB"
    )
    page = context.new_page()
    page.set_default_timeout(TIMEOUT)
    yield page, Troubles(context)
    context.close()


@pytest.fixture
def seat(window: tuple[Page, Troubles], stage: Backend, tenant: Tenant) -> Iterator[Seat]:
    """Yield a page of a person who is signed in. Other tests sign in with the form of the browser."""
    page, troubles = window
    troubles.reported.clear()
    troubles.dialogs.clear()
    email = make_person(stage, tenant)
    client = stage.client()
    assert sign_in_by_form(client, email, PASSWORD).status_code == 303
    page.context.clear_cookies()
    page.context.add_cookies(
        [{"name": name, "value": value, "url": stage.base_url} for name, value in client.cookies.items()]
    )
    yield Seat(page, troubles, stage.base_url, email)
    page.evaluate("sessionStorage.clear()")
    assert troubles.reported == []


def fill(stage: Backend, tenant: Tenant, count: int = 25, *, valid: bool = True) -> None:
    """Import findings; every third is valid, unless none is: the list asks before it closes these."""
    lines = [
        make_line(
            composite_score=90 - n,
            repo_full_name=f"acme/r{n}",
            file_path=f"src/file{n}.py",
            validation_status=["valid" if valid else "error", "invalid", "unvalidated"][n % 3],
        )
        for n in range(count)
    ]
    stage.import_(tenant.account, *lines)


def test_twenty_findings_are_triaged_by_keyboard(stage: Backend, tenant: Tenant, seat: Seat) -> None:
    fill(stage, tenant)
    page = seat.open("/findings")
    expect(page.locator(".row[data-id]")).to_have_count(25)
    page.keyboard.press("j")
    for number, key in enumerate("rxfs" * 5):
        top = page.locator(".row.here").get_attribute("data-id")
        page.keyboard.press(key)
        if number % 3 == 0 and key != "s":  # it is valid: the same key once more proceeds
            expect(page.get_by_role("dialog")).to_contain_text("does not revoke")
            page.keyboard.press(key)
        expect(page.locator(f'.row[data-id="{top}"]')).to_have_count(0)
        expect(page.locator(".row[data-id]")).to_have_count(24 - number)
        expect(page.locator(".row.here")).to_have_count(1)
    statuses = [finding["status"] for finding in tenant.get("/findings", per_page=50).json()["data"]]
    assert {status: statuses.count(status) for status in set(statuses)} == {
        "resolved": 5, "customer_restricted": 5, "false_positive": 5, "active": 10
    }  # fmt: skip
    # several at once, marked by Space
    for _ in range(2):
        page.keyboard.press("Space")
        page.keyboard.press("j")
    page.keyboard.press("r")
    page.get_by_role("button", name="Resolve anyway").click()
    expect(page.locator(".row[data-id]")).to_have_count(3)
    expect(page.get_by_role("button", name="Undo")).to_be_visible()
    page.keyboard.press("z")
    expect(page.locator(".row[data-id]")).to_have_count(5)
    expect(page.locator("#live")).to_contain_text("Undone: 2 findings are as before.")
    page.keyboard.press("?")
    expect(page.get_by_role("dialog", name="Keys")).to_be_visible()


def test_single_keys_can_be_switched_off_and_on_again(stage: Backend, tenant: Tenant, seat: Seat) -> None:
    fill(stage, tenant, 3, valid=False)
    page = seat.open("/profile/security")
    page.get_by_role("button", name="Switch them off").click()
    expect(page.get_by_role("status").first).to_contain_text("off in this browser")
    page = seat.open("/findings")
    for key in "jrxfsk/?":
        page.keyboard.press(key)
    expect(page.locator(".row.here")).to_have_count(0)
    expect(page.get_by_role("dialog", name="Keys")).not_to_be_visible()
    expect(page.get_by_role("searchbox")).not_to_be_focused()
    expect(page.get_by_role("button", name="Resolve").locator("kbd")).not_to_be_visible()
    page.locator(".row[data-id] .what").first.click()
    expect(page.get_by_role("heading", name="Triage")).to_be_visible()
    page.keyboard.press("r")
    page.wait_for_timeout(300)
    assert [finding["status"] for finding in tenant.get("/findings").json()["data"]] == ["active"] * 3
    page = seat.open("/profile/security")
    page.get_by_role("button", name="Switch them on").click()
    page = seat.open("/findings")
    page.keyboard.press("j")
    page.keyboard.press("r")
    expect(page.locator(".row[data-id]")).to_have_count(2)


def test_a_refusal_is_left_by_an_address_that_can_be_loaded_again(
    stage: Backend, tenant: Tenant, seat: Seat
) -> None:
    fill(stage, tenant, 1)
    page = seat.open("/findings")
    page.locator(".row[data-id] .what").first.click()
    expect(page.get_by_role("heading", name="Triage")).to_be_visible()
    own = page.url
    page.get_by_label("Note").fill("once more")
    with page.expect_response(lambda answer: answer.url.endswith("/validate")):
        page.get_by_role("button", name="Check again").click()
    expect(page.get_by_role("alert")).to_contain_text("Its credential is not stored")
    expect(page.get_by_label("Note")).to_have_value("once more")
    assert page.url == own
    page.reload()
    expect(page.get_by_role("heading", name="Triage")).to_be_visible()
    expect(page.get_by_role("alert")).to_have_count(0)


def test_a_key_acts_once_and_on_what_is_focused_and_enter_in_a_note_chooses_nothing(
    stage: Backend, tenant: Tenant, seat: Seat
) -> None:
    fill(stage, tenant, 6, valid=False)
    page = seat.open("/findings")
    rows = page.locator(".row[data-id]")
    page.keyboard.press("j")
    for _ in range(6):  # it is held
        page.keyboard.down("f")
        page.wait_for_timeout(60)
    page.keyboard.up("f")
    expect(rows).to_have_count(5)
    page.wait_for_timeout(200)
    expect(rows).to_have_count(5)
    focused = rows.nth(2).get_attribute("data-id")
    rows.nth(2).locator(".what").focus()
    page.keyboard.press("s")
    expect(page.locator(f'.row[data-id="{focused}"]')).to_have_count(0)
    expect(rows).to_have_count(4)
    page.get_by_role("button", name="Resolve").click()
    expect(page.locator("#live")).to_contain_text("Choose a finding first")
    rows.nth(0).get_by_role("checkbox").check()
    expect(page.locator("[data-marked]")).to_have_text("1 selected")
    page.get_by_label("Note").fill("rotated")
    page.get_by_label("Note").press("Enter")
    rows.nth(0).locator(".what").click()
    page.get_by_label("Note").fill("rotated")
    page.get_by_label("Note").press("Enter")
    page.wait_for_timeout(200)
    assert sorted(finding["status"] for finding in tenant.get("/findings").json()["data"]) == [
        "active"
    ] * 5 + ["false_positive"]


def test_a_view_goes_along_to_tabs_exports_and_back_from_a_finding(
    stage: Backend, tenant: Tenant, seat: Seat
) -> None:
    fill(stage, tenant, 12)
    page = seat.open("/findings")
    clear = page.get_by_role("link", name="Clear")
    expect(clear).to_be_hidden()
    page.get_by_label("Search").fill("file1")
    expect(page.locator(".row[data-id]")).to_have_count(3)
    expect(clear).to_be_visible()
    expect(page.get_by_role("link", name="CSV")).to_have_attribute(
        "href", "/export/findings.csv?q=file1&status=active"
    )
    page.get_by_role("link", name="All", exact=True).click()
    expect(page).to_have_url(re.compile(r"/findings\?(q=file1&status=all|status=all&q=file1)$"))
    expect(page.get_by_label("Search")).to_have_value("file1")
    list_address = page.url
    page.locator(".row .what").first.click()
    page.get_by_role("button", name="Suppress").click()
    expect(page.get_by_role("status").filter(has_text="suppressed")).to_be_visible()
    page.get_by_role("link", name="← Findings").click()
    expect(page).to_have_url(list_address)


def test_search_as_you_type_has_an_address_that_can_be_shared_and_saved(
    stage: Backend, tenant: Tenant, seat: Seat
) -> None:
    fill(stage, tenant)
    page = seat.open("/findings")
    page.keyboard.press("/")
    page.keyboard.type("file1.py")
    expect(page.locator(".row[data-id]")).to_have_count(1)
    assert page.url.endswith("/findings?q=file1.py")
    page.get_by_label("Search").fill("")
    page.get_by_label("Validity").select_option("invalid")
    expect(page.locator(".row[data-id]")).to_have_count(8)
    assert page.url.endswith("/findings?validation=invalid")
    page.get_by_text("Save this view").click()
    page.get_by_label("Name of the view").fill("Dead ones")
    page.get_by_role("button", name="Save").click()
    page.get_by_role("link", name="Dead ones").click()
    expect(page.locator(".row[data-id]")).to_have_count(8)
    page.goto(seat.base_url + "/findings?status=nonsense&min_score=x&page=9")
    expect(page.get_by_role("alert")).to_contain_text("is invalid")


def test_one_finding_is_read_and_closed_with_a_note_and_reopened(
    stage: Backend, tenant: Tenant, seat: Seat
) -> None:
    stage.import_(tenant.account, line := make_line())
    page = seat.open(f"/findings/{line['id']}")
    expect(page.get_by_role("heading", name="What to do now")).to_be_visible()
    expect(page.get_by_role("link", name="https://github.com/acme/shop")).to_have_attribute(
        "rel", re.compile("noopener")
    )
    page.get_by_label("Note").fill("rotated on Monday")
    page.get_by_role("button", name="Resolve").click()
    expect(page.get_by_text("does not revoke it")).to_be_visible()  # the credential is valid
    page.get_by_role("button", name="Resolve anyway").click()
    expect(page.get_by_role("status").first).to_contain_text("resolved")
    expect(page.get_by_text("rotated on Monday").first).to_be_visible()
    assert tenant.finding(str(line["id"]))["resolution_note"] == "rotated on Monday"
    page.get_by_role("button", name="Reopen").click()
    expect(page.get_by_text("Reopened", exact=True)).to_be_visible()
    page.keyboard.press("f")
    page.get_by_role("button", name="Mark as false positive anyway").click()
    expect(page.locator(".status-false_positive")).to_be_visible()
    # the times are the reader's own, UTC on hover
    seen = page.locator("time").first
    assert "UTC" not in seen.inner_text()
    assert seen.get_attribute("title").endswith("UTC")


def test_a_key_is_made_shown_once_used_and_revoked(tenant: Tenant, stage: Backend, seat: Seat) -> None:
    page = seat.open("/profile/keys")
    page.get_by_label("Name").fill("my script")
    page.get_by_role("button", name="Create key").click()
    key = page.locator("#new-key").inner_text()
    client = stage.client(key)
    assert client.get("/api/v1/findings").status_code == 200
    page.reload()  # sends no form again
    expect(page.get_by_role("row", name=re.compile("my script"))).to_have_count(1)
    assert key not in page.content()
    page.get_by_role("row", name=re.compile("my script")).get_by_role("button", name="Revoke").click()
    expect(page.get_by_text("The key is revoked")).to_be_visible()
    assert seat.troubles.dialogs == ["Revoke “my script”? Whoever uses it is refused at once."]
    assert client.get("/api/v1/findings").json() == {"error": "revoked_token"}


def test_a_webhook_is_saved_its_secret_shown_once_and_removed(tenant: Tenant, seat: Seat) -> None:
    page = seat.open("/profile/webhook")
    page.get_by_label("Address").fill("http://receiver.example.com/")
    page.get_by_role("button", name="Save").click()
    expect(page.get_by_role("alert")).to_contain_text("https")
    secrets = []
    for _ in range(2):  # saving again makes another
        page.get_by_label("Address").fill("https://receiver.example.com/in")
        page.get_by_role("button", name=re.compile("Save")).click()
        secrets.append(page.locator("#new-secret").inner_text())
    assert all(re.fullmatch("[0-9a-f]{64}", secret) for secret in secrets)
    assert len(set(secrets)) == 2
    page.get_by_role("button", name="Send a test event").click()
    expect(page.get_by_role("row", name=re.compile(r"webhook\.test"))).to_contain_text(
        "Queued"
    )  # no worker runs here
    assert not any(secret in page.content() for secret in secrets)
    page.get_by_role("button", name="Remove the webhook").click()
    expect(page.get_by_role("heading", name="Have events sent to you")).to_be_visible()


def test_somebody_is_invited_joins_and_gets_a_role(
    stage: Backend, browser: Browser, tenant: Tenant, seat: Seat
) -> None:
    page = seat.open("/profile/team")
    guest = f"guest-{tenant.account.slug}@example.com"
    page.get_by_label("E-mail address").fill(guest)
    page.get_by_role("button", name="Create an invitation").click()
    link = page.locator("#new-link").inner_text().replace("http://127.0.0.1/", f"{stage.base_url}/")
    context = browser.new_context()
    context.set_default_timeout(TIMEOUT)
    theirs = context.new_page()
    theirs.goto(link)
    theirs.get_by_label("Password", exact=True).fill("four unrelated words here")
    theirs.get_by_label("Repeat the password").fill("four unrelated words here")
    theirs.get_by_role("button", name="Set the password").click()
    sign_in(theirs, stage.base_url, guest, "four unrelated words here")
    expect(theirs.get_by_role("heading", name="Overview")).to_be_visible()
    theirs.goto(link)
    expect(theirs.get_by_text("already used")).to_be_visible()
    context.close()
    seat.open("/profile/team")
    row = page.get_by_role("row", name=re.compile(guest))
    row.get_by_label(f"Role of {guest}").select_option("admin")
    row.get_by_role("button", name="Change").click()
    expect(page.get_by_text("The role is changed")).to_be_visible()
    page.get_by_role("row", name=re.compile(guest)).get_by_role("button", name="Remove").click()
    expect(page.get_by_text("The member is removed")).to_be_visible()


def test_a_target_is_added_and_its_run_is_watched(stage: Backend, tenant: Tenant, seat: Seat) -> None:
    page = seat.open("/targets/new")
    page.get_by_label("Target").fill("not a target at all")
    credential = page.get_by_label("Credential for private access")
    credential.fill("a token that nobody wants to type twice")
    page.get_by_role("button", name="Add the target").click()
    expect(page.get_by_role("alert")).to_contain_text("must not contain spaces")
    expect(credential).to_have_value("a token that nobody wants to type twice")
    credential.fill("")
    page.get_by_label("Target").fill("https://www.example.com/")
    page.get_by_role("button", name="Add and run now").click()
    expect(page.get_by_text("waiting for a worker")).to_be_visible()
    run = page.url.rsplit("/", 1)[1]
    # the page shows the progress of the run without a reload
    stage.sql("UPDATE scans SET status = 'running', started_at = %s WHERE id = %s", now(), run)
    expect(page.locator(".scan-running")).to_be_visible()
    stage.sql(
        """UPDATE scans SET status = 'completed', finished_at = %s, findings_new = 7,
           coverage_gaps = '[{"what": "/big.zip", "why": "too large"}]' WHERE id = %s""",
        now(), run,
    )  # fmt: skip
    expect(page.locator(".scan-completed")).to_be_visible()
    expect(page.get_by_text("too large")).to_be_visible()
    page = seat.open("/targets")
    page.get_by_role("link", name="Edit").click()
    page.get_by_label("Schedule").select_option("weekly")
    page.get_by_role("button", name="Save").click()
    expect(page.get_by_text("(every week)")).to_be_visible()


def test_the_second_factor_is_switched_on_and_asked_for(stage: Backend, browser: Browser, seat: Seat) -> None:
    import pyotp  # noqa: PLC0415

    page = seat.open("/profile/security")
    page.get_by_label("Current password").nth(1).fill(PASSWORD)
    page.get_by_role("button", name="Set it up").click()
    secret = page.locator("code.break").inner_text()
    expect(page.locator(".qr svg")).to_be_visible()
    page.get_by_label("Code").fill(pyotp.TOTP(secret).now())
    page.get_by_role("button", name="Confirm").click()
    recovery = page.locator("#recovery").inner_text().split()
    assert len(recovery) == 10
    context = browser.new_context()
    context.set_default_timeout(TIMEOUT)
    theirs = context.new_page()
    theirs.goto(f"{stage.base_url}/sign-in")
    theirs.get_by_label("E-mail address").fill(seat.email)
    theirs.get_by_label("Password").fill(PASSWORD)
    theirs.get_by_role("button", name="Sign in").click()
    expect(theirs.get_by_label("Code")).to_have_attribute("inputmode", "numeric")
    assert theirs.get_by_label("Password").count() == 0
    theirs.get_by_role("link", name="Use a recovery code").click()
    expect(theirs.get_by_label("Recovery code")).not_to_have_attribute("inputmode", "numeric")
    theirs.get_by_label("Recovery code").fill(recovery[0].upper())
    theirs.get_by_role("button", name="Confirm").click()
    expect(theirs.get_by_role("heading", name="Overview")).to_be_visible()
    context.close()
    seat.open("/profile/security")
    page.get_by_role("button", name="Sign out everywhere else").click()
    expect(page.get_by_text("1 other session signed out")).to_be_visible()


_CODE = "window.hit=1"
# Texts that try to leave an HTML context, and a script that would run then.
_WAYS_OUT = [
    "", '">', "'>", "`>", "</textarea>", "</title>", "</script>", "</style>", "-->", "]]>",
    "</td></tr></table>", "</a>", "\\'>", "&quot;>",
]  # fmt: skip
_ATTRIBUTES = [
    "img src=x onerror", "svg onload", "svg/onload", "details open ontoggle", "input autofocus onfocus",
    "body onload", "video><source onerror", "audio src=x onerror", "marquee onstart",
]  # fmt: skip
_RUNS = [
    *(f"<{attribute}={_CODE}>" for attribute in _ATTRIBUTES),
    *(f"<{address}=javascript:{_CODE}>x" for address in ("iframe src", "object data", "a href")),
    f"<script>{_CODE}</script>",
]
PAYLOADS = [
    *(out + runs for out in _WAYS_OUT for runs in _RUNS),
    "<iframe srcdoc='<script>parent.hit=1</script>'>",
    f"javascript:{_CODE}",
    f"JaVaScRiPt:{_CODE}//",
    f"data:text/html,<script>{_CODE}</script>",
    f"vbscript:{_CODE}",
    f'" onmouseover={_CODE} x="',
    f"' onfocus={_CODE} autofocus='",
    f"` onclick={_CODE}",
    f"<math><mtext></p><img src onerror={_CODE}>",
    f"<style>@import 'x'</style><body onload={_CODE}>",
    f"&lt;script&gt;{_CODE}&lt;/script&gt;",
    f"\\u003cscript\\u003e{_CODE}",
    f"<!--><script>{_CODE}</script>-->",
    f"<noscript><p title='</noscript><img src=x onerror={_CODE}>'>",
    f"<form action=javascript:{_CODE}><button>",
    "<base href=//evil.example/>",
    "<link rel=stylesheet href=//evil.example/>",
    "<meta http-equiv=refresh content=0;url=//evil>",
    "{{ 7 * 7 }}{% raw %}<b>",
]


def open_inert(seat: Seat, path: str) -> None:
    """Open a page, and assert that no injected script, frame or link has become part of it."""
    page = seat.open(path)
    assert page.evaluate(
        "window.hit === undefined && document.querySelector('base, iframe, [onerror], main script') === null"
    ), path
    links = page.locator("main a").evaluate_all("links => links.map(a => a.getAttribute('href') ?? '')")
    assert [link for link in links if not re.match(r"(/|\?|#|https?://)", link)] == [], path


def test_scanned_text_is_never_run(stage: Backend, tenant: Tenant, seat: Seat) -> None:
    fields = ("source_url", "file_path", "repo_full_name", "matched_text", "resolution_note")
    assert len(set(PAYLOADS)) == len(PAYLOADS) >= 200
    lines = []
    for number, payload in enumerate(PAYLOADS):
        line = make_line(
            status="resolved" if number % 2 else "active",
            pattern={"name": payload[:90], "secret_type": payload[:90]},
        )
        line |= {name: payload.replace("\x01", "") for name in fields}
        line["matched_text"] = "********"
        line["validation_detail"] = {"enabled_services": ["aws"], "reason": payload}
        lines.append(line)
    stage.import_(tenant.account, *lines)
    read = lines[:30]
    for number, line in enumerate(read):
        excerpt = Excerpt(1, tuple(PAYLOADS[number :: len(read)]), 0)  # of all of them every payload
        box = stage.keys.seal_excerpt(excerpt, tenant.account.id, id_ := UUID(line["id"]))
        stage.sql("UPDATE findings SET excerpt_box = %s, line_number = 1 WHERE id = %s", box, id_)
    gap = "<img src=x onerror=window.hit=1>"
    gaps = tuple(Gap(payload, payload) for payload in PAYLOADS)
    ended = {"finished_at": now(), "started_at": now() - timedelta(seconds=3), "coverage_gaps": gaps}
    run = make_scan(status=ScanStatus.FAILED, target=gap, error=gap, **ended)
    stage.scan(tenant.account, run)
    pages = ["/", "/scans", f"/scans/{run.id}", *(f"/findings?status=all&page={n}" for n in range(1, 6))]
    pages += [f"/findings/{line['id']}" for line in read]
    for path in pages:
        open_inert(seat, path)
        assert seat.page.locator("pre .line").count() >= (6 if path in pages[-len(read) :] else 0), path
    assert seat.troubles.dialogs == []


def test_what_people_type_is_never_run(stage: Backend, tenant: Tenant, seat: Seat) -> None:
    """Comments, mentions, rules, addresses of members and assignees, notes in the activity, and actions."""
    account = tenant.account.id
    stage.import_(tenant.account, *(make_line(file_path=payload[:90]) for payload in PAYLOADS))
    incidents = [
        row["id"] for n in (1, 2) for row in tenant.get("/incidents", page=n, per_page=200).json()["data"]
    ]
    for number, (payload, incident) in enumerate(zip(PAYLOADS, incidents, strict=True)):
        address = f"{payload}@{number}.{tenant.account.slug}.example"
        stage.sql(
            "UPDATE incidents SET assignee = %s WHERE account_id = %s AND id = %s", payload, account, incident
        )
        stage.sql(
            """INSERT INTO members (id, account_id, email, role, password_hash, created_at)
               VALUES (gen_random_uuid(), %s, %s, 'member', 'none', now())""",
            *(account, address),
        )
        stage.sql(
            """INSERT INTO suppression_rules (account_id, id, path, repo, secret_type, reason, created_by,
                                              created_at, is_applied)
               VALUES (%s, gen_random_uuid(), %s, %s, %s, %s, %s, now(), true)""",
            *(account, payload, payload, payload, payload, payload),
        )
        stage.sql(
            """INSERT INTO assignment_rules (account_id, id, repo, path, author, assignee, created_by, created_at)
               VALUES (%s, gen_random_uuid(), %s, %s, %s, %s, %s, now())""",
            *(account, payload, payload, payload, payload, payload),
        )
        about = incidents[number % 8]
        stage.sql(
            """WITH c AS (INSERT INTO incident_comments (account_id, id, incident_id, at, by, text)
                          VALUES (%s, gen_random_uuid(), %s, now(), %s, %s) RETURNING account_id, id)
               INSERT INTO mentions SELECT c.account_id, m.id, c.id FROM c, members m WHERE m.email = %s""",
            *(account, about, payload, payload, seat.email),
        )
        detail = dict.fromkeys(("from", "to", "note", "reason", "undone"), payload)
        stage.sql(
            """INSERT INTO audit (account_id, at, actor, action, target, outcome, detail)
               VALUES (%s, now(), %s, %s, %s, 'ok', %s)""",
            *(account, payload, ("incident.assign", "finding.undo", payload)[number % 3], about),
            json.dumps(detail),
        )
    bulk = uuid4()
    stage.sql(
        """INSERT INTO bulk_triages (account_id, id, action, by, created_at, finding_ids, total, stopped_by,
                                     finished_at)
           VALUES (%s, %s, 'resolve', %s, now(), '{}', 1, %s, now())""",
        *(account, bulk, PAYLOADS[0], PAYLOADS[1]),
    )
    pages = ["/", "/suppressions", "/assignment-rules", "/profile/team", f"/findings/bulk/{bulk}"]
    pages += [f"/incidents?page={n}" for n in range(1, 6)]
    pages += [f"/incidents/{incident}" for incident in incidents[:8]]
    for path in pages:
        open_inert(seat, path)
    expect(seat.page.locator(".comment")).to_have_count(len(PAYLOADS) // 8)
    assert seat.troubles.dialogs == []


def test_the_list_of_incidents_filters_while_one_types_and_its_tabs_follow(
    stage: Backend, tenant: Tenant, seat: Seat
) -> None:
    fill(stage, tenant, 6)
    page = seat.open("/incidents")
    rows = page.locator("#list tbody .row")
    expect(rows).to_have_count(6)
    page.get_by_label("Validity").select_option("valid")
    expect(rows).to_have_count(2)
    tabs = page.get_by_role("navigation", name="Status")
    closed = tabs.get_by_role("link", name="Closed", exact=True)
    expect(closed).to_have_attribute("href", "/incidents?validation=valid&status=closed")
    expect(tabs.get_by_role("link", name="Open")).to_have_attribute("href", "/incidents?validation=valid")
    rows.first.get_by_role("link").click()
    page.get_by_role("textbox", name="Comment").fill("asked the team")
    page.get_by_role("button", name="Add the comment").click()
    expect(page.get_by_text("asked the team")).to_be_visible()
    page.get_by_role("button", name="Resolve").click()
    page.get_by_role("button", name="Resolve anyway").click()
    expect(page.get_by_text("1 resolved.")).to_be_visible()
    expect(page.get_by_text("Every place is closed, but the credential is still valid")).to_be_visible()


ALL_PAGES = [
    *(
        "/",
        "/findings",
        "/findings?status=all",
        "/incidents",
        "/suppressions",
        "/assignment-rules",
        "/scans",
        "/targets",
        "/numbers",
        "/targets/new",
        "/reference",
        "/profile/keys",
        "/profile/webhook",
        "/profile/hooks",
    ),
    *(
        "/profile/team",
        "/profile/security",
        "/profile/display",
        "/profile/plan",
        "/profile/audit",
        "/profile/export",
        "/nothing-here",
    ),
]


# Returns the rules that are violated, each with the first places; the other results are long.
AXE_VIOLATIONS = """options => axe.run(document, options).then(results => results.violations.map(
    violation => [violation.id, violation.nodes.slice(0, 3).map(node => node.target)]))"""


def test_no_page_has_a_fault_that_axe_finds_in_light_or_dark(
    stage: Backend, browser: Browser, tenant: Tenant
) -> None:
    fill(stage, tenant, 6)  # axe checks every element, and rows are alike
    stage.scan(tenant.account, run := make_scan(started_at=now(), finished_at=now()))
    email = make_person(stage, tenant)
    finding = tenant.get("/findings").json()["data"][0]["id"]
    incident = tenant.finding(finding)["incident_id"]
    faults = []
    context = browser.new_context(viewport={"width": WIDTHS["desktop"], "height": 900}, bypass_csp=True)
    context.set_default_timeout(TIMEOUT)
    page = context.new_page()

    def look(path: str) -> None:
        page.evaluate(AXE_SCRIPT)
        # What a page is made of is the same in the dark; only its colours are not.
        for scheme, only in (("light", {}), ("dark", {"runOnly": ["color-contrast"]})):
            page.emulate_media(color_scheme=scheme)
            violations = page.evaluate(AXE_VIOLATIONS, {"resultTypes": ["violations"]} | only)
            faults.extend((scheme, path, rule, targets) for rule, targets in violations)

    page.goto(f"{stage.base_url}/sign-in")
    look("/sign-in")
    sign_in(page, stage.base_url, email, PASSWORD)
    for path in [*ALL_PAGES, f"/findings/{finding}", f"/incidents/{incident}", f"/scans/{run.id}"]:
        page.goto(stage.base_url + path)
        look(path)
    context.close()
    assert faults == []


def test_the_list_works_without_scripts(stage: Backend, browser: Browser, tenant: Tenant) -> None:
    fill(stage, tenant, 3)
    email = make_person(stage, tenant)
    context = browser.new_context(java_script_enabled=False)
    context.set_default_timeout(TIMEOUT)
    page = context.new_page()
    page.goto(f"{stage.base_url}/sign-in")
    page.get_by_label("E-mail address").fill(email)
    page.get_by_label("Password").fill(PASSWORD)
    page.get_by_role("button", name="Sign in").click()
    page.goto(f"{stage.base_url}/findings")
    page.locator("input[name=id]").first.check()
    page.get_by_role("button", name="Resolve").click()
    page.get_by_role("button", name="Resolve anyway").click()
    expect(page.get_by_text("1 resolved.")).to_be_visible()
    expect(page.locator(".row[data-id]")).to_have_count(2)
    context.close()


def test_a_page_of_many_findings_becomes_usable(stage: Backend, tenant: Tenant, seat: Seat) -> None:
    """A bound that only a page gone wrong misses; the figures are the benchmark's."""
    fill(stage, tenant)
    seat.open("/findings")
    began = time.perf_counter()
    seat.open("/findings?status=all")
    expect(seat.page.locator(".row[data-id]").first).to_be_visible()
    assert time.perf_counter() - began < 60
