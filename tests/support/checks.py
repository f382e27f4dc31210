"""Run checks of validation: against a server in Python on loopback, or within a Validator."""

import asyncio
import contextlib
import ssl
from asyncio import StreamReader, StreamWriter
from collections.abc import Awaitable, Callable, Mapping
from pathlib import Path
from typing import TypeVar, cast

import outcrop
from outcrop.net.guard import Egress
from outcrop.net.http import HttpClient, open_http
from outcrop.scanner.rules.check_spec import CheckSpec, load_checks
from outcrop.scanner.rules.model import Rule
from outcrop.scanner.rules.toml import parse_rule_file
from outcrop.validation.attempt import Attempt
from outcrop.validation.engine import ValidationMode, Validator
from outcrop.validation.registry import NAMED_CHECKS
from outcrop.validation.verdict import Verdict

T = TypeVar("T")
RULES = Path(outcrop.__file__).parent / "rules"
ServerScript = Callable[[StreamReader, StreamWriter], Awaitable[None]]  # the server's side of one connection
RULE_TEXT = """
issuer = "{issuer}"
[[rule]]
id = "{id}"
name = "A key"
secret_type = "a"
pattern = 'acme_[0-9a-f]{{16}}'
[rule.check]
url = "{url}"
headers = {{ X-Key = "{{secret}}" }}
{settings}
[[rule.check.answer]]
status = [200]
json = {{ id = "*" }}
result = "valid"
reason = "accepted"
[[rule.check.answer]]
status = [401]
result = "invalid"
reason = "refused"
"""


def write_rule(
    folder: Path,
    name: str = "acme",
    url: str = "https://api.acme.example/me",
    settings: str = "",
    after: str = "",
) -> Rule:
    """Write a rule file with one check and return its rule; the engine reads the check from the file.

    `settings` are further lines of the check, `after` is added to the end of the file.
    """
    file = folder / f"{name}.toml"
    file.write_text(RULE_TEXT.format(issuer=name, id=name, url=url, settings=settings) + after)
    return parse_rule_file(file.read_text(), str(file))[0]


def run_with_validator(
    egress: Egress,
    work: Callable[[Validator], Awaitable[T]],
    mode: ValidationMode = ValidationMode.SAFE,
    **options: float,
) -> T:
    """Open a client, run `work` with a Validator of these options and return its result."""

    async def main() -> T:
        async with open_http(egress) as http:
            return await work(Validator(http, mode, **options))

    return asyncio.run(main())


def load_rules(name: str) -> dict[str, Rule]:
    """Return the rules of a built-in rule file by id, without compiling them."""
    file = RULES / f"{name}.toml"
    return {rule.id: rule for rule in parse_rule_file(file.read_text(), str(file))}


def load_check(file: str, rule_id: str) -> CheckSpec:
    """Return the first check of a rule in a built-in rule file."""
    return load_checks(rule_id, f"{RULES / file}.toml:1")[0]


async def _do_not_wait() -> None:
    """Stand in for the rate limit: return at once."""


def make_attempt(
    values: Mapping[str, str], check: CheckSpec | None = None, http: HttpClient | None = None
) -> Attempt:
    """Make an attempt with these values and no rate limit; checks that connect need `http`."""
    return Attempt(cast("HttpClient", http), check or CheckSpec(named="-"), values, _do_not_wait)


def run_check(
    egress: Egress,
    check: CheckSpec,
    secret: str,
    /,
    *,
    name: str | None = None,
    options: Mapping[str, float] | None = None,
    **companions: str,
) -> Verdict:
    """Run the Python check of this name, by default the one that `check` names, and return its verdict."""
    values = {"secret": secret} | {f"part.{companion}": value for companion, value in companions.items()}

    async def main() -> Verdict:
        async with open_http(egress) as http:
            attempt = make_attempt(values, check, http)
            return await NAMED_CHECKS[name or check.named or ""](attempt, **(options or {}))

    return asyncio.run(main())


def check_against(
    script: ServerScript,
    named: str,
    secret: str,
    *,
    login: str,
    database: str = "",
    seconds: float = 60.0,
    tls: tuple[Path, Path] | None = None,
    ca: Path | None = None,
    **companions: str,
) -> Verdict:
    """Run a login check against a server that follows `script`, and return its verdict.

    The host of the credential is `db.example`, which connects to the server on loopback. `tls` is a
    certificate and its key, for a server that expects TLS from the start.
    """
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER) if tls else None
    if context and tls:
        context.load_cert_chain(*tls)
    values = {"secret": secret, "part.login": login, "part.server": f"db.example:7{database}"} | {
        f"part.{name}": value for name, value in companions.items()
    }

    async def main() -> Verdict:
        running: set[asyncio.Task[None]] = set()

        async def serve(reader: StreamReader, writer: StreamWriter) -> None:
            async def follow_script() -> None:
                with contextlib.suppress(OSError, EOFError):
                    await script(reader, writer)

            task = asyncio.create_task(follow_script())
            running.add(task)
            await asyncio.wait({task})
            writer.transport.abort()
            if not task.cancelled():
                await task

        async with await asyncio.start_server(serve, "127.0.0.1", 0, ssl=context) as server:
            port = server.sockets[0].getsockname()[1]
            egress = Egress.parse([], [f"db.example:7=127.0.0.1:{port}"], ca)
            async with open_http(egress) as http:
                attempt = make_attempt(values, CheckSpec(named=named), http)
                verdict = await NAMED_CHECKS[named](attempt, seconds=seconds)  # type: ignore[call-arg]
            for task in running:
                task.cancel()
            await asyncio.wait(running) if running else None
            return verdict

    return asyncio.run(main())
