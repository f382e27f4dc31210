"""A real PostgreSQL for every test: one embedded server for the run, one database per test worker."""

import asyncio
import atexit
import gc
import os
import shutil
import signal
import sys
import tempfile
from collections.abc import Iterator
from contextlib import ExitStack
from fcntl import LOCK_EX, flock
from functools import cache
from pathlib import Path

import hypothesis
import psycopg
import pytest
import structlog
from argon2 import PasswordHasher

from outcrop.cli import session
from outcrop.logs import set_up_logs
from outcrop.runtime import prepare_database
from outcrop.settings import SecretText, Settings
from outcrop.store import operator_key
from outcrop.store.keyring import Keyring
from outcrop.store.people import passwords
from tests.support.backend import Backend, Server, running_server
from tests.support.browser import needs_chromium
from tests.support.databases import migrated_database, shared_server
from tests.support.hashes import QUICK
from tests.support.tls import make_certificate

for name in [name for name in os.environ if name.startswith("OUTCROP_")]:
    del os.environ[name]  # the machine's own settings are not the tests'
os.environ.pop(
    "PYTHONDONTWRITEBYTECODE", None
)  # otherwise every command that a test starts would compile all modules
signal.signal(
    signal.SIGINT, signal.default_int_handler
)  # a shell has it ignored by what runs in its background
os.environ["OUTCROP_VALIDATE"] = "off"  # no issuer is asked; tests of checks ask stand-ins

if "PYTEST_XDIST_WORKER" not in os.environ:  # one cache for the run, and never the user's own
    os.environ["XDG_CACHE_HOME"] = tempfile.mkdtemp(prefix="outcrop-tests-")
    atexit.register(shutil.rmtree, os.environ["XDG_CACHE_HOME"], ignore_errors=True)
    # No test connects to the internet. To load all authorities of the machine takes each process and client 50 ms.
    os.environ["SSL_CERT_FILE"] = str(
        make_certificate(Path(os.environ["XDG_CACHE_HOME"]), "nobody.example")[0]
    )

_RUN = Path(os.environ["XDG_CACHE_HOME"])  # files of this run, for all of its processes

set_up_logs("info", "json")
structlog.configure(cache_logger_on_first_use=False)  # so that a test can capture them
session.set_up_logs = lambda *_: None  # type: ignore[attr-defined]  # a command that is run in this process leaves that as it is

_close_loop = asyncio.SelectorEventLoop.close


async def _let_go(loop: asyncio.SelectorEventLoop) -> None:
    for _ in range(50):
        if not any(transport._sock for transport in loop._transports.values()):  # type: ignore[attr-defined]
            return
        await asyncio.sleep(0.01)


def _close_gently(loop: asyncio.SelectorEventLoop) -> None:
    """Close a loop after its closed connections are released.

    TLS needs some iterations of the loop to shut a connection down.
    """
    if not loop.is_closed() and not loop.is_running():
        loop.run_until_complete(_let_go(loop))
    _close_loop(loop)


asyncio.SelectorEventLoop.close = _close_gently  # type: ignore[method-assign, assignment]

passwords.PASSWORDS.hasher = PasswordHasher(**QUICK)  # hundreds of tests sign in

operator_key._derive_wrapping_key = cache(
    operator_key._derive_wrapping_key
)  # slow on purpose, and hundreds of tests open a database with the same one

SECRET_KEY = "a key for the tests only, no secret"


hypothesis.settings.register_profile("the same every time", derandomize=True)  # a run that fails fails again
hypothesis.settings.load_profile("the same every time")

# Files that take long, the longest first: begun last, one of them would keep a single worker busy at the end.
LONG = (
    "portal/",
    "e2e/",
    "upgrade/",
    "services/",
    "store/",
    "contract/",
    "api/",
    "demo/",
    "cli/",
    "sources/",
)


@pytest.hookimpl(tryfirst=True)  # before pytest selects tests by their markers
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Sort the files, and mark the tests of `e2e` and those that need Chromium."""

    @cache
    def turn(path: Path) -> int:
        name = path.relative_to(Path(__file__).parent).as_posix()
        return next((n for n, start in enumerate(LONG) if name.startswith(start)), len(LONG))

    items.sort(key=lambda item: turn(item.path))
    for item in items:
        if needs_chromium.mark in item.iter_markers("skipif"):
            item.add_marker("browser")
        if item.path.parent.name == "e2e":
            item.add_marker("e2e")


_turn = ExitStack()


def pytest_collection() -> None:
    gc.disable()  # nothing that is collected becomes garbage
    _wait_for_compiled_tests()


def _wait_for_compiled_tests() -> None:
    """Wait until one process has compiled the tests. The others load what it wrote, which is much quicker."""
    here = Path(__file__).parent
    compiled = len(list(here.rglob("*-pytest-*.pyc")))
    if sys.dont_write_bytecode or compiled > len(list(here.rglob("test_*.py"))) / 2:
        return
    flock(_turn.enter_context((_RUN / "collecting").open("w")), LOCK_EX)
    if (_RUN / "collected").exists():
        _turn.close()


def pytest_collection_finish() -> None:
    (_RUN / "collected").touch()
    _turn.close()
    gc.collect()
    gc.freeze()  # thousands of tests that are looked through again and again otherwise
    gc.enable()


@pytest.fixture(scope="session")
def anyio_backend() -> str:
    return "asyncio"


@pytest.fixture(scope="session")
def cluster(tmp_path_factory: pytest.TempPathFactory, worker_id: str) -> Iterator[str]:
    """Yield the URL of the server that all test workers share."""
    base = tmp_path_factory.getbasetemp()
    with shared_server((base if worker_id == "master" else base.parent) / "outcrop") as url:
        yield url


_prepared_databases: set[str] = set()
_DELETE_WAITING_WORK = """
    DELETE FROM procrastinate_jobs;
    DELETE FROM targets;
    DELETE FROM scans WHERE finished_at IS NULL;
    DELETE FROM sign_in_attempts"""


@pytest.fixture(scope="session")
def database_url(cluster: str, worker_id: str) -> str:
    return migrated_database(cluster, f"test_{worker_id}")


@pytest.fixture(scope="session")
def settings(database_url: str, tmp_path_factory: pytest.TempPathFactory) -> Settings:
    folder: Path = tmp_path_factory.mktemp("data")
    return Settings(
        database_url=database_url, data_dir=folder, secret_key=SecretText(SECRET_KEY), validate_="off"
    )


@pytest.fixture(scope="session")
def keys(settings: Settings, database_url: str) -> Keyring:
    """Create the keys."""
    keys = asyncio.run(prepare_database(settings, database_url))
    _prepared_databases.add(database_url)
    return keys


@pytest.fixture(scope="module", autouse=True)
def no_waiting_work() -> None:
    """Begin each file without the work that others left: workers and metrics see that of all accounts."""
    for url in _prepared_databases:
        with psycopg.connect(url, autocommit=True) as db:
            db.execute(_DELETE_WAITING_WORK)


@pytest.fixture(scope="session")
def server(settings: Settings, keys: Keyring) -> Iterator[Server]:
    """Yield the application on a loopback port, without a rate limit."""
    with running_server(settings, rate_limit=0) as server:
        yield server


@pytest.fixture
def backend(settings: Settings, keys: Keyring, server: Server) -> Iterator[Backend]:
    """Accounts, keys and findings for one test, each test with accounts of its own."""
    with Backend(settings, keys, server.base_url) as backend:
        yield backend
