"""`outcrop serve` and `outcrop worker`: the parent that opens the database and the port, and keeps its children running."""

import asyncio
import os
import signal
import socket
import sys
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import Annotated

import structlog
import typer

from outcrop.cli.session import run, start
from outcrop.domain.errors import BadInputError, OperatorError
from outcrop.runtime import open_database, open_runtime, prepare_database
from outcrop.settings import Settings, is_loopback
from outcrop.sources.fork_pool import count_cores

_TOO_SOON = 3.0  # seconds: a child that dies sooner three times in a row will not live
DEAD_AFTER = 20.0  # seconds without a sign of life, of which a worker gives four in that time
PATIENCE = 10.0  # seconds a child gets to finish what it is doing

_WORKER_STATEMENT_TIMEOUT = 600.0

log = structlog.get_logger()


class Part(StrEnum):
    """What a child does."""

    API = "api"
    WORKER = "worker"


@dataclass(frozen=True, slots=True)
class Listening:
    """Where and how the API is served."""

    host: str = "127.0.0.1"
    port: int = 8000
    processes: int = 1
    with_worker: bool = True
    tls_cert: Path | None = None
    tls_key: Path | None = None


def serve(  # noqa: PLR0917 - options, all given by name
    host: Annotated[str, typer.Option(help="Address to listen on.")] = "127.0.0.1",
    port: Annotated[
        int, typer.Option(min=0, max=65535, help="Port to listen on; 0 takes a free one.")
    ] = 8000,
    processes: Annotated[int, typer.Option(min=1, max=64, help="API processes.")] = 1,
    no_worker: Annotated[bool, typer.Option("--no-worker", help="Run no worker beside the API.")] = False,
    tls_cert: Annotated[Path | None, typer.Option(help="Certificate (PEM), to serve https.")] = None,
    tls_key: Annotated[Path | None, typer.Option(help="The certificate's key (PEM).")] = None,
) -> None:
    """Serve the API, with a worker beside it."""
    settings = start()
    listening = Listening(host, port, processes, not no_worker, tls_cert, tls_key)
    run(lambda: supervise(settings, listening))


def worker(
    jobs: Annotated[
        int, typer.Option("--jobs", min=0, max=256, help="Sources looked at side by side; 0 is one per core.")
    ] = 0,
    dead_after: Annotated[float, typer.Option("--dead-after", min=1, hidden=True)] = DEAD_AFTER,
) -> None:
    """Run one more worker, on any machine that reaches the database."""
    settings = start()
    run(lambda: work_until_told(settings, jobs, dead_after))


async def work_until_told(settings: Settings, jobs: int = 0, dead_after: float = DEAD_AFTER) -> None:
    """Run the worker until SIGTERM or SIGINT."""
    from outcrop.worker import work  # noqa: PLC0415 - the parent of a service does without it

    jobs = jobs or count_cores()
    stop = asyncio.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        asyncio.get_running_loop().add_signal_handler(number, stop.set)
    async with open_runtime(
        settings, pool_size=jobs + 8, statement_timeout=_WORKER_STATEMENT_TIMEOUT
    ) as runtime:
        await work(runtime, settings, stop, jobs=jobs, dead_after=dead_after)


async def supervise(
    settings: Settings,
    listening: Listening,
    ready: Callable[[str], Awaitable[None]] | None = None,
    environment: Mapping[str, str] | None = None,
) -> None:
    """Keep the service up until SIGTERM or Ctrl-C; `ready` is called with its base address, `environment` is for the children alone."""
    _refuse_unsafe(settings, listening)
    stop, interrupted = asyncio.Event(), asyncio.Event()
    loop = asyncio.get_running_loop()
    loop.add_signal_handler(signal.SIGTERM, stop.set)

    def interrupt() -> None:
        interrupted.set()
        stop.set()

    loop.add_signal_handler(signal.SIGINT, interrupt)
    with open_database(settings) as url, listen(listening) as sock:
        await prepare_database(settings, url)
        base_url = settings.base_url or _base_url(listening, sock)
        told = os.environ | (environment or {}) | {"OUTCROP_DATABASE_URL": url, "OUTCROP_BASE_URL": base_url}
        api = [Part.API, "--fd", str(sock.fileno())]
        if listening.tls_cert is not None:
            api += ["--tls-cert", str(listening.tls_cert), "--tls-key", str(listening.tls_key)]
        commands: list[list[str]] = [api] * listening.processes + (
            [[Part.WORKER]] if listening.with_worker else []
        )
        children = [
            asyncio.create_task(_keep_running(command, told, sock.fileno(), stop)) for command in commands
        ]
        log.info(
            "serving",
            base_url=base_url,
            port=sock.getsockname()[1],
            processes=listening.processes,
            worker=listening.with_worker,
        )
        if ready is not None:
            children.append(asyncio.create_task(_until(stop, ready(base_url))))
        try:
            await _all_or_first_failure(children)
        finally:
            stop.set()
            await asyncio.gather(*children, return_exceptions=True)
    if interrupted.is_set():
        raise KeyboardInterrupt


