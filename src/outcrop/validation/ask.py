"""One credential asked about over HTTP, as its rule says."""

from collections.abc import Awaitable, Callable, Mapping, Sequence
from urllib.parse import SplitResult, urlsplit

from outcrop.domain.finding import Validation
from outcrop.net.http import Answer, Http, HttpError
from outcrop.scanner.check import Check, Request
from outcrop.validation.answer import judge, labels_of
from outcrop.validation.request import UnfitError, fill
from outcrop.validation.verdict import Verdict, unreachable, unvalidated, valid

_SECONDS = 20.0
_MOST_BODY = 1 << 20
Turn = Callable[[], Awaitable[None]]  # waits until the issuer may be asked again


async def ask(http: Http, check: Check, values: Mapping[str, str], turn: Turn) -> Verdict:
    """Ask once; where the credential is alive, ask what it opens."""
    try:
        answer = await _send(http, check, values, turn, check.hosts)
    except UnfitError as reason:
        return unvalidated(f"cannot be asked about: {reason}")
    except HttpError as failure:
        return unreachable(f"the issuer cannot be reached: {failure}")
    verdict = judge(answer, check.answer)
    if verdict.status is not Validation.VALID or not check.capability:
        return verdict
    services: list[str] = []
    for capability in check.capability:
        try:
            told = await _send(http, _further(check, capability), values, turn, check.hosts) if capability.url else answer
        except (UnfitError, HttpError):
            continue
        services += labels_of(told, capability)
    return valid(verdict.reason, verdict.confidence, tuple(services), asked=True)


def _further(check: Check, capability: Request) -> Request:
    """Give a capability's request, which proves itself as the check does unless it says otherwise."""
    own = capability.model_dump(include={"url", "method", "headers", "basic", "form", "send", "body"})
    return Request(**own | {"headers": check.headers | capability.headers, "basic": capability.basic or check.basic})


def _is_below(url: SplitResult, hosts: Sequence[str]) -> bool:
    host = (url.hostname or "").lower()
    return url.scheme == "https" and any(host == one or host.endswith(f".{one}") for one in hosts)


async def _send(http: Http, request: Request, values: Mapping[str, str], turn: Turn, hosts: Sequence[str]) -> Answer:
    ready = fill(request, values)
    if hosts and not _is_below(urlsplit(ready.url), hosts):
        raise UnfitError("its host is not the issuer's")
    await turn()
    return await http.ask(ready.method, ready.url, headers=ready.headers, body=ready.body, most=_MOST_BODY, seconds=_SECONDS)
