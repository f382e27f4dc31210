"""Use the portal as a browser without scripts does: cookies, form tokens, the portal's own origin."""

import re
from dataclasses import dataclass
from html import unescape
from urllib.parse import urlsplit

import httpx

from prove.service import Service

PASSWORD = "a long enough pass phrase"


@dataclass
class PortalSession:
    """A signed-in member."""

    client: httpx.Client
    email: str

    def get(self, path: str) -> httpx.Response:
        return self.client.get(path, headers={"Accept": "text/html"})

    def post(
        self, path: str, fields: dict[str, str] | None = None, csrf: str | None = None
    ) -> httpx.Response:
        """Send a form with the token of this session."""
        token = csrf or token_in(self.get("/findings").text)
        headers = {"Accept": "text/html", "Origin": str(self.client.base_url).rstrip("/")}
        return self.client.post(path, data={"csrf": token} | (fields or {}), headers=headers)

    def crawl(self) -> tuple[dict[str, str], set[str]]:
        """Follow all links of the pages; return the pages by path, and the paths that forms post to."""
        pages: dict[str, str] = {}
        forms: set[str] = set()
        waiting = ["/"]
        while waiting:
            path = waiting.pop()
            bare = urlsplit(path).path
            if bare in pages or bare.startswith("/static/"):
                continue
            answer = self.get(path)
            pages[bare] = (
                answer.text if answer.headers.get("Content-Type", "").startswith("text/html") else ""
            )
            waiting += [unescape(link) for link in re.findall(r'href="(/[^"]*)"', pages[bare])]
            forms |= {
                urlsplit(unescape(action)).path
                for action in re.findall(r'(?:form)?action="(/[^"]*)"', pages[bare])
            }
        return pages, forms


def token_in(page: str) -> str:
    """Return the form token of a page."""
    found = re.search(r'name="csrf" value="([0-9a-f]{64})"', page)
    if found is None:
        raise RuntimeError(f"a page without a form token: {page[:200]}")
    return found[1]


def sign_in(service: Service, slug: str, role: str) -> PortalSession:
    """Create a member with this role and sign in."""
    email = f"{role}@{slug}.example"
    service.run(
        "user", "create", "--account", slug, email, "--role", role, "--password-stdin", stdin=PASSWORD + "\n"
    )
    return sign_in_once_more(service, email)


def sign_in_once_more(service: Service, email: str) -> PortalSession:
    """Sign an existing member in, in a new session."""
    client = httpx.Client(base_url=service.base_url, timeout=60, trust_env=False)
    token = token_in(client.get("/sign-in").text)
    answer = client.post(
        "/sign-in",
        data={"csrf": token, "email": email, "password": PASSWORD},
        headers={"Origin": service.base_url},
    )
    if answer.status_code != httpx.codes.SEE_OTHER:
        raise RuntimeError(f"signing in was answered {answer.status_code}")
    return PortalSession(client, email)
