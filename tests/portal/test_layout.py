"""Test that long and wide contents stay on the page.

Each page is opened at widths from a small phone to a desktop. No text is cut, and everything can be reached.
"""

import re
from datetime import timedelta
from typing import Any

from playwright.sync_api import Browser

from outcrop.domain.clock import now
from outcrop.domain.scan import Gap, ScanStatus
from outcrop.domain.target import Schedule
from outcrop.services import targets, views, webhooks
from tests.support.backend import Backend, Tenant, running_server
from tests.support.browser import WIDTHS, needs_chromium, picture, sign_in
from tests.support.factories import make_line, make_scan
from tests.support.portal_client import PASSWORD, make_person

pytestmark = needs_chromium

# Those that people have, and both sides of every width at which the sheet changes its mind.
ALL_WIDTHS = sorted({320, 640, 641, 864, 865, 912, 913, 1024, 1120, 1248, 1249, 1407, 1408, *WIDTHS.values()})

PAGES = [
    *(
        "/",
        "/findings",
        "/findings?status=all",
        "/incidents",
        "/scans",
        "/suppressions",
        "/assignment-rules",
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

# Report a text that an ancestor cuts off, a table that is squeezed or must be scrolled on a wide page,
# and a menu with entries that are not visible.
FAULTS = """() => {
  const faults = [];
  const tell = (what, element) => faults.push(\
`${what}: ${element.tagName}.${element.className} ${element.textContent.trim().slice(0, 9)}`);
  const page = document.documentElement;
  if (page.scrollWidth > innerWidth) faults.push(`the page is ${page.scrollWidth - innerWidth} px too wide`);
  const texts = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT);
  const range = document.createRange();
  const known = new Map();  // asked of each element once: there are thousands of texts
  const look = (box) => {
    const { overflowX: x, overflowY: y } = getComputedStyle(box);
    const seen = { x: x !== "visible", y: y !== "visible", \
scrolls: /auto|scroll/.test(x + y), edge: box.getBoundingClientRect() };
    known.set(box, seen);
    return seen;
  };
  while (texts.nextNode()) {
    const parent = texts.currentNode.parentElement;
    if (!texts.currentNode.data.trim() || !parent.checkVisibility() \
|| parent.closest(".sr, .skip, option")) continue;
    range.selectNodeContents(texts.currentNode);
    const text = range.getBoundingClientRect();
    for (let box = parent; box !== page; box = box.parentElement) {
      const { x, y, scrolls, edge } = known.get(box) ?? look(box);
      if (scrolls) break;
      if ((x && (text.left < edge.left - 1 || text.right > edge.right + 1)) \
|| (y && text.bottom > edge.bottom + 1)) tell("cut", parent);
    }
  }
  for (const menu of document.querySelectorAll("nav")) \
if (menu.scrollWidth > menu.clientWidth) tell("out of sight", menu);
  for (const cell of document.querySelectorAll(".grid .break")) \
if (cell.offsetWidth < 150) tell("squeezed", cell);
  for (const table of document.querySelectorAll(".scroll")) {
    if (innerWidth >= 1024 && table.scrollWidth > table.clientWidth) tell("must be scrolled", table);
    const reached = table.matches("[tabindex='0'][role=region][aria-label]") \
|| !table.querySelector(".break");
    if (!reached) tell("out of the keyboard's reach", table);
  }
  return faults;
}"""


def crowd(stage: Backend, tenant: Tenant) -> list[str]:
    """Create records for every page, with the longest foreign names; return the pages."""
    account, by = tenant.account, {"by": f"owner-{tenant.account.slug}@example.com", "now": now()}
    checks = ["valid", "invalid", "unvalidated", "error", "unreachable"]
    lines = [
        make_line(composite_score=100 - n, repo_full_name=f"acme/r{n}", validation_status=checks[n % 5])
        for n in range(12)
    ]
    long = make_line(
        composite_score=99.5,
        repo_full_name="acme/" + "r" * 100,
        file_path="src/" + "deep_folder_name/" * 8 + "f" * 80 + ".py",
        source_url="https://github.com/acme/" + "r" * 100 + "/blob/main/" + "f" * 120,
        pattern={"name": "Connection string of a database with a password in it", "secret_type": "t" * 60},
        status="false_positive",
        validation_detail={
            "enabled_services": ["aws", "s" * 80],
            "reason": "the host has answered " + "x" * 80,
        },
    )
    stage.import_(account, *lines, long)
    stage.run(
        lambda db: webhooks.save_webhook(
            db, stage.keys, account, "https://receiver.example.com/" + "in" * 60, **by
        )
    )
    for line in lines[:3]:
        tenant.post(f"/findings/{line['id']}/resolve", note="rotated").raise_for_status()
    tenant.post(f"/findings/{lines[0]['id']}/suppress").raise_for_status()
    reason = "the receiver's certificate is not for this name"
    stage.sql(
        "UPDATE outbox SET claimed_at = now(), outcome = 'failed', status = 503, ms = 12345, reason = %s "
        "WHERE account_id = %s",
        reason,
        account.id,
    )

    def add(text: str, schedule: Schedule, **options: Any) -> None:
        given: dict[str, Any] = {
            "kind": None,
            "include": (),
            "exclude": (),
            "chosen": options,
            "credential": None,
        }
        stage.run(
            lambda db: targets.add_target(db, stage.keys, account, text, schedule=schedule, **given, **by)
        )

    add("github:acme", Schedule.DAILY)
    add("https://www.example.com/" + "path" * 30, Schedule.OFF)
    for status, target in (
        (ScanStatus.COMPLETED, "github:acme/shop"),
        (ScanStatus.FAILED, "https://www.example.com/" + "path" * 30),
    ):
        gaps = (Gap("/" + "big" * 60, "too large"),)
        run = make_scan(
            status=status,
            target=target,
            started_at=now() - timedelta(minutes=3),
            finished_at=now(),
            coverage_gaps=gaps,
        )
        stage.scan(account, run)
    stage.run(lambda db: views.save_view(db, account, name="W" * 60, query="validation=valid", **by))
    (site,) = (
        target
        for target in stage.run(lambda db: targets.list_targets(db, stage.keys, account))
        if target.schedule is Schedule.OFF
    )
    incident = tenant.finding(long["id"])["incident_id"]
    return [
        *PAGES,
        f"/incidents/{incident}",
        f"/findings/{long['id']}",
        f"/scans/{run.id}",
        f"/targets/{site.id}",
    ]


def test_nothing_is_cut_off_squeezed_or_out_of_reach_at_any_width(stage: Backend, browser: Browser) -> None:
    email = make_person(stage, tenant := stage.tenant())
    pages = crowd(stage, tenant)
    context = browser.new_context(locale="en-US")  # its dates are long
    page = context.new_page()
    sign_in(page, stage.base_url, email, PASSWORD)
    faults = []
    for path in pages:
        page.goto(stage.base_url + path)
        for width in ALL_WIDTHS:
            page.set_viewport_size({"width": width, "height": 900})
            faults += [(width, path, fault) for fault in page.evaluate(FAULTS)]
            if width in WIDTHS.values():
                picture(page, f"{width}-{re.sub('[^a-z]+', '-', path).strip('-') or 'overview'}")
    context.close()
    assert faults == []


def test_a_notice_pushes_no_part_of_the_menu_out_of_sight(stage: Backend, browser: Browser) -> None:
    email = make_person(stage, stage.tenant())
    with running_server(
        stage.settings, rate_limit=0, notice="It will be away for an hour tonight. " * 8
    ) as server:
        context = browser.new_context(viewport={"width": 1440, "height": 900})
        page = context.new_page()
        sign_in(page, server.base_url, email, PASSWORD)
        place = page.get_by_role("button", name="Sign out").bounding_box()
        context.close()
    assert place is not None
    assert place["y"] + place["height"] <= 900
