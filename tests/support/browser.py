"""A real Chromium at a real server: pages opened as people open them, and what went wrong in them."""

import os
import re
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from playwright.sync_api import Browser, BrowserContext, Page, expect, sync_playwright

# The first one has no windows: it takes a third to half of the processor time of the others.
_PROGRAMS = ("chromium-headless-shell", "chromium", "chromium-browser", "google-chrome")
CHROMIUM = next(filter(None, map(shutil.which, _PROGRAMS)), None)
needs_chromium = pytest.mark.skipif(
    CHROMIUM is None, reason="no Chromium on this machine: `apt-get install chromium` brings one"
)
TIMEOUT = 60_000  # milliseconds: on a busy machine the usual 5 s are too few
expect.set_options(timeout=TIMEOUT)
WIDTHS = {"phone": 390, "tablet": 820, "desktop": 1440}


@contextmanager
def running_browser() -> Iterator[Browser]:
    with sync_playwright() as playwright:
        # Root may not create the sandbox's namespaces; the browser opens only our own server.
        browser = playwright.chromium.launch(
            executable_path=CHROMIUM, args=["--no-sandbox", "--disable-dev-shm-usage"]
        )
        try:
            yield browser
        finally:
            browser.close()


class Troubles:
    """What a page has complained of: errors of scripts, and what the content policy blocked."""

    def __init__(self, context: BrowserContext) -> None:
        self.reported: list[str] = []
        self.dialogs: list[str] = []
        context.on("weberror", lambda error: self.reported.append(str(error.error)))
        context.on("console", lambda message: self._console(message.type, message.text))
        context.on("dialog", self._dialog)

    def _console(self, kind: str, text: str) -> None:
        if (
            kind == "error" and "status of 400" not in text
        ):  # a form that is refused is an answer like any other
            self.reported.append(text)

    def _dialog(self, dialog) -> None:  # type: ignore[no-untyped-def]
        self.dialogs.append(dialog.message)
        dialog.accept()


def sign_in(page: Page, base_url: str, email: str, password: str) -> None:
    page.goto(f"{base_url}/sign-in")
    page.get_by_label("E-mail address").fill(email)
    page.get_by_label("Password").fill(password)
    page.get_by_role("button", name="Sign in").click()
    page.wait_for_url(re.compile(r"^(?!.*sign-in)"))


def picture(page: Page, name: str) -> None:
    """Keep a screenshot as test output, where the environment says where."""
    if folder := os.environ.get("OUTCROP_TEST_SCREENSHOTS"):
        Path(folder).mkdir(parents=True, exist_ok=True)
        page.screenshot(path=Path(folder) / f"{name}.png", full_page=True)
