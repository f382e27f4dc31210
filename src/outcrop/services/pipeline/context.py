"""What a run works with."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Protocol
from uuid import UUID

from outcrop.domain.scan import Gap
from outcrop.domain.secret import Secret
from outcrop.net.guard import Egress
from outcrop.net.http import HttpClient
from outcrop.scanner.engine.ruleset import RuleSet
from outcrop.sources.isolated.process_pool import ProcessPool
from outcrop.store.db import Pool
from outcrop.store.keyring import Keys
from outcrop.validation.engine import Validator

ACTOR = "scan"  # who the audit trail names
MOST_TRIES = 3  # of a source, or of a plan, whose worker dies


class Asks(Protocol):
    """As much of it as asking about stored credentials takes."""

    @property
    def pool(self) -> Pool: ...
    @property
    def keys(self) -> Keys: ...
    @property
    def ruleset(self) -> RuleSet: ...
    @property
    def validator(self) -> Validator: ...


@dataclass(frozen=True, slots=True)
class Asking:
    """Just that, for a command that does nothing else."""

    pool: Pool
    keys: Keys
    ruleset: RuleSet
    validator: Validator


@dataclass(frozen=True, slots=True)
class Tools:
    pool: Pool
    keys: Keys
    ruleset: RuleSet
    crew: ProcessPool
    http: HttpClient
    validator: Validator
    egress: Egress
    github_url: str
    github_token: Secret | None = None
    keep_secrets: bool = True
    jobs: int = 1
    work: Path = Path()


@dataclass(slots=True)
class Look:
    """How far a look has come, and what it could not see."""

    progress: dict[str, int] = field(default_factory=dict)
    gaps: list[Gap] = field(default_factory=list)


@dataclass(frozen=True, slots=True)
class Part:
    """One source of one run."""

    account_id: int
    scan_id: UUID
    source: str


@asynccontextmanager
async def meanwhile(turn: Callable[[], Awaitable[None]]) -> AsyncIterator[None]:
    """Do something again and again while the body runs.

    A task that is cancelled may go on where what it waited for came at that very moment (asyncio before 3.12): then the flag ends it.
    """
    over = False

    async def turns() -> None:
        while not over:
            await turn()

    task = asyncio.create_task(turns())
    try:
        yield
    finally:
        over = True
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)


def now() -> datetime:
    return datetime.now(UTC).replace(microsecond=0)
