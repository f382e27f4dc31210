"""Many credentials asked about at once: each once, no issuer oftener than it may be, one that is down slows nobody else."""

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field, replace
from enum import StrEnum

from outcrop.domain.finding import Validation
from outcrop.net.http import Http
from outcrop.scanner.check import Check, check_of
from outcrop.scanner.regex import compile_regex
from outcrop.scanner.rule import Rule
from outcrop.validation import canary
from outcrop.validation.ask import ask
from outcrop.validation.issuer import Issuer, PausedError
from outcrop.validation.named import NAMED
from outcrop.validation.verdict import Verdict, error, unreachable, unvalidated

A_SECOND = 10.0  # requests to one issuer
_DEADLINE = 60.0  # seconds that one credential may take, waiting included


class Mode(StrEnum):
    OFF = "off"
    SAFE = "safe"  # hosts that the issuer has fixed, and nothing that costs
    FULL = "full"


@dataclass(slots=True)
class Validator:
    """Asks issuers. A verdict is not kept: whoever asks later wants to know how it is then."""

    http: Http
    mode: Mode = Mode.SAFE
    a_second: float = A_SECOND
    deadline: float = _DEADLINE
    _issuers: dict[str, Issuer] = field(default_factory=dict)
    _under_way: dict[tuple[str, tuple[tuple[str, str], ...]], "asyncio.Task[Verdict]"] = field(default_factory=dict)

    async def check(self, rule: Rule, secret: str, parts: Mapping[str, str]) -> Verdict:
        """Give the verdict on a credential; whoever asks for the same one meanwhile waits for the same answer."""
        key = (rule.id, (("secret", secret), *sorted(parts.items())))
        if (task := self._under_way.get(key)) is None:
            task = self._under_way[key] = asyncio.create_task(self._checked(rule, secret, parts))
            task.add_done_callback(lambda _: self._under_way.pop(key))
        return await asyncio.shield(task)

    async def _checked(self, rule: Rule, secret: str, parts: Mapping[str, str]) -> Verdict:
        check = check_of(rule.id, rule.origin)
        if self.mode is Mode.OFF:
            return unvalidated("checking is switched off")
        if check is None:
            return unvalidated("its issuer offers no harmless way to ask")
        test_mode = secret.startswith(tuple(check.test_mode)) if check.test_mode else False
        if refused := self._refused(check, secret, parts):
            return unvalidated(refused[0], test_mode=test_mode, canary=refused[1])
        values = {"secret": secret} | {f"part.{name}": value for name, value in parts.items()}
        issuer = self._issuer(rule.issuer)
        try:
            async with asyncio.timeout(self.deadline):
                verdict = await self._asked(check, values, issuer)
        except PausedError:
            verdict = error("the issuer limits how often it is asked")
        except TimeoutError:
            verdict = error("the issuer did not answer in time")
        return replace(verdict, test_mode=test_mode)

    def _refused(self, check: Check, secret: str, parts: Mapping[str, str]) -> tuple[str, bool] | None:
        if canary.is_canary(check, secret, parts):
            return "is a known canary: whoever laid it out would be told", True
        if check.only and not compile_regex(check.only).match(secret.encode("utf-8", "surrogateescape")):
            return "there is no harmless way to ask about this form of it", False
        if self.mode is not Mode.FULL:
            if check.given_host:
                return "its host comes from the scanned text, which is asked only with OUTCROP_VALIDATE=full", False
            if check.billed:
                return "asking costs its owner something, which is done only with OUTCROP_VALIDATE=full", False
        missing = [name for name in check.needs if name not in parts]
        if missing:
            return f"its {missing[0].replace('_', ' ')} was not found with it", False
        return None

    async def _asked(self, check: Check, values: Mapping[str, str], issuer: Issuer) -> Verdict:
        how: Callable[[], Awaitable[Verdict]]
        if check.named is not None:
            named = NAMED[check.named]

            def how() -> Awaitable[Verdict]:
                return named(self.http, check, values, issuer.turn)
        else:

            def how() -> Awaitable[Verdict]:
                return ask(self.http, check, values, issuer.turn)

        async with issuer.slots:
            if has_fixed_host(check) and issuer.is_silent:
                return unreachable("the issuer cannot be reached: it has not answered several times in a row")
            verdict = await how()
            if has_fixed_host(check):
                issuer.heard(answered=verdict.status is not Validation.UNREACHABLE)
            if verdict.retry_after is None:
                return verdict
            issuer.pause(verdict.retry_after)
            if verdict.retry_after >= self.deadline:
                return verdict
            return await how()  # once more, when it may be asked again

    def _issuer(self, name: str) -> Issuer:
        if name not in self._issuers:
            self._issuers[name] = Issuer(self.a_second, self.deadline)
        return self._issuers[name]


def has_fixed_host(check: Check) -> bool:
    """Tell whether all credentials of a kind are asked about at one place, so that its silence is about none of them."""
    host = check.url.partition("://")[2].partition("/")[0]
    return check.named is None and not check.given_host and not check.hosts and "{" not in host
