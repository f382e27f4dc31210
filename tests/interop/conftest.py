"""Node for the checks. A check whose programs cannot be installed here is skipped: reported as not run."""

import pytest

from tests.interop.node import Node, NotAvailableError, install


@pytest.fixture(scope="session")
def node() -> Node:
    try:
        return install()
    except NotAvailableError as error:
        pytest.skip(str(error))
