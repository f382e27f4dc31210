"""Check one credential with its issuer.

1. Choose the check of the rule that fits the form of the credential (`choose_check`).
2. Skip credentials that must not be checked: known canaries, missing companions, hosts or costs that the mode
   does not allow (`_reason_to_skip`).
3. Run the check within the issuer's limits and a time limit (`_run_within_limits`).
"""

import asyncio
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from enum import StrEnum

from outcrop import metrics
from outcrop.domain.finding import Validation
from outcrop.limits import ISSUER_REQUESTS_PER_SECOND, VALIDATION_SECONDS
from outcrop.net.http import HttpClient
from outcrop.scanner.rules.check_spec import CheckSpec, RequestSpec, choose_check, load_checks
from outcrop.scanner.rules.model import Rule
from outcrop.tracing import record_span
from outcrop.validation.attempt import Attempt, UncheckableError
from outcrop.validation.cloud.aws_keys import is_canary
from outcrop.validation.http.check import check_over_http, is_at_host
from outcrop.validation.http.request import fill_request
from outcrop.validation.issuer import IssuerLimiter, IssuerPausedError
from outcrop.validation.registry import NAMED_CHECKS
from outcrop.validation.verdict import Verdict, error, unreachable, unvalidated


class ValidationMode(StrEnum):
    """Which checks may run (the setting OUTCROP_VALIDATE)."""

    OFF = "off"
    SAFE = "safe"  # only hosts of the issuer, and only requests that cost nothing
    FULL = "full"  # also hosts from the scanned text, and requests that are billed


_RunningKey = tuple[str, tuple[tuple[str, str], ...]]  # rule id, and the sorted values of the credential


@dataclass(slots=True)
class Validator:
    """Checks credentials. Verdicts are not cached: a later check asks the issuer again."""

    http: HttpClient
    mode: ValidationMode = ValidationMode.SAFE
    requests_per_second: float = ISSUER_REQUESTS_PER_SECOND
    deadline: float = VALIDATION_SECONDS
    use_canaries: bool = False  # check known canaries too, although that alerts their owner
    _limiters: dict[str, IssuerLimiter] = field(default_factory=dict)
    _running: dict[_RunningKey, "asyncio.Task[Verdict]"] = field(default_factory=dict)

    async def check(self, rule: Rule, secret: str, parts: Mapping[str, str]) -> Verdict:
        """Return the verdict on the credential `secret` of a rule; `parts` has its companions by name.

        A check that fails or is not allowed has the verdict `error`, `unreachable` or `unvalidated`. Calls
        for the same rule and values while a check is running wait for that check and return its verdict. If a
        caller is cancelled, the check goes on.
        """
        key = (rule.id, (("secret", secret), *sorted(parts.items())))
        if (task := self._running.get(key)) is None:
            task = self._running[key] = asyncio.create_task(self._check_credential(rule, secret, parts))
            task.add_done_callback(lambda _: self._running.pop(key))
        return await asyncio.shield(task)

    async def close(self) -> None:
        """Cancel all running checks and wait until they have ended.

        Call this before the HTTP client is closed.
        """
        tasks = list(self._running.values())
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    async def _check_credential(self, rule: Rule, secret: str, parts: Mapping[str, str]) -> Verdict:
        """Choose the check for a credential and return its verdict; `parts` has the companions by name.

        The verdict is `unvalidated`, and nothing is sent, if validation is off, if there is no check for the
        credential, or if there is a reason to skip it. A known canary is skipped unless `use_canaries`. The
        verdict also says whether the credential is a canary or for test mode.
        """
        verdict = await self._choose_and_run(rule, secret, parts)
        metrics.count_validation(verdict.status)
        return verdict

    async def _choose_and_run(self, rule: Rule, secret: str, parts: Mapping[str, str]) -> Verdict:
        """Return the verdict of `_check_credential`."""
        if self.mode is ValidationMode.OFF:
            return unvalidated("validation is switched off")
        checks = load_checks(rule.id, rule.origin)
        if not checks:
            return unvalidated("there is no harmless way to check it with its issuer")
        check = choose_check(checks, secret)
        if check is None:
            return unvalidated("there is no harmless way to check this form of the credential")
        test_mode = any(value.startswith(tuple(check.test_mode)) for value in (secret, *parts.values()))
        companions = check.otherwise | dict(parts)
        values = {"secret": secret} | {f"part.{name}": value for name, value in companions.items()}
        canary = is_canary(check, values.values())
        if canary and not self.use_canaries:
            return unvalidated(
                "is a known canary: using it would alert its owner", test_mode=test_mode, canary=True
            )
        if reason := self._reason_to_skip(check, values):
            return unvalidated(reason, test_mode=test_mode)
        if self.mode is not ValidationMode.FULL:  # the check then refuses every host but the issuer's own
            check = check.model_copy(update={"given_host": False})
        with record_span("validate", {"outcrop.issuer": rule.issuer}) as span:
            verdict = await self._run_with_deadline(check, values, self._limiter_of(rule.issuer))
            span.fields["outcrop.verdict"] = verdict.status.value
        return replace(verdict, test_mode=verdict.test_mode or test_mode, canary=canary)

    def _reason_to_skip(self, check: CheckSpec, values: Mapping[str, str]) -> str | None:
        """Return why the credential must not be checked, as a text for people; None if it may be checked.

        `values` has `secret`, and `part.NAME` for each companion. A missing companion that the check needs,
        and a reason that the rule names, always count. Outside ValidationMode.FULL, checks that cost money,
        and hosts that are not the issuer's own, count too.
        """
        if check.unasked:
            return check.unasked
        missing = [name for name in check.needs if f"part.{name}" not in values]
        if missing:
            return f"its {missing[0].replace('_', ' ')} was not found with it"
        if self.mode is ValidationMode.FULL:
            return None
        if check.given_host and not _is_at_issuer(check, values):
            return "its host is from the scanned text, which is contacted only with OUTCROP_VALIDATE=full"
        if check.billed:
            return "the check costs its owner money, so it is made only with OUTCROP_VALIDATE=full"
        return None

    async def _run_with_deadline(
        self, check: CheckSpec, values: Mapping[str, str], limiter: IssuerLimiter
    ) -> Verdict:
        """Run a check within `deadline` seconds and return its verdict.

        If the time is up, or if the issuer asks for a pause that is longer than the deadline, return the
        verdict that is proven by then, or else an `error` verdict. `values` has `secret`, and `part.NAME` for
        each companion.
        """
        attempt = Attempt(self.http, check, values, limiter.wait_turn)
        try:
            async with asyncio.timeout(self.deadline):
                return await _run_within_limits(attempt, limiter, self.deadline)
        except IssuerPausedError:
            return attempt.proven or error("the issuer's rate limit was reached")
        except TimeoutError:
            return attempt.proven or error("the issuer did not respond in time")

    def _limiter_of(self, issuer: str) -> IssuerLimiter:
        """Return the limiter of an issuer; create it at the first call for this issuer."""
        if issuer not in self._limiters:
            self._limiters[issuer] = IssuerLimiter(self.requests_per_second, max_wait=self.deadline)
        return self._limiters[issuer]


