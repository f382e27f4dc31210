"""Many credentials asked about at once: each once, no issuer oftener than it may be, one that is down slows nobody else."""

import asyncio
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from enum import StrEnum

from outcrop.domain.finding import Validation
from outcrop.net.http import HttpClient
from outcrop.scanner.rules.check_spec import CheckSpec, RequestSpec, choose_check, load_checks
from outcrop.scanner.rules.model import Rule
from outcrop.validation.cloud import aws_keys
from outcrop.validation.http.check import Turn, ask, is_below
from outcrop.validation.http.request import UnfitError, fill
from outcrop.validation.issuer import Issuer, PausedError
from outcrop.validation.registry import NAMED
from outcrop.validation.verdict import Verdict, error, unreachable, unvalidated

REQUESTS_PER_SECOND = 10.0  # requests to one issuer
_DEADLINE = 60.0  # seconds that one credential may take, waiting included


class ValidationMode(StrEnum):
    OFF = "off"
    SAFE = "safe"  # hosts that the issuer has fixed, and nothing that costs
    FULL = "full"


@dataclass(slots=True)
class Validator:
    """Asks issuers. A verdict is not kept: whoever asks later wants to know how it is then."""

    http: HttpClient
    mode: ValidationMode = ValidationMode.SAFE
    requests_per_second: float = REQUESTS_PER_SECOND
    deadline: float = _DEADLINE
    use_canaries: bool = False  # use known canaries as well, though whoever laid them out is told
    _issuers: dict[str, Issuer] = field(default_factory=dict)
    _under_way: dict[tuple[str, tuple[tuple[str, str], ...]], "asyncio.Task[Verdict]"] = field(
        default_factory=dict
    )

    async def check(self, rule: Rule, secret: str, parts: Mapping[str, str]) -> Verdict:
        """Give the verdict on a credential; whoever asks for the same one meanwhile waits for the same answer."""
        key = (rule.id, (("secret", secret), *sorted(parts.items())))
        if (task := self._under_way.get(key)) is None:
            task = self._under_way[key] = asyncio.create_task(self._checked(rule, secret, parts))
            task.add_done_callback(lambda _: self._under_way.pop(key))
        return await asyncio.shield(task)

    async def close(self) -> None:
        """End what is still being asked though nobody waits for it, before the client is closed under it."""
        left = list(self._under_way.values())
        for task in left:
            task.cancel()
        await asyncio.gather(*left, return_exceptions=True)

    async def _checked(self, rule: Rule, secret: str, parts: Mapping[str, str]) -> Verdict:
        checks = load_checks(rule.id, rule.origin)
        if self.mode is ValidationMode.OFF:
            return unvalidated("checking is switched off")
        if not checks:
            return unvalidated("its issuer offers no harmless way to ask")
        check = choose_check(checks, secret)
        if check is None:
            return unvalidated("there is no harmless way to ask about this form of it")
        test_mode = any(value.startswith(tuple(check.test_mode)) for value in (secret, *parts.values()))
        values = {"secret": secret} | {
            f"part.{name}": value for name, value in (check.otherwise | dict(parts)).items()
        }
        if refused := self._refused(check, values):
            return unvalidated(refused[0], test_mode=test_mode, canary=refused[1])
        if self.mode is not ValidationMode.FULL:  # from here on no host but the issuer's own
            check = check.model_copy(update={"given_host": False})
        issuer = self._issuer(rule.issuer)
        turn = Turn(issuer.turn)
        try:
            async with asyncio.timeout(self.deadline):
                verdict = await self._asked(check, values, issuer, turn)
        except PausedError:  # what was proven before stays proven, here and below
            verdict = turn.proven or error("the issuer limits how often it is asked")
        except TimeoutError:
            verdict = turn.proven or error("the issuer did not answer in time")
        return replace(
            verdict,
            test_mode=verdict.test_mode or test_mode,
            canary=aws_keys.is_canary(check, values.values()),
        )

    def _refused(self, check: CheckSpec, values: Mapping[str, str]) -> tuple[str, bool] | None:
        if aws_keys.is_canary(check, values.values()) and not self.use_canaries:
            return "is a known canary: whoever laid it out would be told", True
        if check.unasked:
            return check.unasked, False
        missing = [name for name in check.needs if f"part.{name}" not in values]
        if missing:
            return f"its {missing[0].replace('_', ' ')} was not found with it", False
        if self.mode is not ValidationMode.FULL:
            if check.given_host and not _at_the_issuers(check, values):
                return (
                    "its host comes from the scanned text, which is asked only with OUTCROP_VALIDATE=full",
                    False,
                )
            if check.billed:
                return (
                    "asking costs its owner something, which is done only with OUTCROP_VALIDATE=full",
                    False,
                )
        return None

    async def _asked(
        self, check: CheckSpec, values: Mapping[str, str], issuer: Issuer, turn: Turn
    ) -> Verdict:
        how = NAMED[check.named] if check.named is not None else ask
        async with issuer.slots:
            if has_fixed_host(check) and issuer.is_silent:
                return unreachable("the issuer cannot be reached: it has not answered several times in a row")
            verdict = await how(self.http, check, values, turn)
            if has_fixed_host(check):
                issuer.heard(answered=verdict.status is not Validation.UNREACHABLE)
            if verdict.retry_after is None:
                return verdict
            issuer.pause(verdict.retry_after)
            if verdict.retry_after >= self.deadline:
                return verdict
            return await how(self.http, check, values, turn)  # once more, when it may be asked again

    def _issuer(self, name: str) -> Issuer:
        if name not in self._issuers:
            self._issuers[name] = Issuer(self.requests_per_second, self.deadline)
        return self._issuers[name]


def _at_the_issuers(check: CheckSpec, values: Mapping[str, str]) -> bool:
    """Tell whether a host from the text is one of the issuer's own."""
    try:
        return is_below(fill(RequestSpec(url=check.url), values).url, check.hosts)
    except UnfitError:
        return False


def has_fixed_host(check: CheckSpec) -> bool:
    """Tell whether all credentials of a kind are asked about at one place, so that its silence is about none of them."""
    host = check.url.partition("://")[2].partition("/")[0]
    return check.named is None and not check.given_host and not check.hosts and "{" not in host
