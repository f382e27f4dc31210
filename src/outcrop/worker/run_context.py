"""Load and open what scan runs need: rules, processes that scan, HTTP clients."""

import asyncio
import os
from collections.abc import AsyncIterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path

from outcrop.domain.secret import Secret
from outcrop.lazy_logger import get_logger
from outcrop.limits import ISSUER_CHECKS, ISSUER_CONNECTIONS
from outcrop.net.guard import Egress
from outcrop.net.http import open_http
from outcrop.runtime import Runtime
from outcrop.sandbox import Owner, find_missing, find_owner
from outcrop.scanner.engine.load import load_ruleset
from outcrop.services.pipeline.context import RunContext
from outcrop.settings import Settings
from outcrop.sources.isolated.process_pool import open_process_pool
from outcrop.sources.workspace import cache_folder
from outcrop.validation.engine import ValidationMode, Validator

MORE_PROCESSES = 2  # that scan, beside one for each job of an account

log = get_logger()


@asynccontextmanager
async def open_run_context(settings: Settings, runtime: Runtime, jobs: int) -> AsyncIterator[RunContext]:
    """Load the rules and open the process pool and the HTTP clients that scan runs need."""
    async with AsyncExitStack() as stack:
        # Each running repository job blocks one thread. DNS lookups and scans of web pages need others.
        asyncio.get_running_loop().set_default_executor(ThreadPoolExecutor(jobs + 10))
        egress = Egress.from_settings(settings)
        cache = cache_folder()
        owner = await asyncio.to_thread(find_owner, settings.data_dir)
        work_parent = cache if owner is None else _create_folder_of(owner, settings.data_dir / "scans")
        if missing := find_missing():
            log.warning("sandbox_incomplete", missing=list(missing))
        rules = [settings.rules] if settings.rules else []
        ruleset = await asyncio.to_thread(load_ruleset, rules, cache=cache)
        issuers = await stack.enter_async_context(
            open_http(egress, connections=ISSUER_CONNECTIONS, per_host=ISSUER_CHECKS)
        )
        validator = Validator(issuers, ValidationMode(settings.validate_))
        stack.push_async_callback(validator.close)
        yield RunContext(
            pool=runtime.pool,
            keys=runtime.keys,
            ruleset=ruleset,
            process_pool=await stack.enter_async_context(
                # One process more for a second account, and one for pushes.
                open_process_pool(
                    *(jobs + MORE_PROCESSES, rules, ruleset, egress, cache),
                    reserved=1,
                    hidden=settings.data_dir,
                    limits=settings.source_limits,
                    work=work_parent,
                    owner=owner,
                )
            ),
            http=await stack.enter_async_context(open_http(egress)),
            validator=validator,
            egress=egress,
            source_limits=settings.source_limits,
            github_url=settings.github_api_url,
            base_url=settings.base_url,
            github_token=None
            if settings.github_token is None
            else Secret(settings.github_token.get_secret_value(), mask_all=True),
            jobs=jobs,
            work=work_parent,
            owner=owner,
        )


def _create_folder_of(owner: Owner, folder: Path) -> Path:
    """Create a folder of another user, if it does not exist; return it."""
    folder.mkdir(mode=0o700, exist_ok=True)
    os.chown(folder, owner.user, owner.group)
    return folder
