"""A client of the portal like a browser without scripts: cookies, hidden form fields, own origin."""

import re
from dataclasses import dataclass
from html import unescape
from typing import Any

import httpx

from outcrop.domain.account import Role
from outcrop.domain.clock import now
from outcrop.services import accounts
from tests.support.backend import Backend, Tenant

PASSWORD = "a long enough pass phrase"


@dataclass(frozen=True)
class Person:
    client: httpx.Client
    email: str
    tenant: Tenant

    def get(self, path: str, **params: Any) -> httpx.Response:
        return self.client.get(path, params=params or None, headers={"Accept": "text/html"})

    def page(self, path: str, **params: Any) -> str:
        answer = self.get(path, **params)
        assert answer.status_code == 200, (path, answer.status_code, answer.text[:500])
        return answer.text

    def csrf(self, path: str = "/profile/plan") -> str:
        return csrf_in(self.page(path))

    def post(
        self, path: str, fields: Any = None, *, headers: dict[str, str] | None = None, **more: Any
    ) -> httpx.Response:
        """Send a form as one of our own pages would."""
        data = {"csrf": self.csrf()} | (fields or {}) | more
        return self.client.post(
            path, data=data, headers={"Origin": origin(self.client), "Accept": "text/html"} | (headers or {})
        )


def origin(client: httpx.Client) -> str:
    return str(client.base_url).rstrip("/")


def csrf_in(page: str) -> str:
    found = re.search(r'name="csrf" value="([0-9a-f]{64})"', page)
    assert found is not None, page[:500]
    return found[1]


def shown_once(page: str, id_: str) -> str:
    found = re.search(rf'<code id="{id_}"[^>]*>([^<]+)</code>', page)
    assert found is not None, page[:2000]
    return unescape(found[1])


def make_person(backend: Backend, tenant: Tenant, role: Role = Role.OWNER, email: str | None = None) -> str:
    email = email or f"{role}-{tenant.account.slug}@example.com"
    backend.run(
        lambda db: accounts.create_member(
            db, tenant.account, email=email, role=role, password=PASSWORD, by="test", now=now()
        )
    )
    return email


def sign_in(backend: Backend, tenant: Tenant, role: Role = Role.OWNER) -> Person:
    """Make a member and sign in through the form."""
    email = make_person(backend, tenant, role)
    client = backend.client()
    answer = sign_in_by_form(client, email, PASSWORD)
    assert answer.status_code == 303, answer.text[:500]
    return Person(client, email, tenant)


def sign_in_by_form(client: httpx.Client, email: str, password: str, **more: str) -> httpx.Response:
    csrf = csrf_in(client.get("/sign-in").text)
    data = {"csrf": csrf, "email": email, "password": password} | more
    return client.post("/sign-in", data=data, headers={"Origin": origin(client)})
