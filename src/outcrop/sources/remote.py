"""Scan remote targets from the command line, without a database.

Each function runs its own event loop and closes it, because the process may fork afterwards.
"""

import asyncio
from dataclasses import dataclass

from outcrop.domain.errors import OperatorError
from outcrop.domain.finding import Confidence
from outcrop.domain.scan import Gap
from outcrop.domain.secret import Secret, reveal
from outcrop.domain.target import TargetSpec
from outcrop.net.guard import Egress
from outcrop.net.http import open_http
from outcrop.scanner.engine.ruleset import RuleSet
from outcrop.scanner.engine.scan import scan_content
from outcrop.sources.git.clone import Remote
from outcrop.sources.hosts.github import GitHub
from outcrop.sources.hosts.github_api import GitHubError
from outcrop.sources.located import LocatedHit, ProgressCallback, ScanOutcome, applicable_hits, member_path
from outcrop.sources.resolve_target import ScanSource, resolve_target
from outcrop.sources.web.crawl import CrawlOptions, crawl


@dataclass(frozen=True, slots=True)
class RemoteAccess:
    """The network rules, the GitHub host, and the operator's token for it."""

    egress: Egress
    github_url: str
    token: Secret | None = None

    def clone_remote(self, source: ScanSource) -> Remote:
        """Return the address to clone a source from, with the token as login if `source.github` is set.

        Without a token, and for other sources, also wikis and gists of GitHub, the login is None.
        """
        login = ("x-access-token", reveal(self.token)) if self.token is not None and source.github else None
        return Remote(source.url, login)


def list_sources(spec: TargetSpec, access: RemoteAccess, gaps: list[Gap]) -> list[ScanSource]:
    """Return the sources of a target; append a gap to `gaps` for each one that may not be scanned.

    Raise OperatorError if the GitHub host cannot list them.
    """

    async def list_all() -> list[ScanSource]:
        """Resolve the target with a new HTTP client, and return its sources."""
        async with open_http(access.egress) as http:
            host = GitHub(http, access.github_url, access.token)
            sources = resolve_target(spec, host, has_credential=access.token is not None, gaps=gaps)
            return [source async for source in sources]

    try:
        return asyncio.run(list_all())
    except GitHubError as error:
        raise OperatorError(f"{spec.shown}: {error.message}") from None


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
