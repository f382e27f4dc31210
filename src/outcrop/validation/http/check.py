"""Check a credential with the HTTP requests that its rule file describes."""

from collections.abc import Sequence
from urllib.parse import urlsplit

from outcrop.domain.finding import Validation
from outcrop.net.http import HttpError, HttpResponse
from outcrop.scanner.rules.check_spec import CapabilitySpec, CheckSpec, RequestSpec
from outcrop.validation.attempt import Attempt, UncheckableError
from outcrop.validation.http.request import fill_request
from outcrop.validation.http.response import judge, service_labels
from outcrop.validation.verdict import Verdict, unreachable, unvalidated, with_services


async def check_over_http(attempt: Attempt) -> Verdict:
    """Send the request of the attempt's check and return the verdict; a valid one has the services found.

    Return `unvalidated` if a value that the request needs is missing or not allowed in its position, or if
    the host is not the issuer's; `unreachable` if there is no response. If the check has capabilities, a
    valid verdict is stored in `attempt.proven` before services are requested.
    """
    check = attempt.check
    allowed_hosts = () if check.given_host else tuple(check.hosts)
    try:
        response = await _send(attempt, check, allowed_hosts)
    except UncheckableError as reason:
        return unvalidated(f"cannot be checked: {reason}")
    except HttpError as failure:
        return unreachable(f"the issuer cannot be reached: {failure}")
    verdict = judge(response, check.answer)
    if verdict.status is not Validation.VALID or not check.capability:
        return verdict
    attempt.proven = verdict
    return await _add_services(attempt, verdict, response, allowed_hosts)


async def _add_services(
    attempt: Attempt, verdict: Verdict, first_response: HttpResponse, allowed_hosts: Sequence[str]
) -> Verdict:
    """Return the verdict with the services that the check's capabilities find.

    A capability without a URL reads `first_response`, the response to the check itself. Requests go to
    `allowed_hosts` only, to any host if that is empty; a capability whose request cannot be filled is
    skipped. `services_checked` is false if no service was found and a request failed. The services found so
    far are stored in `attempt.proven`.
    """
    services: list[str] = []
    failed = False
    for capability in attempt.check.capability:
        try:
            response = first_response
            if capability.url:
                response = await _send(attempt, _capability_request(attempt.check, capability), allowed_hosts)
        except UncheckableError:
            continue
        except HttpError:
            failed = True
            continue
        services += service_labels(response, capability)
        attempt.proven = with_services(verdict, services, checked=bool(services))
    return with_services(verdict, services, checked=bool(services) or not failed)


def _capability_request(check: CheckSpec, capability: CapabilitySpec) -> RequestSpec:
    """Return the request of a capability, with the check's headers and basic authentication added.

    A header or a basic authentication of the capability replaces that of the check.
    """
    own = capability.model_dump(include={"url", "method", "headers", "basic", "form", "send", "body"})
    return RequestSpec(
        **own | {"headers": check.headers | capability.headers, "basic": capability.basic or check.basic}
    )


async def _send(attempt: Attempt, request: RequestSpec, allowed_hosts: Sequence[str]) -> HttpResponse:
    """Put the attempt's values into a request, send it and return the response.

    Raise UncheckableError if a value does not fit, or if the host is not one of `allowed_hosts` (empty: any
    host is allowed); raise HttpError if there is no response.
    """
    filled = fill_request(request, attempt.values)
    if allowed_hosts and not is_at_host(filled.url, allowed_hosts):
        raise UncheckableError("its host does not belong to the issuer")
    return await attempt.send(filled.method, filled.url, headers=filled.headers, body=filled.body)


def is_at_host(url: str, hosts: Sequence[str]) -> bool:
    """Whether the URL is https and its host is one of these hosts or a subdomain of one."""
    parts = urlsplit(url)
    url_host = (parts.hostname or "").lower()
    return parts.scheme == "https" and any(
        url_host == host or url_host.endswith(f".{host}") for host in hosts
    )