async def _run_within_limits(attempt: Attempt, limiter: IssuerLimiter, deadline: float) -> Verdict:
    """Run a check in one of the issuer's slots and return its verdict.

    If the verdict has a `retry_after`, pause all requests to the issuer for that many seconds; if that is
    less than `deadline`, run the check once more and return the second verdict. For a check with a fixed
    host, record whether the issuer responded, and return `unreachable` without a request if the issuer counts
    as down.
    """
    check = attempt.check
    check_function = NAMED_CHECKS[check.named] if check.named is not None else check_over_http
    async with limiter.slots:
        if _has_fixed_host(check) and limiter.is_down:
            return unreachable("the issuer cannot be reached: the last requests all failed")
        verdict = await check_function(attempt)
        if _has_fixed_host(check):
            limiter.record_outcome(responded=verdict.status is not Validation.UNREACHABLE)
        if verdict.retry_after is None:
            return verdict
        limiter.pause(verdict.retry_after)
        if verdict.retry_after >= deadline:
            return verdict
        return await check_function(attempt)


def _is_at_issuer(check: CheckSpec, values: Mapping[str, str]) -> bool:
    """Whether the check's URL, filled with `values`, is https and at one of the issuer's own hosts.

    False if the URL cannot be filled.
    """
    try:
        return is_at_host(fill_request(RequestSpec(url=check.url), values).url, check.hosts)
    except UncheckableError:
        return False


def _has_fixed_host(check: CheckSpec) -> bool:
    """Whether the check sends every credential to the same host, so that one failure to connect concerns all.

    False for checks that are written in Python, and if the host depends on the credential.
    """
    host = check.url.partition("://")[2].partition("/")[0]
    return check.named is None and not check.given_host and not check.hosts and "{" not in host
