"""One credential asked about over HTTP, as its rule says."""

from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from urllib.parse import urlsplit

from outcrop.domain.finding import Validation
from outcrop.net.http import HttpClient, HttpError, HttpResponse
from outcrop.scanner.rules.check_spec import CheckSpec, RequestSpec
from outcrop.validation.http.request import UnfitError, fill
from outcrop.validation.http.response import judge, labels_of
from outcrop.validation.verdict import Verdict, unreachable, unvalidated, with_services

_SECONDS = 20.0
_MOST_BODY = 1 << 20


@dataclass(slots=True)
class Turn:
    """One credential's place in the queue of its issuer, and what has been proven of it when its time runs out."""

    wait: Callable[[], Awaitable[None]]
    proven: Verdict | None = None

    async def __call__(self) -> None:
        await self.wait()


async def ask(http: HttpClient, check: CheckSpec, values: Mapping[str, str], turn: Turn) -> Verdict:
    """Ask once; where the credential is alive, ask what it opens."""
    try:
        hosts = () if check.given_host else tuple(check.hosts)
        answer = await _send(http, check, values, turn, hosts)
    except UnfitError as reason:
        return unvalidated(f"cannot be asked about: {reason}")
    except HttpError as failure:
        return unreachable(f"the issuer cannot be reached: {failure}")
    verdict = judge(answer, check.answer)
    if verdict.status is not Validation.VALID or not check.capability:
        return verdict
    turn.proven = verdict
    services: list[str] = []
    unanswered = False
    for capability in check.capability:
        try:
            told = (
                await _send(http, _further(check, capability), values, turn, hosts)
                if capability.url
                else answer
            )
        except UnfitError:
            continue
        except HttpError:
            unanswered = True
            continue
        services += labels_of(told, capability)
        turn.proven = with_services(verdict, services, asked=bool(services))
    return with_services(verdict, services, asked=bool(services) or not unanswered)


def _further(check: CheckSpec, capability: RequestSpec) -> RequestSpec:
    """Give a capability's request, which proves itself as the check does unless it says otherwise."""
    own = capability.model_dump(include={"url", "method", "headers", "basic", "form", "send", "body"})
    return RequestSpec(
        **own | {"headers": check.headers | capability.headers, "basic": capability.basic or check.basic}
    )


def is_below(url: str, hosts: Sequence[str]) -> bool:
    """Tell whether an address is on one of these hosts, or below one."""
    parts = urlsplit(url)
    host = (parts.hostname or "").lower()
    return parts.scheme == "https" and any(host == one or host.endswith(f".{one}") for one in hosts)


async def _send(
    http: HttpClient, request: RequestSpec, values: Mapping[str, str], turn: Turn, hosts: Sequence[str]
) -> HttpResponse:
    ready = fill(request, values)
    if hosts and not is_below(ready.url, hosts):
        raise UnfitError("its host is not the issuer's")
    await turn()
    return await http.request(
        ready.method,
        ready.url,
        headers=ready.headers,
        body=ready.body,
        max_bytes=_MOST_BODY,
        seconds=_SECONDS,
    )
