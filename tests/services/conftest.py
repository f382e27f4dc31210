"""Share one pipeline among all tests of a process. Each test has its own account and owners."""

from collections.abc import Iterator

import pytest

from outcrop.domain.account import Account
from outcrop.store.keyring import Keyring
from tests.support.members import no_failed_sign_ins
from tests.support.pipeline import Pipeline, open_pipeline

__all__ = ["no_failed_sign_ins"]


@pytest.fixture(scope="session")
def _open_pipeline(
    database_url: str, keys: Keyring, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Pipeline]:
    with open_pipeline(database_url, keys, tmp_path_factory.mktemp("pipeline")) as opened:
        yield opened


@pytest.fixture
def pipeline(_open_pipeline: Pipeline) -> Iterator[Pipeline]:
    """Yield the shared pipeline; afterwards, reset the requests and faults of its hosts."""
    yield _open_pipeline
    hub, git = _open_pipeline.hub, _open_pipeline.git
    hub.faults.clear()
    hub.lifetimes.clear()
    hub.requests.clear()
    hub.limit, hub.used = 10**9, 0
    git.requests.clear()


@pytest.fixture
def account(pipeline: Pipeline) -> Account:
    """Return a new account."""
    return pipeline.create_account()
