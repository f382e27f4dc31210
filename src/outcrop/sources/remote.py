"""What stands elsewhere, looked at without a database: a GitHub owner's repositories, gists, a commit, a web site.

Each function runs an event loop of its own and ends it: what follows forks processes, which must not have one.
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
from outcrop.sources.located import LocatedHit, ProgressCallback, ScanOutcome, hits_at_path, member_path
from outcrop.sources.resolve_target import ScanSource, resolve_target
from outcrop.sources.web.crawl import CrawlOptions, crawl


@dataclass(frozen=True, slots=True)
class RemoteAccess:
    """How to get there."""

    egress: Egress
    github_url: str
    token: Secret | None = None

    def clone_remote(self, found: ScanSource) -> Remote:
        """Give a repository with the operator's token, where it is on the host that the token is for."""
        own = self.token is not None and found.github
        return Remote(found.url, ("x-access-token", reveal(self.token)) if own and self.token else None)


def list_sources(spec: TargetSpec, reach: RemoteAccess, gaps: list[Gap]) -> list[ScanSource]:
    """Give what a target consists of."""

    async def listed() -> list[ScanSource]:
        async with open_http(reach.egress) as http:
            host = GitHub(http, reach.github_url, reach.token)
            return [
                found
                async for found in resolve_target(
                    spec, host, has_credential=reach.token is not None, gaps=gaps
                )
            ]

    try:
        return asyncio.run(listed())
    except GitHubError as error:
        raise OperatorError(f"{spec.shown}: {error.message}") from None


def scan_site(
    found: ScanSource, reach: RemoteAccess, ruleset: RuleSet, floor: Confidence, progress: ProgressCallback
) -> ScanOutcome:
    """Crawl a site and scan what it serves as it comes."""
    outcome = ScanOutcome()

    async def look() -> None:
        async with open_http(reach.egress) as http:
            async for resource in crawl(
                http,
                CrawlOptions.from_target(found.url, found.options, found.include, found.exclude),
                outcome.gap,
            ):
                outcome.files += 1
                outcome.size += len(resource.body)
                path = resource.file_path.encode("utf-8", "surrogateescape")
                held = scan_content(ruleset, resource.body, floor)
                outcome.located += [
                    LocatedHit(
                        hit, member_path(path, inner), source_type=resource.source_type, url=resource.url
                    )
                    for inner, hit in hits_at_path(held, path)
                ]
                for reason in held.gaps:
                    outcome.gap(resource.url, reason)
                progress(outcome)

    asyncio.run(look())
    return outcome
