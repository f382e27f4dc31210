"""Compare requests per second for page 1 of the findings with a bare route that runs only the page query."""

import asyncio
import os
import socket
import subprocess
import sys
import time
from datetime import UTC, datetime

import uvicorn
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from bench.measure import table
from outcrop.domain.paging import FindingQuery
from outcrop.runtime import Runtime, open_runtime
from outcrop.services import accounts, findings, keys
from outcrop.settings import Settings
from outcrop.settings_sources import load_settings

_CONNECTIONS = 8
_SECONDS = 5.0
_ROUNDS = 4


async def compare(runtime: Runtime, settings: Settings, account_id: int) -> None:
    """Load both servers in turn for several rounds and print the rates; each server is one process."""
    async with runtime.pool.connection() as db, db.transaction():
        account = await accounts.get_account(db, "big")
        token = (
            await keys.create_key(
                db, account, name="bench", expires_at=None, by="bench", member=None, now=datetime.now(UTC)
            )
        ).token
    environment = os.environ | {
        "OUTCROP_DATA_DIR": str(settings.data_dir),
        "OUTCROP_DATABASE_URL": str(runtime.pool.conninfo),
        "OUTCROP_RATE_LIMIT_PER_MINUTE": "1000000",
        "OUTCROP_LOG_LEVEL": "warning",
        "BENCH_ACCOUNT": str(account_id),
    }
    api_port, bare_port = _free_port(), _free_port()
    servers = [
        subprocess.Popen(
            [sys.executable, "-m", "outcrop", "serve", "--port", str(api_port)], env=environment
        ),
        subprocess.Popen([sys.executable, "-m", "bench.http_load", str(bare_port)], env=environment),
    ]
    try:
        await _wait_for_server(api_port)
        await _wait_for_server(bare_port)
        request = (
            f"GET /api/v1/findings HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer {token}\r\n\r\n".encode()
        )
        rates: dict[int, list[float]] = {api_port: [], bare_port: []}
        for _ in range(_ROUNDS):
            for port in (api_port, bare_port):
                rates[port].append(await _load(port, request))
        median = {port: sorted(values)[len(values) // 2] for port, values in rates.items()}
    finally:
        for server in servers:
            server.terminate()
        for server in servers:
            server.wait()
    rows = [
        ["bare Starlette route, the page query only", f"{median[bare_port]:,.0f}", "1"],
        [
            "GET /api/v1/findings: key, rate limit, validation, JSON",
            f"{median[api_port]:,.0f}",
            f"{median[api_port] / median[bare_port]:.2f}",
        ],
    ]
    table(
        f"HTTP, page 1, {_CONNECTIONS} connections, one process each; goal: 0.6 of the bare route",
        ["", "requests per second", "relative to bare"],
        rows,
    )


async def _load(port: int, request: bytes) -> float:
    """Send the request over _CONNECTIONS connections for _SECONDS and return the requests per second."""
    end = time.perf_counter() + _SECONDS

    async def send_requests() -> int:
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        count = 0
        while time.perf_counter() < end:
            writer.write(request)
            head = await reader.readuntil(b"\r\n\r\n")
            if not head.startswith(b"HTTP/1.1 200"):
                raise SystemExit(f"not a 200: {head[:80]!r}")
            length = next(
                int(line.split(b":")[1])
                for line in head.split(b"\r\n")
                if line.lower().startswith(b"content-length")
            )
            await reader.readexactly(length)
            count += 1
        writer.close()
        return count

    return sum(await asyncio.gather(*(send_requests() for _ in range(_CONNECTIONS)))) / _SECONDS


async def _wait_for_server(port: int) -> None:
    """Wait until the server accepts connections, and two seconds more."""
    for _ in range(300):
        try:
            _, writer = await asyncio.open_connection("127.0.0.1", port)
        except OSError:
            await asyncio.sleep(0.1)
        else:
            writer.close()
            await asyncio.sleep(2)
            return
    raise SystemExit("a server does not start")


def _free_port() -> int:
    with socket.socket() as sock:
        sock.bind(("127.0.0.1", 0))
        return int(sock.getsockname()[1])


def _serve_bare_route(port: int) -> None:
    """Serve a route with the same server, pool and query, but no key, rate limit, parameters or JSON."""
    account_id = int(os.environ["BENCH_ACCOUNT"])
    context = open_runtime(load_settings(), pool_size=16, statement_timeout=4)
    runtimes: list[Runtime] = []

    async def startup() -> None:
        runtimes.append(await context.__aenter__())

    async def page(_: Request) -> Response:
        async with runtimes[0].pool.connection() as db:
            await findings.list_findings(db, account_id, FindingQuery())
        return Response(b"{}")

    app = Starlette(routes=[Route("/api/v1/findings", page)])

    async def lifespan(scope: object, receive: object, send: object) -> None:
        if not runtimes:
            await startup()
        await app(scope, receive, send)  # type: ignore[arg-type]

    uvicorn.run(
        lifespan, port=port, loop="uvloop", http="httptools", ws="none", log_level="error", access_log=False
    )


if __name__ == "__main__":
    _serve_bare_route(int(sys.argv[1]))