async def _until(stop: asyncio.Event, work: Awaitable[None]) -> None:
    task = asyncio.ensure_future(work)
    waiting = asyncio.ensure_future(stop.wait())
    await asyncio.wait({task, waiting}, return_when=asyncio.FIRST_COMPLETED)
    waiting.cancel()
    if not task.done():
        task.cancel()
        return
    task.result()


async def _all_or_first_failure(tasks: Sequence[asyncio.Task[None]]) -> None:
    done, _ = await asyncio.wait(tasks, return_when=asyncio.FIRST_EXCEPTION)
    for task in done:
        task.result()


async def _keep_running(
    command: list[str], environment: dict[str, str], fd: int, stop: asyncio.Event
) -> None:
    """Start a child, and again whenever it dies; give up when it cannot live."""
    early_deaths = 0
    while not stop.is_set():
        began = asyncio.get_running_loop().time()
        async with _child(command, environment, fd) as child:
            ended, told = asyncio.ensure_future(child.wait()), asyncio.ensure_future(stop.wait())
            await asyncio.wait({ended, told}, return_when=asyncio.FIRST_COMPLETED)
            told.cancel()
        if stop.is_set():
            return
        early_deaths = early_deaths + 1 if asyncio.get_running_loop().time() - began < _TOO_SOON else 0
        log.error("process_died", part=command[0], exit_code=child.returncode)
        if early_deaths == 3:
            raise OperatorError(f"the {command[0]} process does not stay up; its own message stands above")
        await asyncio.sleep(0.5)


@asynccontextmanager
async def _child(
    command: list[str], environment: dict[str, str], fd: int
) -> AsyncIterator[asyncio.subprocess.Process]:
    """A child in a session of its own: Ctrl-C reaches the parent only, which ends the children in order."""
    child = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "outcrop.cli.process", *command),
        env=environment,
        stdin=asyncio.subprocess.PIPE,
        pass_fds=[fd],
        start_new_session=True,
    )
    try:
        yield child
    finally:
        if child.returncode is None:
            with suppress(ProcessLookupError):
                child.terminate()
            try:
                await asyncio.wait_for(child.wait(), PATIENCE)
            except TimeoutError:
                child.kill()
                await child.wait()


def _refuse_unsafe(settings: Settings, listening: Listening) -> None:
    if (listening.tls_cert is None) != (listening.tls_key is None):
        raise BadInputError("--tls-cert and --tls-key belong together")
    for file in (listening.tls_cert, listening.tls_key):
        if file is not None and not os.access(file, os.R_OK):
            raise BadInputError(f"cannot read {file}")
    https = settings.base_url is not None and settings.base_url.startswith("https://")
    if not is_loopback(listening.host) and not https and listening.tls_cert is None:
        raise OperatorError(
            "keys must not travel in the clear: beyond loopback set OUTCROP_BASE_URL to an https address, or give --tls-cert"
        )


def listen(listening: Listening) -> socket.socket:
    family = socket.AF_INET6 if ":" in listening.host else socket.AF_INET
    try:
        sock = socket.create_server((listening.host, listening.port), family=family, backlog=1024)
    except OSError as error:
        raise OperatorError(
            f"cannot listen on {listening.host} port {listening.port}: {error.strerror or error}"
        ) from None
    sock.setblocking(False)
    return sock


def _base_url(listening: Listening, sock: socket.socket) -> str:
    scheme = "http" if listening.tls_cert is None else "https"
    host = f"[{listening.host}]" if ":" in listening.host else listening.host
    return f"{scheme}://{host}:{sock.getsockname()[1]}"
