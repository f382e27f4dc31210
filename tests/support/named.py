"""What the tests of named checks share: rules of one file, a check run by its name, and a server on loopback that plays a part."""

import asyncio
import contextlib
import ssl
from asyncio import StreamReader, StreamWriter
from collections.abc import Awaitable, Callable, Mapping
from pathlib import Path
from typing import cast

import outcrop
from outcrop.net.guard import Egress
from outcrop.net.http import HttpClient, open_http
from outcrop.scanner.rules.check_spec import CheckSpec, load_checks
from outcrop.scanner.rules.model import Rule
from outcrop.scanner.rules.toml import parse_rule_file
from outcrop.validation.attempt import Attempt
from outcrop.validation.registry import NAMED_CHECKS
from outcrop.validation.verdict import Verdict

RULES = Path(outcrop.__file__).parent / "rules"
Play = Callable[[StreamReader, StreamWriter], Awaitable[None]]


def rules_of(name: str) -> dict[str, Rule]:
    """Read one of the built-in rule files, without compiling anything."""
    file = RULES / f"{name}.toml"
    return {rule.id: rule for rule in parse_rule_file(file.read_text(), str(file))}


def check_in(file: str, rule_id: str) -> CheckSpec:
    """Read one rule's check, whatever stands beside it in the file."""
    return load_checks(rule_id, f"{RULES / file}.toml:1")[0]


async def _at_once() -> None:
    """Nobody waits in a test."""


def attempt_of(
    values: Mapping[str, str], check: CheckSpec | None = None, http: HttpClient | None = None
) -> Attempt:
    """Make an attempt with these values that never waits; `http` is needed by checks that connect."""
    return Attempt(cast("HttpClient", http), check or CheckSpec(named="-"), values, _at_once)


def run_named(
    egress: Egress,
    check: CheckSpec,
    secret: str,
    /,
    *,
    name: str | None = None,
    options: Mapping[str, float] | None = None,
    **parts: str,
) -> Verdict:
    """Run a check by its name, outside of any engine."""
    values = {"secret": secret} | {f"part.{name}": value for name, value in parts.items()}

    async def main() -> Verdict:
        async with open_http(egress) as http:
            attempt = attempt_of(values, check, http)
            return await NAMED_CHECKS[name or check.named or ""](attempt, **(options or {}))

    return asyncio.run(main())


def asked_of(
    play: Play,
    named: str,
    secret: str,
    *,
    login: str,
    database: str = "",
    seconds: float = 5.0,
    tls: tuple[Path, Path] | None = None,
    ca: Path | None = None,
    **more: str,
) -> Verdict:
    """Run a check against a server that plays a part: its host is `db.example`, which leads to loopback."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER) if tls else None
    if context and tls:
        context.load_cert_chain(*tls)
    values = {"secret": secret, "part.login": login, "part.server": f"db.example:7{database}"} | {
        f"part.{name}": value for name, value in more.items()
    }

    async def main() -> Verdict:
        playing: set[asyncio.Task[None]] = set()

        async def served(reader: StreamReader, writer: StreamWriter) -> None:
            async def part() -> None:
                with contextlib.suppress(OSError, EOFError):
                    await play(reader, writer)

            task = asyncio.create_task(part())
            playing.add(task)
            await asyncio.wait({task})
            writer.transport.abort()
            if not task.cancelled():
                await task

        async with await asyncio.start_server(served, "127.0.0.1", 0, ssl=context) as server:
            port = server.sockets[0].getsockname()[1]
            egress = Egress.parse([], [f"db.example:7=127.0.0.1:{port}"], ca)
            async with open_http(egress) as http:
                attempt = attempt_of(values, CheckSpec(named=named), http)
                verdict = await NAMED_CHECKS[named](attempt, seconds=seconds)  # type: ignore[call-arg]
            for task in playing:
                task.cancel()
            await asyncio.wait(playing) if playing else None
            return verdict

    return asyncio.run(main())
