"""Define the clients and settings that a run needs, and the key of one source of a run."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path
from uuid import UUID

from outcrop import __version__
from outcrop.domain.release import Release, parse_release
from outcrop.domain.scan import Gap
from outcrop.domain.secret import Secret
from outcrop.limits import CRAWL_LIMITS, SOURCE_LIMITS, CrawlLimits, SourceLimits
from outcrop.net.guard import Egress
from outcrop.net.http import HttpClient
from outcrop.sandbox import Owner
from outcrop.scanner.engine.ruleset import RuleSet
from outcrop.sources.code_host.options import RETRY_DELAYS
from outcrop.sources.isolated.process_pool import ProcessPool
from outcrop.store.db import Pool
from outcrop.store.keyring import Keyring
from outcrop.validation.engine import Validator

RELEASE = parse_release(__version__)
ACTOR = "scan"  # the actor of a run's lines in the audit trail


@dataclass(frozen=True, slots=True, kw_only=True)
class ValidationContext:
    """The clients that checking stored credentials with their issuers needs."""

    pool: Pool
    keys: Keyring
    ruleset: RuleSet
    validator: Validator


@dataclass(frozen=True, slots=True)
class RunLimits:
    """Sizes and times of a scan run that no target can choose."""

    batch_size: int = 500  # secrets that one transaction records
    site_batch_size: int = 200  # secrets of a site that are recorded together
    crawl: CrawlLimits = CRAWL_LIMITS
    retry_delays: tuple[float, ...] = RETRY_DELAYS  # for requests to a code host


RUN_LIMITS = RunLimits()


@dataclass(frozen=True, slots=True, kw_only=True)
class RunContext(ValidationContext):
    """The clients and settings that a scan run needs."""

    process_pool: ProcessPool
    http: HttpClient
    egress: Egress
    github_url: str
    base_url: str | None = None  # of the portal, for links
    github_token: Secret | None = None  # the operator's, for public repositories
    jobs: int = 1  # sources that are scanned at once, and processes that scan a large repository
    source_limits: SourceLimits = SOURCE_LIMITS
    work: Path = Path()  # the folder in which repositories are cloned
    owner: Owner | None = None  # the user of the processes of the pool, if this process is root
    release: Release = RELEASE
    limits: RunLimits = RUN_LIMITS
    source_timeout: float = 60.0  # seconds without a heartbeat after which a scan loses its source


@dataclass(frozen=True, slots=True)
class SourceKey:
    """The key of one source of one run."""

    account_id: int
    scan_id: UUID
    source: str
    attempt: int = 0  # the fencing token of this scan; 0 for a plan, which writes no findings
    started_at: datetime | None = None  # of this scan, by the database's clock


@dataclass(slots=True)
class SourceReport:
    """The progress counters of a source's scan, and the gaps in its coverage. Updated while the scan runs."""

    progress: dict[str, int] = field(default_factory=dict)
    gaps: list[Gap] = field(default_factory=list)


@asynccontextmanager
async def run_periodically(step: Callable[[], Awaitable[None]]) -> AsyncIterator[None]:
    """Call `step` again and again while the body of the `with` statement runs; `step` does its own waiting.

    When the body ends, a running `step` is cancelled. An exception of `step` ends the calls without a
    message. Before Python 3.12 asyncio can lose a cancellation that arrives together with the awaited result.
    The flag ends the loop in that case.
    """
    finished = False

    async def loop() -> None:
        """Call `step` until the body of the `with` statement has finished."""
        while not finished:
            await step()

    task = asyncio.create_task(loop())
    try:
        yield
    finally:
        finished = True
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
