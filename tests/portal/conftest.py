"""Who the tests of pages without a browser are: an account, and its owner at the portal."""

import pytest

from tests.backend import Backend, Tenant
from tests.portal_client import Person, sign_in


@pytest.fixture
def tenant(backend: Backend) -> Tenant:
    return backend.tenant()


@pytest.fixture
def owner(backend: Backend, tenant: Tenant) -> Person:
    return sign_in(backend, tenant)
