"""Find out what a credential can see on a code host, before its target is saved."""

import asyncio
from dataclasses import dataclass, field

from outcrop.domain.errors import BadInputError, BusyError
from outcrop.domain.finding import Visibility
from outcrop.domain.scan import FailureKind, kind_of_failure
from outcrop.domain.secret import Secret
from outcrop.domain.target import TargetKind, TargetSpec
from outcrop.limits import ACCESS_SECONDS
from outcrop.net.guard import Egress
from outcrop.sources.code_host.errors import HostError
from outcrop.sources.code_host.host import CodeHost, HostAccess
from outcrop.sources.code_host.hosted import TokenAccess
from outcrop.sources.code_host.options import ApiOptions
from outcrop.sources.code_host.registry import find_host_type, open_host
from outcrop.sources.code_host.targets import find_host

_AT_ONCE = 2  # such tests of one process: each holds a connection to the database


@dataclass(frozen=True, slots=True)
class AccessCheck:
    """What a test of access needs: the network rules, and the operator's GitHub."""

    egress: Egress
    github_url: str
    web_host: str = "github.com"
    slots: asyncio.Semaphore = field(default_factory=lambda: asyncio.Semaphore(_AT_ONCE))


class AccessError(BadInputError):
    """A token cannot see a target; `kind` says what a person can do about it."""

    def __init__(self, message: str, kind: FailureKind) -> None:
        super().__init__(message)
        self.kind = kind


@dataclass(frozen=True, slots=True)
class AccessReport:
    """The result of a test of access, for people."""

    text: str
    is_ok: bool
    failure: FailureKind | None = None  # None: the host has answered


def is_testable(check: AccessCheck, spec: TargetSpec) -> bool:
    """Whether access to this target can be tested: it is an owner or a repository of a known code host."""
    kinds = {TargetKind.OWNER, TargetKind.REPOSITORY}
    return spec.kind in kinds and find_host(spec, web_host=check.web_host) is not None


async def report_access(check: AccessCheck, spec: TargetSpec, token: Secret | None) -> AccessReport:
    """Test what a token can see of a target. It is fine if there is a repository and no scope is missing."""
    try:
        seen = await check_access(check, spec, token)
    except AccessError as error:
        return AccessReport(error.message, is_ok=False, failure=error.kind)
    except BusyError as error:
        return AccessReport(error.message, is_ok=False, failure=FailureKind.LIMITED)
    text = describe_access(spec, seen, has_token=token is not None)
    return AccessReport(text, is_ok=seen.repositories > 0 and not seen.missing)


async def check_access(check: AccessCheck, spec: TargetSpec, token: Secret | None) -> TokenAccess:
    """Return what a token can see of a target on a code host.

    Raise AccessError with the reason if the host refuses the token or does not answer in time, BadInputError
    if access to the target cannot be tested; BusyError if too many such tests are running.
    """
    name = find_host(spec, web_host=check.web_host)
    if name is None or not is_testable(check, spec):
        raise BadInputError("access can be tested for the owners and repositories of a code host")
    if check.slots.locked():
        raise BusyError("other tests of access are running: try again in a few seconds")
    from outcrop.net.http import open_http  # noqa: PLC0415 - the pages of the portal do not need it

    options = ApiOptions(max_wait=0.0, retry_delays=())
    api_url = check.github_url if name == "github" and spec.host_url is None else None
    async with check.slots, open_http(check.egress) as http:
        access = HostAccess(http=http, token=token, url=spec.host_url, api_url=api_url, options=options)
        host = open_host(name, access)
        try:
            async with asyncio.timeout(ACCESS_SECONDS):
                return await _see(host, spec)
        except HostError as error:
            raise AccessError(error.message, _failure_of(error)) from None
        except TimeoutError:
            message = f"the code host has not answered within {ACCESS_SECONDS:g} seconds"
            raise AccessError(message, FailureKind.UNAVAILABLE) from None


def _failure_of(error: HostError) -> FailureKind:
    """Return the kind of a host's error; a host that could not be reached says more in its message."""
    kind = FailureKind(error.kind)
    return kind_of_failure(error.message) if kind is FailureKind.UNAVAILABLE else kind


async def _see(host: CodeHost, spec: TargetSpec) -> TokenAccess:
    """Return what the host's token can see of an owner, or of one repository."""
    if spec.kind is TargetKind.OWNER:
        return await host.access(spec.name.partition(":")[2])
    repository = await host.repository(host.path_of(spec.name))
    login, missing = await host.token_owner()
    return TokenAccess(login, 1, int(repository.visibility is not Visibility.PUBLIC), missing=missing)


def describe_access(spec: TargetSpec, seen: TokenAccess, *, has_token: bool = True) -> str:
    """Return a sentence for people about what a token can see, with advice if scopes are missing."""
    count = f"{seen.repositories:,}{'' if seen.is_complete else ' or more'}"
    noun = "repository" if seen.repositories == 1 and seen.is_complete else "repositories"
    who = f" It belongs to {seen.login}." if seen.login else ""
    subject = "The token" if has_token else "Without a credential, Outcrop"
    text = f"{subject} can see {count} {noun}, {seen.private:,} of them not public.{who}"
    if seen.missing:
        text += f" It lacks: {', '.join(seen.missing)}."
        type_ = find_host_type(find_host(spec) or "")
        text += f" Use {type_.advice}." if type_ is not None and type_.advice else ""
    return text
