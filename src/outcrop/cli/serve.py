"""`outcrop serve` and `outcrop worker`.

`serve` opens the database and the port, and restarts its child processes when they die.
"""

import asyncio
import os
import signal
import socket
import sys
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Mapping, Sequence
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from dataclasses import dataclass, field
from enum import StrEnum
from pathlib import Path
from typing import Annotated, TypeVar

import typer

from outcrop.cli import importing
from outcrop.cli.env_file import env_file_arguments
from outcrop.cli.listen import listen
from outcrop.cli.metrics_server import Recording, open_metrics
from outcrop.cli.session import run, start
from outcrop.domain.errors import BadInputError, OperatorError
from outcrop.lazy_logger import get_logger
from outcrop.runtime import open_database, open_runtime, prepare_database
from outcrop.settings import Settings, is_loopback
from outcrop.sources.fork_pool import count_cores
from outcrop.store.db import WORKER_IDLE_TIMEOUT
from outcrop.tracing import start_tracing

_EARLY_DEATH_SECONDS = 3.0  # a child that dies earlier three times in a row is not started again
DEAD_AFTER = 20.0  # seconds without a heartbeat; a worker sends four in that time
SHUTDOWN_SECONDS = 10.0  # a child may take this long to finish its work

_WORKER_STATEMENT_TIMEOUT = 600.0
_MAX_DATABASE_RETRY_DELAY = 30.0  # seconds

T = TypeVar("T")
log = get_logger()


class ChildRole(StrEnum):
    """Role of a child process."""

    API = "api"
    WORKER = "worker"


@dataclass(frozen=True, slots=True)
class ListenOptions:
    """Address, processes and TLS files of the API."""

    host: str = "127.0.0.1"
    port: int = 8000
    processes: int = 1
    with_worker: bool = True
    tls_cert: Path | None = None
    tls_key: Path | None = None


def serve(  # noqa: PLR0917 - one parameter per option
    host: Annotated[
        str | None, typer.Option(help="Address to listen on; by default OUTCROP_HOST, or 127.0.0.1.")
    ] = None,
    port: Annotated[
        int | None,
        typer.Option(
            min=0, max=65535, help="Port to listen on; 0 means a free port. By default OUTCROP_PORT, or 8000."
        ),
    ] = None,
    processes: Annotated[int, typer.Option(min=1, max=64, help="Number of API processes.")] = 1,
    no_worker: Annotated[bool, typer.Option("--no-worker", help="Do not start a worker.")] = False,
    tls_cert: Annotated[Path | None, typer.Option(help="Certificate (PEM), to serve https.")] = None,
    tls_key: Annotated[Path | None, typer.Option(help="Private key of the certificate (PEM).")] = None,
) -> None:
    """Serve the API and the portal, and run a worker."""
    settings = start()
    listening = ListenOptions(
        settings.host if host is None else host,
        settings.port if port is None else port,
        processes,
        not no_worker,
        tls_cert,
        tls_key,
    )
    run(lambda: supervise(settings, listening))


def worker(
    jobs: Annotated[
        int,
        typer.Option(
            "--jobs",
            min=0,
            max=256,
            help="Sources of one account scanned at the same time; 0 means one per core.",
        ),
    ] = 0,
    dead_after: Annotated[float, typer.Option("--dead-after", min=1, hidden=True)] = DEAD_AFTER,
) -> None:
    """Run an additional worker, on any machine that reaches the database."""
    settings = start()
    start_tracing()
    run(lambda: work_until_signal(settings, jobs, dead_after, with_metrics=True))


