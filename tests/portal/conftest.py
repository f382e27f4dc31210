"""Fixtures of the portal tests: an account, its signed-in owner, and a browser."""

from collections.abc import Iterator

import pytest
from playwright.sync_api import Browser

from outcrop.settings import Settings
from outcrop.store.keyring import Keyring
from tests.support.backend import Backend, Tenant, running_server
from tests.support.browser import running_browser
from tests.support.portal_client import Person, sign_in


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    with running_browser() as browser:
        yield browser


@pytest.fixture(scope="module")
def stage(settings: Settings, keys: Keyring) -> Iterator[Backend]:
    """Yield a server that knows its own address, as the forms of a browser require."""
    with (
        running_server(settings, rate_limit=0) as server,
        Backend(settings, keys, server.base_url) as backend,
    ):
        yield backend


@pytest.fixture
def tenant(backend: Backend) -> Tenant:
    return backend.tenant()


@pytest.fixture
def owner(backend: Backend, tenant: Tenant) -> Person:
    return sign_in(backend, tenant)
