"""Scan remote targets from the command line, without a database.

Each function runs its own event loop and closes it, because the process may fork afterwards.
"""

import asyncio
from collections.abc import Mapping
from dataclasses import dataclass, field
from urllib.parse import urlsplit

from outcrop.domain.errors import OperatorError
from outcrop.domain.finding import Confidence, SourceType
from outcrop.domain.scan import Gap
from outcrop.domain.secret import Secret, reveal
from outcrop.domain.target import TargetSpec
from outcrop.limits import DISCUSSION_TEXTS
from outcrop.net.guard import Egress
from outcrop.net.http import HttpClient, open_http
from outcrop.scanner.engine.ruleset import RuleSet
from outcrop.scanner.engine.scan import scan_content
from outcrop.sources.code_host.errors import HostError
from outcrop.sources.code_host.host import CodeHost, HostAccess
from outcrop.sources.code_host.registry import find_host_type, open_host
from outcrop.sources.code_host.targets import find_host
from outcrop.sources.git.clone import Remote
from outcrop.sources.located import LocatedHit, ProgressCallback, ScanOutcome, applicable_hits, member_path
from outcrop.sources.resolve_target import ScanSource, resolve_target
from outcrop.sources.web.crawl import CrawlOptions, crawl


@dataclass(frozen=True, slots=True)
class RemoteAccess:
    """The network rules, the GitHub host, and the operator's tokens.

    `token` is for the GitHub host; `tokens` has those of other code hosts, by the host of their web address.
    """

    egress: Egress
    github_url: str
    token: Secret | None = None
    tokens: Mapping[str, Secret] = field(default_factory=dict)

    def token_of(self, name: str, host_url: str | None) -> Secret | None:
        """Return the operator's token for a code host, which is sent to that host only."""
        type_ = find_host_type(name)
        url = host_url or (type_ and type_.default_url) or ""
        if name == "github" and host_url is None:
            return self.token
        return self.tokens.get(urlsplit(url).netloc.lower())

    def open_host(self, http: HttpClient, place: TargetSpec | ScanSource, gaps: list[Gap]) -> CodeHost:
        """Return a client for the code host of a target or source; GitHub for one on no known host."""
        name = (place.host if isinstance(place, ScanSource) else find_host(place)) or "github"
        api_url = self.github_url if name == "github" and place.host_url is None else None
        token = self.token_of(name, place.host_url)
        access = HostAccess(http=http, token=token, url=place.host_url, api_url=api_url, on_gap=gaps.append)
        return open_host(name, access)

    def clone_remote(self, source: ScanSource) -> Remote:
        """Return the address to clone a source from, with the host's token as login.

        The login is None without a token, for a source on no known host, and for wikis and gists of GitHub.
        """
        if source.host is None:
            has_login = self.token is not None and source.github
            return Remote(
                source.url, ("x-access-token", reveal(self.token)) if self.token and has_login else None
            )

        async def find_login() -> tuple[str, str] | None:
            """Return the login for the source's host, if the source is cloned from there."""
            async with open_http(self.egress) as http:
                host = self.open_host(http, source, [])
                return await host.login() if host.is_own_host(source.url) else None

        return Remote(source.url, asyncio.run(find_login()))


def list_sources(spec: TargetSpec, access: RemoteAccess, gaps: list[Gap]) -> list[ScanSource]:
    """Return the sources of a target; append a gap to `gaps` for each one that may not be scanned.

    Raise OperatorError if the code host cannot list them.
    """

    async def list_all() -> list[ScanSource]:
        """Resolve the target with a new HTTP client, and return its sources."""
        async with open_http(access.egress) as http:
            host = access.open_host(http, spec, gaps)
            has_credential = access.token_of(host.name, spec.host_url) is not None
            sources = resolve_target(spec, host, has_credential=has_credential, gaps=gaps)
            return [source async for source in sources]

    try:
        return asyncio.run(list_all())
    except HostError as error:
        raise OperatorError(f"{spec.shown}: {error.message}") from None


def scan_discussions(
    source: ScanSource, access: RemoteAccess, ruleset: RuleSet, floor: Confidence, progress: ProgressCallback
) -> ScanOutcome:
    """Scan the issues, requests and comments of a repository, and return the hits and gaps.

    Arguments are as for `scan_site`. An error of the host and the limit of texts are gaps.
    """
    outcome, skipped = ScanOutcome(), list[Gap]()

    async def scan_texts() -> None:
        """List the texts and add the hits and gaps of each to the outcome."""
        async with open_http(access.egress) as http:
            host = access.open_host(http, source, skipped)
            async for text in host.discussions(source.host_repository or ""):
                if outcome.files == DISCUSSION_TEXTS:
                    outcome.gap(source.source, f"stopped after {outcome.files:,} issues and comments")
                    return
                body, path = text.text.encode("utf-8", "surrogateescape"), text.path.encode()
                outcome.files += 1
                outcome.size += len(body)
                found = scan_content(ruleset, body, floor)
                outcome.located += [
                    LocatedHit(hit, path, source_type=SourceType.ENDPOINT, url=text.html_url)
                    for _, hit in applicable_hits(found, path)
                ]
                for reason in found.gaps:
                    outcome.gap(text.path, reason)
                progress(outcome)

    try:
        asyncio.run(scan_texts())
    except HostError as error:
        outcome.gap(source.source, error.message)
    for gap in skipped:
        outcome.gap(gap.what, gap.why)
    return outcome


def scan_site(
    source: ScanSource, access: RemoteAccess, ruleset: RuleSet, floor: Confidence, progress: ProgressCallback
) -> ScanOutcome:
    """Crawl the web site of a source, scan each resource as it arrives, and return the hits and gaps.

    Hits below the confidence `floor` are dropped. `progress` is called with the outcome so far after each
    resource.
    """
    outcome = ScanOutcome()
    options = CrawlOptions.from_target(source.url, source.options, source.include, source.exclude)

    async def scan_resources() -> None:
        """Crawl the site and add the hits and gaps of each resource to the outcome."""
        async with open_http(access.egress) as http:
            async for resource in crawl(http, options, outcome.gap):
                outcome.files += 1
                outcome.size += len(resource.body)
                path = resource.file_path.encode("utf-8", "surrogateescape")
                found = scan_content(ruleset, resource.body, floor)
                outcome.located += [
                    LocatedHit(
                        hit,
                        member_path(path, inner),
                        source_type=resource.source_type,
                        url=resource.url,
                        inner=inner,
                    )
                    for inner, hit in applicable_hits(found, path)
                ]
                for reason in found.gaps:
                    outcome.gap(resource.url, reason)
                progress(outcome)

    asyncio.run(scan_resources())
    return outcome