async def work_until_signal(
    settings: Settings,
    jobs: int = 0,
    dead_after: float = DEAD_AFTER,
    idle_timeout: float = WORKER_IDLE_TIMEOUT,
    *,
    with_metrics: bool = False,
) -> None:
    """Run the worker until SIGTERM or SIGINT. `with_metrics` also serves its metrics, if that is set.

    The database ends one of its sessions that is idle in a transaction for `idle_timeout` seconds.
    """
    with importing():
        from outcrop.worker.main import work  # noqa: PLC0415 - the parent process does not need it

    jobs = jobs or count_cores()
    stop = asyncio.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        asyncio.get_running_loop().add_signal_handler(number, stop.set)
    async with AsyncExitStack() as stack:
        recording: Recording | None = Recording()
        if with_metrics:
            recording = await _run_until(stop, stack.enter_async_context(open_metrics(settings)))
        if recording is None:  # stopped
            return
        recording.database = settings.database_url
        runtime = await _run_until(
            stop,
            stack.enter_async_context(
                open_runtime(
                    settings,
                    pool_size=2 * jobs + 11,
                    statement_timeout=_WORKER_STATEMENT_TIMEOUT,
                    idle_timeout=idle_timeout,
                    max_retry_delay=_MAX_DATABASE_RETRY_DELAY,
                )
            ),
        )
        if runtime is not None:
            recording.database = runtime.url
            await work(runtime, settings, stop, jobs=jobs, dead_after=dead_after)


async def supervise(
    settings: Settings,
    listening: ListenOptions,
    ready: Callable[[str], Awaitable[None]] | None = None,
    environment: Mapping[str, str] | None = None,
) -> None:
    """Run the service until SIGTERM or Ctrl-C.

    `ready` is called with the base address when the children are started. `environment` is added to the
    environment of the children.
    """
    _check_tls(settings, listening)
    stop, interrupted = asyncio.Event(), asyncio.Event()
    loop = asyncio.get_running_loop()
    loop.add_signal_handler(signal.SIGTERM, stop.set)

    def interrupt() -> None:
        interrupted.set()
        stop.set()

    loop.add_signal_handler(signal.SIGINT, interrupt)
    async with AsyncExitStack() as stack:
        recording = await _run_until(stop, stack.enter_async_context(open_metrics(settings)))
        if recording is not None:
            recording.database = url = stack.enter_context(open_database(settings, watch=True))
            sock = await _run_until(stop, listen(listening.host, listening.port))
            if sock is not None:
                with sock:
                    await prepare_database(settings, url)
                    service = _Service(settings, listening, sock, url, environment or {}, recording)
                    await _run_service(service, stop, ready)
    if interrupted.is_set():
        raise KeyboardInterrupt


@dataclass(frozen=True, slots=True)
class _Service:
    """What the child processes of a service get."""

    settings: Settings
    listening: ListenOptions
    sock: socket.socket
    url: str = field(repr=False)
    environment: Mapping[str, str]  # added to that of this process
    recording: Recording


async def _run_service(
    service: _Service, stop: asyncio.Event, ready: Callable[[str], Awaitable[None]] | None
) -> None:
    """Run the child processes on the listening socket and the prepared database until `stop` is set."""
    listening, sock = service.listening, service.sock
    base_url = service.settings.base_url or _base_url(listening, sock)
    children = [
        asyncio.create_task(_keep_running(child, stop)) for child in _list_children(service, base_url)
    ]
    log.info(
        "serving",
        base_url=base_url,
        port=sock.getsockname()[1],
        processes=listening.processes,
        worker=listening.with_worker,
    )
    if ready is not None:
        children.append(asyncio.create_task(_run_until(stop, ready(base_url))))
    try:
        await _all_or_first_failure(children)
    finally:
        stop.set()
        await asyncio.gather(*children, return_exceptions=True)


@dataclass(frozen=True, slots=True)
class _ChildProcess:
    """A child process that is to be kept running."""

    role: ChildRole
    name: str  # under which it records its metrics
    command: list[str]
    environment: dict[str, str] = field(repr=False)
    fd: int  # the listening socket
    recording: Recording


