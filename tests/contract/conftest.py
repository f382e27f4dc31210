"""Accounts that the tests of one file share."""

from collections.abc import Iterator

import pytest

from outcrop.settings import Settings
from outcrop.store.keyring import Keyring
from tests.support.backend import Backend, Server, Tenant


@pytest.fixture(scope="module")
def stage(settings: Settings, keys: Keyring, server: Server) -> Iterator[Backend]:
    with Backend(settings, keys, server.base_url) as backend:
        yield backend


@pytest.fixture(scope="module")
def tenant(stage: Backend) -> Tenant:
    return stage.tenant()
