"""The demo's account: it shares no database with anybody, for stand-ins would answer for them."""

import pytest

from outcrop.demo.account import find_account
from outcrop.domain.errors import OperatorError
from outcrop.runtime import Session
from tests.backend import Backend, now


def test_a_database_that_others_use_is_not_touched(backend: Backend) -> None:
    backend.tenant()
    before = backend.sql("SELECT count(*) FROM accounts")
    with pytest.raises(OperatorError, match="let OUTCROP_DATA_DIR name another folder"):
        backend.run(lambda db: find_account(Session(db, backend.keys), now()))
    assert backend.sql("SELECT count(*) FROM accounts") == before