def _list_children(service: _Service, base_url: str) -> Iterator[_ChildProcess]:
    """Yield the API processes and the worker of a service."""
    environment = os.environ | service.environment
    environment |= {"OUTCROP_DATABASE_URL": service.url, "OUTCROP_BASE_URL": base_url}
    environment.pop("OUTCROP_DATABASE_URL_FILE", None)
    fd, listening = service.sock.fileno(), service.listening
    api = ["--fd", str(fd)]
    if listening.tls_cert is not None:
        api += ["--tls-cert", str(listening.tls_cert), "--tls-key", str(listening.tls_key)]
    roles = [(ChildRole.API, f"api{number}", api) for number in range(listening.processes)]
    if listening.with_worker:
        roles.append((ChildRole.WORKER, "worker", []))
    for role, name, options in roles:
        command = [role, *options, *service.recording.arguments(name)]
        yield _ChildProcess(role, name, command, environment, fd, service.recording)


async def _run_until(stop: asyncio.Event, work: Awaitable[T]) -> T | None:
    """Await `work` and return its result; cancel it and return None when `stop` is set."""
    task = asyncio.ensure_future(work)
    waiting = asyncio.ensure_future(stop.wait())
    try:
        await asyncio.wait({task, waiting}, return_when=asyncio.FIRST_COMPLETED)
    finally:
        waiting.cancel()
        if not task.done():
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)
    return None if task.cancelled() else task.result()


async def _all_or_first_failure(tasks: Sequence[asyncio.Task[None]]) -> None:
    """Wait for all tasks; raise the first exception at once."""
    done, _ = await asyncio.wait(tasks, return_when=asyncio.FIRST_EXCEPTION)
    for task in done:
        task.result()


async def _keep_running(process: _ChildProcess, stop: asyncio.Event) -> None:
    """Start a child and restart it when it dies; raise OperatorError after three early deaths in a row."""
    early_deaths = 0
    while not stop.is_set():
        began = asyncio.get_running_loop().time()
        async with _child(process) as child:
            ended, stopped = asyncio.ensure_future(child.wait()), asyncio.ensure_future(stop.wait())
            await asyncio.wait({ended, stopped}, return_when=asyncio.FIRST_COMPLETED)
            stopped.cancel()
        process.recording.forget(process.name)
        if stop.is_set():
            return
        early_deaths = (
            early_deaths + 1 if asyncio.get_running_loop().time() - began < _EARLY_DEATH_SECONDS else 0
        )
        log.error("process_died", part=process.role, exit_code=child.returncode)
        if early_deaths == 3:
            raise OperatorError(f"the {process.role} process does not stay up; see its message above")
        await asyncio.sleep(0.5)


@asynccontextmanager
async def _child(process: _ChildProcess) -> AsyncIterator[asyncio.subprocess.Process]:
    """Start a child process; terminate it at the end.

    The child has its own session: Ctrl-C reaches only the parent, which stops the children in order.
    """
    child = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "outcrop.cli.process", *process.command, *env_file_arguments()),
        env=process.environment,
        stdin=asyncio.subprocess.PIPE,
        pass_fds=[process.fd],
        start_new_session=True,
    )
    try:
        yield child
    finally:
        if child.returncode is None:
            with suppress(ProcessLookupError):
                child.terminate()
            try:
                await asyncio.wait_for(child.wait(), SHUTDOWN_SECONDS)
            except TimeoutError:
                child.kill()
                await child.wait()


def _check_tls(settings: Settings, listening: ListenOptions) -> None:
    """Raise if the TLS files are unreadable, or if API keys would travel unencrypted."""
    if (listening.tls_cert is None) != (listening.tls_key is None):
        raise BadInputError("--tls-cert and --tls-key must be given together")
    for file in (listening.tls_cert, listening.tls_key):
        if file is not None and not os.access(file, os.R_OK):
            raise BadInputError(f"cannot read {file}")
    https = settings.base_url is not None and settings.base_url.startswith("https://")
    if not is_loopback(listening.host) and not https and listening.tls_cert is None:
        raise OperatorError(
            "API keys must be encrypted in transit: for a host that is not loopback, set OUTCROP_BASE_URL"
            " to an https address or give --tls-cert"
        )


def _base_url(listening: ListenOptions, sock: socket.socket) -> str:
    """Return the address of the listening socket."""
    scheme = "http" if listening.tls_cert is None else "https"
    host = f"[{listening.host}]" if ":" in listening.host else listening.host
    return f"{scheme}://{host}:{sock.getsockname()[1]}"
